package agent

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
)

// Jobs that do not fit into an update are left out, the oldest first, and
// counted.
func TestJobsFit(t *testing.T) {
	var j JobsReport
	for range limits.DefaultMaxTerminals {
		r := Report{ID: strings.Repeat("i", 30), TerminalID: strings.Repeat("t", 500)}
		j.Jobs = append(j.Jobs, JobReport{Report: r})
	}
	j.Jobs[len(j.Jobs)-1].ID = "last"
	j.fit()
	b, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > jobsBudget || len(b) < jobsBudget-1000 {
		t.Errorf("%d bytes, want little less than %d", len(b), jobsBudget)
	}
	if n := len(j.Jobs); j.Jobs[n-1].ID != "last" || n+j.Omitted != limits.DefaultMaxTerminals {
		t.Errorf("%d jobs, %d left out", n, j.Omitted)
	}
}

func TestDescribe(t *testing.T) {
	tests := []struct {
		report Report
		want   string
	}{
		{Report{Outcome: terminal.Exited, ExitCode: new(0), DurationMS: 12}, "`x` exited with code 0 after 12ms.\n"},
		{Report{Outcome: terminal.Exited, DurationMS: 1}, "`x` ended, with an unknown exit code after 1ms.\n"},
		{Report{Outcome: terminal.Signalled, Signal: new("SIGSEGV"), DurationMS: 61_400}, "`x` was ended by SIGSEGV after 1m1s.\n"},
		{Report{Outcome: terminal.TimedOut, DurationMS: 2000}, "`x` reached its timeout and was stopped after 2s; what it had written is kept.\n"},
		{Report{Outcome: terminal.TimedOut, DurationMS: 2000, Unknown: true}, "`x` reached its timeout and was stopped after 2s; what it had written is kept; whether all that it had started has ended, the client does not say.\n"},
		{Report{Outcome: terminal.StoppedByClient}, "`x` was stopped in the client after 0s.\n"},
		{Report{Outcome: terminal.ConnectionLost}, "`x` was lost with the connection after 0s; what became of it is unknown.\n"},
		{Report{Outcome: terminal.Unknown, Error: "no reply"}, "`x` ended after 0s; nobody could say how: no reply.\n"},
		{Report{Outcome: terminal.Failed, Error: "no such directory"}, "`x` failed: no such directory.\n"},
	}
	for _, tt := range tests {
		if got := describe("x", tt.report); got != tt.want {
			t.Errorf("describe %+v:\n got %q\nwant %q", tt.report, got, tt.want)
		}
	}
	if got := code(strings.Repeat("é", 100)); utf8.RuneCountInString(got) > 63 || !utf8.ValidString(got) {
		t.Errorf("a long line is quoted as %q", got)
	}
}
