package terminal

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/shellwords"
)

// A Command says what to run, and how. The zero value of every field but Line
// and Args is a sensible default.
type Command struct {
	// Line is a line for a shell. Args are words that arrive at the program
	// unchanged, the program first. Exactly one of the two is set.
	Line string
	Args []string

	// Shell runs Line, as SHELL -c LINE; "" is the Manager's default shell.
	Shell string

	// Dir is the absolute working directory; "" is the Manager's default.
	Dir string

	// Env is laid over the environment that the Manager gives to commands. It
	// is a map so that nobody passes a whole environment by accident.
	Env map[string]string

	// TTY asks for a terminal as the command's output. It is a request: where
	// there is none, pipes serve, TTY is false in the Info's Command, and Resize
	// returns errors.ErrUnsupported.
	TTY bool

	// Stdin makes WriteInput work. Without it the command's standard input is
	// empty, as from /dev/null.
	Stdin bool

	// Size of the terminal; the zero value is 40 rows of 120 columns.
	Size Size

	// Timeout stops the command, counted from its start; 0 is none.
	Timeout time.Duration

	// OutputLimit is how many bytes of output are kept, the tail; 0 is the
	// Manager's default.
	OutputLimit int

	// Environment names where the command runs; "" is the Manager's default.
	Environment string

	// Labels are the caller's own marks. They are carried in Info and mean
	// nothing to a Manager.
	Labels map[string]string
}

// Size is the size of a terminal in character cells.
type Size struct{ Rows, Cols int }

// IsZero reports whether no size was given.
func (s Size) IsZero() bool { return s == Size{} }

// OrDefault returns s, or 40 rows of 120 columns if no size was given.
func (s Size) OrDefault() Size {
	if s.IsZero() {
		return Size{Rows: limits.DefaultRows, Cols: limits.DefaultCols}
	}
	return s
}

// Check returns nil, or an error that wraps [ErrBadCommand] and says what is
// wrong with the command and what would be right.
func (c Command) Check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrBadCommand, fmt.Sprintf(format, args...))
	}
	switch {
	case c.Line == "" && len(c.Args) == 0:
		return bad("empty: give a shell line (Line) or words (Args)")
	case c.Line != "" && len(c.Args) > 0:
		return bad("both Line and Args are set: give one of them")
	case c.Line != "" && strings.TrimSpace(c.Line) == "":
		return bad("the line is blank")
	case c.Line == "" && c.Args[0] == "":
		return bad("the program (Args[0]) is empty")
	case len(c.Args) > 0 && c.Shell != "":
		return bad("Shell goes with Line, not with Args")
	case c.Dir != "" && !filepath.IsAbs(c.Dir):
		return bad("directory %q is relative: give an absolute path", c.Dir)
	case c.Timeout < 0:
		return bad("negative timeout %v", c.Timeout)
	case c.OutputLimit < 0:
		return bad("negative output limit %d", c.OutputLimit)
	case c.Size.Rows < 0 || c.Size.Cols < 0 || c.Size.Rows > maxCells || c.Size.Cols > maxCells:
		return bad("size %d × %d: rows and columns go from 1 to %d", c.Size.Rows, c.Size.Cols, maxCells)
	case (c.Size.Rows == 0) != (c.Size.Cols == 0):
		return bad("size %d × %d: give both rows and columns, or neither", c.Size.Rows, c.Size.Cols)
	}
	for _, s := range append([]string{c.Line, c.Shell, c.Dir}, c.Args...) {
		if strings.ContainsRune(s, 0) {
			return bad("a NUL byte in %q", s)
		}
	}
	for name, value := range c.Env {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			return bad("environment name %q: names are not empty and have no '=' and no NUL", name)
		case strings.ContainsRune(value, 0):
			return bad("a NUL byte in the value of the environment variable %s", name)
		}
	}
	return nil
}

// maxCells is what struct winsize can hold.
const maxCells = 1<<16 - 1

// Clone returns a copy that shares nothing with c.
func (c Command) Clone() Command {
	c.Args = slices.Clone(c.Args)
	c.Env = maps.Clone(c.Env)
	c.Labels = maps.Clone(c.Labels)
	return c
}

// WithEnv returns a copy with a variable of the environment set.
func (c Command) WithEnv(name, value string) Command {
	c.Env = maps.Clone(c.Env)
	if c.Env == nil {
		c.Env = make(map[string]string)
	}
	c.Env[name] = value
	return c
}

// String returns the command as a person would type it: Line, or Args quoted
// for a POSIX shell.
func (c Command) String() string {
	if c.Line != "" {
		return c.Line
	}
	return shellwords.Join(c.Args)
}
