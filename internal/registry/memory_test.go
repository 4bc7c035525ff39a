package registry_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/termbridge/termbridge/internal/registry"
	"github.com/termbridge/termbridge/terminal"
)

// A vault is a Registry whose outputs are numbers.
type vault struct {
	*fixture
	limit  int
	size   map[*fake]int
	busy   map[*fake]bool // whose outputs cannot shrink
	shrunk []string
}

func newVault(t *testing.T, terminals, limit int) *vault {
	v := &vault{limit: limit, size: map[*fake]int{}, busy: map[*fake]bool{}}
	v.fixture = newFixture(t, registry.Options[*fake]{
		MaxTerminals: terminals,
		ManagerBytes: limit,
		Shrink: func(f *fake, size int) int {
			if v.busy[f] || v.size[f] <= size {
				return 0
			}
			freed := v.size[f] - size
			v.size[f] = size
			v.shrunk = append(v.shrunk, f.id)
			return freed
		},
	})
	v.OnEvict(func(t terminal.Terminal) { delete(v.size, t.(*fake)) })
	return v
}

// grow has a terminal want n bytes more, and checks that no more is used than allowed.
func (v *vault) grow(id string, n int) int {
	v.t.Helper()
	f := v.term(id)
	got := v.Grow(f, n)
	if got < 0 || got > n {
		v.t.Fatalf("%s wants %d and gets %d", id, n, got)
	}
	v.size[f] += got
	total := 0
	for _, n := range v.size {
		total += n
	}
	if total > v.limit {
		v.t.Fatalf("%d bytes in use, %d allowed", total, v.limit)
	}
	return got
}

func (v *vault) want(id string, n, want int) {
	v.t.Helper()
	if got := v.grow(id, n); got != want {
		v.t.Errorf("%s wants %d and gets %d, want %d", id, n, got, want)
	}
}

const kb = 1 << 10

// Whoever is alone may have everything, until somebody else wants a fair share.
func TestBudgetIsShared(t *testing.T) {
	v := newVault(t, 10, 100*kb)
	v.start("a")
	v.want("a", 90*kb, 90*kb)
	v.want("a", 90*kb, 10*kb) // what is left
	v.want("a", 4*kb, 0)
	v.start("b")
	v.want("b", 8*kb, 8*kb)
	if got := v.size[v.term("a")]; got != 50*kb {
		t.Errorf("a keeps %d, want its share: each time that it shrank it would be copied", got)
	}
	v.want("b", 80*kb, 42*kb)
	v.want("b", 8*kb, 0)
	v.want("a", 8*kb, 0)
	if got := v.size[v.term("a")]; got != 50*kb {
		t.Errorf("a keeps %d: nobody below the share wanted it", got)
	}
	v.check([]string{"a", "b"}, nil)
}

// What is wanted in full makes ended terminals give way, oldest first; what cannot
// be had evicts nobody, and makes nobody shrink who has ended.
func TestBudgetEvicts(t *testing.T) {
	v := newVault(t, 10, 100*kb)
	v.start("a", "b", "c", "d")
	for _, id := range []string{"a", "b", "c"} {
		v.want(id, 20*kb, 20*kb)
	}
	v.end("b", "a")
	v.want("d", 50*kb, 50*kb)
	v.check([]string{"a", "c", "d"}, []string{"b"})
	v.want("d", 100*kb, 10*kb)
	v.want("d", 50*kb, 0)
	v.check([]string{"a", "c", "d"}, []string{"b"})
	if got := v.size[v.term("a")]; got != 20*kb || len(v.shrunk) > 0 {
		t.Errorf("a, which has ended, keeps %d; shrunk: %v", got, v.shrunk)
	}
	v.want("d", 20*kb, 20*kb)
	v.check([]string{"c", "d"}, []string{"b", "a"})
}

// Whoever has more than the share takes nothing from others, and what has ended is
// given up whole or left alone.
func TestBudgetTakesFromLiveOnly(t *testing.T) {
	v := newVault(t, 10, 100*kb)
	v.start("ended", "a", "b", "c")
	v.want("ended", 50*kb, 50*kb)
	v.want("a", 40*kb, 40*kb)
	v.end("ended")
	share := v.limit / 3
	v.want("b", 70*kb, 10*kb+40*kb-share) // not to be had in full
	if a, ended := v.size[v.term("a")], v.size[v.term("ended")]; a != share || ended != 50*kb {
		t.Errorf("a keeps %d, want its share of %d; what has ended keeps %d", a, share, ended)
	}
	v.check([]string{"ended", "a", "b", "c"}, nil)

	v = newVault(t, 10, 100*kb)
	v.start("a", "b", "c")
	v.want("a", 60*kb, 60*kb)
	v.want("b", 40*kb, 40*kb)
	v.want("b", 8*kb, 0) // a has more over the share, and b has its own
	v.want("c", 8*kb, 8*kb)
}

// An output that is in use just now does not shrink, and nobody waits for it.
func TestBudgetOfABusyOutput(t *testing.T) {
	v := newVault(t, 10, 100*kb)
	v.start("a", "b", "c")
	v.want("a", 60*kb, 60*kb)
	v.want("b", 40*kb, 40*kb)
	v.busy[v.term("a")] = true
	v.want("c", 8*kb, 8*kb-(8*kb-(40*kb-v.limit/3))) // what b has over its share
	v.busy[v.term("b")] = true
	v.want("c", 8*kb, 0)
	v.busy = map[*fake]bool{}
	v.want("c", 8*kb, 8*kb)
}

// What is not kept counts until it is given back.
func TestBudgetOfTheUnkept(t *testing.T) {
	v := newVault(t, 10, 100*kb)
	v.start("a")
	if err := v.reserve(); err != nil {
		t.Fatal(err)
	}
	unkept := &fake{id: "unkept"}
	if got := v.Grow(unkept, 60*kb); got != 60*kb {
		t.Fatalf("got %d", got)
	}
	v.size[unkept] = 60 * kb
	v.want("a", 80*kb, 50*kb) // and it may shrink
	if v.size[unkept] != 50*kb {
		t.Errorf("it has %d", v.size[unkept])
	}
	v.finish(unkept)
	delete(v.size, unkept)
	v.want("a", 50*kb, 50*kb)
}

// 500 floods under 100 MiB each keep about a five-hundredth, whatever their order.
func TestBudgetOfManyFloods(t *testing.T) {
	const n, limit, each = 500, 100 << 20, 1 << 20
	v := newVault(t, n, limit)
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprint(i))
	}
	v.start(ids...)
	random := rand.New(rand.NewPCG(1, 2))
	for range 12 { // each doubles when its ring is full
		random.Shuffle(n, func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		for _, id := range ids {
			f := v.term(id)
			if want := min(max(2*v.size[f], 4*kb), each) - v.size[f]; want > 0 {
				v.grow(id, want)
			}
		}
	}
	var sizes []int
	for _, size := range v.size {
		sizes = append(sizes, size)
	}
	slices.Sort(sizes)
	t.Logf("least %d, median %d, most %d; the fair share is %d", sizes[0], sizes[n/2], sizes[n-1], limit/n)
	if sizes[0] < limit/n*9/10 || sizes[n-1] > limit/n*11/10 {
		t.Errorf("least %d, most %d: want about %d each", sizes[0], sizes[n-1], limit/n)
	}
	v.end(ids[1:]...)
	v.want(ids[0], each-v.size[v.term(ids[0])], each-v.size[v.term(ids[0])])
}
