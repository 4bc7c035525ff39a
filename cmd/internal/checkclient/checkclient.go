// Package checkclient is the command check-client: it has a client start an agent
// that probes it, and reports what the probe found.
package checkclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/termbridge/termbridge/cmd/acp-demo-agent/agent"
	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/internal/shellwords"
	"github.com/termbridge/termbridge/probe"
)

// Name is the name of the command.
const Name = "check-client"

// Usage is what is printed with --help, behind the name of the program.
const Usage = ` check-client [flags] -- CLIENT ARGV…

Starts an ACP client, which starts an agent that examines the client's terminals, and
prints what was found as a table.

The client learns which agent to start in one of two ways:
  {agent}           in any of ARGV is replaced by the path of the agent's program
  TERMBRIDGE_AGENT  in its environment is the same path
The agent takes no arguments and needs no variable. It begins with the client's first
prompt, whatever its text is, or by itself 3 s after session/new. The client's input is
a pipe that is open until the report has come, and is then closed.

The exit status is 0 if nothing deviates but what is allowed, 1 if something does,
2 for a wrong use, and 3 if the probe was not begun or came to no end.

Flags:
  --allow NAME     a deviation that is no failure; may be repeated
  --expect FILE    deviations of FILE, which --json has printed, are no failures
  --json           print the report as JSON
  --timeout 2m     give the client so long
`

// Exit statuses.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitNothing = 3
)

// directory is the variable by which the agent learns where to report; see Serve.
const directory = "TERMBRIDGE_CHECK"

// Files in that directory.
const (
	steps      = "steps" // lines: how far the agent has come
	reportFile = "report.json"
	script     = "agent"
)

// Run runs the command for a program of this name, with the arguments behind
// check-client.
func Run(ctx context.Context, program string, args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet(Name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	allow := map[string]bool{}
	fs.Func("allow", "", func(name string) error {
		if !slices.Contains(probe.Names(), name) {
			return fmt.Errorf("%q is none of %s", name, strings.Join(probe.Names(), ", "))
		}
		allow[name] = true
		return nil
	})
	fs.Func("expect", "", func(file string) error {
		known, err := readReport(file)
		for _, f := range known.Deviations() {
			allow[f.Name+"="+f.Value] = true
		}
		return err
	})
	asJSON := fs.Bool("json", false, "")
	timeout := fs.Duration("timeout", 2*time.Minute, "")
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(stdout, "usage: %s%s", program, Usage)
		return exitOK
	}
	if err == nil && fs.NArg() == 0 {
		err = errors.New("no client: it goes after --")
	}
	if err == nil && *timeout <= 0 {
		err = errors.New("--timeout: it must be more than nothing")
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n\nusage: %s%s", program, err, program, Usage)
		return exitUsage
	}
	report, err := check(ctx, fs.Args(), *timeout)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", program, err)
		return exitNothing
	}
	if *asJSON {
		out, _ := json.MarshalIndent(report, "", "  ")
		fmt.Fprintf(stdout, "%s\n", out)
	} else {
		fmt.Fprintf(stdout, "%s\n%s\n", report.Table(), report.Summary())
	}
	status := exitOK
	for _, f := range report.Deviations() {
		if !allow[f.Name] && !allow[f.Name+"="+f.Value] {
			fmt.Fprintf(stderr, "%s: %s deviates: %s; %s\n", program, f.Name, f.Value, f.Spec)
			status = exitFailed
		}
	}
	if status == exitOK && report.Stopped != "" && report.Finding("terminal").Value != "not offered" {
		fmt.Fprintf(stderr, "%s: the probe has not come to its end: %s\n", program, report.Stopped)
		return exitNothing
	}
	return status
}

// check has a client start an agent, and returns the agent's report. Without one the
// error says how far it came, and what the client has printed.
func check(ctx context.Context, argv []string, limit time.Duration) (_ probe.Report, err error) {
	none := probe.Report{}
	dir, err := os.MkdirTemp("", "termbridge-check-")
	if err != nil {
		return none, err
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		return none, err
	}
	program, err := writeAgent(dir, self)
	if err != nil {
		return none, err
	}
	argv = slices.Clone(argv)
	for i := range argv {
		argv[i] = strings.ReplaceAll(argv[i], "{agent}", program)
	}

	local := execenv.NewLocal(nil)
	defer func() { err = errors.Join(err, local.Close()) }()
	c := client{dir: dir, ended: make(chan error, 1)}
	c.Process = local.Command(ctx, execenv.Spec{
		Path: argv[0], Args: argv[1:], Env: execenv.Env{}.Inherit().With(map[string]string{"TERMBRIDGE_AGENT": program}),
		Stdout: &c.printed, Stderr: &c.printed, Group: true,
	})
	stdin, err := c.StdinPipe()
	if err != nil {
		return none, err
	}
	if err := c.Start(); err != nil {
		return none, err
	}
	go func() { c.ended <- c.Wait() }() // ends with the client, which is killed below at the latest

	bound, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	report, err := c.awaitReport(bound)
	stdin.Close()
	c.end(ctx)
	switch {
	case err == nil:
		return report, nil
	case ctx.Err() != nil:
		return none, c.failure("; it was interrupted")
	case bound.Err() != nil:
		return none, c.failure(fmt.Sprintf(", within %v", limit))
	case c.exit != nil:
		return none, c.failure("; the client: " + c.exit.Error())
	}
	return none, c.failure("; the client has exited with 0")
}

// writeAgent writes the program that the client starts: one without arguments, and
// without a variable that a client might not pass on.
func writeAgent(dir, self string) (string, error) {
	text := fmt.Sprintf("#!/bin/sh\n%s=%s exec %s\n", directory, shellwords.Quote(dir), shellwords.Quote(self))
	program := filepath.Join(dir, script)
	return program, os.WriteFile(program, []byte(text), 0o700)
}

// A client is the client under check.
type client struct {
	execenv.Process
	dir     string // where its agent reports
	printed tail
	ended   chan error // the result of Wait
	exited  bool       // that was received: it is exit
	exit    error
}

// awaitReport waits for the agent's report, until the client has exited or ctx ends.
func (c *client) awaitReport(ctx context.Context) (report probe.Report, err error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		report, err = readReport(filepath.Join(c.dir, reportFile))
		if err == nil || c.exited || ctx.Err() != nil {
			return report, err
		}
		select {
		case <-tick.C:
		case c.exit = <-c.ended:
			c.exited = true // and the report may have been written just before
		case <-ctx.Done():
		}
	}
}

// end waits for the client to end by itself, since its input has, and kills it.
func (c *client) end(ctx context.Context) {
	if c.exited {
		return
	}
	select {
	case c.exit = <-c.ended:
		return
	case <-time.After(endBound):
	case <-ctx.Done():
	}
	_ = c.Kill()
	<-c.ended
}

// failure is the error of a check without a report: how far the agent has come, how
// the client ended, and what that has printed.
func (c *client) failure(end string) error {
	seen, _ := os.ReadFile(filepath.Join(c.dir, steps))
	why := "the client did not start the agent"
	if all := strings.Fields(string(bytes.ReplaceAll(bytes.TrimSpace(seen), []byte("\n"), []byte(", ")))); len(all) > 0 {
		why = "the agent has no report; it has seen: " + strings.Join(all, " ")
	}
	why += end
	if text := strings.TrimSpace(c.printed.String()); text != "" {
		why += "; it printed:\n" + text
	}
	return errors.New(why)
}

// endBound is how long a client has to end when its input has.
const endBound = 5 * time.Second

func readReport(file string) (r probe.Report, err error) {
	data, err := os.ReadFile(file)
	if err == nil {
		if err = json.Unmarshal(data, &r); err != nil {
			err = fmt.Errorf("%s: %w", file, err)
		}
	}
	return r, err
}

// A tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte // guarded by mu
}

func (t *tail) Write(p []byte) (int, error) {
	const most = 4 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	t.kept = t.kept[max(0, len(t.kept)-most):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}

// Asked reports whether this process was started by a client under check.
func Asked() bool { return os.Getenv(directory) != "" }

// Serve is the agent that the client starts: it probes, and reports to the command.
func Serve(ctx context.Context) int {
	dir := os.Getenv(directory)
	os.Unsetenv(directory) // not for what runs here
	err := agent.Serve(ctx, os.Stdin, os.Stdout, &agent.Options{Examine: &agent.Examine{
		Seen: func(what string) {
			if f, err := os.OpenFile(filepath.Join(dir, steps), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
				fmt.Fprintln(f, what)
				f.Close()
			}
		},
		Report: func(r probe.Report) error {
			data, err := json.Marshal(r)
			if err != nil {
				return err
			}
			whole := filepath.Join(dir, reportFile)
			if err := os.WriteFile(whole+".part", data, 0o600); err != nil {
				return err
			}
			return os.Rename(whole+".part", whole)
		},
	}})
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", Name, err)
		return exitFailed
	}
	return exitOK
}
