// Package acpterm runs commands in the terminals of an ACP client.
//
//	m := acpterm.New(conn, sessionID, &acpterm.Options{Dir: cwd})
//	defer m.Close()
//	t, err := m.StartWith(ctx, terminal.Command{Line: "go test ./..."}, acpterm.Hooks{
//		Created: func(ctx context.Context, t terminal.Terminal) { embed(ctx, m.TerminalID(t)) },
//	})
//	if err != nil {
//		return err // nothing runs
//	}
//	info, err := terminal.Wait(ctx, t)
//
// [Manager] is a [terminal.Manager] over the five terminal methods of a
// connection. Only use it with a client that advertised the capability: "Agents
// MUST verify that the Client supports this capability before calling any
// terminal methods" (ACP v1, Terminals). [State] is a session's terminals for
// code that has a connection and nothing else.
//
// # Lifetime
//
// Every client terminal is released exactly once, as soon as its command has
// ended, its last output was read and [Hooks.Created] has returned; what was
// seen of the output stays readable. A create whose caller has given up goes on
// until the client answers, and the terminal that comes late is killed and
// released. When the connection ends, every command ends at once with the
// outcome [terminal.ConnectionLost]. Its terminal is still killed and released,
// for a client that has closed the agent's input and reads on; nothing else is
// sent.
//
// # Concurrency
//
// Everything may be called from any goroutine, also inside the handlers of the
// SDK. Each request to the client runs in a goroutine of its own, which belongs
// to the connection and ends with it; no lock is held meanwhile, and no caller
// waits longer than the bounds in package terminal, even if the client stops
// reading.
//
// # Caveats
//
// ACP v1 has no input, no resizing and no signals. It has no output stream
// either: output is what successive snapshots of the client's buffer show.
// What was lost between two of them is marked with [terminal.GapMark]. A read
// that does not wait, of an output that nobody has read for a while, asks the
// client first, for a second at most.
package acpterm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
	"unicode/utf8"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/logqueue"
	"github.com/termbridge/termbridge/terminal"
)

// Conn is what this package needs of the agent's side of a connection.
// *acp.AgentSideConnection satisfies it.
//
// When a ctx ends, a method returns as soon as its request is written, or will not
// be: the release of a terminal waits for the other requests about it.
//
// A Conn that also has the method Done() <-chan struct{} is watched: commands
// end when that channel is closed. Others are believed to live for ever.
type Conn interface {
	SessionUpdate(ctx context.Context, params acp.SessionNotification) error
	CreateTerminal(ctx context.Context, params acp.CreateTerminalRequest) (acp.CreateTerminalResponse, error)
	KillTerminal(ctx context.Context, params acp.KillTerminalRequest) (acp.KillTerminalResponse, error)
	ReleaseTerminal(ctx context.Context, params acp.ReleaseTerminalRequest) (acp.ReleaseTerminalResponse, error)
	TerminalOutput(ctx context.Context, params acp.TerminalOutputRequest) (acp.TerminalOutputResponse, error)
	WaitForTerminalExit(ctx context.Context, params acp.WaitForTerminalExitRequest) (acp.WaitForTerminalExitResponse, error)
}

var _ Conn = (*acp.AgentSideConnection)(nil)

var (
	// ErrBadReply is wrapped by the error of a Start that the client answered with
	// what no honest client answers: no terminal id, or the id of a terminal that
	// still lives. Stubs do that.
	ErrBadReply = errors.New("the client's reply makes no sense")

	// ErrStub is wrapped by the Info.Err of a command whose terminal is no terminal:
	// terminal/wait_for_exit says that it has ended, and not how, and terminal/output
	// shows nothing, no end either. It is an [ErrBadReply].
	ErrStub = fmt.Errorf("%w: its terminals run nothing", ErrBadReply)

	// ErrAborted is wrapped by the error of [State.Exec] when its ctx ended, or
	// CleanupPending was called, before the command had ended. The command is then
	// stopped. The cause of the ctx is wrapped, too.
	ErrAborted = errors.New("aborted")

	// NoHost is a Host on which nothing is found.
	NoHost Host = noHost{}
)

// Options configure a Manager. The zero value is sensible.
type Options struct {
	// Dir is the absolute directory of commands that name none: the session's
	// working directory. "" is the agent's own.
	Dir string

	// MaxTerminals is how many terminals are kept, live and ended;
	// 0 is 64.
	MaxTerminals int

	// WaitForSlot has Start wait while so many run, until one has ended, the ctx
	// of Start ends (its Cause) or the Manager closes; otherwise it returns
	// [terminal.ErrTooMany] at once.
	WaitForSlot bool

	// OutputLimit is how many bytes of output are kept of a command that does not
	// say; 0 is 50 KiB. A few more are asked of the client.
	OutputLimit int

	// ManagerBytes is how many bytes of output are kept of all commands
	// together; 0 is 256 MiB. Where they would be
	// more, ended terminals are evicted, oldest first; if that does not help,
	// outputs lose their start, those first that are over a fair share. A page
	// for each is always there.
	ManagerBytes int

	// CreateTimeout bounds the client's answer to terminal/create, besides the ctx
	// of Start. 0 is 30 s, or 5 min if the
	// client asks its user first by its Profile; negative is no bound.
	CreateTimeout time.Duration

	// Profile is how the client treats terminals; [Profiles] have those of known
	// clients. The zero Profile works with every client that was measured.
	Profile Profile

	// Client is shared by the Managers of one connection: what one has learned of
	// the client serves all, and together they do not burden it while nobody
	// reads. Nil is one of the Manager's own.
	Client *Client

	// Host finds what the client leaves behind of a command on the agent's own host,
	// and ends it; nil is [NoHost]. Commands then carry a variable with a tag.
	Host Host

	// NewID makes the ids of terminals; each is used once. Nil counts.
	NewID func() string

	// IDEnv is the name of a variable of the environment that holds the terminal's id in
	// each command, in place of one of Command.Env; "" is none.
	IDEnv string

	// Logger gets what callers are not told; nil discards it.
	Logger *slog.Logger

	// more is how many bytes more of an output are asked of the client than are
	// kept: then what is kept tells whether there was more, and not the client,
	// wherever in a character it cuts.
	more int
}

// New returns a Manager whose commands run in the terminals of the client at
// the other end of conn, in its session sessionID. It never sends
// session/update. Options may be nil.
func New(conn Conn, sessionID acp.SessionId, options *Options) *Manager {
	var o Options
	if options != nil {
		o = *options
	}
	if o.Client == nil {
		o.Client = new(Client)
	}
	o.more = utf8.UTFMax
	return newManager(newPeer(conn, sessionID, o.Client), o)
}

// withDefaults returns o with the defaults of what is not set.
func (o Options) withDefaults() Options {
	o.OutputLimit = limits.Or(o.OutputLimit, limits.DefaultResultLimit)
	switch {
	case o.CreateTimeout != 0:
	case o.Profile.Asks:
		o.CreateTimeout = limits.PermitTimeout
	default:
		o.CreateTimeout = limits.CreateTimeout
	}
	if o.Dir == "" {
		o.Dir, _ = os.Getwd() // fails only if the directory is gone: then Start says what is missing
	}
	if o.Host == nil {
		o.Host = NoHost
	}
	o.Logger = logqueue.New(o.Logger)
	o.Host = guardedHost{o.Host, o.Logger}
	return o
}

// TerminalID returns the client's id of a terminal of a Manager, the one that a tool
// call's terminal content names, or "" if t lives in no client.
func (*Manager) TerminalID(t terminal.Terminal) string {
	if t, ok := terminal.As[interface{ clientTerminal() string }](t); ok {
		return t.clientTerminal()
	}
	return ""
}
