package model

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// configJSON writes config.json in the form of transformers v4, which v5 reads, too. The last
// field is an addition: it holds the Spec, so that config.json differs whenever the weights do.
func configJSON(c *Config, spec Spec) []byte {
	type origin struct {
		Preset    Preset `json:"preset"`
		Seed      uint64 `json:"seed"`
		Generator int    `json:"generator"`
	}
	return indented(struct {
		Architectures []string        `json:"architectures"`
		ModelType     string          `json:"model_type"`
		Hidden        int             `json:"hidden_size"`
		Layers        int             `json:"num_hidden_layers"`
		Heads         int             `json:"num_attention_heads"`
		KVHeads       int             `json:"num_key_value_heads"`
		HeadDim       int             `json:"head_dim"`
		FFN           int             `json:"intermediate_size"`
		Vocab         int             `json:"vocab_size"`
		MaxPositions  int             `json:"max_position_embeddings"`
		Act           string          `json:"hidden_act"`
		Window        json.RawMessage `json:"sliding_window,omitempty"`
		AttentionBias bool            `json:"attention_bias"`
		MLPBias       bool            `json:"mlp_bias"`
		NormEps       float64         `json:"rms_norm_eps"`
		RopeTheta     float64         `json:"rope_theta"`
		RopeScaling   *struct{}       `json:"rope_scaling"`
		Tied          bool            `json:"tie_word_embeddings"`
		BOS           kv.Token        `json:"bos_token_id"`
		EOS           []kv.Token      `json:"eos_token_id"`
		DType         string          `json:"torch_dtype"`
		Origin        origin          `json:"coppice_generated"`
	}{
		Architectures: []string{c.Architecture}, ModelType: archOf(c.Architecture).String(),
		Hidden: c.Hidden, Layers: c.Layers, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, FFN: c.FFN,
		Vocab: c.Vocab, MaxPositions: c.MaxPositions, Act: "silu", Window: noWindow(c),
		AttentionBias: c.OBias, MLPBias: c.MLPBias, // Qwen2 has no field for its biases
		NormEps: c.NormEps, RopeTheta: c.RopeTheta, Tied: c.TiedHead,
		BOS: c.BOS[0], EOS: c.EOS, DType: "bfloat16",
		Origin: origin{spec.Preset, spec.Seed, generatorVersion},
	})
}

// noWindow returns the null that MistralConfig needs to have no default window.
func noWindow(c *Config) json.RawMessage {
	if c.Architecture == classes[Mistral] {
		return json.RawMessage("null")
	}
	return nil
}

func generationConfig(c *Config) []byte {
	return indented(struct {
		BOS kv.Token   `json:"bos_token_id"`
		EOS []kv.Token `json:"eos_token_id"`
	}{c.BOS[0], c.EOS})
}

func indented(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // token texts contain angle brackets
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("model: encode %+v: %v", v, err)) // cannot happen: plain structs of finite numbers
	}
	return b.Bytes()
}
