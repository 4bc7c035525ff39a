package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/logqueue"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// The labels of a command ([terminal.Command.Labels]) that a [Control] takes for the
// name and the group of its session, until somebody gives others. TypedLabel holds the
// line that New types.
const (
	NameLabel  = "name"
	GroupLabel = "group"
	TypedLabel = "typed"
)

// The environments that have a meaning here: a session in any other runs elsewhere.
const (
	inClient = "client" // acpterm.Environment
	inAgent  = "local"  // localterm.Local
)

// Options configure a [Control]. The zero value is sensible.
type Options struct {
	// Shell is the interactive shell of New; "" is the user's (SHELL), or /bin/sh.
	Shell string

	// Logger gets what no caller is told; nil discards it.
	Logger *slog.Logger
}

// A Control is the [Handler], and [Attacher], over a [terminal.Manager]: its
// terminals, whoever starts them, are the sessions. Make it with [New].
type Control struct {
	m     terminal.Manager
	shell string
	log   *slog.Logger
	wg    sync.WaitGroup // the goroutines that type; Add with mu held, while !closed

	mu sync.Mutex
	// guards following
	notes  map[string]*note // by the terminal's id
	closed bool
}

var (
	_ Handler  = (*Control)(nil)
	_ Attacher = (*Control)(nil)
)

// A note is what a Control knows of a session beyond its terminal. The Control's mu
// guards it.
type note struct {
	name, group string
	size        terminal.Size // of the terminal, once it was resized here
	views       map[*attachment]struct{}
	typing      *typing // nil if New typed nothing into it
}

// New returns a Control over m. Nil options are the defaults.
func New(m terminal.Manager, options *Options) *Control {
	c := &Control{m: m, notes: make(map[string]*note)}
	if options != nil {
		c.shell, c.log = options.Shell, options.Logger
	}
	c.shell = cmp.Or(c.shell, userShell(), "/bin/sh")
	c.log = logqueue.New(c.log)
	return c
}

func userShell() string {
	if shell := os.Getenv("SHELL"); filepath.IsAbs(shell) {
		return shell
	}
	return ""
}

// Close ends what is still being typed. The sessions are the Manager's, and go on.
func (c *Control) Close() error {
	for _, cancel := range c.refuse() {
		cancel()
	}
	c.wg.Wait()
	return nil
}

func (c *Control) refuse() (typing []func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, n := range c.notes {
		if n.typing != nil {
			typing = append(typing, n.typing.cancel)
		}
	}
	return typing
}

// A session is a terminal, and what a Control knew of it at one instant.
type session struct {
	terminal.Terminal
	info terminal.Info
	id   string
	note note // a copy: views must not be used
}

// sessions returns all sessions, in the order of their starts.
func (c *Control) sessions() []session {
	var all []session
	for _, t := range c.m.List() {
		all = append(all, session{Terminal: t, info: t.Info()})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := make(map[string]bool, len(all))
	for i := range all {
		s := &all[i]
		s.id = s.info.ID
		s.note = *c.noteOf(s.id, s.info.Command.Labels)
		kept[s.id] = true
	}
	maps.DeleteFunc(c.notes, func(id string, n *note) bool {
		return !kept[id] && len(n.views) == 0 && (n.typing == nil || await.Closed(n.typing.done))
	})
	return all
}

// noteOf returns the note of a session; the labels are those of its command. Called
// with mu held.
func (c *Control) noteOf(id string, labels map[string]string) *note {
	n := c.notes[id]
	if n == nil {
		n = &note{name: oneLine(labels[NameLabel]), group: oneLine(labels[GroupLabel])}
		n.name = cmp.Or(n.name, id)
		c.notes[id] = n
	}
	return n
}

// oneLine returns a label as a name: trimmed, and without control characters.
func oneLine(label string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, label))
}

// change changes what is known of a session.
func (c *Control) change(s session, f func(*note)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.noteOf(s.id, s.info.Command.Labels))
}

// enteredWithin is how long after the start of its program a command may be entered: in
// a client's terminal it runs before the client has answered, and may name itself.
const enteredWithin = time.Second / 2

// find returns the session with this id or name. While something runs, or starts, it
// waits a little for one that is not known.
func (c *Control) find(idOrName string) (session, error) {
	if idOrName == "" {
		return session{}, fmt.Errorf("%w: name a session by its id or its name", ErrBad)
	}
	for deadline := time.Now().Add(enteredWithin); ; time.Sleep(10 * time.Millisecond) {
		s, err := c.known(idOrName)
		if err == nil || !time.Now().Before(deadline) || !c.m.Busy() {
			return s, err
		}
	}
}

// known returns the session with this id or name, if it is known now.
func (c *Control) known(idOrName string) (session, error) {
	all := c.sessions()
	for _, same := range []func(session) bool{
		func(s session) bool { return s.id == idOrName },
		func(s session) bool { return s.note.name == idOrName },
	} {
		if i := slices.IndexFunc(all, same); i >= 0 {
			return all[i], nil
		}
	}
	return session{}, fmt.Errorf("%w: %q", ErrUnknown, idOrName)
}

// members returns the sessions of a group, of which there is at least one.
func (c *Control) members(group string) ([]session, error) {
	group = strings.TrimSpace(group)
	if group == "" {
		return nil, fmt.Errorf("%w: name a group", ErrNoGroup)
	}
	all := slices.DeleteFunc(c.sessions(), func(s session) bool { return s.note.group != group })
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: %q", ErrNoGroup, group)
	}
	return all, nil
}

// List implements [Handler].
func (c *Control) List(ctx context.Context, group string) ([]SessionInfo, error) {
	all := c.sessions()
	if group = strings.TrimSpace(group); group != "" {
		all = slices.DeleteFunc(all, func(s session) bool { return s.note.group != group })
	}
	return c.describe(ctx, all), nil
}

// describe looks at all sessions at once.
func (c *Control) describe(ctx context.Context, all []session) []SessionInfo {
	infos := make([]SessionInfo, len(all))
	var looks sync.WaitGroup
	for i, s := range all {
		looks.Go(func() { infos[i] = c.look(ctx, s) })
	}
	looks.Wait()
	return infos
}

// readLimit is how much text Read returns, so that its answer fits a line also where
// JSON doubles much of it.
const readLimit = 12 << 20

// Read implements [Handler].
func (c *Control) Read(ctx context.Context, idOrName string, tail int) (string, error) {
	if tail < 0 {
		return "", fmt.Errorf("%w: the last %d lines", ErrBad, tail)
	}
	s, err := c.find(idOrName)
	if err != nil {
		return "", err
	}
	text, err := view.ReadAll(ctx, s, readLimit, 0)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", s.id, err)
	}
	return lastLines(text.Text, tail), nil
}

// lastLines returns the last n lines of a text, or all of it if n is 0.
func lastLines(text string, n int) string {
	if n == 0 {
		return text
	}
	at := len(strings.TrimSuffix(text, "\n"))
	for ; n > 0 && at >= 0; n-- {
		at = strings.LastIndexByte(text[:at], '\n')
	}
	return text[at+1:]
}

// Send implements [Handler]. It waits while New types, and while the program does not
// read.
func (c *Control) Send(ctx context.Context, idOrName, text string) error {
	s, err := c.find(idOrName)
	if err != nil {
		return err
	}
	return s.send(ctx, text)
}

func (s session) send(ctx context.Context, text string) error {
	if t := s.note.typing; t != nil {
		select {
		case <-t.done:
		case <-s.Done():
		case <-ctx.Done():
			return fmt.Errorf("send to %s: its shell does not take its first line: %w", s.id, context.Cause(ctx))
		}
	}
	if s.Info().Outcome.Ended() {
		return fmt.Errorf("send to %s: %w", s.id, ErrExited)
	}
	if why := s.readOnly(); why != "" {
		return fmt.Errorf("send to %s: %w: %s", s.id, ErrReadOnly, why)
	}
	n, err := s.WriteInput(ctx, text)
	switch {
	case errors.Is(err, terminal.ErrEnded):
		return fmt.Errorf("send to %s: %w", s.id, ErrExited)
	case err != nil && n > 0:
		return fmt.Errorf("send to %s: %d of %d bytes were taken: %w", s.id, n, len(text), err)
	case err != nil:
		return fmt.Errorf("send to %s: %w", s.id, err)
	}
	return nil
}

// readOnly returns why nothing can be typed into the session, or "".
func (s session) readOnly() string {
	switch {
	case s.info.Environment == inClient:
		return "it runs in the agent's client: type there"
	case !s.info.Command.Stdin:
		return "it was started without an input"
	}
	return ""
}

// Kill implements [Handler]. Of a session that has exited it ends what that has left
// behind.
func (c *Control) Kill(ctx context.Context, idOrName string) error {
	s, err := c.find(idOrName)
	if err != nil {
		return err
	}
	return s.kill(ctx)
}

func (s session) kill(ctx context.Context) error {
	info, err := s.Stop(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("kill %s: %w", s.id, err)
	case info.Unconfirmed():
		return fmt.Errorf("kill %s: it %v", s.id, info)
	}
	return nil
}

// Rename implements [Handler].
func (c *Control) Rename(_ context.Context, idOrName, name string) error {
	if strings.TrimSpace(name) == "" {
		return fmt.Errorf("%w: the new name is empty", ErrBad)
	}
	if err := checkName("name", name); err != nil {
		return err
	}
	s, err := c.find(idOrName)
	if err == nil {
		c.change(s, func(n *note) { n.name = name })
	}
	return err
}

// SetGroup implements [Handler].
func (c *Control) SetGroup(_ context.Context, idOrName, group string) error {
	group = strings.TrimSpace(group)
	if err := checkName("group", group); err != nil {
		return err
	}
	s, err := c.find(idOrName)
	if err == nil {
		c.change(s, func(n *note) { n.group = group })
	}
	return err
}

// maxName is how many bytes a name or a group may have.
const maxName = 256

func checkName(what, s string) error {
	switch {
	case strings.ContainsFunc(s, unicode.IsControl):
		return fmt.Errorf("%w: the %s %q has a line break or another control character", ErrBad, what, s)
	case len(s) > maxName:
		return fmt.Errorf("%w: the %s has %d bytes, of at most %d", ErrBad, what, len(s), maxName)
	}
	return nil
}

// GroupSend implements [Handler].
func (c *Control) GroupSend(ctx context.Context, group, text string) (int, error) {
	all, err := c.members(group)
	if err != nil {
		return 0, err
	}
	all = slices.DeleteFunc(all, func(s session) bool { return s.Info().Outcome.Ended() })
	if len(all) == 0 {
		return 0, fmt.Errorf("%w: every one of the group %q", ErrExited, group)
	}
	return each(all, func(s session) error { return s.send(ctx, text) })
}

// GroupKill implements [Handler].
func (c *Control) GroupKill(ctx context.Context, group string) (int, error) {
	all, err := c.members(group)
	if err != nil {
		return 0, err
	}
	return each(all, func(s session) error { return s.kill(ctx) })
}

// each calls f for all sessions at once, and returns for how many it did not fail.
func each(all []session, f func(session) error) (int, error) {
	errs := make([]error, len(all))
	var calls sync.WaitGroup
	for i, s := range all {
		calls.Go(func() { errs[i] = f(s) })
	}
	calls.Wait()
	failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	return len(all) - len(failed), errors.Join(failed...)
}

// look returns what is known of a session now.
func (c *Control) look(ctx context.Context, s session) SessionInfo {
	state, e := s.state(ctx)
	info := s.Info()
	if info.Outcome.Ended() { // perhaps since then
		state, e = Done, terminal.Evidence{Certainty: terminal.Certain, Reason: info.String()}
	}
	command := cmp.Or(info.Command.Labels[TypedLabel], info.Command.String())
	si := SessionInfo{
		ID: s.id, Name: s.note.name, Group: s.note.group,
		Status: Running, AgentState: state,
		Cwd: info.Dir, Transport: TransportLocal, Environment: info.Environment,
		Evidence: e.Reason, Certainty: e.Certainty, PID: e.Proc.PID, Process: e.Proc.Command, Secret: e.Secret,
		Command: command, ReadOnly: s.readOnly(),
		Started: info.Started, Ended: info.Ended,
	}
	if info.Environment == inClient {
		si.Transport = TransportClient
	}
	if !info.Outcome.Ended() {
		return si
	}
	si.Status, si.Outcome, si.Signal, si.ReadOnly = Exited, info.Outcome, info.Exit.Signal, ErrExited.Error()
	if si.ExitCode = new(-1); info.Exit.Code != nil && info.Exit.Signal == "" {
		*si.ExitCode = *info.Exit.Code
	}
	if info.Err != nil {
		si.Error = info.Err.Error()
	}
	return si
}

// pollInterval is how often is looked for what nobody tells.
const pollInterval = 50 * time.Millisecond
