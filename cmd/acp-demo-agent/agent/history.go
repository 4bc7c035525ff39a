package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/terminal"
)

// What is kept for session/load. Each session has a file, since agents run at
// once and each writes only its own sessions.
const (
	maxHistoryBytes   = 1 << 20 // of a session; the oldest entries make room
	maxHistoryEntries = 200     // each is an update or a few: a client queues 1,024
	maxHistories      = 64      // sessions; the oldest make room
	historyVersion    = 2       // 1 had no titles
	historySuffix     = ".json"
)

// A historyFile is the file of a session.
type historyFile struct {
	Version int               `json:"version"`
	Session acp.SessionId     `json:"session"`
	Cwd     string            `json:"cwd"`
	Title   string            `json:"title,omitempty"`
	Entries []json.RawMessage `json:"entries"`
}

// A historyEntry is one of the user's messages, of the agent's, or a tool call.
type historyEntry struct {
	User  string         `json:"user,omitempty"`
	Agent string         `json:"agent,omitempty"`
	Call  *bridge.Record `json:"call,omitempty"`
}

// A history collects what is kept of a session. The nil history keeps nothing.
type history struct {
	path string

	mu sync.Mutex
	// guards following
	file  historyFile
	bytes int // of the entries
}

func newHistory(dir string, id acp.SessionId, cwd string) *history {
	if dir == "" {
		return nil
	}
	return &history{
		path: filepath.Join(dir, string(id)+historySuffix),
		file: historyFile{Version: historyVersion, Session: id, Cwd: cwd, Entries: []json.RawMessage{}},
	}
}

// sessionID is what ids of sessions look like, and so what names of files may.
var sessionID = regexp.MustCompile(`^sess_[A-Z2-7]{8,64}$`)

// loadHistory reads what is kept of a session; the error is fs.ErrNotExist if
// nothing is. A file that makes no sense is an error that names it.
func loadHistory(dir string, id acp.SessionId) (*history, []historyEntry, error) {
	if dir == "" || !sessionID.MatchString(string(id)) {
		return nil, nil, fs.ErrNotExist
	}
	h := newHistory(dir, id, "")
	f, err := os.Open(h.path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("what was kept of session %q cannot be read: %s: %s; remove the file and begin a new session", id, h.path, fmt.Sprintf(format, args...))
	}
	if info, err := f.Stat(); err != nil {
		return nil, nil, err
	} else if info.Size() > 2*maxHistoryBytes {
		return nil, nil, wrong("%d bytes are more than is ever kept", info.Size())
	}
	h.file = historyFile{} // what the file does not say is missing
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	if err := d.Decode(&h.file); err != nil {
		return nil, nil, wrong("%v", err)
	}
	switch {
	case h.file.Version < 1 || h.file.Version > historyVersion:
		return nil, nil, wrong("version %d; this agent reads up to version %d", h.file.Version, historyVersion)
	case h.file.Session != id:
		return nil, nil, wrong("it is of session %q", h.file.Session)
	case len(h.file.Entries) > maxHistoryEntries:
		return nil, nil, wrong("%d entries are more than are ever kept", len(h.file.Entries))
	}
	entries := make([]historyEntry, len(h.file.Entries))
	for i, raw := range h.file.Entries {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		if err := d.Decode(&entries[i]); err != nil {
			return nil, nil, wrong("entry %d: %v", i+1, err)
		}
		if c := entries[i].Call; c != nil {
			if c.Status != acp.ToolCallStatusCompleted && c.Status != acp.ToolCallStatusFailed || c.ToolCallID == "" {
				return nil, nil, wrong("entry %d: a tool call %q with the status %q", i+1, c.ToolCallID, c.Status)
			}
			c.RawOutput = retired(c.RawOutput)
		}
		h.bytes += len(raw)
	}
	h.file.Version = historyVersion
	return h, entries, nil
}

// retired returns the rawOutput of an earlier connection as it is true now: no
// terminal lives, and what ran in the background has ended with its session.
func retired(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = retired(v[i])
		}
	case map[string]any:
		for name, value := range v {
			switch {
			case name == "terminalId":
				v[name] = ""
			case name == "outcome" && value == string(terminal.Running):
				v[name] = string(terminal.Unknown)
				v["error"] = "it ran when this was said, and ended with its session at the latest"
			case name != "output":
				v[name] = retired(value)
			}
		}
	}
	return v
}

// add adds an entry. Entries that are too many, or too much, make the oldest go.
func (h *history) add(e historyEntry) error {
	if h == nil {
		return nil
	}
	raw, err := json.Marshal(e)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.file.Entries = append(h.file.Entries, raw)
	h.bytes += len(raw)
	for len(h.file.Entries) > maxHistoryEntries || h.bytes > maxHistoryBytes {
		h.bytes -= len(h.file.Entries[0])
		h.file.Entries = h.file.Entries[1:]
	}
	return nil
}

// save writes the file, whole or not at all, readable by the user only.
func (h *history) save() error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	data, err := json.Marshal(h.file)
	if err != nil {
		return err
	}
	dir := filepath.Dir(h.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(h.path)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), h.path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	return dropOldest(dir)
}

// hasTitle reports whether the session has a title.
func (h *history) hasTitle() bool { return h != nil && h.file.Title != "" }

func (h *history) setTitle(title string) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.file.Title = title
}

// A keptSession is what session/list says of a session, or why it cannot.
type keptSession struct {
	id         acp.SessionId
	cwd, title string
	updated    time.Time
	err        error
}

// listHistories returns the sessions that are kept, the one that was written last
// first. It reads the beginnings of their files only.
func listHistories(dir string) ([]keptSession, error) {
	files, err := historyFiles(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var list []keptSession
	for _, info := range files {
		s := keptSession{id: acp.SessionId(strings.TrimSuffix(info.Name(), historySuffix)), updated: info.ModTime()}
		if s.err = s.read(filepath.Join(dir, info.Name())); !errors.Is(s.err, fs.ErrNotExist) { // another agent may have removed it
			list = append(list, s)
		}
	}
	return list, err
}

// read reads what stands before the entries.
func (s *keptSession) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	d := json.NewDecoder(io.LimitReader(f, maxHistoryBytes))
	if _, err := d.Token(); err != nil { // {
		return err
	}
	for {
		name, err := d.Token()
		switch {
		case err != nil:
			return err
		case name == "entries" && s.cwd == "":
			return errors.New("its file has no cwd")
		case name == "entries":
			return nil
		}
		var value any
		if err := d.Decode(&value); err != nil {
			return err
		}
		switch text, _ := value.(string); name {
		case "cwd":
			s.cwd = text
		case "title":
			s.title = text
		}
	}
}

// historyFiles returns the files of sessions, the one that was written last first.
func historyFiles(dir string) ([]fs.FileInfo, error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []fs.FileInfo
	for _, e := range all {
		if id, ok := strings.CutSuffix(e.Name(), historySuffix); ok && sessionID.MatchString(id) {
			if info, err := e.Info(); err == nil { // another agent may have removed it
				files = append(files, info)
			}
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), strings.Compare(a.Name(), b.Name()))
	})
	return files, nil
}

// dropOldest removes the files of the sessions that were written longest ago.
func dropOldest(dir string) error {
	files, err := historyFiles(dir)
	if err != nil {
		return err
	}
	for _, info := range files[min(len(files), maxHistories):] {
		if err := os.Remove(filepath.Join(dir, info.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
