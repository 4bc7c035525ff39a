package agent

import (
	"context"
	"log/slog"
)

// A discreet handler keeps the lines of the wire out of the log: the SDK logs one
// that it cannot parse as it stands, and the output of commands may be in it.
type discreet struct{ slog.Handler }

func (d discreet) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "raw" {
			a = slog.Int("bytes", len(a.Value.String()))
		}
		clean.AddAttrs(a)
		return true
	})
	return d.Handler.Handle(ctx, clean)
}

func (d discreet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return discreet{d.Handler.WithAttrs(attrs)}
}

func (d discreet) WithGroup(name string) slog.Handler { return discreet{d.Handler.WithGroup(name)} }
