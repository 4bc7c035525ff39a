package registry_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/registry"
	"github.com/termbridge/termbridge/terminal"
)

// A fake is a terminal that only has an id.
type fake struct {
	terminal.Terminal
	id string
}

// A fixture is a Registry, and the ids of what was evicted from it.
type fixture struct {
	*registry.Registry[*fake]
	t    *testing.T
	gone []string
}

func newFixture(t *testing.T, o registry.Options[*fake]) *fixture {
	f := &fixture{Registry: registry.New(o), t: t}
	f.OnEvict(func(t terminal.Terminal) { f.gone = append(f.gone, t.(*fake).id) })
	return f
}

func limited(t *testing.T, limit int) *fixture {
	return newFixture(t, registry.Options[*fake]{MaxTerminals: limit})
}

func (f *fixture) reserve() error { return f.Reserve(f.t.Context(), nil) }

func (f *fixture) start(ids ...string) {
	f.t.Helper()
	for _, id := range ids {
		if err := f.reserve(); err != nil {
			f.t.Fatalf("start %s: %v", id, err)
		}
		if err := f.Put(id, &fake{id: id}); err != nil {
			f.t.Fatalf("start %s: %v", id, err)
		}
		f.Starts.Done()
	}
}

func (f *fixture) end(ids ...string) {
	f.t.Helper()
	for _, id := range ids {
		f.finish(f.term(id))
	}
}

func (f *fixture) finish(t *fake) {
	f.t.Helper()
	done := make(chan struct{})
	f.End(t, done)
	select {
	case <-done:
	default:
		f.t.Errorf("%s: done is open", t.id)
	}
}

// term returns a terminal that is kept.
func (f *fixture) term(id string) *fake {
	f.t.Helper()
	t, err := f.Get(id)
	if err != nil {
		f.t.Fatal(err)
	}
	return t
}

// check compares what is kept, in its order, and what was evicted.
func (f *fixture) check(kept, gone []string) {
	f.t.Helper()
	list := []string{}
	for _, t := range f.List() {
		list = append(list, t.(*fake).id)
	}
	if diff := cmp.Diff(kept, list); diff != "" {
		f.t.Fatalf("kept (-want +got):\n%s", diff)
	}
	if !slices.Equal(gone, f.gone) {
		f.t.Fatalf("evicted %q, want %q", f.gone, gone)
	}
	for _, id := range kept {
		if got, err := f.Get(id); err != nil || got.id != id {
			f.t.Fatalf("Get(%q): %v, %v", id, got, err)
		}
	}
	for _, id := range gone[max(0, len(gone)-8):] {
		if got, err := f.Get(id); !errors.Is(err, terminal.ErrNotFound) || got != nil {
			f.t.Fatalf("Get(%q) of an evicted terminal: %v, %v", id, got, err)
		}
	}
}

func TestSlotsAreOfCommandsThatStartOrRun(t *testing.T) {
	f := limited(t, 2)
	if f.Busy() {
		t.Error("an empty one is busy")
	}
	full := func(why string) {
		t.Helper()
		if err := f.reserve(); !errors.Is(err, terminal.ErrTooMany) {
			t.Errorf("%s: got %v, want ErrTooMany", why, err)
		}
	}
	f.start("runs")
	if err := f.reserve(); err != nil {
		t.Fatal(err)
	}
	full("one runs and one starts")
	f.Unreserve()
	f.start("ends")
	full("two run")
	f.end("ends")
	if err := f.reserve(); err != nil {
		t.Fatal(err)
	}
	full("a slot is given back once")
	f.Starts.Done()
	f.finish(&fake{id: "never put"})
	f.check([]string{"runs", "ends"}, nil)
	f.end("runs")
	if f.Busy() {
		t.Error("busy after the last end")
	}
}

func TestWhatEndedFirstGivesWay(t *testing.T) {
	// The order of the ends decides, not that of the starts, and a live terminal
	// stays.
	f := limited(t, 3)
	f.start("a", "b", "c")
	f.end("c", "a")
	f.start("d")
	f.check([]string{"a", "b", "d"}, []string{"c"})
	f.start("e")
	f.check([]string{"b", "d", "e"}, []string{"c", "a"})
}

// Evict is for ended terminals that are kept; all others it leaves alone.
func TestEvict(t *testing.T) {
	f := limited(t, 4)
	f.start("a", "b", "c")
	f.end("a", "b")
	a, b := f.term("a"), f.term("b")
	f.Evict(f.term("c"))
	f.Evict(&fake{id: "unknown"})
	f.Evict(b)
	f.Evict(b)
	f.check([]string{"a", "c"}, []string{"b"})
	f.Evict(a)
	f.start("d", "e", "f")
	f.check([]string{"c", "d", "e", "f"}, []string{"b", "a"})
}

func TestEvictedTerminalsAreCollected(t *testing.T) {
	// The output of an ended command is large.
	f := limited(t, 1)
	f.start("a")
	a := f.term("a")
	held := weak.Make(a)
	f.finish(a)
	f.start("b")
	f.check([]string{"b"}, []string{"a"})
	runtime.GC()
	if held.Value() != nil {
		t.Error("the evicted terminal is not collected")
	}
	runtime.KeepAlive(f)
}

func TestAnIDThatComesTwice(t *testing.T) {
	// NewID must not do that; if it does, each terminal is kept.
	f := limited(t, 2)
	older, newer := &fake{id: "same"}, &fake{id: "same"}
	for _, term := range []*fake{older, newer} {
		if err := f.reserve(); err != nil {
			t.Fatal(err)
		}
		if err := f.Put("same", term); err != nil {
			t.Fatal(err)
		}
	}
	f.finish(older)
	f.start("other")
	if list := f.List(); len(list) != 2 || list[0] != newer {
		t.Errorf("kept %v, want the one that runs", list)
	}
	if got := f.term("same"); got != newer {
		t.Errorf("Get: %v, want the one that runs", got)
	}
	f.finish(newer)
	f.start("another")
	f.check([]string{"other", "another"}, []string{"same", "same"})
}

// A terminal that ended KeepEnded ago goes, whatever else ends meanwhile, and none is
// told of before.
func TestKeepEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, registry.Options[*fake]{KeepEnded: time.Minute})
		f.start("a", "b", "c", "d")
		f.end("b")
		time.Sleep(40 * time.Second)
		f.end("a")
		time.Sleep(20*time.Second - 1)
		f.check([]string{"a", "b", "c", "d"}, nil)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		f.check([]string{"a", "c", "d"}, []string{"b"})
		time.Sleep(40*time.Second - 1)
		f.check([]string{"a", "c", "d"}, []string{"b"})
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		f.check([]string{"c", "d"}, []string{"b", "a"})
		f.end("c")
		time.Sleep(30 * time.Second)
		f.Close(func([]*fake) error { return nil })
		f.end("d")
		time.Sleep(time.Hour)
		f.check([]string{"c", "d"}, []string{"b", "a"})
	})
}

// A Reserve that waits goes on when a slot is given back, when the manager closes and
// when its other end is gone; the end of its context ends the wait.
func TestReserveWaits(t *testing.T) {
	cause := errors.New("the caller has gone")
	for name, c := range map[string]struct {
		do   func(f *fixture, gone chan struct{}, cancel context.CancelCauseFunc)
		want error
	}{
		"a command ends": {func(f *fixture, _ chan struct{}, _ context.CancelCauseFunc) { f.end("a") }, nil},
		"a start fails":  {func(f *fixture, _ chan struct{}, _ context.CancelCauseFunc) { f.Unreserve() }, nil},
		"the manager closes": {func(f *fixture, _ chan struct{}, _ context.CancelCauseFunc) {
			f.Close(func([]*fake) error { return nil })
		}, terminal.ErrClosed},
		"the connection is gone":  {func(_ *fixture, gone chan struct{}, _ context.CancelCauseFunc) { close(gone) }, terminal.ErrConnectionLost},
		"the context has a cause": {func(_ *fixture, _ chan struct{}, cancel context.CancelCauseFunc) { cancel(cause) }, cause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, registry.Options[*fake]{MaxTerminals: 2, WaitForSlot: true})
				f.start("a")
				if err := f.reserve(); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				gone := make(chan struct{})
				var waiting sync.WaitGroup
				results := make(chan error, 2)
				for range 2 {
					waiting.Go(func() { results <- f.Reserve(ctx, gone) })
				}
				synctest.Wait()
				if len(results) > 0 {
					t.Fatal("it does not wait")
				}
				c.do(f, gone, cancel)
				synctest.Wait()
				if err := <-results; !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if c.want == nil {
					synctest.Wait()
					if len(results) > 0 {
						t.Error("one slot is given back, and two take it")
					}
					cancel(cause)
				}
				waiting.Wait()
			})
		})
	}
}

// After Close has begun nothing begins; the slot of a command that started too late
// is its own until it ends. Whoever closes again waits for the first, and gets what
// it got.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := limited(t, 4)
		f.start("a", "b")
		f.end("b")
		if err := f.reserve(); err != nil {
			t.Fatal(err)
		}
		late, failure := &fake{id: "late"}, errors.New("a leak")
		var closing sync.WaitGroup
		calls, ended := 0, false
		for range 2 {
			closing.Go(func() {
				err := f.Close(func(kept []*fake) error {
					calls++
					if len(kept) != 2 || kept[0].id != "a" || kept[1].id != "b" {
						t.Errorf("told of %v", kept)
					}
					f.Starts.Wait()
					return failure
				})
				if err != failure || !ended {
					t.Errorf("%v, after what it waits for: %v", err, ended)
				}
			})
		}
		<-f.Closing
		synctest.Wait()
		if err := f.Put("late", late); err != terminal.ErrClosed {
			t.Errorf("Put: %v, want ErrClosed", err)
		}
		if err := f.reserve(); err != terminal.ErrClosed {
			t.Errorf("Reserve: %v, want ErrClosed", err)
		}
		if f.Go(func() { t.Error("it runs") }) {
			t.Error("Go has begun")
		}
		f.end("a")
		if !f.Busy() {
			t.Error("the late one runs still")
		}
		ended = true
		f.finish(late)
		f.Starts.Done()
		closing.Wait()
		if f.Busy() || calls != 1 {
			t.Errorf("busy: %v; closed %d times", f.Busy(), calls)
		}
		f.check([]string{"a", "b"}, nil)
	})
}

// Ids are those of NewID, one call at a time, or count.
func TestNextID(t *testing.T) {
	f := newFixture(t, registry.Options[*fake]{Prefix: "t"})
	n, calls := 0, sync.WaitGroup{}
	g := newFixture(t, registry.Options[*fake]{Prefix: "t", NewID: func() string { n++; return fmt.Sprint("own-", n) }})
	for range 100 {
		calls.Go(func() { f.NextID(); g.NextID() })
	}
	calls.Wait()
	if id, err := f.NextID(); id != "t101" || err != nil {
		t.Errorf("%q, %v", id, err)
	}
	if id, err := g.NextID(); id != "own-101" || err != nil {
		t.Errorf("%q, %v", id, err)
	}
	h := newFixture(t, registry.Options[*fake]{NewID: func() string { panic("no ids left") }})
	for range 2 { // no lock stays
		if id, err := h.NextID(); id != "" || err == nil || err.Error() != "Options.NewID panicked: no ids left" {
			t.Errorf("%q, %v", id, err)
		}
	}
}

// Each subscriber hears of each terminal once, whatever another one does; one may call
// the Registry, since no lock is held.
func TestOnEvict(t *testing.T) {
	f := limited(t, 1)
	f.gone = nil
	f.OnEvict(func(terminal.Terminal) { panic("a subscriber") })
	var heard []string
	f.OnEvict(func(t terminal.Terminal) {
		heard = append(heard, t.(*fake).id)
		if _, err := f.Get(t.(*fake).id); !errors.Is(err, terminal.ErrNotFound) {
			f.t.Errorf("%s is kept: %v", t.(*fake).id, err)
		}
	})
	for _, id := range []string{"a", "b", "c"} {
		f.start(id)
		f.end(id)
	}
	if !slices.Equal(heard, []string{"a", "b"}) {
		t.Errorf("heard of %q", heard)
	}
	f.check([]string{"c"}, []string{"a", "b"})
}

// Numbers that are zero or less are the defaults.
func TestDefaults(t *testing.T) {
	for _, n := range []int{0, -1} {
		f := newFixture(t, registry.Options[*fake]{MaxTerminals: n, ManagerBytes: n, KeepEnded: time.Duration(n)})
		for i := range limits.DefaultMaxTerminals {
			f.start(fmt.Sprint(i))
		}
		if err := f.reserve(); !errors.Is(err, terminal.ErrTooMany) {
			t.Errorf("%d: got %v, want ErrTooMany", n, err)
		}
		if got := f.Grow(f.term("0"), 2*limits.DefaultManagerBytes); got != limits.DefaultManagerBytes {
			t.Errorf("%d: %d bytes", n, got)
		}
		f.end("0")
		f.term("0")
	}
}

// TestModel compares long random lives with lists that are searched.
func TestModel(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 0))
		limit := 1 + random.IntN(8)
		f := limited(t, limit)
		kept := []string{}
		var live, ended, gone []string
		evict := func(i int) {
			id := ended[i]
			ended, gone = slices.Delete(ended, i, i+1), append(gone, id)
			kept = slices.DeleteFunc(kept, func(other string) bool { return other == id })
		}
		for i := range 200 {
			switch random.IntN(8) {
			case 0, 1, 2, 3:
				if len(live) == limit {
					if err := f.reserve(); !errors.Is(err, terminal.ErrTooMany) {
						t.Fatalf("seed %d: got %v, want ErrTooMany", seed, err)
					}
					break
				}
				id := fmt.Sprint(i)
				f.start(id)
				live, kept = append(live, id), append(kept, id)
				if len(kept) > limit {
					evict(0)
				}
			case 4, 5, 6:
				if len(live) > 0 {
					n := random.IntN(len(live))
					f.end(live[n])
					ended = append(ended, live[n])
					live = slices.Delete(live, n, n+1)
				}
			case 7:
				if len(ended) > 0 {
					n := random.IntN(len(ended))
					f.Evict(f.term(ended[n]))
					evict(n)
				}
			}
			f.check(kept, gone)
			if f.Busy() != (len(live) > 0) {
				t.Fatalf("seed %d: busy %v with %d live", seed, f.Busy(), len(live))
			}
		}
	}
}

func Example() {
	r := registry.New(registry.Options[*fake]{MaxTerminals: 2})
	r.OnEvict(func(t terminal.Terminal) { fmt.Println("evicted:", t.(*fake).id) })
	for _, id := range []string{"make", "server", "test"} {
		if err := r.Reserve(context.Background(), nil); err != nil {
			fmt.Println(err)
			return
		}
		t := &fake{id: id}
		if err := r.Put(id, t); err != nil {
			fmt.Println(err)
			return
		}
		if id != "server" {
			r.End(t, make(chan struct{}))
		}
	}
	for _, t := range r.List() {
		fmt.Println("kept:", t.(*fake).id)
	}
	// Output:
	// evicted: make
	// kept: server
	// kept: test
}
