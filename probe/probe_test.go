package probe_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/acpwire"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/fakeconn/emulate"
	"github.com/termbridge/termbridge/probe"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// An agent does nothing but have a Wire.
type agent struct {
	acp.Agent
	init acp.InitializeRequest
}

func (a *agent) Initialize(_ context.Context, req acp.InitializeRequest) (acp.InitializeResponse, error) {
	a.init = req
	return acp.InitializeResponse{ProtocolVersion: req.ProtocolVersion, AuthMethods: []acp.AuthMethod{}}, nil
}

func (a *agent) NewSession(context.Context, acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	return acp.NewSessionResponse{SessionId: "session"}, nil
}

// A rig is a client and a Wire to it.
type rig struct {
	*testing.T
	c    *fakeconn.Client
	wire *probe.Wire
	a    *agent
}

// run calls f with a client in fake time. The probe asks for terminals that nobody
// has, and releases one twice, which the audit objects to; anything else that it
// objects to fails the test. The options are made in the bubble, since they have channels.
func run(t *testing.T, options func() *fakeconn.Options, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := options()
		r := &rig{T: t, a: &agent{}}
		ready := make(chan struct{})
		o.Serve = func(in io.Reader, out io.Writer) {
			r.wire = probe.NewWire(in, out)
			close(ready)
			_ = acpwire.Serve(context.Background(), r.a, r.wire, r.wire, func() error { return nil }, nil)
		}
		o.Allow = append(o.Allow, fakeconn.RuleUnknown, fakeconn.RuleReleased)
		if o.Memterm == nil {
			o.Memterm = &memterm.Options{Env: map[string]string{"PATH": "/bin"}}
		}
		r.c = fakeconn.New(o)
		<-ready
		if _, err := r.c.NewSession(t.Context(), "/work"); err != nil {
			t.Fatal(err)
		}
		f(r)
		var audit *fakeconn.AuditError
		if err := r.c.Close(); errors.As(err, &audit) {
			for _, f := range audit.Findings {
				if f.Rule != fakeconn.RuleRelease || !strings.Contains(f.Text, "and that was answered") {
					t.Error(f)
				}
			}
		} else if err != nil {
			t.Error(err)
		}
	})
}

func (r *rig) probe(ctx context.Context) probe.Report {
	return probe.Run(ctx, r.wire, probe.Options{Init: r.a.init, Session: "session", Dir: "/work"})
}

// want is what a report must have of a thing: a verdict and a value.
type want struct {
	Verdict probe.Verdict
	Value   string
}

func (w want) String() string { return strings.TrimSpace(fmt.Sprintf("%s %s", w.Verdict, w.Value)) }

// expected is what the probe must find of a client, from what its Behaviour says of
// it. Things that are left out are not compared: times, and what no Behaviour knows.
func expected(b emulate.Behaviour) map[string]want {
	all := map[string]want{}
	pass := func(name, value string) { all[name] = want{probe.Pass, value} }
	deviates := func(name, value string) { all[name] = want{probe.Deviates, value} }
	either := func(name string, bad bool, value, good string) {
		if bad {
			deviates(name, value)
		} else {
			pass(name, good)
		}
	}
	pass("terminal", "offered")
	pass("display", "not offered")
	if b.Stub != "" {
		for _, name := range probe.Names()[3:] {
			all[name] = want{probe.Unknown, ""}
		}
		deviates("start", "nothing runs")
		return all
	}
	pass("start", "")

	// How commands are run, by what is made of some.
	line := func(command string, args ...string) string { // "" if no shell is put around it
		words := b.Argv(command, args)
		if len(words) == 3 && words[1] == "-c" && words[2] != command && !slices.Equal(words[1:], args) {
			return words[2]
		}
		return ""
	}
	switch plain := line("sh", "-c", "a  b"); {
	case plain == "":
		pass("command", "argv")
	case !strings.Contains(plain, "'a  b'"):
		deviates("command", "joined")
	default:
		either("command", !strings.Contains(line("a b", "c"), "c"), "quoted", "quoted")
	}
	switch words := b.Argv("a && b", nil); {
	case len(words) == 3 && words[1] == "-c", b.FallBack:
		pass("line", "run by a shell")
	case len(words) > 1:
		pass("line", "split into words")
	default:
		pass("line", "not run")
	}
	shell := line("sleep", "1") != "" // the first process is a shell
	forks := shell && !strings.HasPrefix(line("sleep", "1"), "exec ")

	start := func() want {
		switch s := b.BadStart; {
		case s.Wait == nil:
			return want{probe.Pass, "an error of create"}
		case s.Wait.ExitCode == nil && (s.Output == nil || s.Output.ExitCode == nil):
			return want{probe.Deviates, "no exit code"}
		case s.Wait.ExitCode == nil:
			return want{probe.Pass, fmt.Sprint("exitCode ", *s.Output.ExitCode)}
		case *s.Wait.ExitCode == 0:
			return want{probe.Deviates, "success"}
		case s.Wait.Signal != nil:
			return want{probe.Pass, fmt.Sprintf("exitCode %d and signal %q", *s.Wait.ExitCode, *s.Wait.Signal)}
		default:
			return want{probe.Pass, fmt.Sprint("exitCode ", *s.Wait.ExitCode)}
		}
	}
	all["missing-directory"] = start()
	if all["missing-program"] = start(); shell {
		pass("missing-program", "exitCode 127")
	}
	pass("directory", "as asked")
	all["default-directory"] = want{probe.Unknown, ""} // memterm has none
	pass("env", "overlay")
	either("env-names", b.DeniedEnv != nil, "refused", "allowed")
	input := "open"
	if b.TTY {
		input = "a terminal"
	}
	closed := strings.Contains(line("cat"), "</dev/null")
	either("input", b.OpenInput && !closed, input, "empty")
	pass("line-ends", map[bool]string{false: "LF", true: "CR LF"}[b.TTY])

	switch {
	case b.LosesTail:
		deviates("output-at-exit", "lost")
	case b.Lag > 0:
		deviates("output-at-exit", "late")
	default:
		pass("output-at-exit", "complete")
	}
	either("buffer", b.Destructive, "drained", "kept")
	either("running-output", b.Blocking, "waits for the end", "answered at once")
	either("exit-status", b.NoExitStatus, "never", "present")
	either("held-output", b.WaitsForClose, "reported when nobody holds the output", "reported at the exit")
	either("split-character", b.SplitRunes, "broken", "whole")

	exit := b.ExitStatus
	either("exit-code", exit(new(3), "").Signal != nil, "beside a signal", "as it was")
	form := "name"
	switch s := exit(nil, "SIGKILL"); {
	case s.Signal == nil:
		form = "code"
	case strings.Trim(*s.Signal, "0123456789") == "":
		form = "number"
	case !strings.HasPrefix(*s.Signal, "SIG"):
		form = "text"
	}
	either("signal", exit(nil, "SIGKILL").ExitCode != nil, form, form)

	// What is left of outputs, by what is made of some.
	switch {
	case b.DefaultLimit == 64<<10:
		pass("default-limit", "64 KiB")
	case b.DefaultLimit == 1<<20:
		pass("default-limit", "1 MiB")
	default:
		pass("default-limit", "more than 1 MiB")
	}
	pass("reply-size", "1.1 MB")
	left := b.Cut([]byte("first\n"+strings.Repeat("🙂", 30)+"\n"), 103)
	if b.NoLimit {
		deviates("limit", "ignored")
		for _, name := range []string{"truncation", "characters", "truncated"} {
			all[name] = want{probe.Unknown, ""}
		}
	} else {
		either("limit", len(left) > 103, "exceeded", "kept")
		either("truncation", strings.HasPrefix(left, "first"), "head", "tail")
		either("characters", strings.Contains(left, "\uFFFD"), "cut", "whole")
		pass("truncated", "right")
		if says := b.Truncated; says != nil && says(40, 40, 40) {
			deviates("truncated", "wrong at the limit")
		} else if says != nil && !says(80, 40, 40) {
			deviates("truncated", "missing")
		}
	}

	// Who ends, and who is seen to: a process lives on that the signal does not reach.
	name := cmp.Or(b.Kill.Signal, "SIGKILL")
	leader := b.Kill.Leader
	hangs := leader && forks && b.WaitsForClose
	if hangs {
		deviates("kill", "does not end it")
		delete(all, "signal")
		all["signal"], all["after-kill"] = want{probe.Unknown, ""}, want{probe.Unknown, ""}
	} else {
		all["kill"] = want{probe.Pass, "*"}
		pass("after-kill", "valid")
	}
	switch {
	case leader:
		deviates("kill-children", "live on")
	case b.LosesTail:
		all["kill-children"] = want{probe.Unknown, ""}
	default:
		pass("kill-children", "end, too")
	}
	stubborn := name != "SIGKILL" && b.Kill.Escalate == 0 || leader && b.WaitsForClose
	either("kill-stubborn", stubborn, "lives on", "ends")
	either("release", b.Outlives || hangs, "does not end it", "ends it")
	either("released-id", b.AfterRelease != 0, "still valid", "invalid")
	pass("second-release", map[bool]string{false: "an error", true: "succeeds"}[b.AfterRelease != 0 || b.ReleaseUnknown || b.KillUnknown])
	code := cmp.Or(b.UnknownCode, -32002)
	either("unknown-id", b.KillUnknown, "accepted", fmt.Sprint(code))
	pass("wrong-session", map[bool]string{false: "not looked at", true: "refused"}[b.SessionCode != 0])
	either("ids", b.ReuseIDs, "come again", "new each time")
	switch {
	case b.MaxTerminals > 0:
		deviates("parallel", fmt.Sprint("at most ", b.MaxTerminals))
	case b.Create > 60*time.Millisecond:
		pass("parallel", "6 or more")
	default:
		pass("parallel", "51 or more")
	}
	pass("request-ids", "kept apart")
	return all
}

// The probe names every deviation that a client declares, and no other.
func TestKnownClients(t *testing.T) {
	for i, b := range emulate.Behaviours() {
		if testing.Short() && i%4 != 0 {
			continue // each takes seconds with the race detector
		}
		t.Run(b.Name, func(t *testing.T) {
			run(t, func() *fakeconn.Options { return b.Client(nil) }, func(r *rig) {
				report := r.probe(r.Context())
				compare(r.T, report, expected(b))
				if report.TookMS > 60_000 || (report.Stopped != "") != (b.Stub != "") {
					r.Errorf("it took %d ms, and stopped: %s", report.TookMS, report.Stopped)
				}
			})
		})
	}
}

// compare compares both ways: what is not in want has to pass.
func compare(t *testing.T, report probe.Report, wants map[string]want) {
	t.Helper()
	got, wanted := map[string]string{}, map[string]string{}
	for _, f := range report.Findings {
		w, ok := wants[f.Name]
		if !ok {
			w = want{probe.Pass, "*"}
		}
		if w.Value == "*" {
			w.Value = f.Value
		}
		got[f.Name], wanted[f.Name] = want{f.Verdict, f.Value}.String(), w.String()
		if f.Verdict == probe.Deviates && (f.Spec == "" || f.Value == "") {
			t.Errorf("%s: deviates without a sentence or a value", f.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wants)) {
		if got[name] == "" {
			t.Errorf("%s: no finding", name)
		}
	}
	if diff := gocmp.Diff(wanted, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s\n%s", diff, report.Table())
	}
}

// Whatever a client does not answer, or answers with an error or with nonsense, the
// probe ends in time, and has released what the client has given it.
func TestClientsThatHangOrLie(t *testing.T) {
	for _, method := range []string{
		acp.ClientMethodTerminalCreate, acp.ClientMethodTerminalOutput, acp.ClientMethodTerminalWaitForExit,
		acp.ClientMethodTerminalKill, acp.ClientMethodTerminalRelease, "",
	} {
		for name, fault := range map[string]fakeconn.Fault{
			"no answer":       {Drop: true, Reply: true},
			"never delivered": {Drop: true},
			"an error":        {Error: &acp.RequestError{Code: -32603, Message: "no"}, Reply: true},
			"a number":        {Result: 7, Reply: true},
			"null":            {Result: "null", Reply: true},
			"an id of 7":      {Edit: fakeconn.Set("result", map[string]any{"terminalId": 7, "output": 7, "exitCode": []any{}}), Reply: true},
			"one id":          {Edit: fakeconn.Set("result.terminalId", "same"), Reply: true},
			"no JSON":         {Edit: fakeconn.Cut, Reply: true},
			"late":            {Delay: 10 * time.Second, Reply: true},
			"the end":         {Disconnect: true, Reply: true, N: 3},
			"twice":           {Twice: true, Reply: true},
		} {
			if everywhere := method == ""; !everywhere && !slices.Contains([]string{"no answer", "an error", "null"}, name) || everywhere && name == "an error" {
				continue // that is enough, for the time that it takes
			}
			t.Run(method+": "+name, func(t *testing.T) {
				options := func() *fakeconn.Options {
					return &fakeconn.Options{Allow: []fakeconn.Rule{fakeconn.RuleRelease}}
				}
				run(t, options, func(r *rig) {
					fault.Method = method
					if name == "one id" {
						fault.Method = acp.ClientMethodTerminalCreate
					}
					fault.Match = func(l fakeconn.Line) bool { return strings.HasPrefix(l.Method, "terminal/") }
					r.c.Inject(fault)
					start := time.Now()
					report := r.probe(r.Context())
					if took := time.Since(start); took > time.Minute {
						r.Errorf("it took %v", took)
					}
					if len(report.Findings) != len(probe.Names()) {
						r.Errorf("%d findings of %d", len(report.Findings), len(probe.Names()))
					}
					if method != "" && fault.Drop && method != acp.ClientMethodTerminalRelease && len(report.Deviations()) == 0 && report.Stopped == "" {
						r.Errorf("nothing was noticed:\n%s", report.Table())
					}
				})
			})
		}
	}
}

// A client that is slow to kill does not deviate by that.
func TestSlowClient(t *testing.T) {
	for _, b := range emulate.Behaviours() {
		wants := expected(b)
		if wants["kill-children"].Value != "end, too" || wants["held-output"].Verdict != probe.Pass {
			continue
		}
		for _, delay := range []time.Duration{1500 * time.Millisecond, 1900 * time.Millisecond, 2800 * time.Millisecond} {
			t.Run(b.Name+", "+delay.String(), func(t *testing.T) {
				run(t, func() *fakeconn.Options { return b.Client(nil) }, func(r *rig) {
					r.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalKill, Delay: delay})
					report := r.probe(r.Context())
					for _, f := range report.Findings {
						if got := (want{f.Verdict, f.Value}); f.Name == "kill-children" && got != wants[f.Name] {
							r.Errorf("%s: got %s, want %s", f.Name, got, wants[f.Name])
						}
					}
				})
			})
		}
		return // one such client is enough
	}
	t.Error("no client ends children")
}

// A client, or a machine, on which everything takes its time deviates by nothing: each
// bound follows the time that creates take.
func TestSlowMachine(t *testing.T) {
	b := behaviour("acpx")
	for finding, slow := range map[string]fakeconn.Fault{
		"kill":      {Method: acp.ClientMethodTerminalKill, Reply: true, Delay: 4 * time.Second},
		"release":   {Method: acp.ClientMethodTerminalRelease, Reply: true, Delay: 5 * time.Second},
		"exit-code": {Method: acp.ClientMethodTerminalWaitForExit, Reply: true, Delay: 6 * time.Second},
		"cancelled-create": {Method: acp.ClientMethodTerminalCreate, Delay: 10 * time.Second, Match: func(l fakeconn.Line) bool {
			return strings.Contains(l.Raw, `":;sleep 2`)
		}},
	} {
		if testing.Short() && finding != "kill" {
			continue // each takes seconds with the race detector
		}
		t.Run(finding, func(t *testing.T) {
			run(t, func() *fakeconn.Options { return b.Client(nil) }, func(r *rig) {
				r.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, Delay: 1500 * time.Millisecond})
				fault := r.c.Inject(slow)
				report := r.probe(r.Context())
				if f := report.Finding(finding); f.Verdict != probe.Pass || fault.Hits() == 0 {
					r.Errorf("%s: %s %s, %s", f.Name, f.Verdict, f.Value, f.Detail)
				}
				for _, f := range report.Deviations() {
					if w := expected(b)[f.Name]; w.Verdict != probe.Deviates {
						r.Errorf("%s deviates, it says: %s, %s", f.Name, f.Value, f.Detail)
					}
				}
				if report.TookMS > 60_000 {
					r.Errorf("it took %d ms", report.TookMS)
				}
			})
		})
	}
}

// A client that gives an id again does not keep it valid, nor does the probe end what has
// it by then.
func TestIDsThatComeAgain(t *testing.T) {
	b := behaviour("jupyter")
	b.ReuseIDs = true
	run(t, func() *fakeconn.Options { return b.Client(nil) }, func(r *rig) {
		r.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalRelease, Reply: true, Delay: 900 * time.Millisecond})
		r.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalOutput, Delay: 500 * time.Millisecond})
		report := r.probe(r.Context())
		for _, name := range []string{"released-id", "second-release", "ids", "wrong-session"} {
			f := report.Finding(name)
			if got, want := (want{f.Verdict, f.Value}), expected(b)[name]; got != want {
				r.Errorf("%s: got %s, want %s; %s", name, got, want, f.Detail)
			}
		}
	})
}

// A cancel ends the probe, whenever it comes and however slow the client is, and
// leaves no terminal, also none whose create was under way.
func TestCancel(t *testing.T) {
	for _, name := range []string{"acpx", "toad", "kotlin-sample"} {
		for _, after := range []time.Duration{0, 100 * time.Millisecond, time.Second, 4 * time.Second} {
			t.Run(fmt.Sprintf("%s, after %v", name, after), func(t *testing.T) {
				run(t, func() *fakeconn.Options { return emulate.Client(name, nil) }, func(r *rig) {
					ctx, cancel := context.WithTimeout(r.Context(), after)
					defer cancel()
					start := time.Now()
					report := r.probe(ctx)
					if took := time.Since(start); took > after+5*time.Second {
						r.Errorf("it took %v", took)
					}
					if report.Stopped == "" && time.Since(start) >= after {
						r.Errorf("nothing says that it was cancelled")
					}
					for _, f := range report.Deviations() {
						if want := expected(behaviour(name))[f.Name]; want.Verdict != probe.Deviates {
							r.Errorf("%s deviates, it says: %s", f.Name, f.Detail)
						}
					}
				})
			})
		}
	}
}

func behaviour(name string) emulate.Behaviour {
	for _, b := range emulate.Behaviours() {
		if b.Name == name {
			return b
		}
	}
	panic(name)
}

// A client without terminals is asked for none.
func TestNoTerminals(t *testing.T) {
	run(t, func() *fakeconn.Options { return &fakeconn.Options{NoTerminal: true, Display: true} }, func(r *rig) {
		report := r.probe(r.Context())
		if n := r.c.Count(acp.ClientMethodTerminalCreate); n != 0 {
			r.Errorf("%d terminals were created", n)
		}
		if f := report.Finding("display"); f.Value != "offered" {
			r.Errorf("display: %v", f)
		}
		if report.Stopped == "" || report.Finding("command").Verdict != probe.Unknown {
			r.Errorf("%s\n%s", report.Summary(), report.Table())
		}
	})
}

// What was found of a client is its profile, and a file of it is what acpterm reads.
func TestProfile(t *testing.T) {
	for name, want := range map[string]acpterm.Profile{
		"zed":      {KeepsHead: true, Signals: acpterm.SignalTexts, KillsTree: true},
		"acpx":     {Signals: acpterm.SignalNames, DefaultLimit: 64 << 10, KillsTree: true},
		"obsidian": {Signals: acpterm.SignalNames, TruncatedUnsure: true},
		"deepchat": {Signals: acpterm.SignalNumbers, LosesTail: true, DefaultLimit: 1 << 20},
		"jupyter":  {Signals: acpterm.SignalNames, CompleteAtExit: true, KillsTree: true},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "profiles.json")
			b := behaviour(name)
			run(t, func() *fakeconn.Options { return b.Client(nil) }, func(r *rig) {
				report := r.probe(r.Context())
				if err := report.Save(file); err != nil {
					r.Fatal(err)
				}
				if err := report.Save(file); err != nil {
					r.Errorf("a second time: %v", err)
				}
				if len(report.Profile.Deviations) != len(report.Deviations()) {
					r.Errorf("deviations of the profile: %q", report.Profile.Deviations)
				}
			})
			profiles, err := acpterm.LoadProfiles(file)
			if err != nil {
				t.Fatal(err)
			}
			got := profiles.Find(&b.Info)
			if len(got.Deviations) == 0 {
				t.Error("it names no deviation")
			}
			got.Deviations = nil
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	file := filepath.Join(t.TempDir(), "notes")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	report := probe.Report{Profile: acpterm.ClientProfile{Name: "x"}}
	if err := report.Save(file); err == nil {
		t.Error("a file that is none of profiles was replaced")
	}
	if err := new(probe.Report).Save(filepath.Join(t.TempDir(), "x")); err == nil {
		t.Error("a profile of nothing was saved")
	}
}

// Lines that are no reply to a probe pass unchanged, long ones too, in both
// directions; replies to it do not, in whatever way the client writes their id.
func TestWire(t *testing.T) {
	id := regexp.MustCompile(`"id":([0-9]+)`)
	run(t, func() *fakeconn.Options { return &fakeconn.Options{} }, func(r *rig) {
		for _, edit := range []func(string) string{
			nil,
			func(raw string) string { return id.ReplaceAllString(raw, `"id":$1.0`) },
			func(raw string) string { return id.ReplaceAllString(raw, `"id":"$1"`) },
			fakeconn.Pad(200 << 10),
		} {
			var f *fakeconn.Injected
			if edit != nil {
				f = r.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalOutput, Reply: true, Edit: edit})
			}
			report := r.probe(r.Context())
			if got := report.Finding("start"); got.Verdict != probe.Pass {
				r.Errorf("%s\n%s", report.Summary(), report.Table())
			}
			if f != nil {
				f.Remove()
			}
		}
		// Both sides still understand each other.
		if _, err := r.c.Peer().NewSession(r.Context(), acp.NewSessionRequest{Cwd: strings.Repeat("/x", 200<<10), McpServers: []acp.McpServer{}}); err != nil {
			r.Error(err)
		}
	})
}
