package acpterm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/coder/acp-go-sdk"
)

// A Profile says how a client treats terminals. The zero value works with every
// client that was measured.
type Profile struct {
	// Form is how a command is handed to the client: [FormPortable], [FormExec] or
	// [FormLine]. Clients differ in whether they execute command and args or paste
	// them into a shell line.
	Form string `json:"form,omitempty"`

	// CompleteAtExit says that terminal/output shows all that it ever will once
	// the client has reported the exit. Otherwise it is read once more a little
	// later.
	CompleteAtExit bool `json:"completeAtExit,omitempty"`

	// KeepsHead says that the client keeps the start of an output that is over
	// the limit, not the end that ACP asks for.
	KeepsHead bool `json:"keepsHead,omitempty"`

	// TruncatedUnsure says that truncated may be missing, or wrong, in an output
	// that is just as long as the limit.
	TruncatedUnsure bool `json:"truncatedUnsure,omitempty"`

	// LosesTail says that what a command writes right before its exit may never
	// be shown, so that no output of the client is known to be whole.
	LosesTail bool `json:"losesTail,omitempty"`

	// KillsTree says that a kill ends all that the command has started. Otherwise
	// that is not known of a command that was stopped.
	KillsTree bool `json:"killsTree,omitempty"`

	// Group has lines run in a process group of their own, to which the shell hands
	// on the SIGTERM or SIGHUP that it gets. It helps with a client whose kill is
	// one of these for the shell only, and harms with one that sends SIGKILL.
	Group bool `json:"group,omitempty"`

	// Asks says that the client asks its user before it creates a terminal, so
	// that its answer may take minutes.
	Asks bool `json:"asks,omitempty"`

	// Signals is how the client reports that a signal ended the command. All
	// ways are understood in any case, but for a negative exit code: it is an
	// error number, not a signal, where signals have names or texts.
	Signals string `json:"signals,omitempty"`

	// DefaultLimit is how many bytes the client keeps of an output whose create
	// names no limit; 0 is not known, or no limit. Ours always name one.
	DefaultLimit int `json:"defaultLimit,omitempty"`

	// Deviations are what else is known of the client, for people.
	Deviations []string `json:"deviations,omitempty"`
}

// stream returns an empty stream of an output of at most limit bytes.
func (p Profile) stream(limit int, c *Client) stream {
	s := stream{limit: limit, keepsHead: p.KeepsHead, unsure: p.TruncatedUnsure, client: c, buffer: c.outputs()}
	if p.CompleteAtExit {
		s.buffer = keptBuffer // or a read before the end could take it away
	}
	return s
}

// Values of options, and defaults.
const (
	// FormPortable is /bin/sh -c ":;exec </dev/null;LINE". Executed, ":" does
	// nothing and LINE runs, without input; pasted into a shell without quotes,
	// "/bin/sh -c :" does nothing and the outer shell runs the rest.
	FormPortable = ""
	// FormExec is for clients that execute command and args. The input of a
	// program, other than that of a line, is what the client gives it.
	FormExec = "exec"
	// FormLine is for clients that pass command to a shell.
	FormLine = "line"

	SignalsUnknown = ""
	SignalNames    = "name"   // null and "SIGKILL"
	SignalTexts    = "text"   // code 1 and "Killed"
	SignalNumbers  = "number" // code 0 and "9"; "0" where there was none
	SignalCodes    = "code"   // code 137 or -9, and no signal

	// Environment is the name, in Info, of where the commands of a Manager run. A
	// Command names it, or "".
	Environment = "client"

	DefaultMaxBytes      = 50 << 10 // of a State: output kept, and asked of the client, of each command
	DefaultMaxBackground = 10       // of a State: live background commands
)

// A ClientProfile is a row of [Profiles]: the Profile of the versions of a
// client.
type ClientProfile struct {
	// Name is clientInfo.name, in any case; "*" is every client.
	Name string `json:"name"`

	// Since and Before limit the row to versions from Since up to and without
	// Before, such as "0.11"; "" is no limit. Numbers are compared, part by
	// part, and what follows them is not: "1.2.0-pre" is 1.2.0. A client that
	// does not tell its version has only rows without a limit.
	Since  string `json:"since,omitempty"`
	Before string `json:"before,omitempty"`

	Profile
}

// Profiles are rows of which the first that fits a client counts.
type Profiles []ClientProfile

// Find returns the Profile of a client, the zero Profile if no row fits. Info is
// nil if the client said nothing of itself.
func (ps Profiles) Find(info *acp.Implementation) Profile {
	var client acp.Implementation
	if info != nil {
		client = *info
	}
	for _, p := range ps {
		if p.fits(client.Name, client.Version) {
			return p.Profile
		}
	}
	return Profile{}
}

func (p ClientProfile) fits(name, version string) bool {
	if p.Name != "*" && !strings.EqualFold(p.Name, name) {
		return false
	}
	if p.Since == "" && p.Before == "" {
		return true
	}
	v, ok := parseVersion(version)
	if !ok {
		return false
	}
	since, _ := parseVersion(p.Since) // checked by read; "" is no number, and less than all
	before, limited := parseVersion(p.Before)
	return !v.less(since) && (!limited || v.less(before))
}

// A version is the numbers of one.
type version []int

// parseVersion returns the numbers that s begins with, and false if there is none.
func parseVersion(s string) (version, bool) {
	var v version
	s = strings.TrimPrefix(s, "v")
	for {
		digits := s[:len(s)-len(strings.TrimLeft(s, "0123456789"))]
		n, err := strconv.Atoi(digits)
		if err != nil {
			return v, len(v) > 0
		}
		v = append(v, n)
		var dot bool
		if s, dot = strings.CutPrefix(s[len(digits):], "."); !dot {
			return v, true
		}
	}
}

// less reports whether v is before w; parts that are not there are 0.
func (v version) less(w version) bool {
	for i := range max(len(v), len(w)) {
		if a, b := v.part(i), w.part(i); a != b {
			return a < b
		}
	}
	return false
}

func (v version) part(i int) int {
	if i < len(v) {
		return v[i]
	}
	return 0
}

// LoadProfiles returns the rows of a file, before those of [DefaultProfiles]. They are
// JSON:
//
//	{"profiles": [
//		{"name": "zed", "form": "line", "keepsHead": true, "signals": "text"},
//		{"name": "acpx", "before": "0.11", "form": "exec"}
//	]}
//
// The members of a row are those of [ClientProfile] and [Profile]; one that is
// left out has its zero value, whatever another row says of the client. Others
// are an error, as is anything behind the object.
func LoadProfiles(file string) (Profiles, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("acpterm: profiles: %w", err)
	}
	ps, err := parseProfiles(data)
	if err != nil {
		return nil, fmt.Errorf("acpterm: profiles: %s: %w", file, err)
	}
	return append(ps, DefaultProfiles()...), nil
}

func parseProfiles(data []byte) (Profiles, error) {
	var file struct {
		Profiles *[]ClientProfile `json:"profiles"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return nil, located(data, d, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, located(data, d, errors.New("something follows the object"))
	}
	if file.Profiles == nil {
		return nil, errors.New(`no "profiles"`)
	}
	for i, p := range *file.Profiles {
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("row %d (%q): %w", i+1, p.Name, err)
		}
	}
	return *file.Profiles, nil
}

// located adds to an error of d the line at which data is wrong.
func located(data []byte, d *json.Decoder, err error) error {
	at := d.InputOffset()
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = e.Offset
	} else if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		at = e.Offset
	} else if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		at, err = int64(len(data)), errors.New("it ends too early")
	} else if _, field, ok := strings.Cut(err.Error(), "unknown field "); ok {
		// No type says so. The decoder stops behind the whole object.
		name, _ := strconv.Unquote(field)
		at = int64(max(0, bytes.Index(data, []byte(`"`+name+`"`))))
		err = fmt.Errorf("there is no member %q", name)
	}
	line := 1 + bytes.Count(data[:min(max(0, int(at)), len(data))], []byte("\n"))
	return fmt.Errorf("line %d: %w", line, err)
}

func (p ClientProfile) check() error {
	if p.Name == "" {
		return errors.New(`no "name": give clientInfo.name, or "*" for every client`)
	}
	for member, v := range map[string]string{"since": p.Since, "before": p.Before} {
		if _, ok := parseVersion(v); v != "" && !ok {
			return fmt.Errorf("%s: %q is no version", member, v)
		}
	}
	switch p.Form {
	case FormPortable, FormExec, FormLine:
	default:
		return fmt.Errorf(`form: %q is not "", "exec" or "line"`, p.Form)
	}
	switch p.Signals {
	case SignalsUnknown, SignalNames, SignalTexts, SignalNumbers, SignalCodes:
	default:
		return fmt.Errorf(`signals: %q is not "", "name", "text", "number" or "code"`, p.Signals)
	}
	if p.DefaultLimit < 0 {
		return fmt.Errorf("defaultLimit: %d is negative", p.DefaultLimit)
	}
	return nil
}

// DefaultProfiles returns the rows that come with the package, which are also a
// table in docs/clients.md. The form is the portable one for all of them: it was
// measured to be right with each, and the same command line then means the same
// everywhere.
func DefaultProfiles() Profiles {
	return Profiles{
		{Name: "zed", Profile: Profile{
			CompleteAtExit: true, // the snapshot is taken when the exit is known, and is the last
			KeepsHead:      true,
			Signals:        SignalTexts,
			Deviations: []string{
				"versions before the end of 2025 paste command and args into a shell without quotes",
				"cuts a truncated output at a line",
				"output is the text of a screen",
				"refuses a whole update that names an unknown or released terminal",
				"both code and signal are null if the completion is lost",
			},
		}},
		{Name: "acpx", Before: "0.11", Profile: Profile{
			Asks:         true,
			Signals:      SignalNames,
			DefaultLimit: 64 << 10,
			Deviations: []string{
				"a kill reaches the program itself, not its children",
				"a missing program or directory is an error of create, with the code of a refusal",
				"exit is reported before the output is read to its end",
			},
		}},
		{Name: "acpx", Profile: Profile{
			KillsTree:    true,
			Asks:         true,
			Signals:      SignalNames,
			DefaultLimit: 64 << 10,
			Deviations: []string{
				"create and release take 270 ms each, more when there are many",
				"a command without args that does not exist is tried as a shell line",
				"a missing program or directory is an error of create, with the code of a refusal",
				"exit is reported before the output is read to its end",
			},
		}},
		{Name: "vscode-acp-client", Profile: Profile{
			Signals:      SignalNames,
			DefaultLimit: 1 << 20,
			Deviations: []string{
				"pastes command and args into a shell without quotes",
				"reports the exit when nobody holds the output any more",
				"output is refreshed every 100 ms",
				"a kill is one SIGTERM for the shell",
				"input is an open pipe: cat waits for ever",
				"cuts inside a character, and then goes over the limit",
				"a missing directory is {null, null}, later the code -2",
				"the second release is an error",
			},
		}},
		{Name: "obsidian-agent-client", Profile: Profile{
			TruncatedUnsure: true,
			Signals:         SignalNames,
			Deviations: []string{
				"runs a login shell",
				"a kill is one SIGTERM for the shell",
				"input is an open pipe: cat waits for ever",
				"cuts inside a character, and then goes over the limit",
				"a limit of 0 is none",
				"a released terminal answers for 30 s",
				"exit is reported before the output is read to its end",
			},
		}},
		{Name: "DeepChat", Profile: Profile{
			LosesTail:    true,
			Signals:      SignalNumbers,
			DefaultLimit: 1 << 20,
			Deviations: []string{
				"output is that of a terminal: CR LF",
				"a kill is one SIGHUP",
				"input is a terminal: cat waits for ever",
				"a directory outside the workspace is silently replaced",
				"a missing program or directory is exit 1",
			},
		}},
		{Name: "Jupyter AI", Profile: Profile{
			KillsTree:    true,
			Signals:      SignalNames,
			DefaultLimit: 10 << 20,
			Deviations: []string{
				"a command without args is split into words and executed without a shell",
				"reports the exit when nobody holds the output any more",
				"refuses variables such as LD_PRELOAD, PYTHONPATH and NODE_OPTIONS",
				"at most 50 terminals",
				"the second release is an error",
			},
		}},
		{Name: "multica-agent-sdk", Profile: Profile{
			CompleteAtExit: true, // the exit is known when the output was read to its end
			KillsTree:      true,
			Signals:        SignalTexts,
			DefaultLimit:   50_000,
			Deviations: []string{
				"a signal is a text, such as \"killed\", without a code",
				"reports the exit when nobody holds the output any more",
				"a limit of 0 is the default limit",
			},
		}},
		{Name: "toad", Profile: Profile{
			CompleteAtExit:  true, // it reads to the end, then waits for the process
			TruncatedUnsure: true,
			Signals:         SignalCodes,
			Deviations: []string{
				"drops args if command has a space",
				"a start that fails, as in a missing directory, is exit 0 without an exitStatus",
				"a kill is one SIGKILL for the shell",
				"reports the exit when nobody holds the output any more",
				"input is a terminal: cat waits for ever",
				"kill and release of an unknown terminal succeed, and a released one answers",
			},
		}},
	}
}
