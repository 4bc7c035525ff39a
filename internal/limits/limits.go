// Package limits has the defaults of options, the bounds and rates that no option
// changes, and what a number of an option means. docs/architecture.md has them as a
// table.
package limits

import "time"

// The defaults of options.
const (
	DefaultOutputLimit  = 1 << 20   // output kept of a local command
	DefaultResultLimit  = 50 << 10  // output in a result, and asked of a client
	DefaultManagerBytes = 256 << 20 // output kept by one manager
	DefaultMaxTerminals = 64        // terminals kept, live and ended
	MaxBackground       = 32        // live background commands of a session

	DefaultRows, DefaultCols = 40, 120 // size of a terminal

	StopGrace     = 2 * time.Second // between SIGTERM and SIGKILL
	CreateTimeout = 30 * time.Second
	PermitTimeout = 5 * time.Minute // create, while a permission may be open
)

// MaxText is the most text that one ReadOutput returns.
const MaxText = 64 << 10

// SettleTimeout bounds the end of a turn, and Close.
const SettleTimeout = 5 * time.Second

// Calls to a client, and to the kernel.
const (
	KillTimeout    = 2 * time.Second
	OutputTimeout  = 5 * time.Second
	ReleaseTimeout = 2 * time.Second
)

// The output of a local command after its exit.
const (
	DrainQuiet = 100 * time.Millisecond // output quiet this long has ended
	DrainLimit = 500 * time.Millisecond // output is waited for this long at most
)

// Reads of a client's output.
const (
	PollMin  = 100 * time.Millisecond // while somebody reads
	PollMax  = time.Second
	PollIdle = 30 * time.Second // while nobody reads
)

// Updates of a tool call.
const (
	KeepAlive       = 30 * time.Second      // an update for a card of a quiet command
	DisplayInterval = 50 * time.Millisecond // between two display updates of a terminal
	DisplayRate     = 50                    // display updates a second on a connection
	TextInterval    = time.Second           // between two text updates of a terminal
	TextLimit       = 16 << 10              // bytes of text in a card
	MaxUpdateLine   = 32 << 10              // bytes of a session/update line
)

// Commands.
const (
	MaxCreate = 1 << 20   // bytes of a command sent to a client
	MaxWord   = 128 << 10 // bytes of a word of a local command (the kernel's MAX_ARG_STRLEN)
)

// Or returns an option's value, or its default if that is zero or less.
func Or[T int | time.Duration](value, def T) T {
	if value <= 0 {
		return def
	}
	return value
}
