// Package control lets a person, a script or another agent look into a running
// agent from outside: it lists the terminals, reads them, types into them, names
// and groups them, waits for what they do, and attaches to them.
//
//	c := control.New(manager, nil) // a Handler over any terminal.Manager
//	defer c.Close()
//	server, err := control.Listen("/run/user/1000/agent/control.sock", c, nil)
//	if err != nil {
//		return err // the path is bad, or another server is alive there
//	}
//	defer server.Close()
//
// and in another process:
//
//	r, err := control.Call(ctx, path, control.Request{Verb: control.VerbList})
//	if err != nil {
//		return err // no answer; otherwise r.OK and r.Error
//	}
//
// Nothing of it runs unless Listen is called.
//
// # The protocol
//
// The socket is a Unix socket. A [Request] is one JSON object in a line, and has
// exactly one answer, a [Response], in a line. A connection carries any number of
// requests, one after the other. Empty lines are skipped and unknown members are
// ignored. A line that is no request, that is longer than [MaxRequest] or that has
// an unknown verb is answered with ok false, and the connection stays. An answer
// over [MaxResponse] is replaced by an error.
//
// The one exception is [VerbAttach]: behind the answer, if that is ok, both sides
// send [Frame] values, one JSON object in a line, until one of them closes the
// connection.
//
//	{"verb":"attach","id":"web","write":true,"rows":40,"cols":120}
//	{"ok":true,"sessions":[{"id":"t1",…}]}
//	{"data":"G1s/…","size":{"rows":40,"cols":120},"repaint":true}    from the server
//	{"data":"bHMNCg=="}                                              from the server
//	{"input":"bHMN"}                                                 to the server
//	{"resize":{"rows":50,"cols":132}}                                to the server
//	{"error":"…"}                                                    from the server: input was refused
//	{"end":{"id":"t1","status":"exited",…}}                          from the server: the last
//
// The directory of the socket belongs to the user alone (0700 where the server
// makes it), the socket is 0600, and only processes of the same user, or of root,
// are answered.
//
// # Concurrency
//
// Everything may be called from any goroutine.
package control

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/termbridge/termbridge/terminal"
)

// The verbs of a [Request].
const (
	VerbList      = "list"       // sessions: all, or those of Group
	VerbRead      = "read"       // output: the text of ID, the last Tail lines
	VerbNew       = "new"        // id: of a shell in Cwd, into which Command is typed
	VerbSend      = "send"       // writes Text into ID, verbatim
	VerbKill      = "kill"       // ends ID, which stays in the list
	VerbRename    = "rename"     // names ID Name
	VerbGroup     = "group"      // puts ID into Group, or out of its group
	VerbGroupSend = "group-send" // count: sends Text to each of Group that runs
	VerbGroupKill = "group-kill" // count: ends each of Group
	VerbWait      = "wait"       // sessions: ID, or the first of Group, that is in State
	VerbAttach    = "attach"     // frames: the screen of ID, and what is typed
)

// DefaultWaitTimeout is how long a wait takes at most whose Timeout is not
// positive.
const DefaultWaitTimeout = 120 * time.Second

// Limits of the protocol, in bytes of a line.
const (
	MaxRequest  = 256 << 10
	MaxResponse = 32 << 20
)

// What [SessionInfo] may have as its Status.
const (
	Running = "running"
	Exited  = "exited"
)

// A State is what a session is doing, as far as anybody can tell:
// SessionInfo.Evidence says why it is believed.
type State string

// The states.
const (
	Idle    State = "idle"    // a shell at its prompt, with no job in the foreground
	Working State = "working" // it runs, and waits for no input
	Blocked State = "blocked" // a program waits for input
	Done    State = "done"    // it has ended
)

// ParseState returns the state that is spelled so, or an error that names all.
func ParseState(s string) (State, error) {
	switch state := State(s); state {
	case Idle, Working, Blocked, Done:
		return state, nil
	}
	return "", fmt.Errorf("%w %q: a state is one of %s", ErrBadState, s,
		strings.Join([]string{string(Idle), string(Working), string(Blocked), string(Done)}, ", "))
}

// A Handler answers the requests of a [Server]. [Control] is one. All methods may
// be called at the same time, and none waits longer than ctx.
//
// A session is named by its id or, if there is none with that id, by its exact
// name: of several with one name the first, in the order of their starts, counts.
type Handler interface {
	// List returns every session, or those of group if that is not empty, in the
	// order of their starts and those that have exited included.
	List(ctx context.Context, group string) ([]SessionInfo, error)

	// Read returns the output of a session as plain text: the last tail lines, or
	// all that is kept if tail is 0.
	Read(ctx context.Context, idOrName string, tail int) (string, error)

	// New starts an interactive shell and types a command into it, which so does
	// not end the session.
	New(ctx context.Context, spec NewSpec) (id string, err error)

	// Send writes text into a session, verbatim: Enter is the caller's "\r".
	Send(ctx context.Context, idOrName, text string) error

	// Kill ends a session with all that it has started. It stays in the list.
	Kill(ctx context.Context, idOrName string) error

	// Rename gives a session another name, which is not empty.
	Rename(ctx context.Context, idOrName, name string) error

	// SetGroup moves a session into a group, or out of its group if that is empty.
	SetGroup(ctx context.Context, idOrName, group string) error

	// GroupSend and GroupKill act on every session of a group and return how many
	// that were: GroupSend on those that run. A group that is empty, or that nobody
	// knows, is an error, and so is one in which nothing runs for GroupSend. If some
	// fail, the count is of the others.
	GroupSend(ctx context.Context, group, text string) (int, error)
	GroupKill(ctx context.Context, group string) (int, error)

	// Wait returns once the session, or the first of group in the order of their
	// starts if idOrName is empty, is in a state; at once if it is. The timeout is
	// positive.
	//
	// It is an error if neither is given, if there is no such session, group or
	// state, if the time is over or ctx ends, and if the session, or every one of the
	// group, ends without that state.
	Wait(ctx context.Context, idOrName, group, state string, timeout time.Duration) (SessionInfo, error)
}

// An Attacher is a [Handler] whose sessions can be attached to.
type Attacher interface {
	// Attach begins to follow a session. The Attachment is the caller's to close.
	Attach(ctx context.Context, idOrName string, spec AttachSpec) (Attachment, error)
}

// NewSpec says which session to start.
type NewSpec struct {
	Name    string // "" has the id for a name
	Cwd     string // an absolute directory; "" is the server's
	Command string // typed into the shell; "" types nothing
	Group   string // "" is none
}

// AttachSpec says how to follow a session.
type AttachSpec struct {
	// Write asks for typing and resizing; otherwise the session is only watched.
	Write bool

	// Rows and Cols are the size to which a writer sets the terminal; 0 leaves it.
	Rows, Cols int
}

// An Attachment is one view of one session. Next is for one goroutine, the other
// methods for any.
type Attachment interface {
	// Session returns the session as it is now.
	Session() SessionInfo

	// ReadOnly returns why nothing can be typed, or "" if it can.
	ReadOnly() string

	// Next waits for the next frame to show: Data, Size, Repaint or, as the last, End.
	Next(ctx context.Context) (Frame, error)

	// Write types.
	Write(ctx context.Context, text string) error

	// Resize sets the size of the terminal, for every view of it.
	Resize(terminal.Size) error

	// Close lets the session go.
	Close() error
}

// A Request is one line to a server.
type Request struct {
	Verb string `json:"verb"`

	// ID is the id or the exact name of the session; of list and new it means
	// nothing. A wait on a group leaves it empty.
	ID string `json:"id,omitempty"`

	// Name is the name of a new session, or the one that rename gives.
	Name string `json:"name,omitempty"`

	// Group is the group of a new session, the one to which group moves (empty: out
	// of every group), the one on which group-send, group-kill and wait act, and the
	// one to which list keeps.
	Group string `json:"group,omitempty"`

	// Cwd is where a new session starts; empty is the server's.
	Cwd string `json:"cwd,omitempty"`

	// Command is typed into the shell of a new session.
	Command string `json:"command,omitempty"`

	// Text is what send writes, verbatim.
	Text string `json:"text,omitempty"`

	// Tail keeps read to the last lines; 0 is all.
	Tail int `json:"tail,omitempty"`

	// State is what wait waits for.
	State string `json:"state,omitempty"`

	// Timeout is how many seconds wait takes at most; if it is not positive,
	// DefaultWaitTimeout.
	Timeout int `json:"timeout,omitempty"`

	// Write asks attach for typing and resizing, and Rows and Cols are the viewer's
	// size.
	Write bool `json:"write,omitempty"`
	Rows  int  `json:"rows,omitempty"`
	Cols  int  `json:"cols,omitempty"`
}

// A Response is the answer to a [Request].
type Response struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`

	// Code is the kind of the error, one of the codes, for programs; "" has none.
	Code Code `json:"code,omitempty"`

	// ID is that of a new session.
	ID string `json:"id,omitempty"`

	// Output is the text of read.
	Output string `json:"output,omitempty"`

	// Sessions are all of list, and the one of wait and attach.
	Sessions []SessionInfo `json:"sessions,omitempty"`

	// Count is how many sessions a group verb acted on, with an error, too.
	Count int `json:"count,omitempty"`

	// ReadOnly is why nothing can be typed into an attached session.
	ReadOnly string `json:"read_only,omitempty"`
}

// Err returns nil if the answer is OK, else its Error as an [*Error].
func (r Response) Err() error {
	if r.OK {
		return nil
	}
	return &Error{Code: r.Code, Message: r.Error}
}

// A SessionInfo is what is known of a session at one instant.
type SessionInfo struct {
	ID   string `json:"id"`
	Name string `json:"name"`

	// Status is [Running] or [Exited].
	Status string `json:"status"`

	// AgentState is the State, absent where nobody can tell.
	AgentState State `json:"agent_state,omitempty"`

	Group string `json:"group,omitempty"`
	Cwd   string `json:"cwd,omitempty"` // in which it was started

	// ExitCode is absent while the session runs, and only then: 0 is success, and -1
	// an end without a code, by a signal for one. Outcome and Signal say more.
	ExitCode *int `json:"exit_code,omitempty"`

	// Outcome is how it ended, and Signal the name of the signal that ended it.
	// Error is what went wrong.
	Outcome terminal.Outcome `json:"outcome,omitempty"`
	Signal  string           `json:"signal,omitempty"`
	Error   string           `json:"error,omitempty"`

	// Transport is [TransportLocal] or [TransportClient], and Environment the name of
	// the place where it runs.
	Transport   string `json:"transport,omitempty"`
	Environment string `json:"environment,omitempty"`

	// Evidence is why AgentState is believed, and Certainty how good that is. PID and
	// Process are the process that waits for input, if that is known, and Secret
	// reports that it does not show what is typed.
	Evidence  string `json:"evidence,omitempty"`
	Certainty string `json:"certainty,omitempty"`
	PID       int    `json:"pid,omitempty"`
	Process   string `json:"process,omitempty"`
	Secret    bool   `json:"secret,omitempty"`

	// Command is what runs, as it was started, for a new session what was typed.
	Command string `json:"command,omitempty"`

	// ReadOnly is why nothing can be typed into it.
	ReadOnly string `json:"read_only,omitempty"`

	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
}

// The transports.
const (
	TransportLocal  = "local"  // the agent runs it
	TransportClient = "client" // the agent's client, an editor, does
)

// A Frame is one line of an attached connection.
type Frame struct {
	// Data is output, for the viewer's terminal as it is. With Repaint it draws the
	// whole screen, whatever was there before.
	Data    []byte `json:"data,omitempty"`
	Repaint bool   `json:"repaint,omitempty"`

	// Size is that of the session's terminal, when it has changed.
	Size *Size `json:"size,omitempty"`

	// End is the session, when it has ended and all was shown.
	End *SessionInfo `json:"end,omitempty"`

	// Error is why something that the viewer sent was refused, or why this is the end.
	Error string `json:"error,omitempty"`

	// Input is what the viewer types, and Resize the size that it sets.
	Input  []byte `json:"input,omitempty"`
	Resize *Size  `json:"resize,omitempty"`
}

// Size is [terminal.Size] on the wire.
type Size struct {
	Rows int `json:"rows"`
	Cols int `json:"cols"`
}
