package agent_test

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/termbridge/termbridge/cmd/acp-demo-agent/agent"
)

// What a client sends is not logged, even if it makes no sense: the output of
// commands is in it.
func TestLogHasNoOutput(t *testing.T) {
	var log bytes.Buffer
	in := strings.NewReader(`{"jsonrpc":"2.0","id":3,"result":{"output":"SECRET"` + "\n")
	err := agent.Serve(t.Context(), in, io.Discard, &agent.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "bytes=51") || strings.Contains(log.String(), "SECRET") {
		t.Errorf("the log:\n%s", &log)
	}
}
