package terminal

import "math"

// A cursor, a mark, the certainties of an [Evidence], and the streams.
const (
	// End is a cursor behind all output. A read from it that does not wait costs
	// nothing and returns the cursor of the end as it is then; one that waits returns
	// what comes next.
	End int64 = math.MaxInt64

	// GapMark stands in an output for text that was lost before it could be read,
	// where the transport cannot tell how much.
	GapMark = "\n[... output missing ...]\n"

	Certain     = "certain" // the kernel says so: blocked in a read of our terminal
	Likely      = "likely"  // it looks so: asleep, quiet, and the terminal set up for input
	NoCertainty = "none"    // there is no evidence

	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)
