package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/control"
	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// A turn is one prompt at work.
type turn struct {
	agent   *Agent
	session *session
	turn    *bridge.Turn
}

// jobLabel marks commands that bg started.
const jobLabel = "job"

// run runs the lines of a prompt, in order or at once. A cancel stops it.
func (t *turn) run(ctx context.Context, prompt []acp.ContentBlock) {
	words, refusal := promptText(prompt)
	t.keep(historyEntry{User: words})
	t.titled(ctx, words)
	if refusal != "" {
		t.say(ctx, refusal)
		return
	}
	lines, parallel := splitPrompt(words)
	if t.agent.opts.Examine != nil {
		t.agent.opts.Examine.seen("a prompt")
		lines, parallel = []string{string(verbProbe)}, false // whatever the client has asked
	}
	if len(lines) == 0 {
		t.say(ctx, nothingAsked)
	}
	if parallel {
		var wg sync.WaitGroup
		for _, line := range lines {
			do := t.prepare(line) // here, so that the tool calls are numbered as the lines are
			wg.Go(func() { do(ctx) })
		}
		wg.Wait()
		return
	}
	for _, line := range lines {
		if ctx.Err() != nil {
			return
		}
		t.prepare(line)(ctx)
	}
}

// say sends a piece of the agent's message. It is said even if ctx has ended,
// since a cancelled turn says how its commands ended before it is answered.
func (t *turn) say(ctx context.Context, message string) {
	t.keep(historyEntry{Agent: message})
	t.check("message", t.session.state.Update(context.WithoutCancel(ctx), acp.UpdateAgentMessageText(message)))
}

// keep adds to what is kept of the session.
func (t *turn) keep(e historyEntry) {
	t.check("to the history", t.session.history.add(e))
}

// check logs what could not be sent, unless there is nobody to send it to.
func (t *turn) check(what string, err error) {
	if err != nil && !errors.Is(err, terminal.ErrConnectionLost) && !errors.Is(err, terminal.ErrClosed) {
		t.agent.opts.Logger.Warn("not sent: "+what, "session", t.session.id, "err", err)
	}
}

// prepare makes the tool call of a line, if it is one, and returns what does it.
func (t *turn) prepare(line string) func(ctx context.Context) {
	req, err := parse(line)
	if errors.Is(err, errUnknownLine) {
		return func(ctx context.Context) { t.say(ctx, unknownLine(line)) }
	}
	if err == nil {
		err = t.place(&req)
	}
	if err == nil && req.cmd.Dir != "" && !req.elsewhere() {
		if dirErr := checkDir(req.cmd.Dir); dirErr != nil {
			err = fmt.Errorf("%s: --dir %w", req.verb, dirErr)
		}
	}
	if req.cmd.Line != "" && !req.elsewhere() {
		req.cmd.Shell = t.agent.opts.Shell
	}
	call := t.call(req)
	if err != nil {
		return func(ctx context.Context) { t.fail(ctx, call, req, err) }
	}
	return func(ctx context.Context) { t.do(ctx, call, req) }
}

// do does a line.
func (t *turn) do(ctx context.Context, call *bridge.Call, req request) {
	switch req.verb {
	case verbRun, verbBg:
		if err := t.permit(ctx, call, req); err != nil {
			t.fail(ctx, call, req, err)
		} else if req.verb == verbRun {
			t.exec(ctx, call, req)
		} else {
			t.background(ctx, call, req)
		}
	case verbJobs:
		t.jobs(ctx, call)
	case verbEnv:
		t.environments(ctx, call)
	case verbProbe:
		t.probe(ctx, call, req)
	case verbHelp:
		t.end(ctx, call, helpReport(), helpText, nil, helpText)
	case verbWait:
		if req.state != "" {
			t.waitState(ctx, call, req)
			return
		}
		fallthrough
	default:
		term, err := t.command(req.id)
		if err != nil {
			t.fail(ctx, call, req, err)
			return
		}
		switch req.verb {
		case verbOutput:
			t.output(ctx, call, req, term)
		case verbInput:
			t.input(ctx, call, req, term)
		case verbKeys:
			t.keys(ctx, call, req, term)
		case verbScreen:
			t.screen(ctx, call, req, term)
		case verbWait:
			t.wait(ctx, call, req, term)
		case verbKill:
			t.kill(ctx, call, req, term)
		}
	}
}

// callPrefix is before the number of a tool call in its id.
const callPrefix = "call_"

// call makes the tool call of a line.
func (t *turn) call(req request) *bridge.Call {
	card := req.card(t.session.cwd)
	card.ToolCallId = acp.ToolCallId(callPrefix + strconv.FormatInt(t.agent.calls.Add(1), 10))
	return t.turn.ToolCall(card)
}

// end gives a tool call its final update and says what came of it.
func (t *turn) end(ctx context.Context, call *bridge.Call, rawOutput any, content string, failure error, message string) {
	t.check("rawOutput", call.Update(acp.SessionToolCallUpdate{RawOutput: rawOutput}))
	call.End(content, failure)
	if t.session.history != nil {
		record, err := call.Record(context.WithoutCancel(ctx))
		t.check("record", err)
		t.keep(historyEntry{Call: &record})
	}
	t.say(ctx, message)
}

// errTurnCancelled is what stands for the errors of a cancelled context.
var errTurnCancelled = errors.New("the turn was cancelled")

// fail ends a tool call that came to nothing.
func (t *turn) fail(ctx context.Context, call *bridge.Call, req request, err error) {
	r := Report{Outcome: terminal.Failed, Presentation: bridge.PresentText, ID: req.id}
	if ctx.Err() != nil {
		r.Outcome = terminal.Cancelled
		err = errTurnCancelled
	}
	if what := advice(err); what != "" {
		err = fmt.Errorf("%w; %s", err, what)
	}
	r.setError(err)
	t.end(ctx, call, r, r.Error, err, describe(req.title, r))
}

// permit asks the user whether a command may run, if that is to be asked. To
// allow it always is to allow exactly what the card shows.
func (t *turn) permit(ctx context.Context, call *bridge.Call, req request) error {
	if !t.agent.opts.Ask {
		return nil
	}
	key, err := json.Marshal(req.card(t.session.cwd).RawInput)
	switch {
	case err != nil:
		return err
	case len(key) > askBudget:
		return fmt.Errorf("the command has %d bytes, too many to show the user all of it, so it did not run: put it into a file, or start the agent without --ask", len(key))
	}
	err = call.Permit(ctx, string(key))
	if errors.Is(err, errors.ErrUnsupported) {
		return errNoAsk
	}
	return err
}

// errNoAsk is the error of --ask with a client that cannot ask.
var errNoAsk = errors.New("the client cannot ask its user, so the command did not run: start the agent without --ask")

// exec runs a command and waits for it, until it is sent to the background.
func (t *turn) exec(ctx context.Context, call *bridge.Call, req request) {
	after := await.Forever
	if req.backgroundAfter > 0 {
		after = req.backgroundAfter
		req.job()
	}
	result, err := call.ExecFor(ctx, req.cmd, after)
	if result == nil {
		t.fail(ctx, call, req, err)
		return
	}
	r := Report{
		Presentation: result.Presentation, TerminalID: result.TerminalID, ID: result.ID,
		DurationMS: milliseconds(result.Duration), Environment: named(result.Environment),
	}
	r.setExit(result.Outcome, result.Exit)
	r.setSurvivors(result.Survivors)
	budget := outputBudget
	if r.Presentation == bridge.PresentText {
		budget = outputTextBudget
	}
	r.setOutput(result.Output, result.Truncated, budget)
	reason := err
	if r.Outcome == terminal.Cancelled { // that needs none, but for what it met
		reason = nil
		if term, _ := t.session.state.Get(r.ID); term != nil {
			reason = term.Info().Err
		}
	}
	r.setError(reason)
	if r.Outcome == terminal.Running {
		t.end(ctx, call, r, "running as "+r.ID, err, fmt.Sprintf("%s %v; it goes on in the background.\n", code(req.title), result))
		return
	}
	// The content is the bridge's: the terminal, or what the command has written.
	t.end(ctx, call, r, "", err, describe(req.title, r))
}

// job marks the command as one that jobs lists.
func (r *request) job() {
	if r.cmd.Labels == nil {
		r.cmd.Labels = map[string]string{}
	}
	r.cmd.Labels[jobLabel] = r.title
}

// background starts a command that survives the turn.
func (t *turn) background(ctx context.Context, call *bridge.Call, req request) {
	req.job()
	term, err := call.StartBackground(ctx, req.cmd)
	if err != nil {
		t.fail(ctx, call, req, err)
		return
	}
	// A short command may have ended already. Nobody waited for it, so what is
	// said is that it was started.
	r := t.report(term.Info())
	r.setExit(terminal.Running, terminal.Exit{})
	r.DurationMS = 0
	if req.cmd.Stdin {
		_ = t.session.screen(term).Read(ctx) // so that it sees all
	}
	t.end(ctx, call, r, "running as "+r.ID, nil, fmt.Sprintf("%s is running as %s.\n", code(req.title), code(r.ID)))
}

// report is what is known of a command of the session.
func (t *turn) report(info terminal.Info) Report {
	p, terminalID := t.session.state.Presentation(info.ID)
	return report(info, cmp.Or(p, bridge.PresentText), terminalID)
}

// jobs lists what bg started.
func (t *turn) jobs(ctx context.Context, call *bridge.Call) {
	j := JobsReport{Jobs: []JobReport{}}
	var list strings.Builder
	for _, term := range t.session.state.List() {
		info := term.Info()
		title, isJob := info.Command.Labels[jobLabel]
		if !isJob {
			continue
		}
		r := t.report(info)
		name, group := info.Command.Labels[control.NameLabel], info.Command.Labels[control.GroupLabel]
		j.Jobs = append(j.Jobs, JobReport{Report: r, Name: name, Group: group})
		fmt.Fprintf(&list, "- %s: %s", t.label(info), describe(title, r))
	}
	message := count(len(j.Jobs), "job") + ".\n"
	if len(j.Jobs) > 0 {
		message += "\n" + list.String()
	}
	j.fit()
	t.end(ctx, call, j, text.JSONTail(message, jobsTextBudget), nil, message)
}

// label names a command for people: its id, its name and its group.
func (t *turn) label(info terminal.Info) string {
	label := code(info.ID)
	if name := info.Command.Labels[control.NameLabel]; name != "" {
		label += " " + code(name)
	}
	if group := info.Command.Labels[control.GroupLabel]; group != "" {
		label += " of " + code(group)
	}
	return label
}

// command returns a command of the session by its id, or by its name: the first
// that was given it.
func (t *turn) command(id string) (terminal.Terminal, error) {
	term, err := t.session.state.Get(id)
	if err == nil {
		return term, nil
	}
	if !errors.Is(err, terminal.ErrNotFound) {
		return nil, err
	}
	var known []string
	for _, term := range t.session.state.List() {
		info := term.Info()
		if info.Command.Labels[control.NameLabel] == id {
			return term, nil
		}
		known = append(known, info.ID)
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("no command %q in this session: none was started yet; bg starts one", id)
	}
	return nil, fmt.Errorf("no command %q in this session: there are %s", id, strings.Join(known, ", "))
}

// output reads a command's output.
func (t *turn) output(ctx context.Context, call *bridge.Call, req request, term terminal.Terminal) {
	out, err := view.NewPager(term, nil).ReadText(ctx, req.since, req.wait, func(page string) int { return len(text.JSONHead(page, outputTextBudget)) })
	if err != nil {
		t.failWith(ctx, call, req, t.report(out.Info), err)
		return
	}
	r := ReadReport{Report: t.report(out.Info)}
	r.setOutput(view.Plain(out.Text), out.Truncated, outputTextBudget)
	r.NextCursor, r.More = out.NextCursor, out.More
	t.end(ctx, call, r, fenced(r.Output), nil, fmt.Sprintf("%s read, the next cursor is %d. %s",
		count(len(r.Output), "byte"), r.NextCursor, describe(req.id, r.Report)))
}

// inputBound is how long input waits for a command that does not read.
const inputBound = 5 * time.Second

// input writes to a command.
func (t *turn) input(ctx context.Context, call *bridge.Call, req request, term terminal.Terminal) {
	n, err := t.write(ctx, req.id, term, req.text)
	r := t.report(term.Info())
	if err != nil {
		t.failWith(ctx, call, req, r, err)
		return
	}
	t.end(ctx, call, r, count(n, "byte")+" written", nil, fmt.Sprintf("%s took %s.\n", code(req.id), count(n, "byte")))
}

// wait waits for the end of a command and never ends it.
func (t *turn) wait(ctx context.Context, call *bridge.Call, req request, term terminal.Terminal) {
	bound, cancel := context.WithTimeout(ctx, req.wait)
	defer cancel()
	info, err := terminal.Wait(bound, term)
	r := t.report(info)
	if err != nil {
		t.failWith(ctx, call, req, r, fmt.Errorf("%s still runs after %v; the wait has ended, the command has not", req.id, req.wait))
		return
	}
	t.ended(ctx, call, req, term, r)
}

// waitState waits until a command, or the first of a group, is in a state.
func (t *turn) waitState(ctx context.Context, call *bridge.Call, req request) {
	c := control.New(t.session.state.Manager(), &control.Options{Logger: t.agent.opts.Logger})
	defer c.Close()
	s, err := c.Wait(ctx, req.id, req.group, string(req.state), max(req.wait, 1))
	if err != nil {
		t.fail(ctx, call, req, err)
		return
	}
	term, err := t.session.state.Get(s.ID)
	if err != nil {
		t.fail(ctx, call, req, err)
		return
	}
	info := term.Info()
	if info.Outcome.Ended() {
		t.ended(ctx, call, req, term, t.report(info))
		return
	}
	message := fmt.Sprintf("%s is %s", t.label(info), s.AgentState)
	if s.Evidence != "" {
		message += fmt.Sprintf(" (%s: %s)", s.Certainty, s.Evidence)
	}
	t.end(ctx, call, WaitReport{Report: t.report(info), State: s.AgentState, Certainty: s.Certainty, Evidence: s.Evidence}, message, nil, message+".\n")
}

// kill ends a command. One that has ended stays as it is.
func (t *turn) kill(ctx context.Context, call *bridge.Call, req request, term terminal.Terminal) {
	info, err := t.session.state.Stop(term.Info().ID)
	if err != nil {
		t.failWith(ctx, call, req, t.report(info), err)
		return
	}
	if r := t.report(info); r.unconfirmed() {
		t.failWith(ctx, call, req, r, fmt.Errorf("%s is not known to have ended: %s", req.id, r.Error))
		return
	}
	t.ended(ctx, call, req, term, t.report(info))
}

// ended ends a tool call about a command that has ended, with its output.
func (t *turn) ended(ctx context.Context, call *bridge.Call, req request, term terminal.Terminal, r Report) {
	out, err := view.ReadAll(ctx, term, 32<<10, 0)
	r.setOutput(out.Text, out.Truncated, outputTextBudget)
	if r.Error == "" {
		r.setError(err)
	}
	t.end(ctx, call, r, fenced(r.Output), nil, describe(req.id, r))
}

// failWith ends a tool call about a command that could not be done what was
// asked.
func (t *turn) failWith(ctx context.Context, call *bridge.Call, req request, r Report, err error) {
	if ctx.Err() != nil {
		err = errTurnCancelled
	}
	r.setError(err)
	t.end(ctx, call, r, r.Error, err, fmt.Sprintf("%s: %s.\n", code(req.title), r.Error))
}
