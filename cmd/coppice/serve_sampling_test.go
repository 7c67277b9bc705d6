package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine"
)

// TestSamplingDefaults checks that the model's recommendations are used, except for a penalty
// that the backend lacks, and not at all with neutral defaults.
func TestSamplingDefaults(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"temperature": 0.6, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.05, "do_sample": true}`)
	for _, tc := range []struct {
		choice string
		can    engine.Capabilities
		want   string
	}{
		{"neutral", engine.AllCapabilities(), ""},
		{"model", engine.AllCapabilities(), "temperature 0.6, top_p 0.9, top_k 20, repetition_penalty 1.05"},
		{"model", engine.Capabilities{}, "temperature 0.6, top_p 0.9, top_k 20"},
	} {
		p, err := defaultSampling(tc.choice, dir, tc.can)
		if got := describeSampling(p); err != nil || got != tc.want {
			t.Errorf("%s with %+v: %q, %v, want %q", tc.choice, tc.can, got, err, tc.want)
		}
	}
	write(`{"temperature": -1}`)
	if _, err := defaultSampling("model", dir, engine.Capabilities{}); err == nil || !strings.Contains(err.Error(), "--sampling-defaults neutral") {
		t.Errorf("a temperature of -1: %v", err)
	}
	write(`{"eos_token_id": 1}`)
	if p, err := defaultSampling("model", dir, engine.Capabilities{}); p != nil || err != nil {
		t.Errorf("a model that recommends nothing: %+v, %v", p, err)
	}
}
