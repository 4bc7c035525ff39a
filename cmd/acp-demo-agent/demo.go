package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acphost"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/cmd/acp-demo-agent/agent"
	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/version"
	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
)

const demoUsage = `usage: acp-demo-agent demo [--record FILE]

Plays a short story on the screen: this program starts itself as an ACP agent
and is its client, first with terminals, then with display-only terminals, then
with plain text. Nothing outside of it is needed, and nothing of it is left.

  --record FILE  also write it to FILE, with colours, as an asciicast v2
`

// demoBound is far more than the demo takes.
const demoBound = time.Minute

// A scene is the story told to one kind of client.
type scene struct {
	presentation     bridge.Presentation
	heading, remark  string
	terminal, output bool // capabilities: terminal, _meta.terminal_output
}

var scenes = []scene{
	{
		presentation: bridge.PresentClient, terminal: true, output: true,
		heading: "1. A client with terminals",
		remark:  "Commands run in the client. One that takes input runs in the agent.",
	},
	{
		presentation: bridge.PresentDisplay, output: true,
		heading: "2. A client that can only display terminals",
		remark:  "Commands run in the agent, which streams their output.",
	},
	{
		presentation: bridge.PresentText,
		heading:      "3. A client that knows no terminals",
		remark:       "Commands run in the agent, and their output is text that grows.",
	},
}

// A row is a line of the summary.
type row struct {
	scene  bridge.Presentation
	step   string
	report agent.Report
	wrong  string // what was expected, if it was not so
}

func runDemo(args []string) int {
	fs := newFlags("acp-demo-agent demo")
	sabotage := fs.String("break", "", "")
	record := fs.String("record", "", "")
	if status, done := parse(fs, args, demoUsage); done {
		return status
	}
	switch *sabotage {
	case "", "leak", "orphan":
	default:
		fmt.Fprintf(os.Stderr, "%s: --break is leak or orphan\n", fs.Name())
		return exitUsage
	}

	ctx, cancel := context.WithTimeoutCause(context.Background(), demoBound,
		fmt.Errorf("the demo took more than %v", demoBound))
	defer cancel()
	ctx, stop := signal.NotifyContext(ctx, endSignals()...)
	defer stop()

	_, noColor := os.LookupEnv("NO_COLOR")
	width, isTerminal := terminalWidth(os.Stdout)
	width = columns(width)
	out := &output{w: os.Stdout}
	var drawn io.Writer = out
	var recorded *recording
	if *record != "" {
		var err error
		if recorded, err = newRecording(*record, width); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", fs.Name(), err)
			return exitUsage
		}
		drawn = io.MultiWriter(recorded, out)
	}
	d := &demo{
		screen:   newScreen(drawn, width, !noColor && (isTerminal || recorded != nil)),
		sabotage: *sabotage,
	}
	d.screen.line(plain, "An ACP agent runs shell commands, and this program is its client, too.")
	failed := false
	if d.sabotage != "" {
		scenes = scenes[:1] // enough to measure
	}
	for _, s := range scenes {
		if err := d.play(ctx, s); err != nil {
			d.screen.line(red, fmt.Sprintf("%s: %v", s.presentation, err))
			failed = true
			break
		}
	}
	failed = !d.sum() || failed
	if recorded != nil {
		if err := recorded.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", fs.Name(), err)
			failed = true
		}
	}
	if failed {
		return exitFailed
	}
	if out.err != nil {
		fmt.Fprintf(os.Stderr, "%s: nobody could see it: %v\n", fs.Name(), out.err)
		return exitFailed
	}
	return exitOK
}

// An output remembers that it could not be written. It is written to by one
// screen, under its lock.
type output struct {
	w   io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	o.err = cmp.Or(o.err, err)
	return n, err
}

// A demo plays the scenes.
type demo struct {
	screen   *screen
	sabotage string // "", "leak" or "orphan"

	rows   []row
	leaked int // terminals that an agent did not release
}

// tokenName is an environment variable that every process of a demo inherits,
// so that those that are left can be counted.
const tokenName = "TERMBRIDGE_DEMO"

// token is its value in this run.
var token = rand.Text()

// play starts an agent and tells it the story as a client of one kind.
func (d *demo) play(ctx context.Context, s scene) (err error) {
	d.screen.heading(s.heading)
	d.screen.line(plain, s.remark)
	d.screen.next()

	env := execenv.Env{}.InheritSafe().With(map[string]string{tokenName: token})
	local := execenv.NewLocal(nil)
	manager := localterm.New(&localterm.Options{
		Executors: map[string]execenv.Executor{"client": local}, Default: "client", Env: &env,
	})
	c := &client{
		Host: acphost.New(func(acp.SessionId) terminal.Manager { return manager },
			&acphost.Options{Display: s.output, TTY: true, Show: d.screen.show}),
		loseRelease: d.sabotage == "leak" && s.terminal,
	}
	defer func() { err = errors.Join(err, c.Close(), manager.Close(), local.Close()) }()

	exe, err := os.Executable()
	if err != nil { // without /proc
		exe, err = os.Args[0], nil
		if strings.Contains(exe, "/") {
			exe, err = filepath.Abs(exe)
		}
	}
	if err != nil {
		return err
	}
	// The agent is killed if it outlives ctx by much: it ends by itself, with
	// all that it started, when its input does.
	alive, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	child := local.Command(alive, execenv.Spec{
		Class: execenv.ClassUserHook, Path: exe, Args: []string{"--state", "off"}, Env: env, Stderr: os.Stderr, Group: true,
	})
	stdin, err1 := child.StdinPipe()
	stdout, err2 := child.StdoutPipe()
	if err := errors.Join(err1, err2, child.Start()); err != nil {
		return err
	}
	conn := acp.NewClientSideConnection(c, stdin, c.Reader(stdout))
	conn.SetLogger(slog.New(slog.DiscardHandler))
	p := &player{demo: d, scene: s, client: c, conn: conn}
	err = p.session(ctx)
	stdin.Close()
	select {
	case <-conn.Done():
	case <-time.After(2 * limits.SettleTimeout):
		err = errors.Join(err, errors.New("the agent did not exit at the end of its input"))
		kill()
	}
	if waitErr := child.Wait(); waitErr != nil {
		err = errors.Join(err, fmt.Errorf("the agent: %w", waitErr))
	}
	for _, id := range c.Sessions() {
		d.leaked += len(c.Unreleased(id))
	}
	return err
}

// A client is the demo's ACP client: terminals, and nothing else.
type client struct {
	*acphost.Host
	messages    atomic.Int64 // of the agent
	loseRelease bool         // sabotage: the first release is answered and not done
	lost        atomic.Bool
}

var _ acp.Client = (*client)(nil)

func (c *client) SessionUpdate(ctx context.Context, n acp.SessionNotification) error {
	if n.Update.AgentMessageChunk != nil {
		c.messages.Add(1)
	}
	return c.Host.SessionUpdate(ctx, n)
}

func (c *client) ReleaseTerminal(ctx context.Context, req acp.ReleaseTerminalRequest) (acp.ReleaseTerminalResponse, error) {
	if c.loseRelease && c.lost.CompareAndSwap(false, true) {
		return acp.ReleaseTerminalResponse{}, nil
	}
	return c.Host.ReleaseTerminal(ctx, req)
}

func (c *client) ReadTextFile(context.Context, acp.ReadTextFileRequest) (acp.ReadTextFileResponse, error) {
	return acp.ReadTextFileResponse{}, acp.NewMethodNotFound(acp.ClientMethodFsReadTextFile)
}

func (c *client) WriteTextFile(context.Context, acp.WriteTextFileRequest) (acp.WriteTextFileResponse, error) {
	return acp.WriteTextFileResponse{}, acp.NewMethodNotFound(acp.ClientMethodFsWriteTextFile)
}

func (c *client) RequestPermission(context.Context, acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
	return acp.RequestPermissionResponse{}, acp.NewMethodNotFound(acp.ClientMethodSessionRequestPermission)
}

// A player tells the story to one agent.
type player struct {
	*demo
	scene  scene
	client *client
	conn   *acp.ClientSideConnection
	id     acp.SessionId
}

// session plays the story in a session of its own.
func (p *player) session(ctx context.Context) error {
	capabilities := acp.ClientCapabilities{Terminal: p.scene.terminal}
	if p.scene.output {
		capabilities.Meta = map[string]any{"terminal_output": true}
	}
	_, err := p.conn.Initialize(ctx, acp.InitializeRequest{
		ProtocolVersion:    acp.ProtocolVersionNumber,
		ClientInfo:         &acp.Implementation{Name: "acp-demo-client", Version: version.String()},
		ClientCapabilities: capabilities,
	})
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	s, err := p.conn.NewSession(ctx, acp.NewSessionRequest{Cwd: dir, McpServers: []acp.McpServer{}})
	if err != nil {
		return fmt.Errorf("session/new: %w", err)
	}
	p.id = s.SessionId
	for _, step := range []func(context.Context) error{
		p.foreground, p.timeout, p.background, p.cancel, p.leaveBehind,
	} {
		if err = step(ctx); err != nil {
			break
		}
	}
	// Also after an interrupt: a session that is not closed leaks its terminals.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*limits.SettleTimeout)
	defer cancel()
	p.screen.event("session/close")
	if _, closeErr := p.conn.CloseSession(ctx, acp.CloseSessionRequest{SessionId: p.id}); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("session/close: %w", closeErr))
	}
	if err == nil {
		err = p.leftBehind(ctx)
	}
	return err
}

func (p *player) foreground(ctx context.Context) error {
	r, _, err := p.prompt(ctx, `!for i in 1 2 3; do echo "compiling $i of 3"; sleep 0.2; done; exit 3`)
	return p.row(err, "foreground", r, expect(r, terminal.Exited, "compiling 3 of 3"))
}

func (p *player) timeout(ctx context.Context) error {
	r, _, err := p.prompt(ctx, `run --timeout 1s -- echo "waiting for a server"; sleep 60`)
	return p.row(err, "timeout", r, expect(r, terminal.TimedOut, "waiting for a server"))
}

func (p *player) background(ctx context.Context) error {
	r, _, err := p.prompt(ctx, `bg --input -- echo "ready"; while read -r x; do echo "got $x"; done`)
	if err != nil || r.Outcome != terminal.Running {
		return p.row(err, "background", r, expect(r, terminal.Running, ""))
	}
	id, cursor := r.ID, int64(0)
	p.screen.forget()
	read := func(want string) error {
		var all strings.Builder
		for range 5 {
			r, err := p.read(ctx, id, cursor)
			if err != nil {
				return err
			}
			cursor = r.NextCursor
			if all.WriteString(r.Output); strings.Contains(all.String(), want) {
				return nil
			}
		}
		return fmt.Errorf("read %q from %s, and no %q", all.String(), id, want)
	}
	if err := read("ready"); err != nil {
		return err
	}
	if _, _, err := p.prompt(ctx, "input "+id+` hello\n`); err != nil {
		return err
	}
	if p.scene.output { // a display shows what goes on in the background
		if err := p.await(ctx, "got hello"); err != nil {
			return err
		}
	}
	if err := read("got hello"); err != nil {
		return err
	}
	r, _, err = p.prompt(ctx, "kill "+id)
	return p.row(err, "background", r, expect(r, terminal.Stopped, "got hello"))
}

// read asks for output of a background command.
func (p *player) read(ctx context.Context, id string, cursor int64) (r agent.ReadReport, err error) {
	_, raw, err := p.prompt(ctx, fmt.Sprintf("output %s --since %d --wait 2s", id, cursor))
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	return r, err
}

func (p *player) cancel(ctx context.Context) error {
	p.screen.forget()
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	cancelled := make(chan error, 1)
	go func() { // joined below
		err := p.await(waiting, "deploying")
		if err == nil {
			p.screen.event("session/cancel")
			err = p.conn.Cancel(waiting, acp.CancelNotification{SessionId: p.id})
		}
		cancelled <- err
	}()
	r, _, err := p.prompt(ctx, `!echo "deploying"; sleep 60`)
	stop()
	return p.row(errors.Join(err, <-cancelled), "cancel", r, expect(r, terminal.Cancelled, "deploying"))
}

// leaveBehind starts what the end of the session has to end.
func (p *player) leaveBehind(ctx context.Context) error {
	r, _, err := p.prompt(ctx, `bg -- sleep 300`)
	return p.row(err, "left running", r, expect(r, terminal.Running, ""))
}

// leftBehind looks what has become of that: the agent cannot say, but its process
// is gone, and a terminal shows how it ended.
func (p *player) leftBehind(ctx context.Context) error {
	row, cards := &p.rows[len(p.rows)-1], p.client.Cards(p.id)
	card := cards[len(cards)-1]
	running := func() bool {
		left, err := processesWith(tokenName + "=" + token)
		if errors.Is(err, errNoProcesses) {
			return false // or not
		}
		return err != nil || slices.ContainsFunc(left, func(proc terminal.Proc) bool { return strings.HasSuffix(proc.Command, "sleep 300") })
	}
	for end := time.Now().Add(2 * time.Second); running(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) || ctx.Err() != nil {
			row.wrong = "it should have ended with its session"
			return context.Cause(ctx)
		}
	}
	row.report.Outcome = terminal.Stopped
	row.report.DurationMS = time.Since(card.Announced).Milliseconds()
	for _, view := range card.Terminals {
		if view.Exit != nil {
			row.report.ExitCode, row.report.Signal = view.Exit.Code, nil
			if view.Exit.Signal != "" {
				row.report.Signal = &view.Exit.Signal
			}
		}
	}
	return nil
}

// prompt sends a prompt of one line and returns the rawOutput of its tool call,
// decoded and as it came, when everything of it is on the screen.
func (p *player) prompt(ctx context.Context, line string) (r agent.Report, raw json.RawMessage, err error) {
	before := len(p.client.Cards(p.id))
	p.screen.event(line)
	_, err = p.conn.Prompt(ctx, acp.PromptRequest{SessionId: p.id, Prompt: []acp.ContentBlock{acp.TextBlock(line)}})
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx) // the SDK hides it
		}
		return r, nil, fmt.Errorf("%s: %w", line, err)
	}
	if err := p.until(ctx, func() bool { return p.screen.drawnMessages() >= int(p.client.messages.Load()) }); err != nil {
		return r, nil, fmt.Errorf("%s: %w", line, err)
	}
	cards := p.client.Cards(p.id)
	if len(cards) != before+1 {
		return r, nil, fmt.Errorf("%s: %d tool calls, want 1", line, len(cards)-before)
	}
	if raw, err = json.Marshal(cards[before].RawOutput); err == nil {
		err = json.Unmarshal(raw, &r)
	}
	return r, raw, err
}

// await waits until the user has seen text.
func (p *player) await(ctx context.Context, text string) error {
	return p.until(ctx, func() bool { return p.screen.seen(text) })
}

func (p *player) until(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-p.conn.Done():
			return errors.New("the agent is gone")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// row adds a line to the summary, unless there is an error, which it returns.
func (p *player) row(err error, step string, r agent.Report, wrong string) error {
	if err == nil {
		p.rows = append(p.rows, row{scene: p.scene.presentation, step: step, report: r, wrong: wrong})
	}
	return err
}

// expect returns what is wrong with a report, or "".
func expect(r agent.Report, outcome terminal.Outcome, output string) string {
	switch {
	case r.Outcome != outcome:
		return fmt.Sprintf("the outcome should be %s", outcome)
	case !strings.Contains(r.Output, output):
		return fmt.Sprintf("the output should have %q", output)
	}
	return ""
}

// sum draws the summary and measures what is left. It reports whether all is as
// it should be.
func (d *demo) sum() (ok bool) {
	if d.sabotage == "orphan" {
		local := execenv.NewLocal(nil)
		defer local.Close()
		orphan := local.Command(context.Background(), execenv.Spec{
			Path: "sleep", Args: []string{"60"}, Group: true,
			Env: execenv.Env{}.With(map[string]string{tokenName: token}),
		})
		if err := orphan.Start(); err != nil {
			d.screen.line(red, err.Error())
			return false
		}
	}
	d.screen.heading("Summary")
	ok = true
	for line := range strings.Lines(d.table()) {
		d.screen.row(strings.TrimSpace(line))
	}
	for _, r := range d.rows {
		if r.wrong != "" {
			ok = false
			d.screen.line(red, fmt.Sprintf("%s, %s: %s", r.scene, r.step, r.wrong))
		}
	}
	left, err := processesLeft()
	count := fmt.Sprint(len(left))
	if errors.Is(err, errNoProcesses) {
		count, err = "an unknown number of", nil
	}
	if err != nil {
		d.screen.line(red, fmt.Sprintf("processes cannot be counted: %v", err))
	}
	for _, proc := range left {
		d.screen.line(red, "left: "+proc.String())
	}
	d.screen.line(plain, "")
	verdict := fmt.Sprintf("%d terminals leaked, %s processes left", d.leaked, count)
	ok = ok && err == nil && d.leaked == 0 && len(left) == 0
	if ok {
		d.screen.line(bold, verdict)
	} else {
		d.screen.line(red, verdict)
	}
	return ok
}

// table returns the rows of the summary, in two forms: where there is no room for
// all columns, each client has a table of its own, without how it sees each
// command.
func (d *demo) table() string {
	var wide, narrow strings.Builder
	w, n := tabwriter.NewWriter(&wide, 0, 0, 2, ' ', 0), tabwriter.NewWriter(&narrow, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CLIENT\tSTEP\tSEEN AS\tOUTCOME\tEXIT\tTIME")
	fmt.Fprintln(n, "STEP\tOUTCOME\tEXIT\tTIME")
	for i, r := range d.rows {
		exit := "-"
		if r.report.ExitCode != nil {
			exit = fmt.Sprint(*r.report.ExitCode)
		} else if r.report.Signal != nil {
			exit = *r.report.Signal
		}
		end := fmt.Sprintf("%s\t%s\t%.1fs", r.report.Outcome, exit, float64(r.report.DurationMS)/1000)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.scene, r.step, r.report.Presentation, end)
		if i == 0 || r.scene != d.rows[i-1].scene {
			fmt.Fprintf(n, "%s:\t\t\t\n", r.scene)
		}
		fmt.Fprintf(n, "%s\t%s\n", r.step, end)
	}
	w.Flush()
	n.Flush()
	for line := range strings.Lines(wide.String()) {
		if utf8.RuneCountInString(strings.TrimSpace(line)) > d.screen.width {
			return narrow.String()
		}
	}
	return wide.String()
}

// errNoProcesses is why processes cannot be counted: there is no /proc.
var errNoProcesses = errors.New("/proc is not mounted")

// processesLeft returns the processes of this run that are left, once what is
// about to exit has had time to.
func processesLeft() ([]terminal.Proc, error) {
	deadline := time.Now().Add(time.Second)
	for {
		left, err := processesWith(tokenName + "=" + token)
		if err != nil || len(left) == 0 || time.Now().After(deadline) {
			return left, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}
