package acpterm

import (
	"strings"

	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/terminal"
)

// A stream makes one stream of output out of successive snapshots of a client's
// buffer, each of which may have grown, slid (the start is gone), stopped growing
// (the end is missing), or been rewritten on a screen. Nothing that was returned
// once is returned again unless a screen was rewritten above its last line, and
// what is known to be missing, or may be, is marked with [terminal.GapMark].
type stream struct {
	limit     int  // bytes asked of the client, and kept here
	keepsHead bool // the client is known to drop the end, not the start
	unsure    bool // its word on whether it truncated is not to be trusted

	last    string // the end of the last snapshot, at most limit bytes
	skipped int    // the bytes of that snapshot before last
	cleared bool   // a snapshot since then was empty
	cut     bool   // the client said once that it truncated
	gap     bool   // what was returned last ends in a gap
	open    bool   // what was returned last may end in an escape sequence
	over    bool   // the command had ended when this snapshot was taken,
	settled bool   // and when the last one was
}

// minOverlap is how many bytes two snapshots must share to prove where one goes
// on in the other.
const minOverlap = 32

// next returns what snapshot shows beyond those before. Final says that none
// follows: only then the replacement characters at its end are output. Before,
// they may be the first bytes of a character that the client has not got whole.
// Over says that the command had ended when the snapshot was taken.
func (s *stream) next(snapshot string, truncated, final, over bool) string {
	s.settled, s.over = s.over, over
	truncated = truncated || s.unsure && len(snapshot) >= s.limit
	if !final {
		for range 3 {
			snapshot = strings.TrimSuffix(snapshot, "\uFFFD")
		}
	}
	if truncated {
		// A client that cuts between bytes leaves the end of a character.
		for range 3 {
			snapshot = strings.TrimPrefix(snapshot, "\uFFFD")
		}
	}
	if snapshot == "" {
		// Cleared, or read destructively: what follows is new unless it begins
		// as before.
		s.cleared = s.last != ""
		return ""
	}
	text, gap := s.compare(snapshot, truncated)
	s.cut = s.cut || truncated
	return s.mark(text, gap)
}

// place says where in a text something is missing.
type place int

const (
	nowhere place = iota
	before
	after
)

// mark adds the mark of a gap, unless the last thing returned was one.
func (s *stream) mark(text string, gap place) string {
	had := s.gap
	if text != "" || gap != nowhere {
		s.gap = gap == after || gap == before && text == ""
	}
	escapes := strings.Contains(text, "\x1b")
	switch {
	case gap == before && !had:
		text, s.open = mark(s.open)+text, escapes
	case gap == after && (!had || text != ""):
		text, s.open = text+mark(s.open || escapes), false
	default:
		s.gap = s.gap || text == "" && gap != nowhere
		s.open = escapes || s.open && len(text) < openSequence
	}
	return text
}

// openSequence is how far back an escape sequence may have begun that is not
// over. It is long: an operating system command carries text.
const openSequence = 4 << 10

// mark is the mark of a gap. An escape sequence that may be open would take it for
// a part of itself.
func mark(open bool) string {
	if open {
		return text.Cancel + terminal.GapMark
	}
	return terminal.GapMark
}

// compare returns the new text of a snapshot, and where something is missing,
// and remembers the snapshot.
func (s *stream) compare(snapshot string, truncated bool) (string, place) {
	if s.last == "" {
		s.remember(snapshot)
		switch {
		case truncated && s.keepsHead:
			return snapshot, after
		case truncated:
			return snapshot, before
		}
		return snapshot, nowhere
	}
	grown, isGrown := s.grown(snapshot)
	if s.cleared {
		s.cleared = false
		s.remember(snapshot)
		if isGrown {
			return grown, nowhere
		}
		return snapshot, nowhere
	}

	const slack = 8 // clients cut at a character, or miss the limit by one
	full := len(snapshot) > s.limit-slack && len(snapshot) < s.limit+slack
	slid := !s.keepsHead && (truncated || s.cut || full && !isGrown)
	switch {
	case isGrown && !slid:
		s.remember(snapshot)
		if truncated && !s.cut {
			return grown, after
		}
		return grown, nowhere
	case isGrown && truncated && !s.cut && !full:
		// Truncated, yet not full, and the start is there: the end is missing.
		s.remember(snapshot)
		return grown, after
	case s.skipped == 0 && strings.HasPrefix(s.last, snapshot) && !(slid && full):
		// Shorter: a part of a screen was erased, or an unfinished line is held
		// back. The longer one stays the measure.
		if truncated && !s.cut {
			return "", after
		}
		return "", nowhere
	case slid:
		return s.slid(snapshot)
	}
	return s.rewritten(snapshot)
}

// grown returns what snapshot has behind the last one, if it begins with it.
func (s *stream) grown(snapshot string) (string, bool) {
	if len(snapshot) < s.skipped {
		return "", false
	}
	return strings.CutPrefix(snapshot[s.skipped:], s.last)
}

// remember makes snapshot the last one. It keeps no more than limit bytes alive.
func (s *stream) remember(snapshot string) {
	kept := text.Tail(snapshot, s.limit)
	if s.skipped = len(snapshot) - len(kept); s.skipped > 0 {
		kept = strings.Clone(kept)
	}
	s.last = kept
}

// slid handles a snapshot that may begin behind the start of the last.
func (s *stream) slid(snapshot string) (string, place) {
	if s.settled && s.skipped == 0 && snapshot == s.last {
		return "", nowhere // nobody writes any more, so it has not slid by a period
	}
	defer s.remember(snapshot)
	if s.skipped > 0 {
		// A client that keeps more than it was asked for.
		if i := strings.Index(snapshot, s.last); i >= 0 {
			rest := snapshot[i+len(s.last):]
			if j := strings.LastIndex(snapshot, s.last); j > i {
				return snapshot[j+len(s.last):], before
			}
			return rest, nowhere
		}
	}
	n, unique := overlap(s.last, snapshot)
	if unique {
		return snapshot[n:], nowhere
	}
	line, _ := s.changedLine(snapshot)
	return snapshot[max(n, line):], before
}

// rewritten handles a snapshot of a screen on which text before the end has
// changed.
func (s *stream) rewritten(snapshot string) (string, place) {
	defer s.remember(snapshot)
	line, last := s.changedLine(snapshot)
	if last {
		return "\r" + snapshot[line:], nowhere
	}
	n, unique := overlap(s.last, snapshot)
	if unique && n > line {
		return snapshot[n:], nowhere // the scrollback slid, and nobody said so
	}
	return snapshot[max(n, line):], before
}

// changedLine returns where in snapshot the first line begins that differs from
// the last snapshot, and whether that line was its last.
func (s *stream) changedLine(snapshot string) (start int, last bool) {
	if len(snapshot) < s.skipped {
		return 0, false
	}
	same := commonPrefix(s.last, snapshot[s.skipped:])
	start = strings.LastIndexByte(s.last[:same], '\n') + 1
	return s.skipped + start, !strings.Contains(s.last[start:], "\n")
}

// overlap returns how many bytes at the end of old are the start of new: the
// longest run, so that nothing is ever taken for new that is not. Unique reports
// that it is the only one of at least minOverlap bytes; otherwise something may
// have been between the two. It takes linear time.
func overlap(old, new string) (n int, unique bool) {
	if len(old) > len(new) {
		old = old[len(old)-len(new):]
	}
	n = 0
	if len(old) >= minOverlap {
		anchor := newNeedle(new[:minOverlap], old)
		found := 0
		work := 4 * len(old)
		for at := 0; ; at++ {
			i := anchor.index(old[at:])
			if i < 0 {
				break
			}
			at += i
			run := commonPrefix(old[at:], new)
			if run == len(old)-at {
				if found++; found == 1 {
					n = run
				} else {
					return n, false
				}
			}
			if work -= run; work < 0 {
				// A text of few patterns, where this would be quadratic, and
				// which has no unique overlap that is worth the search.
				return border(old, new), false
			}
		}
		if found == 1 {
			return n, true
		}
	}
	for n = min(len(old), minOverlap-1); n > 0; n-- {
		if strings.HasPrefix(new, old[len(old)-n:]) {
			break
		}
	}
	return n, false
}

// A needle is looked for by its rarest byte, which takes a fraction of the time
// of strings.Index where there is one.
type needle struct {
	text string
	rare int // the offset of that byte, -1 if all are frequent
}

func newNeedle(text, haystack string) needle {
	sample := haystack[:min(len(haystack), 4<<10)]
	n, least := needle{text, -1}, len(sample)/16
	for i := range len(text) {
		if count := strings.Count(sample, text[i:i+1]); count < least {
			n.rare, least = i, count
		}
	}
	return n
}

// index is strings.Index.
func (n needle) index(s string) int {
	if n.rare < 0 {
		return strings.Index(s, n.text)
	}
	for at := n.rare; at < len(s); at++ {
		i := strings.IndexByte(s[at:], n.text[n.rare])
		if i < 0 {
			break
		}
		at += i
		if strings.HasPrefix(s[at-n.rare:], n.text) {
			return at - n.rare
		}
	}
	return -1
}

// border is overlap's run by Knuth, Morris and Pratt, for texts on which looking
// for an anchor is slow.
func border(old, new string) int {
	next := make([]int32, len(new)+1) // next[i]: the longest border of new[:i]
	next[0] = -1
	for i, k := 0, int32(-1); i < len(new); {
		for k >= 0 && new[i] != new[k] {
			k = next[k]
		}
		i++
		k++
		next[i] = k
	}
	k := int32(0)
	for i := range len(old) {
		for k >= 0 && (int(k) == len(new) || old[i] != new[k]) {
			k = next[k]
		}
		k++
	}
	return int(k)
}

// commonPrefix returns how many bytes a and b share at their start.
func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	i := 0
	const block = 256
	for i+block <= n && a[i:i+block] == b[i:i+block] {
		i += block
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}
