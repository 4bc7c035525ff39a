// Package probe examines how the client of an ACP connection treats terminals.
//
//	wire := probe.NewWire(os.Stdin, os.Stdout) // between the client and the SDK
//	conn := acpwire.Connect(agent, wire, wire, nil)
//	…
//	report := probe.Run(ctx, wire, probe.Options{Init: init, Session: id, Dir: cwd})
//	fmt.Print(report.Table())
//
// Run starts some thirty short commands in the client's terminals, all of them
// harmless: echo, printf, cat, pwd, env, sleep. It writes no file and starts nothing
// that lasts longer than a few seconds. What it starts, it ends and releases, also
// after a cancel.
//
// Each [Finding] is "pass"; "deviates", with the sentence of the specification; or
// "unknown", with the reason. A [Report] has a profile of the client as package
// acpterm reads it.
//
// A probe needs at most [DefaultLimit], also with a client that hangs, answers with
// errors, or lies. Run may be called by any goroutine, once at a time for a Wire.
package probe

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/terminal"
)

// A Verdict is what came of one examination.
type Verdict string

// The verdicts.
const (
	Pass     Verdict = "pass"
	Deviates Verdict = "deviates"
	Unknown  Verdict = "unknown"
)

// A Finding is how the client does one thing.
type Finding struct {
	// Name is the thing, one of [Names].
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	// Value is how the client does it, in few words, such as "joined" or "tail".
	Value string `json:"value,omitempty"`
	// Spec is the sentence of the specification that the client deviates from.
	Spec string `json:"spec,omitempty"`
	// Detail is what was seen, or why nothing is known.
	Detail string `json:"detail,omitempty"`
}

// A Report is what is known of a client.
type Report struct {
	Client   *acp.Implementation `json:"client,omitempty"`
	Findings []Finding           `json:"findings"`
	// Profile is a row for [acpterm.Profiles]; its Name is "" if the client has
	// not told its name, or too little is known.
	Profile acpterm.ClientProfile `json:"profile"`
	// Stopped is why not everything was examined, "" if it was.
	Stopped string `json:"stopped,omitempty"`
	TookMS  int64  `json:"tookMs"`
}

// DefaultLimit is how long a probe takes at most, its cleaning up not counted.
const DefaultLimit = 45 * time.Second

// Options are what a probe needs to know.
type Options struct {
	// Init is the client's initialize request.
	Init acp.InitializeRequest
	// Session is an open session, and Dir its directory.
	Session acp.SessionId
	Dir     string
	// Limit bounds the probe; 0 is [DefaultLimit].
	Limit time.Duration
}

// Run examines the client at the other end of a Wire. When ctx ends it stops, and
// reports what is known by then. It returns when all that it has started is
// released, or a few seconds after the client has ceased to answer.
func Run(ctx context.Context, w *Wire, o Options) Report {
	if o.Limit <= 0 {
		o.Limit = DefaultLimit
	}
	start := time.Now()
	bounded, cancel := context.WithTimeout(ctx, o.Limit)
	defer cancel()
	x := newExam(bounded, w, o)
	if x.offered() {
		x.examine()
		x.sweep()
	}
	switch {
	case x.stopped != "":
	case w.gone():
		x.stopped = terminal.ErrConnectionLost.Error()
	case ctx.Err() != nil:
		x.stopped = "the probe was cancelled"
	case bounded.Err() != nil:
		x.stopped = fmt.Sprintf("it took longer than %v", o.Limit)
	}
	r := Report{Client: o.Init.ClientInfo, Stopped: x.stopped}
	for _, name := range Names() {
		f, ok := x.found[name]
		if !ok {
			f = Finding{Name: name, Verdict: Unknown, Detail: x.stopped}
			if f.Detail == "" {
				f.Detail = "what it needs did not work"
			}
		}
		r.Findings = append(r.Findings, f)
	}
	r.Profile = r.profile()
	r.TookMS = time.Since(start).Milliseconds()
	return r
}

// Finding returns the finding of a name.
func (r *Report) Finding(name string) Finding {
	for _, f := range r.Findings {
		if f.Name == name {
			return f
		}
	}
	return Finding{Name: name, Verdict: Unknown}
}

// Deviations returns the findings that deviate.
func (r *Report) Deviations() []Finding { return r.with(Deviates) }

func (r *Report) with(v Verdict) (all []Finding) {
	for _, f := range r.Findings {
		if f.Verdict == v {
			all = append(all, f)
		}
	}
	return all
}

// Summary says in one line what came of the probe.
func (r *Report) Summary() string {
	name := "a client without a name"
	if r.Client != nil && r.Client.Name != "" {
		name = strings.TrimSpace(r.Client.Name + " " + r.Client.Version)
	}
	s := fmt.Sprintf("%s: %d pass, %d deviate, %d unknown", name, len(r.with(Pass)), len(r.with(Deviates)), len(r.with(Unknown)))
	if r.Stopped != "" {
		s += "; stopped: " + r.Stopped
	}
	return s
}

// Table returns the findings as a table in Markdown.
func (r *Report) Table() string {
	var b strings.Builder
	b.WriteString("| What | Verdict | How | Seen, and what the specification says |\n|---|---|---|---|\n")
	for _, f := range r.Findings {
		seen := f.Detail
		if f.Spec != "" {
			seen = strings.TrimPrefix(seen+"; spec: "+f.Spec, "; ")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", titles[f.Name], f.Verdict, cell(f.Value), cell(seen))
	}
	return b.String()
}

// cell is text as it can stand in a table.
func cell(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return strings.ReplaceAll(strings.ReplaceAll(s, "|", `\|`), "`", "'")
}
