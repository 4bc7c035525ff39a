package acpterm

import (
	"strings"

	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/terminal"
)

// A stream makes one stream of output out of successive snapshots of a client's
// buffer, each of which may have grown, slid (the start is gone), stopped growing
// (the end is missing), been rewritten on a screen, or been drained (it has only what
// no snapshot before had). Nothing that was returned once is returned again unless a
// screen was rewritten above its last line, and what is known to be missing, or may
// be, is marked with [terminal.GapMark].
type stream struct {
	limit     int     // bytes asked of the client, and kept here
	keepsHead bool    // the client is known to drop the end, not the start
	unsure    bool    // its word on whether it truncated is not to be trusted
	client    *Client // learns whether the client's outputs are drained; nil learns nothing
	buffer    buffer  // what is known of that

	last    string // the end of the last snapshot, at most limit bytes
	skipped int    // the bytes of that snapshot before last
	empties int    // snapshots that were empty behind one that was not
	repeats int    // snapshots that were as the one before
	ended   int    // snapshots that were taken since the end of the command
	in      input
	out     result
}

// An input is what the snapshots were like.
type input struct {
	cleared bool // the last one was empty, and one before was not
	cut     bool // the client said once that it truncated
	guessed bool // what one had in common with the one before was left out: it may have been new
}

// A result is how the text ends that was returned last.
type result struct {
	gap  bool // in a gap
	open bool // maybe in an escape sequence
}

// A buffer is what a client does with an output that it has given out.
type buffer int

const (
	unknownBuffer buffer = iota
	keptBuffer           // it gives it out again
	drainedBuffer        // it does not
)

// minOverlap is how many bytes two snapshots must share to prove where one goes
// on in the other.
const minOverlap = 32

// next returns what snapshot shows beyond those before. Final says that none
// follows: only then the replacement characters at its end are output. Before,
// they may be the first bytes of a character that the client has not got whole.
// Over says that the command had ended when the snapshot was taken.
func (s *stream) next(snapshot string, truncated, final, over bool) string {
	if over {
		s.ended++
	}
	s.learn(snapshot)
	switch {
	case snapshot == "":
		return s.empty()
	case s.buffer == drainedBuffer && truncated:
		return s.withGap(snapshot, before)
	case s.buffer == drainedBuffer:
		return s.withGap(snapshot, nowhere)
	}
	// That is just full, it says, and may be wrong; a client that cuts inside a
	// character goes over the limit by what stands for the rest.
	full := len(snapshot) == s.limit || len(snapshot) > s.limit && (s.unsure || len(snapshot) <= s.limit+maxBroken && strings.HasPrefix(snapshot, broken))
	if !final {
		snapshot = trimBroken(snapshot, strings.TrimSuffix)
		if snapshot == "" {
			return ""
		}
	}
	said := truncated || s.unsure && full
	text, gap := s.compare(snapshot, said, full)
	s.in.guessed = s.in.guessed || len(text) < len(snapshot) && gap == nowhere
	if final && (gap == after || s.out.gap && truncated) {
		text = trimBroken(text, strings.TrimSuffix) // of a character that was cut
	}
	s.in.cut = s.in.cut || said
	return s.withGap(text, gap)
}

// broken stands for a byte, or some, of a character that is not whole. There are
// at most three of them for one character.
const (
	broken    = "\uFFFD"
	maxBroken = 3 * len(broken)
)

// trimBroken cuts off what may stand for one character that is not whole.
func trimBroken(s string, trim func(s, cut string) string) string {
	for range 3 {
		s = trim(s, broken)
	}
	return s
}

// learn finds out whether the buffer is drained. Two snapshots after the end of the
// command tell for certain, of every later command, too; before, one that is empty
// again and again, and never as it was.
func (s *stream) learn(snapshot string) {
	if s.buffer != unknownBuffer || s.last == "" || s.in.cleared {
		return
	}
	switch {
	case s.ended > 1 && snapshot == "":
		s.buffer = drainedBuffer
		s.client.learnBuffer(drainedBuffer)
	case s.ended > 1:
		s.buffer = keptBuffer
		s.client.learnBuffer(keptBuffer)
	case snapshot == "" && s.empties > 0 && s.repeats == 0:
		s.buffer = drainedBuffer
	case snapshot == s.last && s.skipped == 0:
		s.repeats++
	}
}

// empty handles a snapshot that is empty: nothing was written yet, a screen was
// cleared, or the buffer is drained. Of a buffer that is, a snapshot may have been
// taken for one before.
func (s *stream) empty() string {
	if s.last == "" || s.in.cleared {
		return ""
	}
	s.empties++
	s.in.cleared = true
	if s.in.guessed && s.buffer != keptBuffer {
		s.in.guessed = false
		return s.withGap("", after)
	}
	return ""
}

// place says where in a text something is missing.
type place int

const (
	nowhere place = iota
	before
	after
)

// withGap adds the mark of a gap to a text, unless the last one returned ends in one.
func (s *stream) withGap(text string, gap place) string {
	had := s.out.gap
	if text != "" || gap != nowhere {
		s.out.gap = gap == after || gap == before && text == ""
	}
	escapes := strings.Contains(text, "\x1b")
	switch {
	case gap == before && !had:
		text, s.out.open = gapMark(s.out.open)+text, escapes
	case gap == after && (!had || text != ""):
		text, s.out.open = text+gapMark(s.out.open || escapes), false
	default:
		s.out.gap = s.out.gap || text == "" && gap != nowhere
		s.out.open = escapes || s.out.open && len(text) < openSequence
	}
	return text
}

// openSequence is how far back an escape sequence may have begun that is not
// over. It is long: an operating system command carries text.
const openSequence = 4 << 10

// gapMark is the mark of a gap. An escape sequence that may be open would take it for
// a part of itself.
func gapMark(open bool) string {
	if open {
		return text.Cancel + terminal.GapMark
	}
	return terminal.GapMark
}

// compare returns the new text of a snapshot, and where something is missing,
// and remembers the snapshot. The client says whether it is truncated; one that is
// just full may be as well.
func (s *stream) compare(snapshot string, truncated, full bool) (string, place) {
	grown, isGrown := s.grown(snapshot)
	if (truncated || full) && !s.keepsHead && (s.last == "" || !isGrown) {
		// A client that cuts between bytes leaves the end of a character.
		snapshot = trimBroken(snapshot, strings.TrimPrefix)
		grown, isGrown = s.grown(snapshot)
	}
	switch {
	case s.last == "":
		s.remember(snapshot)
		switch {
		case truncated && s.keepsHead:
			return snapshot, after
		case truncated || full && !s.keepsHead:
			return snapshot, before
		}
		return snapshot, nowhere
	case s.in.cleared:
		s.in.cleared = false
		s.remember(snapshot)
		if isGrown {
			return grown, before // or all of it is new
		}
		return snapshot, nowhere
	}
	const slack = 8 // clients cut at a character, or miss the limit by one
	nearlyFull := len(snapshot) > s.limit-slack && len(snapshot) < s.limit+slack
	slid := !s.keepsHead && (truncated || s.in.cut || full || nearlyFull && !isGrown)
	if slid && isGrown && !s.in.cut {
		// What has slid begins as before by chance only, in a text of few patterns.
		// Else it has not slid: if it is truncated, the end is missing.
		_, unique := overlap(s.last, snapshot)
		slid = !unique && nearlyFull
	}
	switch {
	case isGrown && !slid:
		s.learnHead(truncated)
		s.remember(snapshot)
		if truncated && !s.in.cut {
			return grown, after
		}
		return grown, nowhere
	case s.skipped == 0 && strings.HasPrefix(s.last, snapshot) && !(slid && nearlyFull):
		// Shorter: a part of a screen was erased, or an unfinished line is held
		// back. The longer one stays the measure.
		s.learnHead(truncated)
		if truncated && !s.in.cut {
			return "", after
		}
		return "", nowhere
	case slid:
		return s.slid(snapshot)
	}
	return s.rewritten(snapshot)
}

// learnHead takes a snapshot that begins as the last one did: if the client has
// truncated it, it has dropped the end.
func (s *stream) learnHead(truncated bool) {
	if truncated && len(s.last) >= minOverlap && varied(s.last) {
		s.client.learnPart(keptHead)
	}
}

// learnTail takes a snapshot that begins with the last n bytes of the one before: if
// that is not all of it, the client has dropped the start.
func (s *stream) learnTail(n int) {
	if n < len(s.last) {
		s.client.learnPart(keptTail)
	}
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
	if s.ended > 1 && s.skipped == 0 && snapshot == s.last {
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
		s.learnTail(n)
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
		s.learnTail(n)
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
// that it is the only one of at least minOverlap bytes, and not of a few bytes over
// and over; otherwise something may have been between the two. It takes linear time.
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
			return n, varied(new[:n])
		}
	}
	for n = min(len(old), minOverlap-1); n > 0; n-- {
		if strings.HasPrefix(new, old[len(old)-n:]) {
			break
		}
	}
	return n, false
}

// varied reports whether a text has as many different bytes as a word has. Rows of
// dots, or of numbers, overlap by chance.
func varied(s string) bool {
	const enough = 6
	var seen [256]bool
	n := 0
	for i := range len(s) {
		if !seen[s[i]] {
			seen[s[i]] = true
			if n++; n == enough {
				return true
			}
		}
	}
	return false
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
