package acpwire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/coder/acp-go-sdk"
)

// Serve connects an agent, see [Connect], and waits until in ends, out breaks or
// ctx ends. Then it calls end, which stops what the agent has running, and
// returns what end returned, and why out broke.
//
// At the end of in, and of ctx, what the agent was asked just before is still
// answered. A pipe or socket that nobody reads any more is broken, whether
// something is written to it (on Linux) or not. If it was not the end of in that
// ended it, in is still read from until that comes.
func Serve(ctx context.Context, agent acp.Agent, in io.Reader, out io.Writer, end func() error, o *Options) error {
	w := newLastWriter(out)
	input, feed := io.Pipe()
	go func() { // ends with in
		_, err := io.Copy(feed, in)
		w.last()
		feed.CloseWithError(err)
	}()
	defer watchReader(out, func() { w.fail(errNoReader) })()
	conn := Connect(agent, input, w, o)

	select {
	case <-conn.Done():
	case <-w.broken:
		// A client that is gone ends both directions, in any order.
		select {
		case <-conn.Done():
		case <-time.After(bothEnds):
			feed.Close() // nothing can be asked of the client any more
			<-conn.Done()
			return errors.Join(fmt.Errorf("the client stopped listening: %w", w.err), end())
		}
	case <-ctx.Done():
		err := end()
		w.settle() // the answers to the turns that this has cancelled
		return err
	}
	// The commands are ending already. What was asked just before the end gets
	// its answer first; the SDK does not tell when that is written.
	w.settle()
	return end()
}

// bothEnds is how long the end of the input may come after that of the output.
const bothEnds = 100 * time.Millisecond
