package agent_test

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/termbridge/termbridge/cmd/acp-demo-agent/agent"
)

// What a client sends is not logged, even if it makes no sense: the output of
// commands is in it.
func TestLogHasNoOutput(t *testing.T) {
	var log locked
	in := strings.NewReader(`{"jsonrpc":"2.0","id":3,"result":{"output":"SECRET"` + "\n")
	err := agent.Serve(t.Context(), in, io.Discard, &agent.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if got := log.String(); !strings.Contains(got, "bytes=51") || strings.Contains(got, "SECRET") {
		t.Errorf("the log:\n%s", got)
	}
}

// locked is a buffer for a log to which the SDK may still write when the
// connection is over.
type locked struct {
	mu sync.Mutex
	// guards following
	buf bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
