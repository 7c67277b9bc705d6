package model

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/engine/model/gguf/writer"
)

// String formats Defaults for the test's messages.
func (d Defaults) String() string {
	var b strings.Builder
	show := func(name string, v any, given bool) {
		if given {
			fmt.Fprintf(&b, "%s=%v ", name, v)
		}
	}
	of := func(p *float64) float64 {
		if p == nil {
			return 0
		}
		return *p
	}
	k := 0
	if d.TopK != nil {
		k = *d.TopK
	}
	show("temperature", of(d.Temperature), d.Temperature != nil)
	show("top_p", of(d.TopP), d.TopP != nil)
	show("top_k", k, d.TopK != nil)
	show("min_p", float32(of(d.MinP)), d.MinP != nil)
	show("repetition_penalty", float32(of(d.RepetitionPenalty)), d.RepetitionPenalty != nil)
	return strings.TrimSpace(b.String())
}

// TestReadDefaults: recommendations are read from a directory and from a GGUF file, and errors
// name invalid values.
func TestReadDefaults(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct{ file, want, fault string }{
		{"", "", ""},
		{`{"eos_token_id": 2}`, "", ""},
		{`{"do_sample": true, "repetition_penalty": 1.05, "temperature": 0.7, "top_p": 0.8, "top_k": 20}`, "temperature=0.7 top_p=0.8 top_k=20 repetition_penalty=1.05", ""}, // Qwen2.5's
		{`{"temperature": null, "top_k": -1, "min_p": 0}`, "top_k=0 min_p=0", ""},
		{`{"temperature": -1, "top_p": 0}`, "", "temperature is -1, want 0 to 100\ngeneration_config.json: model: damaged file: top_p is 0, want more than 0 and at most 1"},
		{`{"temperature": "hot"}`, "", `temperature is "hot", want a number`},
		{`[]`, "", "not a JSON object"},
	} {
		path := filepath.Join(dir, "generation_config.json")
		if tc.file != "" {
			if err := os.WriteFile(path, []byte(tc.file), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		d, err := ReadDefaults(dir)
		if tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)) || tc.fault == "" && err != nil {
			t.Errorf("%s: %v, want %q", tc.file, err, tc.fault)
		}
		if got := d.String(); err == nil && got != tc.want {
			t.Errorf("%s: %s, want %s", tc.file, got, tc.want)
		}
	}
	file := filepath.Join(dir, "nano.gguf")
	if err := GenerateGGUF(file, "nano", Llama, 0, gguf.F32); err != nil {
		t.Fatal(err)
	}
	pairs := pairsOf(t, file)
	write := func(more ...writer.Pair) {
		if err := os.WriteFile(file, rewriteGGUF(t, file, append(slices.Clone(pairs), more...), nil), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(writer.Pair{Key: "general.sampling.temp", Value: float32(0.5)}, writer.Pair{Key: "general.sampling.top_k", Value: int32(20)},
		writer.Pair{Key: "general.sampling.penalty_repeat", Value: float32(1.05)}, writer.Pair{Key: "general.sampling.mirostat", Value: uint32(0)})
	if d, err := ReadDefaults(file); err != nil || d.String() != "temperature=0.5 top_k=20 repetition_penalty=1.05" {
		t.Errorf("a GGUF file: %v, %v", d, err)
	}
	write(writer.Pair{Key: "general.sampling.top_p", Value: float32(2)})
	if _, err := ReadDefaults(file); err == nil || !strings.Contains(err.Error(), "general.sampling.top_p is 2, want") {
		t.Errorf("a GGUF file with top_p 2: %v", err)
	}
}
