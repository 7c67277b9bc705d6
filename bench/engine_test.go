package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/coppice-llm/coppice/engine/sim"
)

// PlayEngine keeps the backend contract: a sanitizing device accepts all its batches.
func TestPlayEngine(t *testing.T) {
	b, err := sim.Open(sim.Config{PageTokens: 16, Pages: 200, MaxSlots: 16, MaxRows: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	cfg := EngineConfig{PromptTokens: 100, OutputTokens: 20, Rounds: 2, LinearParams: 1000, HeadParams: 1000, WeightBytes: 4000, CeilingGFlops: 1, CeilingGBs: 1, ISA: "none", Threads: 1}
	steps := 0
	s, err := PlayEngine(context.Background(), b, cfg, func() { steps++ })
	if err != nil {
		t.Fatal(err)
	}
	if steps != cfg.Steps() {
		t.Errorf("%d steps of progress, want %d", steps, cfg.Steps())
	}
	if want := s.PrefillTokS * 2 * 1010 / 1e9; s.GemmGFlops != want || s.StreamGBs != s.DecodeTokS1*4000/1e9 {
		t.Errorf("%+v", s)
	}
	var out bytes.Buffer
	if err := WriteJSON(&out, s); err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(out.Bytes(), &keys); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"prefill_tok_s", "decode_tok_s_b1", "decode_tok_s_b4", "decode_tok_s_b16", "gemm_gflops", "ceiling_gflops", "stream_gbs", "ceiling_gbs", "threads", "isa"} {
		if _, ok := keys[key]; !ok {
			t.Errorf("no %s in %s", key, out.String())
		}
	}
	if err := WriteTable(&out, s); err != nil {
		t.Error(err)
	}
}

// A small batch is bound by memory, a large one by arithmetic.
func TestEngineBound(t *testing.T) {
	c := EngineConfig{LinearParams: 3e6, HeadParams: 1e6, WeightBytes: 8e6, CeilingGFlops: 16, CeilingGBs: 8}
	for rows, want := range map[int]float64{1: 1000, 2: 2000, 4: 2000, 16: 2000} {
		if got := c.bound(rows); got != want {
			t.Errorf("%d rows: %v tokens a second, want %v", rows, got, want)
		}
	}
	c.CeilingGBs = 0
	if got := c.bound(1); got != 0 {
		t.Errorf("%v without a ceiling", got)
	}
}

func TestPlayEngineRefuses(t *testing.T) {
	b, err := sim.Open(sim.Config{PageTokens: 16, Pages: 20, MaxSlots: 16, MaxRows: 8, MaxPositions: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, cfg := range []EngineConfig{{}, {PromptTokens: -1}, {OutputTokens: -1}, {PromptTokens: 1, OutputTokens: 1, Rounds: -1}} {
		if _, err := PlayEngine(context.Background(), b, cfg, nil); err == nil {
			t.Errorf("%+v is played", cfg)
		}
	}
}
