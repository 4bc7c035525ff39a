package terminaltest

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/tail"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// full is the length that .ci/run gives the tests that count or last.
var full = flag.Bool("full", false, "try every mutant, and the suite in real time")

// A mutant is a Manager that breaks one rule on purpose. The suite is right if
// a case of that rule fails, and no case that is not listed.
type mutant struct {
	rule string // the name of the broken rule
	name string
	make func(l Limits) terminal.Manager

	// also lists the cases (RULE/CASE) of other rules that fail, with the
	// reason. A rule's name alone stands for each of its cases.
	also map[string]string
}

// listed is a mutant's also: cases that fail for one reason.
func listed(reason string, cases ...string) map[string]string {
	also := map[string]string{}
	for _, c := range cases {
		also[c] = reason
	}
	return also
}

// reference is what mutants are made of.
func reference(l Limits) *memterm.Options {
	return &memterm.Options{
		Programs:     Programs(),
		MaxTerminals: l.MaxTerminals, OutputLimit: l.OutputLimit, ManagerBytes: l.ManagerBytes, WaitForSlot: l.WaitForSlot,
	}
}

// A recorder is a T that records failures instead of failing the run.
type recorder struct {
	*testing.T
	ctx context.Context
	dir string

	mu sync.Mutex
	// guards following
	failures []string
	cleanups []func()
	dirs     int // given by TempDir
}

// TempDir returns a directory of its own to all but the first call: that one
// is runCase's, which only wants to be the first.
func (r *recorder) TempDir() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dirs++; r.dirs == 1 {
		return r.dir
	}
	dir, err := os.MkdirTemp(r.dir, "")
	if err != nil {
		r.T.Fatal(err)
	}
	return dir
}

func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) Logf(string, ...any) {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	goexit()
}

func (r *recorder) Skipf(string, ...any) { goexit() }

// goexit ends the goroutine of a case.
func goexit() { panic(exited{}) }

type exited struct{}

// failures runs a case in a bubble and returns what it recorded.
func failures(t *testing.T, c Config, dir string, r rule, tc testCase) []string {
	var rec *recorder
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		rec = &recorder{T: t, ctx: ctx, dir: dir}
		protect := func(f func()) {
			defer func() {
				if p := recover(); p != nil && p != any(exited{}) {
					panic(p)
				}
			}()
			f()
		}
		protect(func() { runCase(rec, c, r, tc) })
		cancel()
		for len(rec.cleanups) > 0 {
			f := rec.cleanups[len(rec.cleanups)-1]
			rec.cleanups = rec.cleanups[:len(rec.cleanups)-1]
			protect(f)
		}
		time.Sleep(time.Hour) // what a mutant leaves behind ends before the bubble does
	})
	return rec.failures
}

// TestMutants runs the suite against each mutant and prints which rules it
// fails.
func TestMutants(t *testing.T) {
	type row struct {
		mutant mutant
		failed map[string]int // cases, by rule
	}
	var mu sync.Mutex // guards rows
	var rows []row
	t.Run("all", func(t *testing.T) {
		all := mutants()
		if !*full { // the first of each rule
			t.Log("-full tries every mutant")
			seen := map[string]bool{}
			all = slices.DeleteFunc(all, func(m mutant) bool {
				later := seen[m.rule]
				seen[m.rule] = true
				return later
			})
		}
		for _, m := range all {
			t.Run(m.rule+"/"+m.name, func(t *testing.T) {
				t.Parallel()
				failed := runMutant(t, m)
				mu.Lock()
				defer mu.Unlock()
				rows = append(rows, row{m, failed})
			})
		}
	})
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(strings.Compare(a.mutant.rule, b.mutant.rule), strings.Compare(a.mutant.name, b.mutant.name))
	})

	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "breaks\tmutant\tfails cases of:")
	for _, r := range rules() {
		fmt.Fprintf(w, "\t%s", r.name)
	}
	fmt.Fprintln(w)
	caught := map[string]bool{}
	for _, row := range rows {
		fmt.Fprintf(w, "%s\t%s\t", row.mutant.rule, row.mutant.name)
		for _, r := range rules() {
			n := ""
			if row.failed[r.name] > 0 {
				n = fmt.Sprint(row.failed[r.name])
			}
			fmt.Fprintf(w, "\t%s", n)
		}
		fmt.Fprintln(w)
		caught[row.mutant.rule] = true
	}
	w.Flush()
	t.Logf("%d mutants × %d rules, number of failed cases:\n%s", len(rows), len(rules()), b.String())
	for _, r := range rules() {
		if !caught[r.name] {
			t.Errorf("no mutant breaks rule %s", r.name)
		}
	}
}

// everything is the Config of a Manager that has all.
func everything(make func(l Limits) terminal.Manager) Config {
	return Config{
		New:     func(T) terminal.Manager { return make(Limits{}) },
		Limited: func(_ T, l Limits) terminal.Manager { return make(l) },
		Input:   true, TTY: true, Tree: true, Signal: true, Exact: true,
	}
}

// runMutant returns how many cases of each rule failed.
func runMutant(t *testing.T, m mutant) map[string]int {
	c := everything(m.make)
	dir := t.TempDir()
	failed := map[string]int{}
	excused := map[string]bool{}
	for _, r := range rules() {
		if raceEnabled && r.name != m.rule {
			continue // ten times as slow, and no news
		}
		for _, tc := range r.cases {
			fails := failures(t, c, dir, r, tc)
			if len(fails) == 0 {
				continue
			}
			failed[r.name]++
			name := r.name + "/" + tc.name
			if r.name == m.rule {
				t.Logf("%s: %s", name, fails[0])
				continue
			}
			key := name
			if _, ok := m.also[key]; !ok {
				key = r.name
			}
			reason, ok := m.also[key]
			if !ok {
				t.Errorf("%s is collateral, and not listed: %s", name, fails[0])
				continue
			}
			excused[key] = true
			t.Logf("%s (%s): %s", name, reason, fails[0])
		}
	}
	if failed[m.rule] == 0 {
		t.Errorf("survives: no case of rule %s fails", m.rule)
	}
	for _, key := range slices.Sorted(maps.Keys(m.also)) {
		if !excused[key] && !raceEnabled {
			t.Errorf("%s is listed as collateral, and passes", key)
		}
	}
	return failed
}

// TestLess runs the suite against Managers that lack something: one that does
// what it must do instead passes, another does not.
func TestLess(t *testing.T) {
	refuse := func(refused func(terminal.Command) bool, err error) func(Limits) terminal.Manager {
		return breakManager(func() *broken {
			return &broken{start: func(m terminal.Manager, ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
				if refused(cmd) {
					return nil, err
				}
				return m.Start(ctx, cmd)
			}}
		})
	}
	signal := func(err error) func(Limits) terminal.Manager {
		return breakTerm(func(terminal.Terminal) brokenTerm {
			return brokenTerm{signal: func(os.Signal) error { return err }}
		})
	}
	lose := func(mark string) func(Limits) terminal.Manager {
		return breakRead(func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			out, err := t.ReadOutput(ctx, cursor, wait)
			if out.Truncated && len(mark)+len(out.Text) <= limits.MaxText {
				out.Text, out.Truncated = mark+out.Text, false
			}
			return out, err
		})
	}
	stdin := func(cmd terminal.Command) bool { return cmd.Stdin }
	tty := func(cmd terminal.Command) bool { return cmd.TTY }
	noInput := func(c *Config) { c.Input = false }
	noTTY := func(c *Config) { c.TTY = false }
	noSignal := func(c *Config) { c.Signal = false }
	notExact := func(c *Config) { c.Exact = false }
	for _, l := range []struct {
		name string
		less func(*Config)
		make func(Limits) terminal.Manager
		want string // the rule that fails; "" for none
	}{
		{"no input, refused", noInput, refuse(stdin, terminal.ErrNoInput), ""},
		{"no input, accepted", noInput, breakCommand(func(cmd terminal.Command) terminal.Command { return cmd }), "3-input"},
		{"no input, another error", noInput, refuse(stdin, errBroken), "3-input"},
		{"no terminal, accepted", noTTY, breakCommand(func(cmd terminal.Command) terminal.Command {
			cmd.TTY = false
			return cmd
		}), ""},
		{"no terminal, refused", noTTY, refuse(tty, errors.ErrUnsupported), "0-command"},
		{"no signals, unsupported", noSignal, signal(errors.ErrUnsupported), ""},
		{"no signals, another error", noSignal, signal(errBroken), "3-input"},
		{"losses marked in the text", notExact, lose(terminal.GapMark), ""},
		{"losses not marked", notExact, lose(""), "2-read"},
		{"no limits", func(c *Config) { c.Limited = nil }, breakOptions(func(*memterm.Options) {}), ""},
	} {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			c := everything(l.make)
			l.less(&c)
			dir := t.TempDir()
			failed := map[string]string{}
			for _, r := range rules() {
				for _, tc := range r.cases {
					if fails := failures(t, c, dir, r, tc); len(fails) > 0 {
						failed[r.name] = tc.name + ": " + fails[0]
					}
				}
			}
			switch {
			case l.want == "" && len(failed) > 0:
				t.Errorf("fails: %v", failed)
			case l.want != "" && failed[l.want] == "":
				t.Errorf("no case of rule %s fails, but %v", l.want, failed)
			}
		})
	}
}

// A broken is a Manager with some of its methods replaced; nil is as it was.
// Methods that are replaced get the Manager that is meant to be broken.
type broken struct {
	terminal.Manager
	start func(m terminal.Manager, ctx context.Context, cmd terminal.Command) (terminal.Terminal, error)
	get   func(m terminal.Manager, id string) (terminal.Terminal, error)
	list  func(m terminal.Manager) []terminal.Terminal
	busy  func(m terminal.Manager) bool
	close func(m terminal.Manager) error
	term  func(t terminal.Terminal) brokenTerm // how its terminals are broken

	mu sync.Mutex
	// guards following
	terms map[terminal.Terminal]terminal.Terminal
}

// wrap returns the broken terminal of t, one and the same each time.
func (b *broken) wrap(t terminal.Terminal) terminal.Terminal {
	if b.term == nil || t == nil {
		return t
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w, ok := b.terms[t]; ok {
		return w
	}
	w := b.term(t)
	w.Terminal = t
	if b.terms == nil {
		b.terms = map[terminal.Terminal]terminal.Terminal{}
	}
	b.terms[t] = &w
	if w.state != nil {
		b.terms[t] = &guessing{&w}
	}
	return b.terms[t]
}

// A guessing is a terminal that tells the state.
type guessing struct{ *brokenTerm }

func (g *guessing) ReadActivity(ctx context.Context, cursor int64) (terminal.Activity, terminal.Evidence, error) {
	state := g.state()
	return state, terminal.Evidence{Certainty: terminal.Likely, Reason: "it looks so"}, nil
}

func (g *guessing) WaitActivity(ctx context.Context, state terminal.Activity, cursor int64) (terminal.Activity, terminal.Evidence, error) {
	for g.state() != state {
		select {
		case <-g.Done():
			return terminal.Finished, terminal.Evidence{}, nil
		case <-ctx.Done():
			return g.state(), terminal.Evidence{}, context.Cause(ctx)
		}
	}
	return g.ReadActivity(ctx, cursor)
}

func (b *broken) Start(ctx context.Context, cmd terminal.Command) (t terminal.Terminal, err error) {
	if b.start != nil {
		t, err = b.start(b.Manager, ctx, cmd)
	} else {
		t, err = b.Manager.Start(ctx, cmd)
	}
	return b.wrap(t), err
}

func (b *broken) Get(id string) (t terminal.Terminal, err error) {
	if b.get != nil {
		t, err = b.get(b.Manager, id)
	} else {
		t, err = b.Manager.Get(id)
	}
	return b.wrap(t), err
}

func (b *broken) List() []terminal.Terminal {
	var list []terminal.Terminal
	if b.list != nil {
		list = b.list(b.Manager)
	} else {
		list = b.Manager.List()
	}
	for i, t := range list {
		list[i] = b.wrap(t)
	}
	return list
}

func (b *broken) Busy() bool {
	if b.busy != nil {
		return b.busy(b.Manager)
	}
	return b.Manager.Busy()
}

func (b *broken) Close() error {
	if b.close != nil {
		return b.close(b.Manager)
	}
	return b.Manager.Close()
}

// A brokenTerm is a Terminal with some of its methods replaced.
type brokenTerm struct {
	terminal.Terminal
	info   func(terminal.Info) terminal.Info // changes every Info that is returned
	read   func(ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error)
	write  func(ctx context.Context, text string) (int, error)
	end    func(ctx context.Context) error // replaces CloseInput
	resize func(terminal.Size) error
	signal func(os.Signal) error
	stop   func(ctx context.Context) (terminal.Info, error)
	count  func() (lines, cursor int64)
	state  func() terminal.Activity // nil: it cannot tell
}

func (b *brokenTerm) Info() terminal.Info { return b.edit(b.Terminal.Info()) }

func (b *brokenTerm) edit(info terminal.Info) terminal.Info {
	if b.info != nil {
		return b.info(info)
	}
	return info
}

func (b *brokenTerm) ReadOutput(ctx context.Context, cursor int64, wait time.Duration) (out terminal.Output, err error) {
	if b.read != nil {
		out, err = b.read(ctx, cursor, wait)
	} else {
		out, err = b.Terminal.ReadOutput(ctx, cursor, wait)
	}
	out.Info = b.edit(out.Info)
	return out, err
}

func (b *brokenTerm) WriteInput(ctx context.Context, text string) (int, error) {
	if b.write != nil {
		return b.write(ctx, text)
	}
	return b.Terminal.WriteInput(ctx, text)
}

func (b *brokenTerm) CloseInput(ctx context.Context) error {
	if b.end != nil {
		return b.end(ctx)
	}
	return b.Terminal.(terminal.InputCloser).CloseInput(ctx)
}

func (b *brokenTerm) Resize(size terminal.Size) error {
	if b.resize != nil {
		return b.resize(size)
	}
	return b.Terminal.Resize(size)
}

func (b *brokenTerm) Signal(sig os.Signal) error {
	if b.signal != nil {
		return b.signal(sig)
	}
	return b.Terminal.Signal(sig)
}

func (b *brokenTerm) Stop(ctx context.Context) (info terminal.Info, err error) {
	if b.stop != nil {
		info, err = b.stop(ctx)
	} else {
		info, err = b.Terminal.Stop(ctx)
	}
	return b.edit(info), err
}

func (b *brokenTerm) EvictedLines() (lines, cursor int64) {
	if b.count != nil {
		return b.count()
	}
	return b.Terminal.(tail.LineCounter).EvictedLines()
}

// breakManager returns a mutant's make whose Manager is the reference with
// methods replaced.
func breakManager(b func() *broken) func(Limits) terminal.Manager {
	return func(l Limits) terminal.Manager {
		m := b()
		m.Manager = memterm.New(reference(l))
		return m
	}
}

// breakTerm returns a mutant's make that replaces methods of terminals only.
func breakTerm(term func(t terminal.Terminal) brokenTerm) func(Limits) terminal.Manager {
	return breakManager(func() *broken { return &broken{term: term} })
}

// breakRead replaces ReadOutput.
func breakRead(read func(t terminal.Terminal, ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error)) func(Limits) terminal.Manager {
	return breakTerm(func(t terminal.Terminal) brokenTerm {
		return brokenTerm{read: func(ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
			return read(t, ctx, cursor, wait)
		}}
	})
}

// breakWrite replaces WriteInput.
func breakWrite(write func(t terminal.Terminal, ctx context.Context, text string) (int, error)) func(Limits) terminal.Manager {
	return breakTerm(func(t terminal.Terminal) brokenTerm {
		return brokenTerm{write: func(ctx context.Context, text string) (int, error) { return write(t, ctx, text) }}
	})
}

// breakStop replaces Stop.
func breakStop(stop func(t terminal.Terminal, ctx context.Context) (terminal.Info, error)) func(Limits) terminal.Manager {
	return breakTerm(func(t terminal.Terminal) brokenTerm {
		return brokenTerm{stop: func(ctx context.Context) (terminal.Info, error) { return stop(t, ctx) }}
	})
}

// breakInfo edits every Info.
func breakInfo(edit func(terminal.Info) terminal.Info) func(Limits) terminal.Manager {
	return breakTerm(func(terminal.Terminal) brokenTerm { return brokenTerm{info: edit} })
}

// breakCommand edits every Command before its start.
func breakCommand(edit func(terminal.Command) terminal.Command) func(Limits) terminal.Manager {
	return breakManager(func() *broken {
		return &broken{start: func(m terminal.Manager, ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
			return m.Start(ctx, edit(cmd))
		}}
	})
}

// breakOptions edits the options of the reference.
func breakOptions(edit func(*memterm.Options)) func(Limits) terminal.Manager {
	return func(l Limits) terminal.Manager {
		opts := reference(l)
		edit(opts)
		return memterm.New(opts)
	}
}

// A lock is a mutex on which a goroutine of a synctest bubble may block.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

func (l lock) hold() (release func()) {
	l <- struct{}{}
	return func() { <-l }
}

// errBroken is an error that a mutant invents.
var errBroken = errors.New("broken on purpose")
