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
// # Lifetime
//
// The Managers are the caller's: Host ends every terminal that it started,
// and closes none of them. What is known of a session is kept until
// [Host.CloseSession] or [Host.Close]. All methods may be called from any
// number of goroutines.
package acphost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"

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
	// create names no limit, and the most that a create gets; 0 is
	// [terminal.DefaultOutputLimit]. A limit over 1.6 MiB may make a reply
	// longer than agents can read, since JSON takes six bytes for an ESC.
	OutputLimit int

	// Command turns a create request into what the Manager starts; nil is
	// [Command]. A client that runs command as a shell line, or that refuses
	// some commands, says so here. An error that is no *acp.RequestError is
	// sent as invalid params.
	Command func(acp.CreateTerminalRequest) (terminal.Command, error)

	// Show is called with everything that a user should see, in order and from
	// one goroutine. It may take its time: the agent never waits for it.
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
	sessions map[acp.SessionId]*session
	closed   bool
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
// manager returns for it; manager is called once for a session.
func New(manager func(acp.SessionId) terminal.Manager, opts *Options) *Host {
	h := &Host{manager: manager, sessions: map[acp.SessionId]*session{}}
	if opts != nil {
		h.opts = *opts
	}
	h.opts.OutputLimit = cmp.Or(h.opts.OutputLimit, terminal.DefaultOutputLimit)
	if h.opts.Command == nil {
		h.opts.Command = Command
	}
	h.reads, h.stopReads = context.WithCancel(context.Background())
	if h.opts.Show != nil {
		h.shows = newShows(h.opts.Show)
	}
	return h
}

// session returns the session, new if it is not known. Called with mu held.
func (h *Host) session(id acp.SessionId) *session {
	s := h.sessions[id]
	if s == nil {
		s = &session{
			id:        id,
			manager:   sync.OnceValue(func() terminal.Manager { return h.manager(id) }),
			terminals: map[string]*source{},
			displays:  map[string]*source{},
			cards:     map[acp.ToolCallId]*card{},
		}
		h.sessions[id] = s
	}
	return s
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

// CloseSession releases every terminal of a session and forgets its tool
// calls. It returns a [*terminal.LeakError] for what could not be ended within
// [terminal.SettleTimeout].
func (h *Host) CloseSession(id acp.SessionId) error {
	h.mu.Lock()
	var all []*source
	if s := h.sessions[id]; s != nil {
		all = s.release()
		delete(h.sessions, id)
	}
	h.mu.Unlock()
	return stopAll(all)
}

// Close refuses new terminals, releases every terminal, and returns once all
// that is to be shown was shown. It returns a [*terminal.LeakError] for what
// could not be ended within [terminal.SettleTimeout]. It may be called again.
func (h *Host) Close() error {
	h.mu.Lock()
	h.closed = true
	var all []*source
	for _, s := range h.sessions {
		all = append(all, s.release()...)
	}
	h.mu.Unlock()

	err := stopAll(all)
	if err != nil {
		h.stopReads() // their output never ends
	}
	h.readers.Wait()
	h.stopReads()
	if h.shows != nil {
		h.shows.close()
	}
	return err
}

// release makes every terminal of s unknown and returns those that may still
// run. Called with Host.mu held.
func (s *session) release() []*source {
	var all []*source
	for id, x := range s.terminals {
		delete(s.terminals, id)
		close(x.released)
		all = append(all, x)
	}
	return all
}

// stopAll stops terminals at once and waits until all have ended.
func stopAll(all []*source) error {
	leaks := make([]terminal.Leak, len(all))
	var wg sync.WaitGroup
	for i, x := range all {
		wg.Go(func() {
			if info, err := stop(x.t, terminal.SettleTimeout); err != nil {
				leaks[i] = terminal.Leak{ID: x.id, What: "command", Procs: info.Left, Err: err}
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

// Codes of errors that the SDK has no constructor for.
const (
	codeNotFound = -32002
	codeInternal = -32603
	codeParams   = -32602
)

// notFound is the error for an unknown or released terminal.
func notFound(id string) *acp.RequestError {
	return &acp.RequestError{
		Code:    codeNotFound,
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
