package cpu

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/model"
)

// TestGoldenCovers checks that the golden models cover each architecture with each head dim of
// published models, tied and separate head weights, and each type of weights.
func TestGoldenCovers(t *testing.T) {
	var want []string
	for _, arch := range model.Archs() {
		for _, dim := range []int{16, 32, 64, 128} {
			want = append(want, fmt.Sprintf("%s with heads of %d", arch, dim))
		}
		want = append(want, fmt.Sprintf("%s with weights in bf16", arch), fmt.Sprintf("%s with weights in f16", arch))
	}
	want = append(want, "tied", "untied", "weights in f32", "llama3 scaling", "a vocabulary that leaves part of a panel",
		"a prompt of 1", "a prompt of 17", "a prompt of 70", "a prompt of 500")
	have := map[string]bool{}
	g := readGolden(t)
	for i := range g.Models {
		gm := &g.Models[i]
		m, err := model.Open(gm.dir(t))
		if err != nil {
			t.Fatal(err)
		}
		c := m.Config()
		var arch model.Arch
		for _, a := range model.Archs() {
			if strings.HasPrefix(strings.ToLower(c.Architecture), string(a)+"for") {
				arch = a
			}
		}
		have[fmt.Sprintf("%s with heads of %d", arch, c.HeadDim)] = true
		have[fmt.Sprintf("%s with weights in %s", arch, m.Embed().DType)] = true
		have[fmt.Sprintf("weights in %s", m.Embed().DType)] = true
		have["tied"] = have["tied"] || c.TiedHead
		have["untied"] = have["untied"] || !c.TiedHead
		have["llama3 scaling"] = have["llama3 scaling"] || c.RopeScaling != nil
		have["a vocabulary that leaves part of a panel"] = have["a vocabulary that leaves part of a panel"] || c.Vocab%vectorCols != 0
		for j := range gm.Prompts {
			have[fmt.Sprintf("a prompt of %d", len(gm.Prompts[j].Tokens))] = true
		}
		m.Close()
	}
	for _, w := range want {
		if !have[w] {
			t.Errorf("no golden model has %s", w)
		}
	}
}

// TestGoldenControls shows that TestGolden can fail: each small change of a model's
// config.json must change the logits by more than the bounds.
func TestGoldenControls(t *testing.T) {
	g := readGolden(t)
	for _, c := range []struct{ model, from, to string }{
		{"llama3-tied-f32", `"rope_type": "llama3"`, `"rope_type": "default"`},
		{"llama3-tied-f32", `"high_freq_factor": 4.0`, `"high_freq_factor": 4.01`},
		{"llama3-tied-f32", `"original_max_position_embeddings": 128`, `"original_max_position_embeddings": 129`},
		{"mistral-bf16", `"rope_theta": 10000.0`, `"rope_theta": 10010.0`},
		{"mistral-bf16", `"tie_word_embeddings": false`, `"tie_word_embeddings": true`},
		{"llama-tied-f16", `"rms_norm_eps": 1e-05`, `"rms_norm_eps": 2e-05`},
		{"llama3-d64-bf16", `"low_freq_factor": 1.0`, `"low_freq_factor": 1.01`},
		{"qwen2-d16-bf16", `"rope_theta": 1000000.0`, `"rope_theta": 1010000.0`},
		{"qwen3-d64-f16", `"rms_norm_eps": 1e-06`, `"rms_norm_eps": 1e-05`},
		{"llama3-d128-bf16", `"factor": 8.0`, `"factor": 8.01`},
	} {
		t.Run(c.model+"/"+c.to, func(t *testing.T) {
			gm := g.model(t, c.model)
			dir, p := gm.dir(t), &gm.Prompts[2]
			path := filepath.Join(dir, "config.json")
			before := readFile(t, path)
			after := bytes.Replace(before, []byte(c.from), []byte(c.to), 1)
			if bytes.Equal(before, after) {
				t.Fatalf("config.json has no %s", c.from)
			}
			writeFile(t, path, after)
			if p.check(p.run(t, dir, nil)) == nil {
				t.Error("the logits are within the bounds all the same")
			}
		})
	}
}

// TestGoldenParts leaves out one part of one layer at a time. TestGolden's bounds must detect
// each.
func TestGoldenParts(t *testing.T) {
	g := readGolden(t)
	for _, c := range []struct {
		model, part string
		of          func(*layer) *[]float32
	}{
		{"llama-bias-f16", "qkv bias", func(l *layer) *[]float32 { return &l.qkvBias }},
		{"llama-bias-f16", "o bias", func(l *layer) *[]float32 { return &l.oBias }},
		{"llama-bias-f16", "gate and up bias", func(l *layer) *[]float32 { return &l.gateUpBias }},
		{"llama-bias-f16", "down bias", func(l *layer) *[]float32 { return &l.downBias }},
		{"qwen2-d16-bf16", "qkv bias", func(l *layer) *[]float32 { return &l.qkvBias }},
		{"qwen2-d64-f16", "qkv bias", func(l *layer) *[]float32 { return &l.qkvBias }},
		{"qwen3-d16-bf16", "q norm", func(l *layer) *[]float32 { return &l.qNorm }},
		{"qwen3-d16-bf16", "k norm", func(l *layer) *[]float32 { return &l.kNorm }},
		{"qwen3-d64-f16", "q norm", func(l *layer) *[]float32 { return &l.qNorm }},
		{"qwen3-d64-f16", "k norm", func(l *layer) *[]float32 { return &l.kNorm }},
		{"qwen3-d64-f16", "o bias", func(l *layer) *[]float32 { return &l.oBias }},
		{"qwen2-d128-f16", "qkv bias", func(l *layer) *[]float32 { return &l.qkvBias }},
		{"qwen3-d128-bf16", "q norm", func(l *layer) *[]float32 { return &l.qNorm }},
		{"qwen3-d128-bf16", "k norm", func(l *layer) *[]float32 { return &l.kNorm }},
	} {
		gm := g.model(t, c.model)
		p := &gm.Prompts[1]
		if p.check(p.run(t, gm.dir(t), func(s *step) {
			part := c.of(&s.w.layers[1])
			if *part == nil {
				t.Fatalf("%s has no %s", c.model, c.part)
			}
			*part = nil
		})) == nil {
			t.Errorf("%s without the %s of its last layer is within the bounds", c.model, c.part)
		}
	}
}
