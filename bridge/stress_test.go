package bridge_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

var (
	stressSeeds = flag.Int("stress", 300, "how many seeds TestStress plays")
	stressFirst = flag.Uint64("seed", 1, "the first seed of TestStress; the others count on")
)

// TestStress plays sessions at random, each seed in fake time: prompts that
// overlap, tool calls at once, permissions, promotions, timeouts, cancels, closes;
// and a client that is slow, refuses, does not answer, does not read, uses ids
// again, or goes away. Whatever happens: a card has one tool_call, then its
// updates, then one final status; a terminal is released once; what is said of a
// command is true; every method returns within its bound; and no goroutine and no
// command is left.
//
// A seed that fails prints the command that plays it again. The choices of a seed
// are the same each time, but not the order of what happens at the same instant.
func TestStress(t *testing.T) {
	var played atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	var did counts
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for !t.Failed() {
				n := played.Add(1)
				if n > int64(*stressSeeds) {
					return
				}
				seed := *stressFirst + uint64(n) - 1
				t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
					defer func() {
						if v := recover(); v != nil { // the bubble's: goroutines are left
							t.Errorf("%v\n%s", v, stacks())
						}
						if t.Failed() {
							t.Errorf("again: go test -race -run 'TestStress$' -count=20 ./bridge -stress=1 -seed=%d", seed)
						}
					}()
					synctest.Test(t, func(t *testing.T) {
						r := newRound(t, seed)
						r.play()
						did.add(&r.did)
					})
				})
			}
		})
	}
	all.Wait()
	t.Logf("%d seeds from %d on in %v: %s", *stressSeeds, *stressFirst, time.Since(start).Round(time.Second), &did)
}

// stacks returns the stacks of the goroutines that are in bubbles.
func stacks() string {
	buf := make([]byte, 1<<20)
	var all []string
	for s := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if head, _, _ := strings.Cut(s, "\n"); strings.Contains(head, "synctest bubble") {
			all = append(all, s)
		}
	}
	return strings.Join(all, "\n\n")
}

// counts counts what was played, so that a log shows that it was.
type counts struct {
	mu sync.Mutex
	// guards following
	n map[string]int
}

func (c *counts) count(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[what]++
}

func (c *counts) add(o *counts) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	for what, n := range o.n {
		c.n[what] += n
	}
}

func (c *counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.TrimPrefix(fmt.Sprint(c.n), "map")
}

// A round is one seed: a connection, its sessions, and what happens to them.
type round struct {
	*testing.T
	seed   uint64
	kind   kind
	rough  int // of a hundred requests, how many the client gets wrong
	c      *scripted
	b      *bridge.Bridge
	actors []*actor
	did    counts
	start  time.Time

	mu sync.Mutex
	// guards following
	jobs  map[string]*job
	plays map[string]func(context.Context) (acp.PromptResponse, error) // by prompt, for the wire
	log   []logged
}

// A logged is a line of the log of a round.
type logged struct {
	at     time.Duration
	format string
	args   []any
}

// note adds a line to the log.
func (r *round) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, logged{time.Since(r.start), format, args})
}

// rand returns the random numbers for something that has a name: they do not
// depend on what else happens.
func (r *round) rand(names ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, names...)
	return rand.New(rand.NewPCG(r.seed, h.Sum64()))
}

func chance(rng *rand.Rand, percent int) bool { return rng.IntN(100) < percent }

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

// pick returns one of the choices.
func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

const (
	stressBackground = 3
	stressTerminals  = 12
)

func newRound(t *testing.T, seed uint64) *round {
	rng := (&round{seed: seed}).rand("round")
	return newRoundOf(t, seed, pick(rng, client, client, client, display, text), pick(rng, 0, 0, 10, 30, 60))
}

// newRoundOf returns the round of a seed with this kind of client, which gets so
// many of a hundred requests wrong.
func newRoundOf(t *testing.T, seed uint64, k kind, rough int) *round {
	r := &round{T: t, seed: seed, kind: k, rough: rough, start: time.Now(), jobs: map[string]*job{}, plays: map[string]func(context.Context) (acp.PromptResponse, error){}}
	r.c = newScripted(r, r.rand("client"))
	init := acp.InitializeRequest{ClientCapabilities: acp.ClientCapabilities{Terminal: !r.kind.client.NoTerminal}}
	if r.kind.client.Display {
		init.ClientCapabilities.Meta = map[string]any{"terminal_output": true}
	}
	r.b = bridge.New(r.c.conn(), init, &bridge.Options{
		Host: acpterm.NoHost,
		Local: func(id acp.SessionId) terminal.Manager {
			n := 0
			return memterm.New(&memterm.Options{Programs: r.programs(), MaxTerminals: 1000, NewID: func() string {
				n++
				return fmt.Sprintf("%s-local-%d", id, n)
			}})
		},
		MaxTerminals:  stressTerminals,
		MaxBackground: stressBackground,
	})
	return r
}

// play is the round.
func (r *round) play() {
	rng := r.rand("play")
	for i := range pick(rng, 1, 1, 2) {
		x := newActor(r, acp.SessionId(fmt.Sprint("s", i+1)))
		r.actors = append(r.actors, x)
	}
	over := make(chan struct{})
	var weather, all sync.WaitGroup
	weather.Go(func() { r.weather(r.rand("weather"), over) })
	for _, x := range r.actors {
		all.Go(x.run)
	}
	all.Wait()
	close(over)
	weather.Wait()
	r.c.read(true)
	for _, x := range r.actors {
		all.Go(x.close)
	}
	all.Wait()
	start := time.Now()
	if err := r.b.Close(); err != nil {
		r.Errorf("the bridge: %v", err) // its sessions are closed
	}
	r.within("Bridge.Close", start, time.Second)
	time.Sleep(veryLate) // what comes late has come
	for _, x := range r.actors {
		x.settle()
	}
	r.c.end()
	r.dump()
}

// dump logs what happened, if something was wrong.
func (r *round) dump() {
	if !r.Failed() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.log {
		r.Logf("%12v %s", e.at, fmt.Sprintf(e.format, e.args...))
	}
}

// veryLate is longer than an answer of the client takes, if it comes at all.
const veryLate = time.Minute

// within expects that something which should have begun to end at a time did so
// within a bound.
func (r *round) within(what string, since time.Time, bound time.Duration) {
	if took := time.Since(since); took > bound {
		r.Errorf("%s took %v, want at most %v", what, took, bound)
	}
}

// weather is what the client does by itself, until over is closed.
func (r *round) weather(rng *rand.Rand, over <-chan struct{}) {
	deadline := time.NewTimer(time.Hour)
	defer deadline.Stop()
	for {
		select {
		case <-over:
			return
		case <-deadline.C:
			r.Errorf("nothing ends")
			r.c.lose(true)
			return
		case <-time.After(upTo(rng, 2*time.Second)):
		}
		x := r.actors[rng.IntN(len(r.actors))]
		switch n := rng.IntN(100); {
		case n < 30:
			r.c.cancel(rng, x)
		case n < 36 && r.rough > 0:
			r.did.count("not read")
			r.c.read(false)
			stop := pick(rng, 300*time.Millisecond, 3*time.Second, 20*time.Second)
			select {
			case <-time.After(stop):
			case <-over:
			}
			r.c.read(true)
		case n < 44:
			r.c.userKills(rng)
		case n < 46 && r.rough > 0:
			r.did.count("session closed")
			x.close()
		case n < 48 && r.rough > 0:
			r.did.count("connection lost")
			r.c.lose(chance(rng, 50))
			return
		case r.c.garbles:
			r.did.count("line garbled")
			r.c.wire.Inject(garbling(rng))
		}
	}
}

// A job is what a command of the stress does, and what became of it.
type job struct {
	name     string
	call     acp.ToolCallId // that runs it, "" for none
	lines    int
	interval time.Duration
	code     int
	stubborn bool // it ends only when it is killed
	missing  bool // there is no such program

	mu sync.Mutex
	// guards following
	starts, running int
	finished        bool // it came to its own end
	wrote           strings.Builder
	byUser          bool            // the user has ended it in the client
	wronged         map[string]bool // methods that the client got wrong for it
}

// wrong notes that the client got a request wrong.
func (k *job) wrong(method string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wronged[method] = true
}

// programs are those that both sides run: "job NAME".
func (r *round) programs() map[string]memterm.Program {
	return map[string]memterm.Program{"job": func(p *memterm.Process) terminal.Exit {
		r.mu.Lock()
		k := r.jobs[p.Args[1]]
		r.mu.Unlock()
		return k.run(p)
	}}
}

func (k *job) run(p *memterm.Process) terminal.Exit {
	k.mu.Lock()
	k.starts++
	k.running++
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.running--
	}()
	for i := range k.lines {
		line := fmt.Sprintf("%s: line %d\n", k.name, i+1)
		k.mu.Lock()
		_, err := p.Stdout.Write([]byte(line))
		if err == nil {
			k.wrote.WriteString(line)
		}
		k.mu.Unlock()
		if err != nil {
			return p.Death()
		}
		if !p.Sleep(k.interval) {
			if k.stubborn {
				<-p.Killed
			}
			return p.Death()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.finished = true
	return memterm.Code(k.code)
}

// newJob makes a command.
func (r *round) newJob(rng *rand.Rand, name string, call acp.ToolCallId) (*job, terminal.Command) {
	k := &job{
		name: name, call: call, wronged: map[string]bool{},
		lines:    1 + rng.IntN(6),
		interval: 10*time.Millisecond + upTo(rng, 600*time.Millisecond),
		code:     pick(rng, 0, 0, 0, 3),
		stubborn: chance(rng, 10),
	}
	if chance(rng, 10) {
		k.interval = time.Hour // somebody must end it
	}
	if r.c.garbles {
		k.wrong("the wire")
	}
	r.mu.Lock()
	r.jobs[name] = k
	r.mu.Unlock()
	cmd := terminal.Command{Args: []string{"job", name}}
	if chance(rng, 5) { // a shell says so in the client, and the start fails locally
		cmd.Args[0] = "missing"
		k.missing, k.finished, k.code = true, true, 127
		k.wrote.WriteString("sh: missing: not found\n")
	}
	if chance(rng, 20) {
		cmd.Environment = pick(rng, bridge.EnvironmentLocal, bridge.EnvironmentClient)
	}
	if chance(rng, 15) {
		cmd.OutputLimit = 20 + rng.IntN(60)
	}
	if chance(rng, 15) {
		cmd.Timeout = 50*time.Millisecond + upTo(rng, 2*time.Second)
	}
	return k, cmd
}

// leaked returns what an error of a close lists, and fails for any other.
func (r *round) leaked(what string, err error) []terminal.Leak {
	if err == nil {
		return nil
	}
	leak, ok := errors.AsType[*terminal.LeakError](err)
	if !ok {
		r.Errorf("%s: %v", what, err)
		return nil
	}
	return leak.Leaks
}
