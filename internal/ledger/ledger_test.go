package ledger_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/internal/ledger"
	"github.com/termbridge/termbridge/terminal"
)

// A fake is a terminal that only has an id and an end.
type fake struct {
	terminal.Terminal
	id   string
	done chan struct{}
}

func newFake(id string) *fake { return &fake{id: id, done: make(chan struct{})} }

func (f *fake) Info() terminal.Info   { return terminal.Info{ID: f.id} }
func (f *fake) Done() <-chan struct{} { return f.done }

func ids(ts []terminal.Terminal) []string {
	var ids []string
	for _, t := range ts {
		ids = append(ids, t.Info().ID)
	}
	return ids
}

func reserve(t *testing.T, l *ledger.Ledger[string], owner string, slot bool) *ledger.Entry[string] {
	t.Helper()
	e, err := l.Reserve(owner, slot)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func is(owner string) func(string) bool {
	return func(o string) bool { return o == owner }
}

func TestSlotsAreReservedBeforeTheStart(t *testing.T) {
	// Any number of starts at once get no more slots than there are.
	l := ledger.New[string](2)
	var got sync.Map
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if e, err := l.Reserve("a", true); err == nil {
				got.Store(i, e)
			} else if !errors.Is(err, terminal.ErrTooMany) {
				t.Errorf("got %v, want ErrTooMany", err)
			}
		})
	}
	all.Wait()
	n := 0
	got.Range(func(any, any) bool { n++; return true })
	if n != 2 {
		t.Errorf("%d slots taken, want 2", n)
	}
	if _, err := l.Reserve("a", false); err != nil {
		t.Errorf("a command without a slot: %v", err)
	}
}

func TestSlotsComeBack(t *testing.T) {
	// A failed start and an ended command give their slots back.
	l := ledger.New[string](1)
	reserve(t, l, "a", true).Forget()
	term := newFake("1")
	reserve(t, l, "a", true).Started(term)
	if _, err := l.Reserve("a", true); !errors.Is(err, terminal.ErrTooMany) {
		t.Errorf("got %v, want ErrTooMany", err)
	}
	close(term.done)
	reserve(t, l, "a", true)
	if _, err := l.Find("1"); err != nil {
		t.Errorf("the ended command is gone: %v", err)
	}
}

func TestLimitEvictsTheOldestEnded(t *testing.T) {
	l := ledger.New[string](9)
	l.Limit(3)
	var terms []*fake
	for i := range 3 {
		term := newFake(fmt.Sprint(i))
		e := reserve(t, l, "a", false)
		e.Started(term)
		if i == 0 {
			e.Show()
		}
		terms = append(terms, term)
	}
	if _, err := l.Reserve("a", false); !errors.Is(err, terminal.ErrTooMany) {
		t.Errorf("all live: got %v, want ErrTooMany", err)
	}
	for _, term := range terms {
		close(term.done)
	}
	// 0 is shown and not taken note of, so 1 goes first.
	for _, want := range [][]string{{"0", "2"}, {"0"}, nil} {
		reserve(t, l, "a", false)
		if diff := cmp.Diff(want, ids(l.All())); diff != "" {
			t.Errorf("kept (-want +got):\n%s", diff)
		}
	}
}

func TestPendingOutlivesTheCommand(t *testing.T) {
	l := ledger.New[string](1)
	e := reserve(t, l, "call", false)
	if l.TakePending(is("call")) {
		t.Error("pending before it was shown")
	}
	e.Show()
	term := newFake("1")
	e.Started(term)
	close(term.done)
	if !l.TakePending(is("call")) {
		t.Error("not pending after the end")
	}
	if l.TakePending(is("call")) {
		t.Error("pending twice")
	}
	if l.TakePending(is("other")) {
		t.Error("another call's is pending")
	}
}

func TestAdoptHandsOverWhatIsStarting(t *testing.T) {
	l := ledger.New[string](1)
	early, late := reserve(t, l, "call", false), reserve(t, l, "call", true)
	early.Started(newFake("1"))
	l.Adopt("call", "session")
	late.Started(newFake("2"))
	if got := ids(l.Owned("call")); got != nil {
		t.Errorf("the call still owns %q", got)
	}
	if diff := cmp.Diff([]string{"1", "2"}, ids(l.Owned("session"))); diff != "" {
		t.Errorf("the session owns (-want +got):\n%s", diff)
	}
}

func TestSweepReachesWhatIsStarting(t *testing.T) {
	l := ledger.New[string](1)
	background, started, starting := reserve(t, l, "a", true), reserve(t, l, "a", false), reserve(t, l, "a", false)
	background.Started(newFake("background"))
	started.Started(newFake("started"))
	swept := l.Sweep(func(owner string, slot bool) bool { return owner == "a" && !slot })
	if diff := cmp.Diff([]string{"started"}, ids(swept)); diff != "" {
		t.Errorf("swept (-want +got):\n%s", diff)
	}
	if starting.Started(newFake("late")) {
		t.Error("a start that was swept is entered")
	}
	if diff := cmp.Diff([]string{"background"}, ids(l.All())); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if _, err := l.Find("late"); !errors.Is(err, terminal.ErrNotFound) {
		t.Errorf("Find of what was swept: %v", err)
	}
	if !l.Busy() {
		t.Error("the background command runs, and nothing is busy")
	}
	l.Close()
	if l.Busy() {
		t.Error("busy after Close")
	}
	if _, err := l.Reserve("a", false); !errors.Is(err, terminal.ErrClosed) {
		t.Errorf("Reserve after Close: %v", err)
	}
}

func ExampleLedger() {
	l := ledger.New[string](1) // one command in the background

	e, err := l.Reserve("call 1", true)
	if err != nil {
		fmt.Println(err)
		return
	}
	// … start it …
	e.Started(newFake("t1"))
	e.Show()

	_, err = l.Reserve("call 2", true)
	fmt.Println(err)
	fmt.Println(l.TakePending(is("call 1")), l.TakePending(is("call 1")))
	// Output:
	// too many terminals: 1 of 1 run already
	// true false
}
