package caddymodule

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// newestLog passes records on to the log of the newest configuration in use. What is shared by configurations outlives
// the one it began with, whose log Caddy closes when it is gone.
type newestLog struct{ atomic.Pointer[slog.Logger] }

var _ slog.Handler = (*newestLog)(nil)

func newNewestLog(log *slog.Logger) *newestLog {
	n := new(newestLog)
	n.Store(log)
	return n
}

// Enabled implements slog.Handler.
func (n *newestLog) Enabled(ctx context.Context, level slog.Level) bool {
	return n.Load().Handler().Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (n *newestLog) Handle(ctx context.Context, record slog.Record) error {
	return n.Load().Handler().Handle(ctx, record) //nolint:wrapcheck // it is handed through
}

// WithAttrs implements slog.Handler. What it returns stays with the log of now.
func (n *newestLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return n.Load().Handler().WithAttrs(attrs)
}

// WithGroup implements slog.Handler. What it returns stays with the log of now.
func (n *newestLog) WithGroup(name string) slog.Handler { return n.Load().Handler().WithGroup(name) }
