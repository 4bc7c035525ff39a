package acpwire_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acpwire"
)

// peer answers each terminal/output with an output.
func peer(in io.Writer, out io.Reader, output string) {
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}
		_, rest, _ := bytes.Cut(line, []byte(`"id":`))
		id, _, _ := bytes.Cut(rest, []byte(","))
		fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%s,"result":{"output":%s,"truncated":false}}`+"\n", id, output)
	}
}

// outputs are outputs of a terminal, as the text of a JSON string.
var outputs = map[string]string{
	"text":    strings.Repeat("a line of the output of a build, with the usual length\\n", 25_000),
	"escapes": strings.Repeat(`\u001b[32mok\u001b[0m\t\"x\"\n`, 50_000),
	"utf-8":   strings.Repeat("žluťoučký kůň — 漢字 ✓\\n", 35_000),
	"small":   "ok\\n",
}

// BenchmarkOutput is one terminal/output with a large reply: with nothing
// between the wire and the SDK, and with Connect.
func BenchmarkOutput(b *testing.B) {
	for name, text := range outputs {
		output := `"` + text + `"`
		for _, guarded := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/guarded=%v", name, guarded), func(b *testing.B) {
				in, to := io.Pipe()
				from, out := io.Pipe()
				defer to.Close()
				defer out.Close()
				go peer(to, from, output)
				var conn *acp.AgentSideConnection
				if guarded {
					conn = acpwire.Connect(&agent{}, in, out, nil)
				} else {
					conn = acp.NewAgentSideConnection(&agent{}, out, in)
					conn.SetLogger(slog.New(slog.DiscardHandler))
				}
				b.SetBytes(int64(len(output)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := conn.TerminalOutput(b.Context(), acp.TerminalOutputRequest{SessionId: "s", TerminalId: "t"}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkRead is what a reply costs to look at, and what it costs the SDK to
// decode, which it does twice.
func BenchmarkRead(b *testing.B) {
	typ := acpwire.Results[acp.ClientMethodTerminalOutput]
	for name, text := range outputs {
		line := []byte(`{"jsonrpc":"2.0","id":1,"result":{"output":"` + text + `","truncated":false}}`)
		b.Run(name+"/look", func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				if got, ok := acpwire.Lenient(line, typ); !ok || len(got) != len(line) {
					b.Fatal("no message")
				}
			}
		})
		b.Run(name+"/decode", func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				var m struct{ Result json.RawMessage }
				var r acp.TerminalOutputResponse
				if err := errors.Join(json.Unmarshal(line, &m), json.Unmarshal(m.Result, &r)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
