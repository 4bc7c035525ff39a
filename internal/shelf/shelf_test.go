package shelf_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"weak"

	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/internal/shelf"
	"github.com/termbridge/termbridge/terminal"
)

// A fake is a terminal that only has an id.
type fake struct {
	terminal.Terminal
	id string
}

// A fixture is a Shelf and the ids of what was evicted from it.
type fixture struct {
	*shelf.Shelf[*fake]
	t    *testing.T
	gone []string
}

func newFixture(t *testing.T, limit int) *fixture {
	f := &fixture{t: t}
	f.Shelf = shelf.New(limit, func(t *fake) { f.gone = append(f.gone, t.id) })
	return f
}

func (f *fixture) start(ids ...string) {
	f.t.Helper()
	for _, id := range ids {
		if err := f.Reserve(); err != nil {
			f.t.Fatalf("start %s: %v", id, err)
		}
		f.Put(id, &fake{id: id})
	}
}

func (f *fixture) end(ids ...string) {
	f.t.Helper()
	for _, id := range ids {
		t, ok := f.Get(id)
		if !ok {
			f.t.Fatalf("end %s: it is not kept", id)
		}
		f.End(t)
	}
}

// term returns a terminal that is kept.
func (f *fixture) term(id string) *fake {
	f.t.Helper()
	t, ok := f.Get(id)
	if !ok {
		f.t.Fatalf("%s is not kept", id)
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
		if got, ok := f.Get(id); !ok || got.id != id {
			f.t.Fatalf("Get(%q): %v, %v", id, got, ok)
		}
	}
	for _, id := range gone {
		if got, ok := f.Get(id); ok || got != nil {
			f.t.Fatalf("Get(%q) of an evicted terminal: %v, %v", id, got, ok)
		}
	}
}

func TestSlotsAreOfCommandsThatStartOrRun(t *testing.T) {
	f := newFixture(t, 2)
	if f.Busy() {
		t.Error("an empty one is busy")
	}
	full := func(why string) {
		t.Helper()
		if err := f.Reserve(); !errors.Is(err, terminal.ErrTooMany) {
			t.Errorf("%s: got %v, want ErrTooMany", why, err)
		}
	}
	f.start("runs")
	if err := f.Reserve(); err != nil {
		t.Fatal(err)
	}
	full("one runs and one starts")
	f.Unreserve()
	f.start("ends")
	full("two run")
	f.end("ends")
	if err := f.Reserve(); err != nil {
		t.Fatal(err)
	}
	full("a slot is given back once")
	f.End(&fake{id: "never put"})
	f.check([]string{"runs", "ends"}, nil)
	f.end("runs")
	if f.Busy() {
		t.Error("busy after the last end")
	}
	f.Evict(func(*fake) bool { return true })
	f.check([]string{}, []string{"ends", "runs"})
}

func TestWhatEndedFirstGivesWay(t *testing.T) {
	// The order of the ends decides, not that of the starts, and a live terminal
	// keeps its place.
	f := newFixture(t, 3)
	f.start("a", "b", "c")
	f.end("c", "a")
	f.start("d")
	f.check([]string{"a", "b", "d"}, []string{"c"})
	f.start("e")
	f.check([]string{"b", "d", "e"}, []string{"c", "a"})
}

func TestEvictAsksBeforeEach(t *testing.T) {
	f := newFixture(t, 4)
	f.start("a", "b", "c", "d")
	f.end("d", "b", "a")
	var asked []string
	f.Evict(func(t *fake) bool {
		asked = append(asked, t.id)
		return len(asked) == 1+len(f.gone) && t.id != "a" // the hook ran in between
	})
	if want := []string{"d", "b", "a"}; !slices.Equal(asked, want) {
		t.Errorf("asked of %q, want %q", asked, want)
	}
	f.check([]string{"a", "c"}, []string{"d", "b"})
	f.Evict(func(*fake) bool { return true })
	f.check([]string{"c"}, []string{"d", "b", "a"})
}

func TestWhatIsEvictedIsNotHeld(t *testing.T) {
	// The output of an ended command is large.
	f := newFixture(t, 1)
	f.start("a")
	a, _ := f.Get("a")
	held := weak.Make(a)
	f.End(a)
	f.start("b")
	f.check([]string{"b"}, []string{"a"})
	runtime.GC()
	if held.Value() != nil {
		t.Error("the evicted terminal is not collected")
	}
	runtime.KeepAlive(f)
}

func TestAnIDThatComesTwice(t *testing.T) {
	// NewID must not do that; if it does, each terminal has its place all the same.
	f := newFixture(t, 2)
	older, newer := &fake{id: "same"}, &fake{id: "same"}
	for _, term := range []*fake{older, newer} {
		if err := f.Reserve(); err != nil {
			t.Fatal(err)
		}
		f.Put("same", term)
	}
	f.End(older)
	f.start("other")
	if list := f.List(); len(list) != 2 || list[0] != newer {
		t.Errorf("kept %v, want the one that runs", list)
	}
	if got, ok := f.Get("same"); !ok || got != newer {
		t.Errorf("Get: %v, %v, want the one that runs", got, ok)
	}
	f.End(newer)
	f.start("another")
	f.check([]string{"other", "another"}, []string{"same", "same"})
}

// TestModel compares long random lives with lists that are searched.
func TestModel(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		limit := 1 + random.IntN(8)
		f := newFixture(t, limit)
		kept := []string{}
		var live, ended, gone []string
		evict := func() {
			first := ended[0]
			ended, gone = ended[1:], append(gone, first)
			kept = slices.DeleteFunc(kept, func(id string) bool { return id == first })
		}
		for i := range 400 {
			switch random.IntN(8) {
			case 0, 1, 2, 3:
				if len(live) == limit {
					if err := f.Reserve(); !errors.Is(err, terminal.ErrTooMany) {
						t.Fatalf("seed %d: got %v, want ErrTooMany", seed, err)
					}
					break
				}
				id := fmt.Sprint(i)
				f.start(id)
				live, kept = append(live, id), append(kept, id)
				if len(kept) > limit {
					evict()
				}
			case 4, 5, 6:
				if len(live) > 0 {
					n := random.IntN(len(live))
					f.end(live[n])
					ended = append(ended, live[n])
					live = slices.Delete(live, n, n+1)
				}
			case 7:
				n := random.IntN(3)
				most := len(gone) + n
				f.Evict(func(*fake) bool { return len(f.gone) < most })
				for range min(n, len(ended)) {
					evict()
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
	s := shelf.New(2, func(t *fake) { fmt.Println("evicted:", t.id) })
	for _, id := range []string{"make", "server", "test"} {
		if err := s.Reserve(); err != nil {
			fmt.Println(err)
			return
		}
		t := &fake{id: id}
		s.Put(id, t)
		if id != "server" {
			s.End(t)
		}
	}
	for _, t := range s.List() {
		fmt.Println("kept:", t.(*fake).id)
	}
	// Output:
	// evicted: make
	// kept: server
	// kept: test
}
