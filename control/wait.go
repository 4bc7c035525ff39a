package control

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/terminal"
)

// A timeoutError is why a wait was over.
type timeoutError struct{ after time.Duration }

func (e timeoutError) Error() string { return fmt.Sprintf("%v after %v", ErrTimeout, e.after) }
func (timeoutError) Unwrap() error   { return ErrTimeout }

// Wait implements [Handler].
func (c *Control) Wait(ctx context.Context, idOrName, group, state string, timeout time.Duration) (SessionInfo, error) {
	want, err := ParseState(state)
	if err != nil {
		return SessionInfo{}, err
	}
	if timeout <= 0 {
		timeout = DefaultWaitTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, timeoutError{timeout})
	defer cancel()
	if idOrName == "" && strings.TrimSpace(group) == "" {
		return SessionInfo{}, fmt.Errorf("%w: name a session or a group to wait for", ErrBad)
	}
	if idOrName == "" {
		return c.waitGroup(ctx, group, want)
	}
	s, err := c.find(idOrName)
	if err != nil {
		return SessionInfo{}, err
	}
	info, err := c.await(ctx, s, want)
	if err != nil {
		return SessionInfo{}, fmt.Errorf("wait for %s to be %s: %w", s.id, want, err)
	}
	return info, nil
}

// await waits until a session is in a state. The error is [ErrExited], or the Cause of
// ctx.
func (c *Control) await(ctx context.Context, s session, want State) (SessionInfo, error) {
	for {
		info := c.look(ctx, s)
		switch {
		case info.AgentState == want:
			if s, err := c.find(s.id); err == nil { // it may have another name now
				info.Name, info.Group = s.note.name, s.note.group
			}
			return info, nil
		case info.Status == Exited:
			return info, ErrExited
		case ctx.Err() != nil:
			return info, context.Cause(ctx)
		}
		s.change(ctx, info.AgentState, want)
	}
}

// change waits until something may have changed.
func (s session) change(ctx context.Context, is, want State) {
	w, ok := terminal.As[terminal.ActivityReader](s.Terminal)
	switch {
	case s.note.typing != nil && !await.Closed(s.note.typing.done):
		select {
		case <-s.note.typing.done:
		case <-s.Done():
		case <-ctx.Done():
		}
		return
	case want == Done:
		select {
		case <-s.Done():
		case <-ctx.Done():
		}
		return
	case ok && s.isTold() && want != Working && is == Working:
		_, _, _ = w.WaitActivity(ctx, terminal.Waiting, 0)
	case ok && s.isTold() && want == Working:
		_, _, _ = w.WaitActivity(ctx, terminal.Working, 0)
	}
	_ = await.Sleep(ctx, pollInterval) // also behind WaitActivity: the two may differ for a moment
}

// waitGroup waits until one of a group is in a state: of several the first. Those that
// join the group meanwhile count, and those that leave it do not.
func (c *Control) waitGroup(ctx context.Context, group string, want State) (SessionInfo, error) {
	failed := func(err error) (SessionInfo, error) {
		return SessionInfo{}, fmt.Errorf("wait for one of the group %q to be %s: %w", group, want, err)
	}
	watching, stop := context.WithCancel(ctx)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer stop()
	there := make(chan SessionInfo)
	watched := make(map[string]bool) // those with a goroutine
	tick := time.NewTicker(groupInterval)
	defer tick.Stop()
	for {
		members, err := c.members(group)
		if err != nil {
			return failed(err)
		}
		if ctx.Err() != nil {
			return failed(context.Cause(ctx))
		}
		ended := 0
		for _, s := range members {
			if await.Closed(s.Done()) && want != Done {
				ended++
			} else if !watched[s.id] {
				watched[s.id] = true
				watches.Go(func() {
					info, err := c.await(watching, s, want)
					if err != nil { // it has ended, or the wait is over
						return
					}
					select {
					case there <- info:
					case <-watching.Done():
					}
				})
			}
		}
		if ended == len(members) {
			return failed(fmt.Errorf("every one: %w", ErrExited))
		}
		select {
		case info := <-there:
			watched[info.ID] = false
			if first, ok := c.first(watching, group, want, info); ok {
				return first, nil
			}
		case <-tick.C:
		case <-ctx.Done():
			return failed(context.Cause(ctx))
		}
	}
}

// groupInterval is how often is looked who is in a group.
const groupInterval = 200 * time.Millisecond

// first returns the first of a group that is in a state, now that seen was. It is none
// if that has left the group.
func (c *Control) first(ctx context.Context, group string, want State, seen SessionInfo) (SessionInfo, bool) {
	members, err := c.members(group)
	if err != nil {
		return SessionInfo{}, false
	}
	for i, info := range c.describe(ctx, members) {
		if members[i].id == seen.ID {
			return seen, true
		}
		if info.AgentState == want {
			return info, true
		}
	}
	return SessionInfo{}, false
}
