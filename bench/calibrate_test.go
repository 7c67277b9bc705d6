package bench

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"strconv"
	"testing"

	"github.com/coppice-llm/coppice/engine/sim"
)

// MeasureSteps keeps the backend contract and reads only KV that it has written: a
// sanitizing device accepts all its steps, for every pool size.
func TestMeasureSteps(t *testing.T) {
	cfg := CalibrateConfig{Rounds: 2}
	for _, size := range []sim.Config{
		{Pages: cfg.KVTokens() / 16, MaxTokens: 512},
		{Pages: 300, MaxSlots: 8, MaxRows: 8, MaxTokens: 512},
		{Pages: 200, PageTokens: 1, MaxSlots: 16, MaxRows: 16},
		{Pages: 64, MaxPositions: 1000, MaxSlots: 4, MaxRows: 4},
		{Pages: 40, PageTokens: 256},
	} {
		b, err := sim.Open(size)
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		samples, err := MeasureSteps(context.Background(), b, cfg, func(done, of int) {
			if calls++; calls != done || done > of {
				t.Errorf("call %d says %d of %d", calls, done, of)
			}
		})
		b.Close()
		if err != nil {
			t.Fatalf("%+v: %v", size, err)
		}
		if 2*len(samples) != calls {
			t.Errorf("%d samples, %d calls", len(samples), calls)
		}
		seen := map[string]bool{}
		for i, s := range samples {
			var line bytes.Buffer
			if err := WriteStepsCSV(&line, []sim.Sample{{Shapes: s.Shapes}}, &sim.Profile{}); err != nil || s.Nanos < 1 {
				t.Errorf("sample %d: %+v, %v", i, s, err)
			}
			if seen[line.String()] {
				t.Errorf("twice: %+v", s)
			}
			seen[line.String()] = true
		}
	}
}

func TestMeasureStepsRefuses(t *testing.T) {
	b, err := sim.Open(sim.Config{Pages: 2, MaxRows: 4, MaxSlots: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, cfg := range []CalibrateConfig{{}, {NewTokens: -1}, {ContextTokens: -1}, {Rows: -1}, {Rounds: -1}} {
		if _, err := MeasureSteps(context.Background(), b, cfg, nil); err == nil {
			t.Errorf("%+v is measured on 2 pages", cfg)
		}
	}
	large, err := sim.Open(sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer large.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := MeasureSteps(ctx, large, CalibrateConfig{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestWriteStepsCSV(t *testing.T) {
	p, err := sim.ProfileByName("cpu2")
	if err != nil {
		t.Fatal(err)
	}
	s := sim.Sample{Nanos: 77, Shapes: []sim.RowShape{{Rows: 1, New: 32, Cached: 100}, {Rows: 3, New: 1, Cached: 50, Sample: true}}}
	var out bytes.Buffer
	if err := WriteStepsCSV(&out, []sim.Sample{s, s, s}, &p); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(lines) != 4 {
		t.Fatalf("%v, %v", lines, err)
	}
	want := []string{"1", "35", "100", "3", "150", "3", "77", strconv.Itoa(int(s.Predict(&p))), "true"}
	for i := range want {
		if lines[3][i] != want[i] {
			t.Errorf("%s is %s, want %s", lines[0][i], lines[3][i], want[i])
		}
	}
	if lines[1][8] != "false" || lines[3][7] == "0" {
		t.Errorf("%v", lines)
	}
}
