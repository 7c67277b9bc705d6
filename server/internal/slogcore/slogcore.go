// Package slogcore owns the bridge from zap to log/slog: a zap core that writes to a slog.Handler. It
// has no state of its own and never filters: the handler's Enabled decides. The core may be used from
// any goroutine, like the handler.
package slogcore

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New returns a logger that writes to handler.
func New(handler slog.Handler) *zap.Logger { return zap.New(core{handler}, zap.AddCaller()) }

type core struct{ handler slog.Handler }

// level converts a level: zap's levels are 1 apart and slog's 4, and info is 0 in both.
func level(l zapcore.Level) slog.Level { return slog.Level(4 * l) }

// Enabled asks the handler.
func (c core) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), level(l))
}

// With returns a core that adds the fields to all its entries.
func (c core) With(fields []zapcore.Field) zapcore.Core {
	return core{c.handler.WithAttrs(attrs(nil, fields))}
}

// Check adds the core to the writers of an entry if the entry's level is enabled.
func (c core) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

// Write passes an entry to the handler, with the logger's name as the attribute "logger".
func (c core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	r := slog.NewRecord(e.Time, level(e.Level), e.Message, e.Caller.PC)
	if e.LoggerName != "" {
		r.AddAttrs(slog.String("logger", e.LoggerName))
	}
	r.AddAttrs(attrs(nil, fields)...)
	return c.handler.Handle(context.Background(), r)
}

// Sync does nothing: a handler has no buffer that it could flush.
func (core) Sync() error { return nil }

// attrs appends each field as an attribute; an error becomes its text.
func attrs(dst []slog.Attr, fields []zapcore.Field) []slog.Attr {
	for _, f := range fields {
		m := zapcore.NewMapObjectEncoder()
		f.AddTo(m)
		dst = append(dst, slog.Any(f.Key, m.Fields[f.Key]))
	}
	return dst
}
