package local_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/local"
)

// TestSampling: a model's own recommendation is the default where it says anything about the draw; a
// penalty needs a backend that has it; nothing is read for neutral defaults.
func TestSampling(t *testing.T) {
	nano := filepath.Join(t.TempDir(), "nano")
	if err := random.Generate(nano, random.Spec{Preset: random.Nano, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	usual := engine.SamplingParams{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05}
	open := func(text string, neutral, penalties bool) (engine.SamplingParams, error) {
		if err := os.WriteFile(filepath.Join(nano, "generation_config.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		m, err := local.Open(nano, local.Options{Neutral: neutral, Backend: func(m *model.Model, _ *coppice.Config) (engine.Backend, error) {
			return sim.Open(sim.Config{Vocab: m.Config().Vocab, Logits: penalties}) // which has penalties with logits only
		}})
		if err != nil {
			return engine.SamplingParams{}, err
		}
		return m.Sampling, errors.Join(err, m.Close())
	}
	penalised := usual
	penalised.RepetitionPenalty = 1.05
	for _, tc := range []struct {
		name, text         string
		neutral, penalties bool
		want               engine.SamplingParams
	}{
		{"a recommendation", `{"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.05}`, false, true, engine.SamplingParams{Temperature: 0.6, TopK: 20, RepetitionPenalty: 1.05}},
		{"a backend without penalties", `{"top_p": 0.9, "repetition_penalty": 1.05}`, false, false, engine.SamplingParams{Temperature: 1, TopP: 0.9}},
		{"no recommendation", `{"eos_token_id": 1}`, false, true, usual},
		{"nothing about the draw", `{"repetition_penalty": 1.05}`, false, true, penalised},
		{"greedy", `{"temperature": 0}`, false, true, engine.SamplingParams{}},
		{"neutral", `{"temperature": -1}`, true, true, engine.SamplingParams{Temperature: 1}},
	} {
		if got, err := open(tc.text, tc.neutral, tc.penalties); err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, %v, want %+v", tc.name, got, err, tc.want)
		}
	}
	if _, err := open(`{"temperature": -1}`, false, true); err == nil || !strings.Contains(err.Error(), "temperature is -1") {
		t.Errorf("a temperature of -1: %v", err)
	}
}
