// Package slogcore owns the bridge from zap to log/slog: a zap core that writes into a
// slog.Handler. It keeps nothing and never filters: the handler's Enabled decides. The core may
// be used from any goroutine, as the handler may.
package slogcore

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Choose returns log, or if that is nil and handler is not, a logger that writes to handler.
func Choose(log *zap.Logger, handler slog.Handler) *zap.Logger {
	if log == nil && handler != nil {
		return zap.New(core{handler}, zap.AddCaller())
	}
	return log
}

type core struct{ handler slog.Handler }

// level converts: zap counts levels by ones, slog by fours, and both have info at 0.
func level(l zapcore.Level) slog.Level { return slog.Level(4 * l) }

// Enabled asks the handler.
func (c core) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), level(l))
}

// With returns a core whose entries have the fields.
func (c core) With(fields []zapcore.Field) zapcore.Core {
	return core{c.handler.WithAttrs(attrs(nil, fields))}
}

// Check adds the core to those that write an entry, if it is enabled.
func (c core) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

// Write hands an entry to the handler; its logger's name is the attribute "logger".
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

// attrs appends each field as an attribute; an error is its text.
func attrs(dst []slog.Attr, fields []zapcore.Field) []slog.Attr {
	for _, f := range fields {
		m := zapcore.NewMapObjectEncoder()
		f.AddTo(m)
		dst = append(dst, slog.Any(f.Key, m.Fields[f.Key]))
	}
	return dst
}
