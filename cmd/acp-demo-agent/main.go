// Acp-demo-agent is an ACP agent without a model: a prompt is command lines,
// and each is one tool call. Point an editor at it to see what the editor does
// with an agent's terminals.
//
//	acp-demo-agent [--policy prefer|require|local] [--shell SHELL] [--env NAME=WHERE] [--ask] [--state DIR|off] [--profiles FILE] [--log FILE]
//	acp-demo-agent demo
//
// Without a command it speaks ACP on standard input and output, and exits when
// its input ends. The demo is its own client and plays a short story on the
// screen. See docs/demo-agent.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/cmd/acp-demo-agent/agent"
	"github.com/termbridge/termbridge/cmd/internal/checkclient"
	"github.com/termbridge/termbridge/control"
	"github.com/termbridge/termbridge/control/ctl"
	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/execenv/launcher"
	"github.com/termbridge/termbridge/internal/logqueue"
	"github.com/termbridge/termbridge/internal/secrets"
	"github.com/termbridge/termbridge/internal/version"
)

const usage = `usage: acp-demo-agent [flags]         speak ACP on standard input and output
       acp-demo-agent check-client [flags] -- CLIENT ARGV…   examine an ACP client
       acp-demo-agent demo            see an agent run commands, without an editor
       acp-demo-agent ctl VERB        look into a running agent (ctl --help says more)

Flags:
  --policy POLICY  where commands run:
                     prefer   in the client's terminals if it has them (default)
                     require  there or not at all
                     local    in local terminals only
  --shell SHELL    what runs shell lines; /bin/sh by default
  --env NAME=WHERE run commands elsewhere, by "run --on NAME"; may be repeated. WHERE:
                     ssh://[USER@]HOST[:PORT][/DIR][?key=FILE&known_hosts=FILE&config=FILE]
                     docker://CONTAINER[/DIR], podman://CONTAINER[/DIR]
                     kubectl://CONTEXT/NAMESPACE/POD[/CONTAINER][?dir=DIR]
                     sandbox:DIR[?network=yes], exec:COMMAND LINE
                   (docs/environments.md)
  --ask            ask the user before a command runs
  --state DIR      keep sessions in DIR for session/load; off keeps none;
                   $XDG_STATE_HOME/acp-demo-agent or, without that,
                   ~/.local/state/acp-demo-agent by default
  --profiles FILE  how clients treat terminals, as in docs/clients.md
  --control PATH   serve the terminals at a Unix socket, for "termbridge ctl";
                   auto picks a path under the user's runtime directory
  --record FILE    write what the client and the agent send to FILE, without
                   secrets: for a bug report, or to play it back in a test
  --log FILE       append what happens to FILE; without it, warnings go to stderr
  --version        print the version
  --help           print this

The agent is for editors: name it in their settings (docs/demo-agent.md says
how). Each line of a prompt is a command line such as "!go version"; the prompt
"help" lists the others.
`

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	interruptible := func() (context.Context, context.CancelFunc) {
		return signal.NotifyContext(context.Background(), endSignals()...)
	}
	switch {
	case command == "demo":
		return runDemo(args[1:])
	case command == "ctl":
		ctx, stop := interruptible()
		defer stop()
		p := ctl.Program{Name: "acp-demo-agent ctl", Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
		return p.Main(ctx, args[1:])
	case command == checkclient.Name:
		ctx, stop := interruptible()
		defer stop()
		return checkclient.Run(ctx, "acp-demo-agent", args[1:], os.Stdout, os.Stderr)
	case len(args) == 0 && checkclient.Asked():
		ctx, stop := interruptible()
		defer stop()
		return checkclient.Serve(ctx)
	}
	return serve(args)
}

// flags are those of the agent.
type flags struct {
	agent.Options
	record, log string // files
	version     bool
}

func (f *flags) define(fs *flag.FlagSet) {
	f.Policy = bridge.Prefer
	fs.Func("policy", "", func(v string) error {
		switch f.Policy = bridge.Policy(v); f.Policy {
		case bridge.Prefer, bridge.Require, bridge.Local:
			return nil
		}
		return errors.New("it is prefer, require or local")
	})
	fs.Func("profiles", "", func(file string) (err error) {
		f.Profiles, err = acpterm.LoadProfiles(file)
		return err
	})
	fs.StringVar(&f.Shell, "shell", "", "")
	f.Executors = make(map[string]execenv.Executor)
	fs.Func("env", "", func(v string) error { return addExecutor(f.Executors, v) })
	fs.BoolVar(&f.Ask, "ask", false, "")
	f.StateDir = defaultStateDir()
	fs.Func("state", "", func(dir string) (err error) {
		switch dir {
		case "":
			return errors.New("it is a directory, or off")
		case "off":
			f.StateDir = ""
		default:
			f.StateDir, err = filepath.Abs(dir) // where the agent was started
		}
		return err
	})
	fs.StringVar(&f.Control, "control", "", "")
	fs.StringVar(&f.record, "record", "", "")
	fs.StringVar(&f.log, "log", "", "")
	fs.BoolVar(&f.version, "version", false, "")
}

// serve is the agent.
func serve(args []string) int {
	f := flags{Options: agent.Options{Version: version.String()}}
	fs := newFlags("acp-demo-agent")
	f.define(fs)
	defer closeExecutors(f.Executors)
	if status, done := parse(fs, args, usage); done {
		return status
	}
	if f.version {
		fmt.Println(version.Line("acp-demo-agent"))
		return exitOK
	}
	logger, closeLog, err := openLog(f.log)
	if err != nil {
		fmt.Fprintf(os.Stderr, "acp-demo-agent: %v\n", err)
		return exitUsage
	}
	defer closeLog()
	f.Logger = logger
	if f.record != "" {
		record, err := os.OpenFile(f.record, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			fmt.Fprintf(os.Stderr, "acp-demo-agent: --record: %v\n", err)
			return exitUsage
		}
		defer record.Close()
		f.Record = record
	}
	if f.Control == "auto" {
		f.Control = control.AutoPath(fmt.Sprintf("acp-demo-agent-%d", os.Getpid()))
		fmt.Fprintln(os.Stderr, "acp-demo-agent: control is served at", f.Control)
	}
	if _, ok := terminalWidth(os.Stdin); ok {
		fmt.Fprintln(os.Stderr, "acp-demo-agent: I speak ACP and wait for a client; for something to see, run: acp-demo-agent demo")
	}

	ctx, stop := signal.NotifyContext(context.Background(), endSignals()...)
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal ends the process at once
	// A write to a client that has gone is an error, not the end by SIGPIPE.
	// Ignoring the signal would make every command inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	err = agent.Serve(ctx, os.Stdin, os.Stdout, &f.Options)
	if err != nil {
		if f.log != "" {
			logger.Error("ended", "err", err)
		}
		complain(err)
		return exitFailed
	}
	return exitOK
}

// addExecutor adds the environment of one --env.
func addExecutor(executors map[string]execenv.Executor, v string) error {
	name, where, ok := strings.Cut(v, "=")
	switch {
	case !ok || name == "":
		return errors.New("it is NAME=WHERE")
	case name == bridge.EnvironmentClient || name == bridge.EnvironmentLocal || strings.TrimLeft(name, nameChars) != "":
		return fmt.Errorf("%q cannot be a name: use letters, digits, '-', '_' and '.', and neither client nor local", name)
	case executors[name] != nil:
		return fmt.Errorf("%q is there already", name)
	}
	l, dir, err := launcher.Parse(where)
	if err != nil {
		return err
	}
	executors[name] = launcher.New(l, &launcher.Options{Dir: dir})
	return nil
}

const nameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

// closeExecutors closes what the agent leaves to its caller, all at once.
func closeExecutors(executors map[string]execenv.Executor) {
	var closes sync.WaitGroup
	for name, executor := range executors {
		closes.Go(func() {
			if err := executor.(*launcher.Executor).Close(); err != nil {
				complain(fmt.Errorf("environment %s: %w", name, err))
			}
		})
	}
	closes.Wait()
}

// complain writes to stderr, which may be a full pipe that nobody reads.
func complain(err error) {
	written := make(chan struct{})
	go func() { // ends at the latest with the process
		defer close(written)
		fmt.Fprintf(os.Stderr, "acp-demo-agent: %v\n", err)
	}()
	select {
	case <-written:
	case <-time.After(100 * time.Millisecond):
	}
}

// defaultStateDir is where sessions are kept: "$XDG_STATE_HOME defines the base
// directory relative to which user-specific state files should be stored. If
// $XDG_STATE_HOME is either not set or empty, a default equal to
// $HOME/.local/state should be used", and a relative one ignored (XDG Base
// Directory). "" if the user has no home.
func defaultStateDir() string {
	const name = "acp-demo-agent"
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, name)
	}
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return ""
	}
	return filepath.Join(home, ".local", "state", name)
}

// newFlags returns an empty set of flags that prints nothing by itself.
func newFlags(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return fs
}

// parse parses flags, and reports that the program is done, and its status, if
// they asked for help or are wrong.
func parse(fs *flag.FlagSet, args []string, usage string) (status int, done bool) {
	err := fs.Parse(args)
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("unknown argument %q", fs.Arg(0))
	}
	switch {
	case err == nil:
		return exitOK, false
	case errors.Is(err, flag.ErrHelp):
		fmt.Print(usage)
		return exitOK, true
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n\n%s", fs.Name(), flagName.ReplaceAllString(err.Error(), "${1}--$2"), usage)
	return exitUsage, true
}

// flagName is a flag in an error of package flag, which writes one dash where the
// usage has two.
var flagName = regexp.MustCompile(`^(flag .*: |invalid .* for (?:flag )?)-([^-\s:]+)`)

// openLog returns the logger: everything to a file, or warnings to stderr.
// Standard output is the protocol. Nobody waits for a log but close, for a moment.
func openLog(file string) (l *slog.Logger, close func(), err error) {
	if file == "" {
		h := slog.NewTextHandler(redacted{os.Stderr}, &slog.HandlerOptions{Level: slog.LevelWarn})
		l = logqueue.New(slog.New(h))
		return l, func() { logqueue.Flush(l) }, nil
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("--log: %w", err)
	}
	l = logqueue.New(slog.New(slog.NewTextHandler(redacted{f}, nil)))
	return l, func() {
		logqueue.Flush(l)
		_ = f.Close()
	}, nil
}

// A redacted writer leaves out what looks like a secret: a log is shown to others. A
// record is one write.
type redacted struct{ io.Writer }

func (w redacted) Write(record []byte) (int, error) {
	_, err := io.WriteString(w.Writer, secrets.Redact(string(record)))
	return len(record), err
}

// endSignals returns the signals that end this program in good order: SIGHUP as
// well, which comes when the terminal of the client closes, unless it is ignored,
// as under nohup.
func endSignals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}
