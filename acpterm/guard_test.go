package acpterm_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/termbridge/termbridge/acpterm"
)

// guarded returns what a Guard makes of input.
func guarded(t *testing.T, r io.Reader) string {
	t.Helper()
	g := acpterm.GuardReader(r)
	g.Open()
	got, err := io.ReadAll(g)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

func TestGuardPassesWhatFits(t *testing.T) {
	fits := `{"jsonrpc":"2.0","id":1,"result":{"output":"` + strings.Repeat("x", 10<<20-100) + `"}}` + "\n"
	for _, input := range []string{"", "\n", "a\nb\n", "no end", fits, "a\n" + fits + "b"} {
		if got := guarded(t, strings.NewReader(input)); got != input {
			t.Errorf("%d bytes became %d", len(input), len(got))
		}
	}
	if got := guarded(t, iotest.OneByteReader(strings.NewReader("a\nb"))); got != "a\nb" {
		t.Errorf("byte by byte: %q", got)
	}
}

func TestGuardReplacesWhatDoesNotFit(t *testing.T) {
	long := strings.Repeat("x", 11<<20)
	tests := []struct {
		name, line string
		id         string // of the error reply, "" for none
	}{
		{"a reply", `{"jsonrpc":"2.0","id":7,"result":{"output":"` + long + `"}}`, `7`},
		{"its id at the end", `{"result":{"id":1,"method":"x","output":["` + long + `"]},"id" : "a\"b,}" ,"jsonrpc":"2.0"}`, `"a\"b,}"`},
		{"an error", `{"id":-1.5e3,"error":{"code":1,"message":"` + long + `"}}`, `-1.5e3`},
		{"quotes in the text", `{"id":7,"result":"\",\"id\":8,{[` + long + `\\"}`, `7`},
		{"a request", `{"id":7,"method":"x","params":"` + long + `"}`, ""},
		{"a notification", `{"method":"x","params":{"id":7,"result":"` + long + `"}}`, ""},
		{"no JSON", long, ""},
		{"an id that is none", `{"id":"` + long + `","result":1}`, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := guarded(t, strings.NewReader("before\n"+test.line+"\nafter\n"))
			before, rest, _ := strings.Cut(got, "\n")
			reply, after, found := strings.Cut(rest, "\n")
			if test.id == "" {
				if got != "before\nafter\n" {
					t.Errorf("got %.200q", got)
				}
				return
			}
			if before != "before" || after != "after\n" || !found {
				t.Fatalf("got %.200q", got)
			}
			var m struct {
				ID    json.RawMessage `json:"id"`
				Error struct {
					Code    int
					Message string
				}
			}
			if err := json.Unmarshal([]byte(reply), &m); err != nil || string(m.ID) != test.id || m.Error.Code != -32603 || m.Error.Message == "" {
				t.Errorf("got %s, %v", reply, err)
			}
			// A line that ends with the input is a line, too.
			last := guarded(t, strings.NewReader(test.line))
			if err := json.Unmarshal([]byte(last), &m); err != nil || string(m.ID) != test.id {
				t.Errorf("at the end: %.200q, %v", last, err)
			}
		})
	}
}

func TestGuardHoldsInputBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := acpterm.GuardReader(strings.NewReader("a\n"))
		got := make(chan string)
		go func() {
			b, _ := io.ReadAll(g)
			got <- string(b)
		}()
		synctest.Wait()
		select {
		case s := <-got:
			t.Fatalf("%q before Open", s)
		default:
		}
		g.Open()
		g.Open()
		if s := <-got; s != "a\n" {
			t.Errorf("got %q", s)
		}
	})
}

func TestGuardReturnsTheErrorOfItsReader(t *testing.T) {
	g := acpterm.GuardReader(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("ab\n"))))
	g.Open()
	got, err := io.ReadAll(g)
	if string(got) != "a" || err != iotest.ErrTimeout {
		t.Errorf("got %q, %v", got, err)
	}
}

func FuzzGuard(f *testing.F) {
	f.Add([]byte("{\"id\":1,\"result\":2}\n\n{}"))
	f.Fuzz(func(t *testing.T, input []byte) {
		if got := guarded(t, bytes.NewReader(input)); got != string(input) {
			t.Errorf("got %q of %q", got, input)
		}
	})
}

func ExampleGuardReader() {
	stdin := strings.NewReader(`{"jsonrpc":"2.0","id":3,"result":{"output":"` + strings.Repeat("x", 11<<20) + `"}}`)
	in := acpterm.GuardReader(stdin)
	// … agent.conn = acp.NewAgentSideConnection(agent, os.Stdout, in) …
	in.Open()
	line, _ := io.ReadAll(in)
	fmt.Printf("%s", line)
	// Output: {"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"the reply has 11534383 bytes, more than the connection carries"}}
}
