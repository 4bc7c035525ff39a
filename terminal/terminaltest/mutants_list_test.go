package terminaltest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/tail"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// mutants are all, by the rule that they break.
func mutants() []mutant {
	return slices.Concat(
		commandMutants(), startMutants(), readMutants(), inputMutants(),
		stopMutants(), exitMutants(), limitMutants(), concurrencyMutants(),
	)
}

func commandMutants() []mutant {
	const rule = "0-command"
	return []mutant{
		{rule: rule, name: "the directory is not told", make: breakInfo(func(info terminal.Info) terminal.Info {
			info.Dir = ""
			return info
		})},
		{rule: rule, name: "words go through a shell unquoted", make: breakCommand(func(cmd terminal.Command) terminal.Command {
			if len(cmd.Args) > 0 && cmd.Check() == nil {
				cmd.Line, cmd.Args = strings.Join(cmd.Args, " "), nil
			}
			return cmd
		}), also: listed("its word has a backslash", "2-read/bytes that are no text")},
		{rule: rule, name: "a line is words split at spaces", make: breakCommand(func(cmd terminal.Command) terminal.Command {
			if cmd.Line != "" && len(cmd.Args) == 0 {
				cmd.Line, cmd.Args = "", strings.Split(cmd.Line, " ")
			}
			return cmd
		})},
		{rule: rule, name: "the directory is ignored", make: breakCommand(func(cmd terminal.Command) terminal.Command {
			if cmd.Check() == nil {
				cmd.Dir = ""
			}
			return cmd
		})},
		{rule: rule, name: "the environment is ignored", make: breakCommand(func(cmd terminal.Command) terminal.Command {
			if cmd.Check() == nil {
				cmd.Env = nil
			}
			return cmd
		})},
		{rule: rule, name: "standard input is open and silent", make: breakManager(func() *broken {
			return &broken{
				start: func(m terminal.Manager, ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
					cmd.Stdin = true
					return m.Start(ctx, cmd)
				},
			}
		}), also: listed("there is an input now", "3-input/no Stdin", "3-input/close")},
		{rule: rule, name: "a terminal is refused", make: breakManager(func() *broken {
			return &broken{
				start: func(m terminal.Manager, ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
					if cmd.TTY {
						return nil, errors.ErrUnsupported
					}
					return m.Start(ctx, cmd)
				},
			}
		}), also: listed("it needs a terminal", "3-input/line too long", "3-input/line too long in parts", "3-input/close", "3-input/edited lines", "3-input/interrupt", "3-input/resize")},
		{rule: rule, name: "the size is ignored", make: breakCommand(func(cmd terminal.Command) terminal.Command {
			if cmd.Check() == nil {
				cmd.Size = terminal.Size{}
			}
			return cmd
		})},
		{rule: rule, name: "the caller's maps are shared", make: breakManager(func() *broken {
			var mu sync.Mutex
			given := map[terminal.Terminal]terminal.Command{}
			return &broken{
				start: func(m terminal.Manager, ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
					t, err := m.Start(ctx, cmd)
					mu.Lock()
					defer mu.Unlock()
					given[t] = cmd
					return t, err
				},
				term: func(t terminal.Terminal) brokenTerm {
					return brokenTerm{info: func(info terminal.Info) terminal.Info {
						mu.Lock()
						defer mu.Unlock()
						info.Command = given[t]
						return info
					}}
				},
			}
		})},
		{rule: rule, name: "nothing is checked", make: breakCommand(func(cmd terminal.Command) terminal.Command {
			if cmd.Check() != nil {
				return terminal.Command{Args: []string{"true"}}
			}
			return cmd
		}), also: listed("its failing command no longer fails", "1-start/slot given back")},
	}
}

func startMutants() []mutant {
	const rule = "1-start"
	return []mutant{
		{rule: rule, name: "it returns before the start", make: breakManager(func() *broken {
			return &broken{term: func(terminal.Terminal) brokenTerm {
				made := time.Now()
				return brokenTerm{info: func(info terminal.Info) terminal.Info {
					if time.Since(made) < 10*time.Millisecond {
						info.Started = time.Time{}
					}
					return info
				}}
			}}
		})},
		{rule: rule, name: "a failed start keeps its slot", make: breakManager(func() *broken {
			return &broken{start: func(m terminal.Manager, ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
				t, err := m.Start(ctx, cmd)
				if err != nil && !errors.Is(err, terminal.ErrClosed) {
					m.Start(context.Background(), terminal.Command{Args: []string{"hold"}})
				}
				return t, err
			}}
		}), also: listed("it looks for what failed starts leave", "0-command/bad", "6-limits/a slot that is waited for")},
		{rule: rule, name: "a failed start returns a terminal", make: breakManager(func() *broken {
			return &broken{start: func(m terminal.Manager, ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
				t, err := m.Start(ctx, cmd)
				if err != nil {
					t, _ = memterm.New(nil).Start(context.Background(), terminal.Command{Args: []string{"true"}})
				}
				return t, err
			}}
		}), also: listed("its start fails", "0-command/bad", "6-limits/all live", "6-limits/a slot that is waited for", "7-concurrency/close")},
		{rule: rule, name: "the command ends with ctx", make: breakManager(func() *broken {
			return &broken{start: func(m terminal.Manager, ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
				t, err := m.Start(ctx, cmd)
				if err == nil {
					context.AfterFunc(ctx, func() { t.Stop(context.Background()) })
				}
				return t, err
			}}
		})},
		{rule: rule, name: "an ended ctx is ignored", make: breakManager(func() *broken {
			return &broken{start: func(m terminal.Manager, ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
				return m.Start(context.WithoutCancel(ctx), cmd)
			}}
		}), also: listed("its start waits for a slot for ever", "6-limits/a slot that is waited for")},
		{rule: rule, name: "the cause of ctx is lost", make: breakManager(func() *broken {
			return &broken{start: func(m terminal.Manager, ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				return m.Start(ctx, cmd)
			}}
		})},
		{rule: rule, name: "ids are used again", make: breakOptions(func(opts *memterm.Options) {
			var n atomic.Int64
			opts.NewID = func() string { return fmt.Sprint("id-", n.Add(1)%8) }
		})},
		{rule: rule, name: "ids are empty", make: breakOptions(func(opts *memterm.Options) {
			opts.NewID = func() string { return "" }
		}), also: listed("it looks for evicted ids", "6-limits/oldest first", "6-limits/all live")},
		{rule: rule, name: "the list is backwards", make: breakManager(func() *broken {
			return &broken{list: func(m terminal.Manager) []terminal.Terminal {
				list := m.List()
				slices.Reverse(list)
				return list
			}}
		}), also: listed("it looks at the order of what is kept", "6-limits/oldest first", "6-limits/all live")},
		{rule: rule, name: "an unknown id is no error", make: breakManager(func() *broken {
			return &broken{get: func(m terminal.Manager, id string) (terminal.Terminal, error) {
				t, err := m.Get(id)
				if err != nil {
					return nil, nil
				}
				return t, nil
			}}
		}), also: listed("it looks for evicted ids", "6-limits/oldest first", "6-limits/all live")},
		{rule: rule, name: "never busy", make: breakManager(func() *broken {
			return &broken{busy: func(terminal.Manager) bool { return false }}
		})},
	}
}

func readMutants() []mutant {
	const rule = "2-read"
	return []mutant{
		{rule: rule, name: "behind the end nothing ever comes", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			out, err := t.ReadOutput(ctx, terminal.End, 0)
			if err != nil || cursor <= out.NextCursor || wait <= 0 || out.EOF() {
				return t.ReadOutput(ctx, cursor, wait)
			}
			select {
			case <-ctx.Done():
				return terminal.Output{}, context.Cause(ctx)
			case <-time.After(wait):
				return t.ReadOutput(ctx, terminal.End, 0)
			}
		})},
		{rule: rule, name: "behind the end is the start", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			if out, err := t.ReadOutput(ctx, terminal.End, 0); err == nil && cursor > out.NextCursor {
				cursor = 0
			}
			return t.ReadOutput(ctx, cursor, wait)
		})},
		{rule: rule, name: "it never waits", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, _ time.Duration) (terminal.Output, error) {
			// A moment, or those who read in a loop would stop the fake clock.
			time.Sleep(time.Millisecond)
			return t.ReadOutput(ctx, cursor, 0)
		}), also: listed("its read waits for the end", "7-concurrency/a read blocks nothing", "7-concurrency/close")},
		{rule: rule, name: "it always waits", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			case <-t.Done():
			}
			return t.ReadOutput(ctx, cursor, 0)
		})},
		{rule: rule, name: "the end does not wake it", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			start := time.Now()
			out, err := t.ReadOutput(ctx, cursor, wait)
			if err == nil && out.Text == "" && out.EOF() {
				time.Sleep(min(wait, time.Minute) - time.Since(start))
			}
			return out, err
		}), also: listed("its reads wait for the end", "7-concurrency")},
		{rule: rule, name: "wait is a minute at least", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			return t.ReadOutput(ctx, cursor, max(wait, time.Minute))
		}), also: listed("its short read is one of the other calls", "3-input/blocks nothing else")},
		{rule: rule, name: "wait is cut in half", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			return t.ReadOutput(ctx, cursor, wait/2)
		})},
		{rule: rule, name: "ctx is ignored", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			return t.ReadOutput(context.WithoutCancel(ctx), cursor, wait)
		})},
		{rule: rule, name: "ctx is looked at only while it waits", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			if out, _ := t.ReadOutput(ctx, cursor, 0); out.Text != "" || wait <= 0 {
				return out, nil
			}
			return t.ReadOutput(ctx, cursor, wait)
		})},
		{rule: rule, name: "an ended ctx takes the text away", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			out, err := t.ReadOutput(ctx, cursor, wait)
			if err != nil {
				out.Text, out.NextCursor = "", cursor
			}
			return out, err
		})},
		{rule: rule, name: "the cause of ctx is lost", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			out, err := t.ReadOutput(ctx, cursor, wait)
			if err != nil {
				err = ctx.Err()
			}
			return out, err
		})},
		{rule: rule, name: "ctx ends the command", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			out, err := t.ReadOutput(ctx, cursor, wait)
			if err != nil {
				t.Stop(context.Background())
			}
			return out, err
		})},
		{rule: rule, name: "a read may be larger", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			out, err := t.ReadOutput(ctx, cursor, wait)
			for err == nil && out.More {
				next, _ := t.ReadOutput(ctx, out.NextCursor, 0)
				next.Text = out.Text + next.Text
				next.Truncated = out.Truncated
				out = next
			}
			return out, err
		}), also: listed("it reads more than one read returns", "3-input", "6-limits")},
		{rule: rule, name: "runes are cut", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			out, err := t.ReadOutput(ctx, cursor, wait)
			if cut := 4099; len(out.Text) > cut { // the reference counts its cursors in bytes
				out.NextCursor -= int64(len(out.Text) - cut)
				out.Text, out.More = out.Text[:cut], true
			}
			return out, err
		})},
		{rule: rule, name: "half a rune is delivered", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			out, err := t.ReadOutput(ctx, cursor, wait)
			out.Text = strings.ReplaceAll(out.Text, "漢", "\uFFFD\uFFFD\uFFFD")
			return out, err
		}), also: listed("its input has that rune, and comes back as output", "3-input/verbatim")},
		{rule: rule, name: "bytes that are no text vanish", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			out, err := t.ReadOutput(ctx, cursor, wait)
			out.Text = strings.ReplaceAll(out.Text, "\uFFFD", "")
			return out, err
		})},
		{rule: rule, name: "cursors count from the oldest kept", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			kept, _ := t.ReadOutput(ctx, 0, 0)
			oldest := int64(0)
			if kept.Truncated {
				oldest = kept.NextCursor - int64(len(kept.Text))
			}
			out, err := t.ReadOutput(ctx, cursor+oldest, wait)
			out.NextCursor -= oldest
			return out, err
		}), also: listed("a second read of an evicted output misses it", "6-limits")},
		{rule: rule, name: "losses are not marked", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			out, err := t.ReadOutput(ctx, cursor, wait)
			out.Truncated = false
			return out, err
		}), also: listed("it looks for the mark", "6-limits/the default", "6-limits/the tail")},
		{rule: rule, name: "everything counts as lost", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			out, err := t.ReadOutput(ctx, cursor, wait)
			out.Truncated = true
			return out, err
		}), also: listed("it reads output to its end", "0-command", "1-start", "3-input", "4-stop", "5-exit", "6-limits", "7-concurrency")},
		{rule: rule, name: "after a loss, what is kept is skipped", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			out, err := t.ReadOutput(ctx, cursor, wait)
			if out.Truncated {
				out.Text = ""
			}
			return out, err
		}), also: listed("it looks at what is kept", "6-limits")},
		{rule: rule, name: "a read takes the output away", make: breakTerm(func(t terminal.Terminal) brokenTerm {
			var taken atomic.Int64
			return brokenTerm{read: func(ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
				out, err := t.ReadOutput(ctx, max(cursor, taken.Load()), wait)
				taken.Store(max(out.NextCursor, taken.Load()))
				return out, err
			}}
		}), also: listed("it reads the same output twice", "4-stop/last words", "6-limits")},
		{rule: rule, name: "one of two outputs is lost", make: breakOptions(func(opts *memterm.Options) {
			program := opts.Programs["both"]
			opts.Programs["both"] = func(p *memterm.Process) terminal.Exit {
				p.Stderr = io.Discard
				return program(p)
			}
		})},
		{rule: rule, name: "evicted lines are not counted", make: breakTerm(func(t terminal.Terminal) brokenTerm {
			return brokenTerm{count: func() (lines, cursor int64) {
				_, cursor = t.(tail.LineCounter).EvictedLines()
				return 0, cursor
			}}
		})},
		{rule: rule, name: "unreadable after the end", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			out, err := t.ReadOutput(ctx, cursor, wait)
			if out.EOF() && out.Text != "" && time.Since(out.Info.Ended) > 0 {
				return terminal.Output{Info: out.Info}, terminal.ErrEnded
			}
			return out, err
		}), also: listed("it reads some time after the end", "7-concurrency/close")},
		{rule: rule, name: "the last byte is lost", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			out, err := t.ReadOutput(ctx, cursor, wait)
			if out.Text != "" && !out.More {
				time.Sleep(time.Millisecond) // what ends right behind its output has ended
				out, err = t.ReadOutput(ctx, cursor, 0)
			}
			if out.EOF() && out.Text != "" {
				out.Text = out.Text[:len(out.Text)-1]
			}
			return out, err
		}), also: listed("it reads output to its end", "0-command", "1-start", "3-input", "4-stop", "5-exit", "6-limits", "7-concurrency")},
	}
}

func inputMutants() []mutant {
	const rule = "3-input"
	return []mutant{
		{rule: rule, name: "whoever is quiet waits for input", make: breakTerm(func(t terminal.Terminal) brokenTerm {
			return brokenTerm{state: func() terminal.Activity {
				if t.Info().Outcome.Ended() {
					return terminal.Finished
				}
				return terminal.Waiting
			}}
		})},
		{rule: rule, name: "an ended command works on", make: breakTerm(func(terminal.Terminal) brokenTerm {
			return brokenTerm{state: func() terminal.Activity { return terminal.Working }}
		})},
		{rule: rule, name: "line feeds become CR LF", make: breakWrite(func(t terminal.Terminal, ctx context.Context, text string) (int, error) {
			_, err := t.WriteInput(ctx, strings.ReplaceAll(text, "\n", "\r\n"))
			return len(text), err
		})},
		{rule: rule, name: "the count is a promise", make: breakWrite(func(t terminal.Terminal, ctx context.Context, text string) (int, error) {
			_, err := t.WriteInput(ctx, text)
			return len(text), err
		})},
		{rule: rule, name: "no input is no error", make: breakWrite(func(t terminal.Terminal, ctx context.Context, text string) (int, error) {
			n, err := t.WriteInput(ctx, text)
			if errors.Is(err, terminal.ErrNoInput) {
				return len(text), nil
			}
			return n, err
		})},
		{rule: rule, name: "the end is no error", make: breakWrite(func(t terminal.Terminal, ctx context.Context, text string) (int, error) {
			n, err := t.WriteInput(ctx, text)
			if errors.Is(err, terminal.ErrEnded) {
				return len(text), nil
			}
			return n, err
		})},
		{rule: rule, name: "ctx is ignored", make: breakWrite(func(t terminal.Terminal, ctx context.Context, text string) (int, error) {
			return t.WriteInput(context.WithoutCancel(ctx), text)
		})},
		{rule: rule, name: "what is left is written later", make: breakWrite(func(t terminal.Terminal, ctx context.Context, text string) (int, error) {
			n, err := t.WriteInput(ctx, text)
			if ctx.Err() != nil {
				go t.WriteInput(context.Background(), text[n:]) // until the command ends
				time.Sleep(time.Millisecond)                    // before what comes next
			}
			return n, err
		})},
		{rule: rule, name: "what does not fit is dropped", make: breakWrite(func(t terminal.Terminal, ctx context.Context, text string) (int, error) {
			short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			defer cancel()
			n, err := t.WriteInput(short, text)
			if errors.Is(err, context.DeadlineExceeded) {
				return len(text), nil
			}
			return n, err
		})},
		{rule: rule, name: "writes mix", make: breakWrite(func(t terminal.Terminal, ctx context.Context, text string) (n int, err error) {
			for chunk := range slices.Chunk([]byte(text), 1000) {
				took, err := t.WriteInput(ctx, string(chunk))
				n += took
				if err != nil {
					return n, err
				}
			}
			return n, nil
		})},
		{rule: rule, name: "a line that is too long is cut", make: breakWrite(func(t terminal.Terminal, ctx context.Context, text string) (int, error) {
			n, err := t.WriteInput(ctx, text)
			if errors.Is(err, terminal.ErrLineTooLong) && len(text) > 4096 {
				_, err = t.WriteInput(ctx, text[:4095]+"\n")
				return len(text), err
			}
			return n, err
		})},
		{rule: rule, name: "what is typed already is not counted", make: breakWrite(func(t terminal.Terminal, ctx context.Context, text string) (int, error) {
			n, err := t.WriteInput(ctx, text)
			if errors.Is(err, terminal.ErrLineTooLong) && len(text) < 4096 {
				return len(text), nil
			}
			return n, err
		})},
		{rule: rule, name: "a close of the input is dropped", make: breakTerm(func(terminal.Terminal) brokenTerm {
			return brokenTerm{end: func(context.Context) error { return nil }}
		})},
		{rule: rule, name: "a close of the input is an error twice", make: breakTerm(func(t terminal.Terminal) brokenTerm {
			var closed bool
			return brokenTerm{end: func(ctx context.Context) error {
				if closed {
					return terminal.ErrNoInput
				}
				closed = true
				return t.(terminal.InputCloser).CloseInput(ctx)
			}}
		})},
		{rule: rule, name: "a close of the input ends no line", make: breakTerm(func(t terminal.Terminal) brokenTerm {
			return brokenTerm{end: func(ctx context.Context) error {
				if t.Info().Command.TTY {
					_, err := t.WriteInput(ctx, "\x04")
					return err
				}
				return t.(terminal.InputCloser).CloseInput(ctx)
			}}
		})},
		{rule: rule, name: "keys count as text", make: breakWrite(func(t terminal.Terminal, ctx context.Context, text string) (int, error) {
			for line := range strings.Lines(text) {
				if len(line) > 4096 && len(text) < 64<<10 {
					return 0, terminal.ErrLineTooLong
				}
			}
			return t.WriteInput(ctx, text)
		})},
		{rule: rule, name: "a line end behind Ctrl-V is one", make: breakWrite(func(t terminal.Terminal, ctx context.Context, text string) (int, error) {
			n, err := t.WriteInput(ctx, text)
			if errors.Is(err, terminal.ErrLineTooLong) && strings.Contains(text, "\x16\n") {
				return len(text), nil
			}
			return n, err
		})},
		{rule: rule, name: "a write blocks every call", make: breakTerm(func(t terminal.Terminal) brokenTerm {
			l := newLock()
			return brokenTerm{
				info: func(info terminal.Info) terminal.Info {
					defer l.hold()()
					return info
				},
				write: func(ctx context.Context, text string) (int, error) {
					defer l.hold()()
					return t.WriteInput(ctx, text)
				},
			}
		})},
		{rule: rule, name: "a resize is dropped", make: breakTerm(func(t terminal.Terminal) brokenTerm {
			return brokenTerm{resize: func(terminal.Size) error { return nil }}
		})},
		{rule: rule, name: "a signal is dropped", make: breakTerm(func(t terminal.Terminal) brokenTerm {
			return brokenTerm{signal: func(os.Signal) error { return nil }}
		})},
	}
}

func stopMutants() []mutant {
	const rule = "4-stop"
	return []mutant{
		{rule: rule, name: "what an ended command left is nobody's", make: breakStop(func(t terminal.Terminal, ctx context.Context) (terminal.Info, error) {
			if info := t.Info(); info.Outcome.Ended() {
				return info, nil
			}
			return t.Stop(ctx)
		})},
		{rule: rule, name: "it does not wait", make: breakStop(func(t terminal.Terminal, ctx context.Context) (terminal.Info, error) {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			info, _ := t.Stop(ended)
			return info, nil
		}), also: listed("it goes on once Stop has returned", "3-input", "6-limits/a slot that is waited for", "6-limits/all live", "7-concurrency")},
		{rule: rule, name: "children escape", make: breakOptions(func(opts *memterm.Options) {
			other := memterm.New(&memterm.Options{Programs: Programs()})
			for _, name := range []string{"family", "leave"} {
				program := opts.Programs[name]
				opts.Programs[name] = func(p *memterm.Process) terminal.Exit {
					p.Spawn = func(args ...string) (terminal.Proc, error) {
						// A minute, so that the bubble can end.
						_, err := other.Start(context.Background(), terminal.Command{Args: args, Timeout: time.Minute})
						return terminal.Proc{PID: 1, Command: args[0]}, err
					}
					return program(p)
				}
			}
		})},
		{rule: rule, name: "what is left is unknown", make: breakInfo(func(info terminal.Info) terminal.Info {
			info.Survivors = nil
			return info
		})},
		{rule: rule, name: "children end with their parent", make: breakOptions(func(opts *memterm.Options) {
			program := opts.Programs["beat"]
			opts.Programs["beat"] = func(p *memterm.Process) terminal.Exit {
				stopped := make(chan struct{})
				time.AfterFunc(8*beatInterval, func() { close(stopped) })
				p.Stopped = stopped
				return program(p)
			}
		})},
		{rule: rule, name: "never by force", make: breakOptions(func(opts *memterm.Options) {
			opts.Grace = 10 * time.Minute
		}), also: listed("its program is stubborn", "5-exit/timeout by force", "7-concurrency")},
		{rule: rule, name: "by force at once", make: breakStop(func(t terminal.Terminal, ctx context.Context) (terminal.Info, error) {
			if t.Info().Outcome == terminal.Running {
				t.Signal(os.Kill)
			}
			info, err := t.Stop(ctx)
			if info.Outcome == terminal.Signalled {
				info.Outcome = terminal.Stopped
			}
			return info, err
		})},
		{rule: rule, name: "the second is an error", make: breakTerm(func(t terminal.Terminal) brokenTerm {
			var stopped atomic.Bool
			return brokenTerm{stop: func(ctx context.Context) (terminal.Info, error) {
				if stopped.Swap(true) {
					return t.Info(), terminal.ErrEnded
				}
				return t.Stop(ctx)
			}}
		})},
		{rule: rule, name: "it says stopped of what had ended", make: breakStop(func(t terminal.Terminal, ctx context.Context) (terminal.Info, error) {
			info, err := t.Stop(ctx)
			info.Outcome = terminal.Stopped
			return info, err
		}), also: listed("it stops a command that has timed out", "5-exit/timeout")},
		{rule: rule, name: "an ended ctx takes it back", make: breakStop(func(t terminal.Terminal, ctx context.Context) (terminal.Info, error) {
			if ctx.Err() != nil {
				return t.Info(), context.Cause(ctx)
			}
			return t.Stop(ctx)
		})},
		{rule: rule, name: "ctx is ignored", make: breakStop(func(t terminal.Terminal, ctx context.Context) (terminal.Info, error) {
			time.Sleep(prompt + time.Second)
			return t.Stop(context.WithoutCancel(ctx))
		}), also: listed("it measures a Stop", "3-input/blocks nothing else", "7-concurrency/a read blocks nothing")},
	}
}

func exitMutants() []mutant {
	const rule = "5-exit"
	return []mutant{
		{rule: rule, name: "the last output is the first", make: breakInfo(func(info terminal.Info) terminal.Info {
			info.LastOutput = info.FirstOutput
			return info
		})},
		{rule: rule, name: "unknown is code 0", make: breakInfo(func(info terminal.Info) terminal.Info {
			if info.Outcome == terminal.Unknown {
				info.Outcome, info.Exit = terminal.Exited, memterm.Code(0)
			}
			return info
		})},
		{rule: rule, name: "unknown is exited", make: breakInfo(func(info terminal.Info) terminal.Info {
			if info.Outcome == terminal.Unknown {
				info.Outcome = terminal.Exited
			}
			return info
		})},
		{rule: rule, name: "codes are 0 or 1", make: breakInfo(func(info terminal.Info) terminal.Info {
			if info.Exit.Code != nil {
				info.Exit = memterm.Code(min(*info.Exit.Code, 1))
			}
			return info
		}), also: listed("its command exits with 3", "4-stop/after the end")},
		{rule: rule, name: "a failure is an error", make: breakStop(func(t terminal.Terminal, ctx context.Context) (terminal.Info, error) {
			info, err := t.Stop(ctx)
			if info.Outcome == terminal.Exited && !info.Exit.Success() {
				err = errBroken
			}
			return info, err
		}), also: listed("its command exits with 3", "4-stop/after the end")},
		{rule: rule, name: "a signal is a code", make: breakInfo(func(info terminal.Info) terminal.Info {
			if info.Outcome == terminal.Signalled {
				info.Outcome, info.Exit = terminal.Exited, memterm.Code(137)
			}
			return info
		}), also: listed("its command ends by a signal", "3-input/signal")},
		{rule: rule, name: "the timeout is ignored", make: breakCommand(func(cmd terminal.Command) terminal.Command {
			cmd.Timeout = 0
			return cmd
		}), also: listed("it looks for the error of a bad timeout", "0-command/bad")},
		{rule: rule, name: "the timeout is early", make: breakCommand(func(cmd terminal.Command) terminal.Command {
			if cmd.Timeout > 1 {
				cmd.Timeout /= 2
			}
			return cmd
		})},
		{rule: rule, name: "a timeout is stopped", make: breakInfo(func(info terminal.Info) terminal.Info {
			if info.Outcome == terminal.TimedOut {
				info.Outcome = terminal.Stopped
			}
			return info
		})},
		{rule: rule, name: "a timeout loses the output", make: breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			out, err := t.ReadOutput(ctx, cursor, wait)
			if out.Info.Outcome == terminal.TimedOut {
				out.Text = ""
			}
			return out, err
		})},
		{rule: rule, name: "every command has a timeout", make: breakCommand(func(cmd terminal.Command) terminal.Command {
			if cmd.Timeout == bound {
				cmd.Timeout = 100 * time.Millisecond
			}
			return cmd
		})},
		{rule: rule, name: "the first output has no time", make: breakInfo(func(info terminal.Info) terminal.Info {
			info.FirstOutput = time.Time{}
			return info
		})},
		{rule: rule, name: "no output has a time", make: breakInfo(func(info terminal.Info) terminal.Info {
			if info.FirstOutput.IsZero() {
				info.FirstOutput = info.Started
			}
			return info
		})},
		{rule: rule, name: "running is unknown", make: breakInfo(func(info terminal.Info) terminal.Info {
			if info.Outcome == terminal.Running {
				info.Outcome = ""
			}
			return info
		}), also: listed("it looks at a command that runs", "1-start/started", "2-read/wait passes", "6-limits/oldest first")},
	}
}

func limitMutants() []mutant {
	const rule = "6-limits"
	return []mutant{
		{rule: rule, name: "nothing is evicted", make: func(l Limits) terminal.Manager {
			l.MaxTerminals = 0
			return memterm.New(reference(l))
		}, also: listed("it has no slot to wait for", "7-concurrency/close while a start waits")},
		{rule: rule, name: "the oldest is hidden, live or not", make: func(l Limits) terminal.Manager {
			n := l.MaxTerminals
			l.MaxTerminals = 0
			if n == 0 {
				n = limits.DefaultMaxTerminals
			}
			b := &broken{}
			b.Manager = memterm.New(reference(l))
			b.list = func(m terminal.Manager) []terminal.Terminal {
				list := m.List()
				return list[max(0, len(list)-n):]
			}
			b.get = func(m terminal.Manager, id string) (terminal.Terminal, error) {
				for _, t := range b.list(m) {
					if t.Info().ID == id {
						return t, nil
					}
				}
				return nil, terminal.ErrNotFound
			}
			return b
		}, also: listed("it has no slot to wait for", "7-concurrency/close while a start waits")},
		{rule: rule, name: "the newest is evicted first", make: func(l Limits) terminal.Manager {
			n := l.MaxTerminals
			l.MaxTerminals = 0
			if n == 0 {
				n = limits.DefaultMaxTerminals
			}
			b := &broken{}
			b.Manager = memterm.New(reference(l))
			b.list = func(m terminal.Manager) []terminal.Terminal {
				list := m.List()
				return list[:min(n, len(list))]
			}
			return b
		}, also: listed("it has no slot to wait for", "7-concurrency/close while a start waits")},
		{rule: rule, name: "ended ones hold their slots", make: func(l Limits) terminal.Manager {
			n := l.MaxTerminals
			if n == 0 {
				n = limits.DefaultMaxTerminals
			}
			b := &broken{}
			b.Manager = memterm.New(reference(l))
			b.start = func(m terminal.Manager, ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
				if len(m.List()) >= n {
					return nil, terminal.ErrTooMany
				}
				return m.Start(ctx, cmd)
			}
			return b
		}, also: listed("it starts more than are kept, or none", "1-start/ids", "7-concurrency/close while a start waits")},
		{rule: rule, name: "the oldest live one gives way", make: func(l Limits) terminal.Manager {
			b := &broken{}
			b.Manager = memterm.New(reference(l))
			b.start = func(m terminal.Manager, ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
				t, err := m.Start(ctx, cmd)
				if errors.Is(err, terminal.ErrTooMany) {
					m.List()[0].Stop(ctx)
					return m.Start(ctx, cmd)
				}
				return t, err
			}
			return b
		}},
		{rule: rule, name: "nobody waits for a slot", make: func(l Limits) terminal.Manager {
			l.WaitForSlot = false
			return memterm.New(reference(l))
		}, also: listed("it has no slot to wait for", "7-concurrency/close while a start waits")},
		{rule: rule, name: "a wait for a slot knows no ctx", make: func(l Limits) terminal.Manager {
			b := &broken{}
			b.Manager = memterm.New(reference(l))
			b.start = func(m terminal.Manager, ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
				if l.WaitForSlot {
					ctx = context.WithoutCancel(ctx)
				}
				return m.Start(ctx, cmd)
			}
			return b
		}},
		{rule: rule, name: "the output limit is ignored", make: func(l Limits) terminal.Manager {
			l.OutputLimit = 0
			b := &broken{start: func(m terminal.Manager, ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
				if cmd.Check() == nil {
					cmd.OutputLimit = 0
				}
				return m.Start(ctx, cmd)
			}}
			b.Manager = memterm.New(reference(l))
			return b
		}, also: listed("it needs a loss", "2-read/cursors stay", "2-read/truncated")},
		{rule: rule, name: "a command's own limit is ignored", make: breakCommand(func(cmd terminal.Command) terminal.Command {
			if cmd.Check() == nil {
				cmd.OutputLimit = 0
			}
			return cmd
		}), also: listed("it needs a loss", "2-read/cursors stay", "2-read/truncated")},
		{rule: rule, name: "the head is kept", make: breakManager(func() *broken {
			var mu sync.Mutex
			limits := map[terminal.Terminal]int{}
			return &broken{
				start: func(m terminal.Manager, ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
					limit := cmd.OutputLimit
					if cmd.Check() == nil {
						cmd.OutputLimit = 0
					}
					t, err := m.Start(ctx, cmd)
					mu.Lock()
					defer mu.Unlock()
					limits[t] = limit
					return t, err
				},
				term: func(t terminal.Terminal) brokenTerm {
					return brokenTerm{read: func(ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
						out, err := t.ReadOutput(ctx, cursor, wait)
						mu.Lock()
						limit := limits[t]
						mu.Unlock()
						if limit > 0 {
							out.Text = out.Text[:max(0, min(len(out.Text), limit-int(cursor)))]
							out.Truncated = out.Text == "" && out.EOF()
						}
						return out, err
					}}
				},
			}
		}), also: listed("it looks at what is kept", "2-read/cursors stay", "2-read/truncated", "2-read/evicted lines")},
		{rule: rule, name: "half of the limit is kept", make: breakCommand(func(cmd terminal.Command) terminal.Command {
			if cmd.OutputLimit > 1 {
				cmd.OutputLimit = cmd.OutputLimit/2 - 1
			}
			return cmd
		})},
		{rule: rule, name: "no cap over the manager", make: func(l Limits) terminal.Manager {
			l.ManagerBytes = 0
			return memterm.New(reference(l))
		}},
		{rule: rule, name: "first come, first served", make: func(l Limits) terminal.Manager {
			var started atomic.Int32
			return &broken{Manager: memterm.New(reference(l)), term: func(t terminal.Terminal) brokenTerm {
				if started.Add(1) <= 2 || l.ManagerBytes == 0 {
					return brokenTerm{}
				}
				return brokenTerm{read: func(ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
					end, err := t.ReadOutput(ctx, math.MaxInt64, 0)
					if err != nil {
						return end, err
					}
					return t.ReadOutput(ctx, max(cursor, end.NextCursor-4096), wait)
				}}
			}}
		}},
		{rule: rule, name: "room that cannot be had evicts", make: func(l Limits) terminal.Manager {
			if l.ManagerBytes == 0 {
				return memterm.New(reference(l))
			}
			return &broken{Manager: memterm.New(reference(l)), get: func(m terminal.Manager, id string) (terminal.Terminal, error) {
				t, err := m.Get(id)
				if err == nil && t.Info().Outcome.Ended() {
					return nil, terminal.ErrNotFound
				}
				return t, err
			}}
		}},
	}
}

func concurrencyMutants() []mutant {
	const rule = "7-concurrency"
	return []mutant{
		{rule: rule, name: "a read holds a lock", make: breakTerm(func(t terminal.Terminal) brokenTerm {
			l := newLock()
			return brokenTerm{
				read: func(ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
					defer l.hold()()
					return t.ReadOutput(ctx, cursor, wait)
				},
			}
		}), also: listed("its second reader waits for the first", "2-read/ctx ends this wait")},
		{rule: rule, name: "a stop holds a lock", make: breakManager(func() *broken {
			l := newLock()
			return &broken{
				get: func(m terminal.Manager, id string) (terminal.Terminal, error) {
					defer l.hold()()
					return m.Get(id)
				},
				term: func(t terminal.Terminal) brokenTerm {
					return brokenTerm{stop: func(ctx context.Context) (terminal.Info, error) {
						defer l.hold()()
						time.Sleep(bound + time.Second)
						return t.Stop(ctx)
					}}
				},
			}
		}), also: listed("it stops a command, which takes a minute now", "3-input", "4-stop", "5-exit", "6-limits")},
		{rule: rule, name: "close does not wait", make: breakManager(func() *broken {
			var once sync.Once
			return &broken{close: func(m terminal.Manager) error {
				once.Do(func() {
					go func() {
						time.Sleep(time.Second)
						m.Close()
					}()
				})
				return nil
			}}
		}), also: listed("it looks at what runs after Close", "4-stop/left behind")},
		{rule: rule, name: "close leaves a goroutine", make: breakManager(func() *broken {
			return &broken{close: func(m terminal.Manager) error {
				go time.Sleep(time.Minute)
				return m.Close()
			}}
		})},
		{rule: rule, name: "the second close is an error", make: breakManager(func() *broken {
			var closed atomic.Bool
			return &broken{close: func(m terminal.Manager) error {
				if closed.Swap(true) {
					return terminal.ErrClosed
				}
				return m.Close()
			}}
		}), also: listed("it closes before its end does", "4-stop/left behind")},
		{rule: rule, name: "close leaves what runs", make: breakManager(func() *broken {
			return &broken{close: func(m terminal.Manager) error {
				go func() { // so that the bubble can end
					time.Sleep(time.Minute)
					m.Close()
				}()
				return nil
			}}
		}), also: listed("it looks at what runs after Close", "4-stop/left behind")},
		{rule: rule, name: "a closed one starts again", make: breakManager(func() *broken {
			return &broken{start: func(m terminal.Manager, ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
				t, err := m.Start(ctx, cmd)
				if errors.Is(err, terminal.ErrClosed) {
					cmd.Timeout = time.Second
					return memterm.New(reference(Limits{})).Start(ctx, cmd)
				}
				return t, err
			}}
		})},
		{rule: rule, name: "close takes the output away", make: breakManager(func() *broken {
			var closed atomic.Bool
			return &broken{
				close: func(m terminal.Manager) error {
					defer closed.Store(true)
					return m.Close()
				},
				term: func(t terminal.Terminal) brokenTerm {
					return brokenTerm{read: func(ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
						out, err := t.ReadOutput(ctx, cursor, wait)
						if closed.Load() {
							out.Text = ""
						}
						return out, err
					}}
				},
			}
		})},
		{rule: rule, name: "close says what it stopped is an error", make: breakManager(func() *broken {
			return &broken{close: func(m terminal.Manager) error {
				busy := m.Busy()
				if err := m.Close(); err != nil || !busy {
					return err
				}
				return errBroken
			}}
		}), also: listed("it leaves a command to Close", "0-command", "1-start", "2-read", "3-input", "5-exit", "6-limits")},
	}
}
