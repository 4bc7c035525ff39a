package acpterm

import "testing"

// A snapshot that slid costs no allocation: what is new of it is a part of it.
func TestSlidingAllocatesNothing(t *testing.T) {
	const limit, step = 1 << 20, 1 << 10
	all := lines(0, (limit+step*200)/30)
	s := stream{limit: limit}
	s.next(all[:limit], true, false, false)
	at, n := 0, 0
	allocs := testing.AllocsPerRun(100, func() {
		at += step
		n += len(s.next(all[at:at+limit], true, false, false))
	})
	if allocs > 0 || n != 101*step { // the first run is not counted
		t.Errorf("%v allocations a snapshot, and %d new bytes of %d", allocs, n, 101*step)
	}
}
