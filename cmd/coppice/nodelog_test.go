package main

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// TestNodeLog checks that level, name, time and attributes of a record reach the command's log in the form of its own entries.
func TestNodeLog(t *testing.T) {
	var out bytes.Buffer
	cfg := zap.NewProductionEncoderConfig()
	cfg.EncodeTime, cfg.EncodeDuration = zapcore.RFC3339TimeEncoder, zapcore.SecondsDurationEncoder
	log := nodeLog(zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(cfg), zapcore.AddSync(&out), zap.InfoLevel)).Named("node"))
	log.Debug("too low")
	log.With("tier", "disk").Info("step", "took", 1500*time.Millisecond, "error", errors.New("lost"), "rows", 3)
	at := slog.NewRecord(time.Unix(0, 0).UTC(), slog.LevelError, "end", 0)
	at.Add("bytes", uint64(7))
	if err := log.WithGroup("kv").Handler().Handle(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	if len(lines) != 2 {
		t.Fatalf("%s", out.Bytes())
	}
	if got, _ := bytes.CutSuffix(lines[0], []byte(`"logger":"node","msg":"step","tier":"disk","took":1.5,"error":"lost","rows":3}`)); len(got) == len(lines[0]) || !bytes.HasPrefix(got, []byte(`{"level":"info"`)) {
		t.Errorf("%s", lines[0])
	}
	if want := `{"level":"error","ts":"1970-01-01T00:00:00Z","logger":"node","msg":"end","kv":{"bytes":7}}`; string(lines[1]) != want {
		t.Errorf("%s, want %s", lines[1], want)
	}
}
