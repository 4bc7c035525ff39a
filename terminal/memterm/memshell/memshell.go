// Package memshell is a POSIX shell for the programs of memterm: the interpreter of
// mvdan.cc/sh, whose commands are those programs, in real time or in the fake time of
// testing/synctest. It is a package of its own so that memterm needs the standard
// library only.
//
//	m := memterm.New(&memterm.Options{Shell: memshell.New(nil)})
//	t, err := m.Start(ctx, terminal.Command{Line: "sleep 1 && echo a | cat; (exit 3)"})
//
// # What is a process
//
// Each command is a process of the terminal's, and so are a subshell, each side of a
// pipeline and what runs in the background: signals reach them one by one, and they may
// outlive the shell. A command substitution runs in its shell. After exec a program is
// the shell's own process. A shell that gets a signal ends by it at once; trap knows
// EXIT, ERR, and ” for signals to be ignored, by all that the shell starts from then on.
//
// # What a command is
//
// The built-in commands are the interpreter's, but for echo, printf, true, false and
// pwd where there are programs with these names. Files are in memory, are those of
// one shell that [New] returned, and live as long as it does; each directory that has
// one exists, and that in which a command starts. read reads redirected input only.
//
// A Program that New returned may run in any number of goroutines.
package memshell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"

	"github.com/termbridge/termbridge/internal/signals"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// New returns a shell that runs the line of its Args: "sh", "-c", LINE, and then $0 and
// further parameters. files are the contents of the files that there are at first,
// by their absolute names.
func New(files map[string]string) memterm.Program {
	disk := newDisk(files)
	return func(p *memterm.Process) terminal.Exit {
		if len(p.Args) < 3 || p.Args[1] != "-c" {
			fmt.Fprintln(p.Stderr, "sh: give -c and a line")
			return memterm.Code(2)
		}
		file, err := parse(p.Args[2])
		if err != nil {
			fmt.Fprintf(p.Stderr, "sh: syntax error: %v\n", err)
			return memterm.Code(2)
		}
		s := &shell{p: p, disk: disk, jobs: map[int]*memterm.Child{}}
		s.split(file, false)
		if err := s.init(); err != nil {
			fmt.Fprintf(p.Stderr, "sh: %v\n", err)
			return memterm.Code(2)
		}
		return s.run(file.Stmts)
	}
}

// parse parses a line.
func parse(line string) (*syntax.File, error) {
	file, err := syntax.NewParser().Parse(strings.NewReader(line), "")
	if err != nil {
		return nil, err
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		if _, ok := node.(*syntax.ProcSubst); ok { // it would make a FIFO on the machine
			err = fmt.Errorf("%v: no process substitution", node.Pos())
		}
		return true
	})
	return file, err
}

// A shell is one process that interprets: a subshell is another.
type shell struct {
	p     *memterm.Process
	disk  *disk
	r     *interp.Runner
	forks []*syntax.Stmt // what split has taken out; its own and those of its parents
	exit  *terminal.Exit // of the program that exec has made it

	mu sync.Mutex
	// guards following
	jobs map[int]*memterm.Child // in the background, by the status of their start
	n    int                    // of jobs
}

// init makes the interpreter.
func (s *shell) init() error {
	env := variables{}
	for _, name := range []string{"HOME", "UID", "EUID", "GID"} { // else the machine's
		env[name] = expand.Variable{Set: true, Kind: expand.String}
	}
	for name, value := range s.p.Env {
		env[name] = expand.Variable{Set: true, Exported: true, Kind: expand.String, Str: value}
	}
	r, err := interp.New(
		interp.Env(env),
		interp.StdIO(nil, s.p.Stdout, messages{s.p.Stderr}),
		interp.CallHandler(call),
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc { return command }),
		interp.OpenHandler(s.disk.open),
		interp.ReadDirHandler2(s.disk.readDir),
		interp.StatHandler(s.disk.stat),
		interp.AccessHandler(s.disk.access),
	)
	if err != nil {
		return err
	}
	if r.Dir = s.p.Dir; r.Dir == "" {
		r.Dir = "/"
	}
	s.disk.mkdir(r.Dir)
	if len(s.p.Args) > 4 {
		r.Params = s.p.Args[4:]
	}
	s.r = r
	return nil
}

// messages is the standard error of a shell, where the interpreter reports also that a
// command substitution has ended with it.
type messages struct{ io.Writer }

func (m messages) Write(b []byte) (int, error) {
	if string(b) == errEnded.Error()+"\n" {
		return len(b), nil
	}
	return m.Writer.Write(b)
}

// unwrapped is w as a program gets it.
func unwrapped(w io.Writer) io.Writer {
	if m, ok := w.(messages); ok {
		return m.Writer
	}
	return w
}

// variables are an environment.
type variables map[string]expand.Variable

func (v variables) Get(name string) expand.Variable { return v[name] }

func (v variables) Each(f func(string, expand.Variable) bool) {
	for name, value := range v {
		if !f(name, value) {
			return
		}
	}
}

// errEnded ends the interpreter: the process has ended.
var errEnded = errors.New("memshell: the process has ended")

// run interprets statements, and returns how the shell exits.
func (s *shell) run(stmts []*syntax.Stmt) terminal.Exit {
	file := &syntax.File{Name: "sh", Stmts: stmts} // as $0
	if len(s.p.Args) > 3 {
		file.Name = s.p.Args[3]
	}
	err := s.r.Run(life{context.Background(), s}, file)
	switch {
	case s.exit != nil:
		return *s.exit
	case over(s.p.Stopped):
		return s.p.Death()
	}
	if status, ok := errors.AsType[interp.ExitStatus](err); ok {
		return memterm.Code(int(status))
	}
	if err != nil {
		fmt.Fprintf(s.p.Stderr, "sh: %v\n", err)
		return memterm.Code(2)
	}
	return memterm.Code(0)
}

// life is the context of all that a shell does: it ends with a signal, and it shows the
// shell to its handlers, of which those of a subshell are copies.
type life struct {
	context.Context
	s *shell
}

func (l life) Done() <-chan struct{} { return l.s.p.Stopped }

func (l life) Err() error {
	if over(l.s.p.Stopped) {
		return errEnded
	}
	return nil
}

func (l life) Value(key any) any {
	if key == (shellKey{}) {
		return l.s
	}
	return l.Context.Value(key)
}

type shellKey struct{}

// The commands that split puts in, and what call makes of names.
const (
	subshell = "\x01("      // N: runs forks[N] and waits for it
	pipeline = "\x01|"      // N M: connects both and waits for them
	start    = "\x01&"      // N: starts forks[N]; its status names the job, and is never 0
	await    = "\x01wait"   // STATUS: waits for a job
	replace  = "\x01exec"   // PROGRAM…
	ignore   = "\x01ignore" // SIGNAL…
	program  = "\x01run"    // PROGRAM…: and no built-in command
)

// split replaces what has a process of its own, within node, by the commands
// above. A command substitution has none, so exec in it is the interpreter's.
func (s *shell) split(node syntax.Node, substituted bool) {
	take := func(stmt *syntax.Stmt) string {
		s.split(stmt, false)
		s.forks = append(s.forks, stmt)
		return strconv.Itoa(len(s.forks) - 1)
	}
	syntax.Walk(node, func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.CmdSubst:
			if !substituted {
				s.split(n, true)
				return false
			}
		case *syntax.CallExpr:
			if len(n.Args) > 1 && n.Args[0].Lit() == "exec" && !substituted {
				n.Args[0] = word(replace)
			}
		case *syntax.Stmt:
			if n.Background {
				inner := *n
				inner.Background = false
				job := &syntax.IfClause{
					Cond: []*syntax.Stmt{invoke(word(start), word(take(&inner)))},
					Then: []*syntax.Stmt{invoke(word(":"))},
					Else: &syntax.IfClause{Then: []*syntax.Stmt{invoke(word(await), status())}},
				}
				job.Else.Then[0].Background = true
				*n = syntax.Stmt{Cmd: job, Position: n.Position}
				return false
			}
			switch c := n.Cmd.(type) {
			case *syntax.Subshell:
				n.Cmd = invoke(word(subshell), word(take(&syntax.Stmt{Cmd: &syntax.Block{Stmts: c.Stmts}}))).Cmd
			case *syntax.BinaryCmd:
				switch c.Op {
				case syntax.PipeAll:
					c.X.Redirs = append(c.X.Redirs, &syntax.Redirect{N: &syntax.Lit{Value: "2"}, Op: syntax.DplOut, Word: word("1")})
					fallthrough
				case syntax.Pipe:
					n.Cmd = invoke(word(pipeline), word(take(c.X)), word(take(c.Y))).Cmd
				}
			}
		}
		return true
	})
}

func word(text string) *syntax.Word {
	return &syntax.Word{Parts: []syntax.WordPart{&syntax.Lit{Value: text}}}
}

// status is $?.
func status() *syntax.Word {
	return &syntax.Word{Parts: []syntax.WordPart{&syntax.ParamExp{Short: true, Param: &syntax.Lit{Value: "?"}}}}
}

func invoke(words ...*syntax.Word) *syntax.Stmt {
	return &syntax.Stmt{Cmd: &syntax.CallExpr{Args: words}}
}

// call is called before each command.
func call(ctx context.Context, args []string) ([]string, error) {
	s := ctx.Value(shellKey{}).(*shell)
	if s.r.Funcs[args[0]] != nil {
		return args, nil
	}
	switch args[0] {
	case "echo", "printf", "true", "false", "pwd":
		if _, err := s.p.Find(args...); err == nil {
			return append([]string{program}, args...), nil
		}
	case "trap":
		if len(args) > 2 && args[1] == "" && !slices.Contains(args, "EXIT") && !slices.Contains(args, "ERR") {
			return append([]string{ignore}, args[2:]...), nil
		}
	}
	return args, nil
}

// command runs what is neither a function nor built in.
func command(ctx context.Context, args []string) error {
	s, hc := ctx.Value(shellKey{}).(*shell), interp.HandlerCtx(ctx)
	switch args[0] {
	case subshell:
		return s.fork(hc, args[1], func(*memterm.Process) io.Closer { return nil }, s.wait)
	case pipeline:
		in, out := memterm.Pipe()
		return s.fork(hc, args[1], func(c *memterm.Process) io.Closer { c.Stdout = out; return out }, func(left *memterm.Child) error {
			err := s.fork(hc, args[2], func(c *memterm.Process) io.Closer { c.Stdin = in; return in }, s.wait)
			if _, ended := errors.AsType[interp.ExitStatus](err); err != nil && !ended {
				return err
			}
			s.wait(left)
			return err
		})
	case start:
		background := func(c *memterm.Process) io.Closer {
			if hc.Stdin == nil {
				c.Stdin = strings.NewReader("")
			}
			return nil
		}
		return s.fork(hc, args[1], background, func(c *memterm.Child) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.n = s.n%255 + 1
			s.jobs[s.n] = c
			return interp.ExitStatus(s.n)
		})
	case await:
		n, _ := strconv.Atoi(args[1])
		s.mu.Lock()
		job := s.jobs[n]
		delete(s.jobs, n)
		s.mu.Unlock()
		return s.wait(job)
	case ignore:
		for _, name := range args[1:] {
			s.p.Ignore("SIG" + strings.TrimPrefix(name, "SIG"))
		}
		return nil
	case replace, program:
		return s.program(hc, args[1:], args[0] == replace)
	}
	return s.program(hc, args, false)
}

// program runs a program, as a child or in the place of the shell.
func (s *shell) program(hc interp.HandlerContext, argv []string, replace bool) error {
	prog, err := s.p.Find(argv...)
	if err != nil {
		fmt.Fprintf(hc.Stderr, "sh: %s: not found\n", argv[0])
		if replace {
			s.exit = new(memterm.Code(127))
			return errEnded
		}
		return interp.ExitStatus(127)
	}
	p := s.process(hc, argv)
	if replace {
		s.exit = new(prog(&p))
		return errEnded
	}
	c, err := s.p.Fork(p, prog)
	if err != nil {
		return err
	}
	return s.wait(c)
}

// process is a process that the shell starts now.
func (s *shell) process(hc interp.HandlerContext, argv []string) memterm.Process {
	p := *s.p
	p.Args, p.Env = argv, map[string]string{}
	if p.Dir != "" || hc.Dir != "/" { // which stands for none
		p.Dir = hc.Dir
	}
	hc.Env.Each(func(name string, v expand.Variable) bool {
		if v.Exported && v.IsSet() {
			p.Env[name] = v.String()
		} else {
			delete(p.Env, name)
		}
		return true
	})
	if hc.Stdin != nil {
		p.Stdin = hc.Stdin
		if f, ok := hc.Stdin.(*os.File); ok && f.Name() == os.DevNull {
			p.Stdin = strings.NewReader("")
		}
	}
	p.Stdout, p.Stderr = unwrapped(hc.Stdout), unwrapped(hc.Stderr)
	return p
}

// fork starts a copy of the shell that runs forks[n], as change changes it, and calls
// then with it. When it ends it closes what change returned.
func (s *shell) fork(hc interp.HandlerContext, n string, change func(*memterm.Process) io.Closer, then func(*memterm.Child) error) error {
	i, err := strconv.Atoi(n)
	if err != nil || i >= len(s.forks) {
		return interp.ExitStatus(127)
	}
	p := s.process(hc, s.p.Args)
	end := change(&p)
	r := s.r.Subshell()
	c, err := s.p.Fork(p, func(p *memterm.Process) terminal.Exit {
		if end != nil {
			defer end.Close()
		}
		sub := &shell{p: p, disk: s.disk, r: r, forks: s.forks, jobs: map[int]*memterm.Child{}}
		interp.StdIO(nil, p.Stdout, messages{p.Stderr})(r)
		return sub.run(s.forks[i : i+1])
	})
	if err != nil {
		return err
	}
	return then(c)
}

// wait waits for a process, unless the shell ends before, and returns its status.
func (s *shell) wait(c *memterm.Child) error {
	select {
	case <-c.Done():
	case <-s.p.Stopped:
		return interp.ExitStatus(1) // nothing follows: its life has ended
	}
	switch exit := c.Exit(); {
	case exit.Signal != "":
		return interp.ExitStatus(128 + signals.Number(exit.Signal))
	case exit.Code == nil:
		return interp.ExitStatus(255)
	case *exit.Code&0xff != 0:
		return interp.ExitStatus(*exit.Code)
	}
	return nil
}

// over reports whether c is closed.
func over(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
