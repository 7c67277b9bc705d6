package main

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// nodeLog returns a logger for the library's packages, which speak log/slog. It writes to log.
func nodeLog(log *zap.Logger) *slog.Logger { return slog.New(zapHandler{log}) }

// zapHandler passes records to a zap logger.
type zapHandler struct{ log *zap.Logger }

// zapLevel converts a level: slog's levels are 4 apart and zap's 1, and info is 0 in both.
func zapLevel(l slog.Level) zapcore.Level { return zapcore.Level(l / 4) }

// Enabled asks the logger.
func (h zapHandler) Enabled(_ context.Context, l slog.Level) bool {
	return h.log.Core().Enabled(zapLevel(l))
}

// Handle writes a record.
func (h zapHandler) Handle(_ context.Context, r slog.Record) error {
	if e := h.log.Check(zapLevel(r.Level), r.Message); e != nil {
		fields := make([]zap.Field, 0, r.NumAttrs())
		r.Attrs(func(a slog.Attr) bool {
			fields = append(fields, zap.Any(a.Key, a.Value.Any()))
			return true
		})
		e.Time = r.Time
		e.Write(fields...)
	}
	return nil
}

// WithAttrs returns a handler that adds the attributes to each record.
func (h zapHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.log = h.log.With(zap.Any(a.Key, a.Value.Any()))
	}
	return h
}

// WithGroup returns a handler that puts the attributes that follow below name.
func (h zapHandler) WithGroup(name string) slog.Handler {
	return zapHandler{h.log.With(zap.Namespace(name))}
}
