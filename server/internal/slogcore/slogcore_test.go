package slogcore

import (
	"bytes"
	"errors"
	"log/slog"
	"regexp"
	"testing"
	"time"

	"go.uber.org/zap"
)

// TestEntries checks that level, name, fields and caller of an entry reach the handler.
func TestEntries(t *testing.T) {
	var out bytes.Buffer
	log := New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo, AddSource: true}))
	log = log.Named("node").With(zap.Int("slot", 3))
	log.Debug("too low")
	log.Info("step", zap.Duration("took", time.Second), zap.Error(errors.New("lost")), zap.Stringers("all", []time.Duration{1}))
	log.Error("end")
	want := regexp.MustCompile(`^time=\S+ level=INFO source=\S+slogcore_test.go:\d+ msg=step slot=3 logger=node took=1s error=lost all=\[1ns\]
time=\S+ level=ERROR source=\S+slogcore_test.go:\d+ msg=end slot=3 logger=node
$`)
	if !want.Match(out.Bytes()) {
		t.Errorf("%s", out.Bytes())
	}
}
