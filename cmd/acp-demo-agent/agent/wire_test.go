package agent_test

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/termbridge/termbridge/cmd/acp-demo-agent/agent"
)

// wire sends requests to an agent, and the end of the input when all are
// answered, and returns the lines that it wrote. It is called in a bubble of
// synctest.
func wire(t *testing.T, o *agent.Options, requests ...string) []string {
	t.Helper()
	in, client := io.Pipe()
	out, server := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- agent.Serve(t.Context(), in, server, o)
		server.Close()
	}()
	var lines []string
	read := make(chan struct{})     // closed when lines is complete
	answered := make(chan struct{}) // closed when all requests are
	go func() {
		defer close(read)
		answers := 0
		for scan := bufio.NewScanner(out); scan.Scan(); {
			lines = append(lines, scan.Text())
			if strings.Contains(scan.Text(), `"id":`) {
				if answers++; answers == len(requests) {
					close(answered)
				}
			}
		}
	}()
	if _, err := io.WriteString(client, strings.Join(requests, "\n")+"\n"); err != nil {
		t.Error(err)
	}
	select {
	case <-answered:
	case <-read:
	}
	synctest.Wait() // for what comes behind the answers
	client.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	<-read
	return lines
}

// answerTo returns the answer to a request.
func answerTo(id int, lines []string) string {
	for _, l := range lines {
		if strings.Contains(l, fmt.Sprintf(`"id":%d,`, id)) {
			return l
		}
	}
	return ""
}
