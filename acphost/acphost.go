// Package acphost is the client's side of ACP terminals: it serves terminal/*
// over any [terminal.Manager], and keeps what a user would see of every tool
// call, so that a client can draw it.
//
//	host := acphost.New(func(acp.SessionId) terminal.Manager { return manager }, nil)
//	defer host.Close()
//
//	type client struct {
//		*acphost.Host // terminal/* and session/update
//		...           // files and permissions are the client's own
//	}
//	conn := acp.NewClientSideConnection(&client{Host: host}, stdin, host.Reader(stdout))
//
// # The protocol
//
// Host does what the specification says, not what some clients do: command is
// a program and args are its words, so a shell line needs a shell
// ([Command]); an output over its limit loses its start, cut between runes;
// exitStatus is there only once the command has exited and its output is
// complete; kill leaves the terminal valid; release ends the command, resolves
// pending waits and makes the id unknown, which is the error -32002. Ids
// belong to a session.
//
// With [Options.Display] it also understands the display-only terminals that
// agents fill themselves, by terminal_info on a tool_call and terminal_output
// and terminal_exit on tool_call_updates, all in _meta.
//
// # Sessions
//
// A Host that knows which sessions there are serves no other: a request or an
// update of another session is an error and runs nothing. It learns of a session
// from the answer to session/new, which passes through [Host.Reader], and from
// [Host.OpenSession], which a client calls before session/load and
// session/resume. A Host that was told of no session serves any. What is known
// of a session is kept until [Host.CloseSession] or [Host.Close].
//
// # Lifetime
//
// The Managers are the caller's: Host ends every terminal that it started,
// and closes none of them. All methods may be called from any number of
// goroutines.
package acphost

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/jsonrpc"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
)

// Options of a Host. The zero value works.
type Options struct {
	// Display makes the Host understand display-only terminals. Advertise it
	// to agents by clientCapabilities._meta {"terminal_output": true}.
	Display bool

	// TTY asks the Manager for a terminal for every command; else commands
	// write to pipes.
	TTY bool

	// OutputLimit is how many bytes of output are kept of a terminal whose
	// create names no limit, and the most that a create gets; 0 and less are
	// 1 MiB, more than 10 MiB is 10 MiB. A limit over
	// 1.6 MiB may make a reply longer than agents can read, since JSON takes six
	// bytes for an ESC.
	OutputLimit int

	// Command turns a create request into what the Manager starts; nil is
	// [Command]. A client that runs command as a shell line, or that refuses
	// some commands, says so here. An error that is no *acp.RequestError is
	// sent as invalid params.
	Command func(acp.CreateTerminalRequest) (terminal.Command, error)

	// Show is called with everything that a user should see, in order and from
	// one goroutine. It may take its time: the agent never waits for it. It must not
	// call Close, which waits for it. After a panic the next event is shown.
	Show func(Event)
}

// A Host serves terminal/* and session/update of a connection.
type Host struct {
	manager func(acp.SessionId) terminal.Manager
	opts    Options

	shows *shows // nil without Options.Show
	// reads ends the Host's own reads of terminals, for Close; it is never
	// the context of a request.
	reads     context.Context
	stopReads context.CancelFunc
	readers   sync.WaitGroup // a goroutine per terminal that is shown
	handled   counter        // calls of SessionUpdate, for Reader

	mu sync.Mutex
	// guards following
	roster   roster
	sessions map[acp.SessionId]*session // those of which anything is known
	running  map[*source]bool           // commands that may run, released or not
	closed   bool
}

// A roster knows which sessions there are. Host.mu guards it.
type roster struct {
	open map[acp.SessionId]bool // false once closed
	told bool                   // of a session: those that are not in open do not exist
}

func (r *roster) has(id acp.SessionId) bool {
	open, known := r.open[id]
	return open || !known && !r.told
}

// session is what the Host knows of one session. Host.mu guards it.
type session struct {
	id      acp.SessionId
	manager func() terminal.Manager // calls Host.manager once

	terminals map[string]*source // the client's, until their release
	displays  map[string]*source // the agent's
	cards     map[acp.ToolCallId]*card
	order     []*card
	message   strings.Builder
}

// New returns a Host that runs the commands of a session with the Manager that
// manager returns for it, or refuses them if that is nil; manager is called when
// the first command of a session is started, once.
func New(manager func(acp.SessionId) terminal.Manager, opts *Options) *Host {
	h := &Host{
		manager:  manager,
		roster:   roster{open: map[acp.SessionId]bool{}},
		sessions: map[acp.SessionId]*session{},
		running:  map[*source]bool{},
	}
	if opts != nil {
		h.opts = *opts
	}
	if h.opts.OutputLimit <= 0 {
		h.opts.OutputLimit = limits.DefaultOutputLimit
	}
	h.opts.OutputLimit = min(h.opts.OutputLimit, maxLine)
	if h.opts.Command == nil {
		h.opts.Command = Command
	}
	h.reads, h.stopReads = context.WithCancel(context.Background())
	if h.opts.Show != nil {
		h.shows = newShows(h.opts.Show)
	}
	return h
}

// session returns the session, or an error if there is none. Called with mu held.
func (h *Host) session(id acp.SessionId) (*session, error) {
	s := h.sessions[id]
	if s == nil {
		if !h.roster.has(id) {
			return nil, fmt.Errorf("acphost: session %q is not open", id)
		}
		s = &session{
			id:        id,
			manager:   sync.OnceValue(func() terminal.Manager { return h.manager(id) }),
			terminals: map[string]*source{},
			displays:  map[string]*source{},
			cards:     map[acp.ToolCallId]*card{},
		}
		h.sessions[id] = s
	}
	return s, nil
}

// OpenSession tells the Host of a session. Call it before session/load and
// session/resume, whose updates and commands may come before the answer, and
// after session/new if the Host does not have a Reader. From the first session
// that the Host is told of, it serves no other. A closed session is opened again.
func (h *Host) OpenSession(id acp.SessionId) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.roster.open[id] = true
	h.roster.told = true
}

// Unreleased returns the ids of the terminals of a session that the agent has
// not released.
func (h *Host) Unreleased(id acp.SessionId) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ids []string
	if s := h.sessions[id]; s != nil {
		for id := range s.terminals {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Sessions returns the ids of the sessions that the Host knows, sorted.
func (h *Host) Sessions() []acp.SessionId {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := make([]acp.SessionId, 0, len(h.sessions))
	for id := range h.sessions {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// CloseSession releases every terminal of a session, ends its commands, those
// of released terminals too, and forgets its tool calls. From then on it refuses
// what the agent asks for the session, until [Host.OpenSession] opens it again.
// It returns a [*terminal.LeakError] for what could not be ended within
// 5 s.
func (h *Host) CloseSession(id acp.SessionId) error {
	h.mu.Lock()
	h.roster.open[id] = false
	var all []*source
	if s := h.sessions[id]; s != nil {
		s.release()
		delete(h.sessions, id)
		all = h.live(s)
	}
	h.mu.Unlock()
	return stopAll(all)
}

// Close refuses new terminals, releases every terminal, ends every command, those
// of released terminals too, and returns once all that is to be shown was shown.
// It returns a [*terminal.LeakError] for what could not be ended within
// 5 s, and the first panic of Options.Show. It may be called again.
func (h *Host) Close() error {
	h.mu.Lock()
	h.closed = true
	for _, s := range h.sessions {
		s.release()
	}
	all := h.live(nil)
	h.mu.Unlock()

	err := stopAll(all)
	if err != nil {
		h.stopReads() // their output never ends
	}
	h.readers.Wait()
	h.stopReads()
	if h.shows != nil {
		err = errors.Join(err, h.shows.close())
	}
	return err
}

// release makes every terminal of s unknown. Called with Host.mu held.
func (s *session) release() {
	for id, x := range s.terminals {
		delete(s.terminals, id)
		close(x.released)
	}
}

// prune forgets the commands that have ended. Called with mu held.
func (h *Host) prune() {
	maps.DeleteFunc(h.running, func(x *source, _ bool) bool { return x.ended() })
}

// live returns the commands of a session, or of all, that may still run. Called
// with mu held.
func (h *Host) live(of *session) []*source {
	h.prune()
	var all []*source
	for x := range h.running {
		if of == nil || x.session == of {
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(a, b *source) int { return strings.Compare(a.id, b.id) })
	return all
}

// stopAll stops terminals at once and waits until all have ended.
func stopAll(all []*source) error {
	leaks := make([]terminal.Leak, len(all))
	var wg sync.WaitGroup
	for i, x := range all {
		wg.Go(func() {
			if info, err := stop(x.t, limits.SettleTimeout); err != nil {
				leaks[i] = terminal.Leak{ID: x.id, What: "command", Procs: info.Survivors, Err: err}
			}
		})
	}
	wg.Wait()
	leaks = slices.DeleteFunc(leaks, func(l terminal.Leak) bool { return l.Err == nil })
	if len(leaks) == 0 {
		return nil
	}
	return &terminal.LeakError{Leaks: leaks}
}

// stop stops a terminal and waits for its end for at most d. A stop that has
// not ended by then goes on.
func stop(t terminal.Terminal, d time.Duration) (terminal.Info, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return t.Stop(ctx)
}

// notFound is the error for an unknown or released terminal.
func notFound(id string) *acp.RequestError {
	return &acp.RequestError{
		Code:    jsonrpc.NotFound,
		Message: fmt.Sprintf("Resource not found: terminal %q", id),
		Data:    map[string]any{"terminalId": id},
	}
}

// requestError is err as an agent sees it, with its text as the message.
func requestError(code int, err error) error {
	if re, ok := errors.AsType[*acp.RequestError](err); ok {
		return re
	}
	return &acp.RequestError{Code: code, Message: err.Error()}
}
