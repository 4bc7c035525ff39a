package acpterm_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
)

func TestFindProfile(t *testing.T) {
	exec := acpterm.Profile{Form: acpterm.FormExec}
	line := acpterm.Profile{Form: acpterm.FormLine}
	head := acpterm.Profile{KeepsHead: true}
	ps := acpterm.Profiles{
		{Name: "editor", Before: "0.11", Profile: exec},
		{Name: "editor", Since: "2", Before: "3.1.4", Profile: line},
		{Name: "Other", Profile: head},
	}
	for _, test := range []struct {
		rule string
		info *acp.Implementation
		want acpterm.Profile
	}{
		{"a client that says nothing has the zero Profile", nil, acpterm.Profile{}},
		{"an unknown client too", &acp.Implementation{Name: "vim", Version: "1"}, acpterm.Profile{}},
		{"case does not count", &acp.Implementation{Name: "OTHER"}, head},
		{"parts are numbers", &acp.Implementation{Name: "editor", Version: "0.9.20"}, exec},
		{"before is exclusive", &acp.Implementation{Name: "editor", Version: "0.11.0"}, acpterm.Profile{}},
		{"since is inclusive", &acp.Implementation{Name: "editor", Version: "v2.0"}, line},
		{"what follows the numbers does not count", &acp.Implementation{Name: "editor", Version: "3.1.3-pre.4+5"}, line},
		{"before, with a part more", &acp.Implementation{Name: "editor", Version: "3.1.4.1"}, acpterm.Profile{}},
		{"a version that is none fits no limited row", &acp.Implementation{Name: "editor", Version: "nightly"}, acpterm.Profile{}},
	} {
		if diff := cmp.Diff(test.want, ps.Find(test.info)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.rule, diff)
		}
	}
	all := append(ps, acpterm.ClientProfile{Name: "*", Profile: exec})
	if diff := cmp.Diff(exec, all.Find(nil)); diff != "" {
		t.Errorf("* is every client (-want +got):\n%s", diff)
	}
}

// The default rows are what a file can say.
func TestDefaultProfiles(t *testing.T) {
	data, err := json.Marshal(map[string]any{"profiles": acpterm.DefaultProfiles()})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "profiles.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := acpterm.LoadProfiles(file)
	if err != nil {
		t.Fatal(err)
	}
	got = got[:len(acpterm.DefaultProfiles())]
	if diff := cmp.Diff(acpterm.DefaultProfiles(), got); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	old := got.Find(&acp.Implementation{Name: "acpx", Version: "0.1.15"})
	if diff := cmp.Diff(old, got.Find(&acp.Implementation{Name: "acpx", Version: "0.19.1"})); diff == "" {
		t.Error("both versions of acpx have one profile")
	}
}

// docs/clients.md has the table of the code.
func TestDocumentedProfiles(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "docs", "clients.md"))
	if err != nil {
		t.Fatal(err)
	}
	if want := table(acpterm.DefaultProfiles()); !strings.Contains(string(doc), want) {
		t.Errorf("docs/clients.md lacks the table as it is in the code:\n%s", want)
	}
}

// table is docs/clients.md's table of rows.
func table(ps acpterm.Profiles) string {
	var b strings.Builder
	b.WriteString("| Client | Versions | Form | Complete at exit | Default limit | Truncation keeps | Signals | A kill ends | Asks first | Known deviations |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, p := range ps {
		versions := "any"
		switch {
		case p.Since != "" && p.Before != "":
			versions = p.Since + " to before " + p.Before
		case p.Since != "":
			versions = "from " + p.Since
		case p.Before != "":
			versions = "before " + p.Before
		}
		form := p.Form
		if form == acpterm.FormPortable {
			form = "portable"
		}
		complete := "read once more"
		switch {
		case p.LosesTail:
			complete = "never surely"
		case p.CompleteAtExit:
			complete = "yes"
		}
		limit := "none known"
		switch n := p.DefaultLimit; {
		case n >= 1<<20:
			limit = fmt.Sprintf("%d MiB", n>>20)
		case n%1024 > 0:
			limit = fmt.Sprintf("%d bytes", n)
		case n > 0:
			limit = fmt.Sprintf("%d KiB", n>>10)
		}
		keeps := "the end"
		if p.KeepsHead {
			keeps = "the start"
		}
		if p.TruncatedUnsure {
			keeps += ", and does not surely say so"
		}
		signals := p.Signals
		if signals == acpterm.SignalsUnknown {
			signals = "unknown"
		}
		kills, asks := "not surely all", "no"
		if p.KillsTree {
			kills = "all"
		}
		if p.Asks {
			asks = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n",
			p.Name, versions, form, complete, limit, keeps, signals, kills, asks, strings.Join(p.Deviations, "; "))
	}
	return b.String()
}

func TestLoadProfiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "profiles.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"profiles": [{"name": "ZED", "form": "line", "signals": "text"}]}`)
	ps, err := acpterm.LoadProfiles(file)
	if err != nil {
		t.Fatal(err)
	}
	want := acpterm.Profile{Form: acpterm.FormLine, Signals: acpterm.SignalTexts}
	if diff := cmp.Diff(want, ps.Find(&acp.Implementation{Name: "zed"})); diff != "" {
		t.Errorf("a row of the file replaces that of the package (-want +got):\n%s", diff)
	}
	if got := ps.Find(&acp.Implementation{Name: "toad"}); !got.CompleteAtExit {
		t.Error("the rows of the package are gone")
	}

	for _, test := range []struct{ rule, text, want string }{
		{"a file that is empty", "", "line 1: it ends too early"},
		{"half a file", "{\n\"profiles\": [\n", "it ends too early"},
		{"no JSON", "{\n\nprofiles: 1}", "line 3: invalid character 'p'"},
		{"no rows", "{}", `no "profiles"`},
		{"an array", "[]", "line 1: json: cannot unmarshal array"},
		{"an unknown member", "{\"profiles\": [\n{\"name\": \"x\",\n\"shell\": true}]}", `line 3: there is no member "shell"`},
		{"a member of another type", "{\"profiles\": [{\n\"name\": \"x\",\n\"keepsHead\": \"yes\"}]}", "line 3: json: cannot unmarshal string"},
		{"something behind", "{\"profiles\": []}\n{}", "line 2: something follows"},
		{"a row for nobody", `{"profiles": [{"form": "exec"}]}`, `row 1 (""): no "name"`},
		{"an unknown form", `{"profiles": [{"name": "x"}, {"name": "y", "form": "argv"}]}`, `row 2 ("y"): form: "argv" is not`},
		{"unknown signals", `{"profiles": [{"name": "x", "signals": "morse"}]}`, `signals: "morse" is not`},
		{"a version that is none", `{"profiles": [{"name": "x", "before": "next"}]}`, `before: "next" is no version`},
		{"a negative limit", `{"profiles": [{"name": "x", "defaultLimit": -1}]}`, "defaultLimit: -1 is negative"},
	} {
		write(test.text)
		ps, err := acpterm.LoadProfiles(file)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: error %v, want one of %s with %q", test.rule, err, filepath.Base(file), test.want)
		}
		if ps != nil {
			t.Errorf("%s: there are rows nevertheless", test.rule)
		}
	}
	if _, err := acpterm.LoadProfiles(file + ".none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// What a profile says changes how its client is understood.
func TestProfileOfAClient(t *testing.T) {
	const method = acp.ClientMethodTerminalWaitForExit
	for _, test := range []struct {
		rule    string
		profile acpterm.Profile
		method  string // whose reply is
		result  string
		want    terminal.Outcome
		signal  string
	}{
		{"a negative code is a signal", acpterm.Profile{}, method, `{"exitCode": -2, "signal": null}`, terminal.Signalled, "SIGINT"},
		{"a negative code where signals have names is an error number", acpterm.Profile{Signals: acpterm.SignalNames}, method,
			`{"exitCode": -2, "signal": null}`, terminal.Unknown, ""},
		{"a signal with a name is one in any case", acpterm.Profile{Signals: acpterm.SignalNumbers}, method,
			`{"exitCode": null, "signal": "SIGINT"}`, terminal.Signalled, "SIGINT"},
		{"an exit 0 that the output knows nothing of is none", acpterm.Profile{}, acp.ClientMethodTerminalOutput,
			`{"output": "", "truncated": false}`, terminal.Unknown, ""},
		{"unless there was output", acpterm.Profile{}, acp.ClientMethodTerminalOutput,
			`{"output": "here", "truncated": false}`, terminal.Exited, ""},
		{"an exit 0 that the output denies is none", acpterm.Profile{}, acp.ClientMethodTerminalOutput,
			`{"output": "here", "truncated": false, "exitStatus": {"exitCode": 1}}`, terminal.Unknown, ""},
	} {
		t.Run(test.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := fakeconn.New(nil)
				defer c.Close()
				id, err := c.NewSession(t.Context(), "/")
				if err != nil {
					t.Fatal(err)
				}
				if test.method == method {
					c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalOutput, Reply: true, Result: json.RawMessage(`{"output": "", "truncated": false}`)})
				}
				c.Inject(fakeconn.Fault{Method: test.method, Reply: true, Result: json.RawMessage(test.result)})
				m := acpterm.New(c.Conn(), id, &acpterm.Options{Profile: test.profile})
				defer m.Close()
				term, err := m.Start(t.Context(), terminal.Command{Line: "true"})
				if err != nil {
					t.Fatal(err)
				}
				info, err := terminal.Wait(t.Context(), term)
				if err != nil || info.Outcome != test.want || info.Exit.Signal != test.signal {
					t.Errorf("it is %s by %q (%v), want %s by %q", info.Outcome, info.Exit.Signal, err, test.want, test.signal)
				}
				if (info.Err != nil) != (test.want == terminal.Unknown) {
					t.Errorf("Info.Err is %v", info.Err)
				}
			})
		})
	}
}

func TestAClientThatLosesTheTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fakeconn.New(nil)
		defer c.Close()
		id, err := c.NewSession(t.Context(), "/")
		if err != nil {
			t.Fatal(err)
		}
		m := acpterm.New(c.Conn(), id, &acpterm.Options{Profile: acpterm.Profile{LosesTail: true}})
		defer m.Close()
		term, err := m.Start(t.Context(), terminal.Command{Line: "echo whole"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := terminal.Wait(t.Context(), term); err != nil {
			t.Fatal(err)
		}
		o, err := term.ReadOutput(t.Context(), 0, 0)
		if want := "whole\n" + terminal.GapMark; err != nil || o.Text != want {
			t.Errorf("the output is %q, %v; want %q", o.Text, err, want)
		}
	})
}

func TestAClientWhoseTruncatedIsWrong(t *testing.T) {
	// It says that it has not truncated. That is not believed where there is as
	// much as it was asked for, nor at all where it is known to be wrong.
	for _, test := range []struct {
		output string
		unsure bool
		lost   bool
	}{
		{"12345", false, false}, // all that is kept, and no more
		{"12345", true, false},
		{"3456789", false, true},
		{"123456789", false, true}, // as long as what was asked for
		{"€€€", false, true},
		{"\uFFFD\uFFFD3456789", false, true}, // over it: a character was cut
	} {
		synctest.Test(t, func(t *testing.T) {
			c := fakeconn.New(nil)
			defer c.Close()
			id, err := c.NewSession(t.Context(), "/")
			if err != nil {
				t.Fatal(err)
			}
			c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalOutput, Reply: true,
				Result: map[string]any{"output": test.output, "truncated": false, "exitStatus": map[string]any{"exitCode": 0}}})
			m := acpterm.New(c.Conn(), id, &acpterm.Options{OutputLimit: 5, Profile: acpterm.Profile{TruncatedUnsure: test.unsure}})
			defer m.Close()
			term, err := m.Start(t.Context(), terminal.Command{Line: "true"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := terminal.Wait(t.Context(), term); err != nil {
				t.Fatal(err)
			}
			o, err := term.ReadOutput(t.Context(), 0, 0)
			if lost := o.Truncated; err != nil || lost != test.lost {
				t.Errorf("%q, unsure %v: the output is %q, truncated %v (%v)", test.output, test.unsure, o.Text, lost, err)
			}
		})
	}
}
