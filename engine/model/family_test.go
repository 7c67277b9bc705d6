package model

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// qwen2 is a config like that of Qwen2.5-0.5B in the form of transformers 4; qwen3 is one like
// that of Qwen3-0.6B in the form of version 5.
const qwen2 = `{
  "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645,
  "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864,
  "max_position_embeddings": 32768, "max_window_layers": 21, "model_type": "qwen2", "num_attention_heads": 14,
  "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
  "sliding_window": 4096, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.43.1",
  "use_cache": true, "use_mrope": false, "use_sliding_window": false, "vocab_size": 151936
}`

const qwen3 = `{
  "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643,
  "dtype": "bfloat16", "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
  "initializer_range": 0.02, "intermediate_size": 3072, "layer_types": ["full_attention", "full_attention"],
  "max_position_embeddings": 40960, "max_window_layers": 2, "model_type": "qwen3", "num_attention_heads": 16,
  "num_hidden_layers": 2, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
  "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}, "sliding_window": null,
  "tie_word_embeddings": true, "transformers_version": "5.0.0", "use_cache": true, "use_sliding_window": false,
  "vocab_size": 151936
}`

func TestQwenConfigs(t *testing.T) {
	for text, want := range map[string]*Config{
		qwen2: {
			Architecture: "Qwen2ForCausalLM", Hidden: 896, Layers: 24, Heads: 14, KVHeads: 2, HeadDim: 64, FFN: 4864,
			Vocab: 151936, MaxPositions: 32768, NormEps: 1e-6, RopeTheta: 1e6, TiedHead: true,
			BOS: []kv.Token{151643}, EOS: []kv.Token{151645, 151643}, DType: kv.BF16, QKVBias: true,
		},
		qwen3: {
			Architecture: "Qwen3ForCausalLM", Hidden: 1024, Layers: 2, Heads: 16, KVHeads: 8, HeadDim: 128, FFN: 3072,
			Vocab: 151936, MaxPositions: 40960, NormEps: 1e-6, RopeTheta: 1e6, TiedHead: true,
			BOS: []kv.Token{151643}, EOS: []kv.Token{151645, 151643}, DType: kv.BF16, QKNorm: true,
		},
	} {
		got, err := parseConfig([]byte(text), []byte(`{"do_sample": true, "eos_token_id": [151645, 151643]}`))
		if err != nil {
			t.Error(err)
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

type fieldSet = map[string]string

// slide sets the fields of a Qwen config that put the layers from the given one on a sliding
// window.
func slide(window, from string) fieldSet {
	return fieldSet{"use_sliding_window": "true", "sliding_window": window, "max_window_layers": from}
}

func TestFamilies(t *testing.T) {
	for name, tc := range map[string]struct {
		base   string
		fields fieldSet
		check  func(*Config) bool
	}{
		"llama without":         {v4, nil, func(c *Config) bool { return !c.QKVBias && !c.OBias && !c.MLPBias && !c.QKNorm }},
		"llama attention bias":  {v4, fieldSet{"attention_bias": "true"}, func(c *Config) bool { return c.QKVBias && c.OBias && !c.MLPBias }},
		"llama mlp bias":        {v4, fieldSet{"mlp_bias": "true"}, func(c *Config) bool { return !c.QKVBias && !c.OBias && c.MLPBias }},
		"qwen2 says no bias":    {qwen2, fieldSet{"attention_bias": "false"}, func(c *Config) bool { return c.QKVBias && !c.OBias }},
		"qwen2 says a bias":     {qwen2, fieldSet{"attention_bias": "true"}, func(c *Config) bool { return c.QKVBias && !c.OBias }},
		"qwen3 bias":            {qwen3, fieldSet{"attention_bias": "true"}, func(c *Config) bool { return c.QKVBias && c.OBias && c.QKNorm }},
		"qwen3 head_dim":        {qwen3, fieldSet{"head_dim": "-"}, func(c *Config) bool { return c.HeadDim == 128 }},
		"qwen3 uneven":          {qwen3, fieldSet{"head_dim": "64", "num_attention_heads": "10", "num_key_value_heads": "5"}, func(c *Config) bool { return c.HeadDim == 64 }},
		"null kv heads":         {qwen2, fieldSet{"num_key_value_heads": "null"}, func(c *Config) bool { return c.KVHeads == 14 }},
		"window of the context": {qwen2, slide("32768", "0"), nil},
		"window of no layer":    {qwen2, slide("4096", "24"), nil},
		"window none":           {qwen2, slide("null", "0"), nil},
		"window, full layers":   {qwen3, slide("4096", "0"), nil}, // layer_types has precedence
		"window default unused": {qwen2, fieldSet{"sliding_window": "-"}, nil},
	} {
		c, err := parseConfig(edit(t, tc.base, tc.fields), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if tc.check != nil && !tc.check(c) {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func TestFamiliesRefuse(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for name, tc := range map[string]struct {
		base   string
		fields fieldSet
		want   string
		kind   error
	}{
		"mistral bias":          {v4, fieldSet{"architectures": `["MistralForCausalLM"]`, "sliding_window": "null", "attention_bias": "true"}, "attention_bias is true; MistralForCausalLM has no biases", ErrUnsupported},
		"qwen2 mlp bias":        {qwen2, fieldSet{"mlp_bias": "true"}, "mlp_bias is true; only LlamaForCausalLM", ErrUnsupported},
		"qwen2 window":          {qwen2, slide("4096", "21"), "sliding_window is 4096, less than max_position_embeddings 32768", ErrUnsupported},
		"window of one layer":   {qwen2, slide("32767", "23"), "sliding_window is 32767", ErrUnsupported},
		"window by default":     {qwen2, fieldSet{"use_sliding_window": "true", "sliding_window": "-"}, "sliding_window is 4096", ErrUnsupported},
		"layers by default":     {qwen2, fieldSet{"use_sliding_window": "true", "max_window_layers": "-", "num_hidden_layers": "29"}, "sliding_window is 4096", ErrUnsupported},
		"layer types":           {qwen3, fieldSet{"use_sliding_window": "true", "sliding_window": "4096", "layer_types": `["full_attention","sliding_attention"]`}, "sliding_window is 4096", ErrUnsupported},
		"layer without window":  {qwen3, fieldSet{"layer_types": `["full_attention","sliding_attention"]`}, `layer_types has "sliding_attention"`, ErrUnsupported},
		"linear attention":      {qwen3, fieldSet{"layer_types": `["full_attention","linear_attention"]`}, `layer_types has "linear_attention"`, ErrUnsupported},
		"mistral, full layers":  {v4, fieldSet{"architectures": `["MistralForCausalLM"]`, "sliding_window": "4096", "layer_types": `["full_attention"]`}, "sliding_window is 4096", ErrUnsupported},
		"window is text":        {qwen2, slide(`"4096"`, "0"), `sliding_window is "4096"`, ErrFormat},
		"first layer is text":   {qwen2, slide("4096", `"0"`), `max_window_layers is "0"`, ErrFormat},
		"qwen2 moe":             {qwen2, fieldSet{"architectures": `["Qwen2MoeForCausalLM"]`, "num_experts": "60"}, "num_experts is 60; mixture of experts", ErrUnsupported},
		"qwen3 moe":             {qwen3, fieldSet{"architectures": `["Qwen3MoeForCausalLM"]`}, `["Qwen3MoeForCausalLM"]`, ErrUnsupported},
		"mixtral":               {v4, fieldSet{"architectures": `["MixtralForCausalLM"]`, "num_local_experts": "8"}, "num_local_experts is 8", ErrUnsupported},
		"gptq":                  {qwen2, fieldSet{"quantization_config": `{"bits":4,"quant_method":"gptq"}`}, "quantization_config is set", ErrUnsupported},
		"compressed":            {qwen2, fieldSet{"compression_config": `{"format":"dense"}`}, "compression_config is set", ErrUnsupported},
		"yarn":                  {qwen3, fieldSet{"rope_parameters": "-", "rope_scaling": `{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32768}`}, `rope_type is "yarn"`, ErrUnsupported},
		"dynamic":               {qwen2, fieldSet{"rope_scaling": `{"type":"dynamic","factor":2.0}`}, `rope_type is "dynamic"`, ErrUnsupported},
		"longrope":              {qwen2, fieldSet{"rope_parameters": `{"rope_type":"longrope","long_factor":[1]}`}, `rope_type is "longrope"`, ErrUnsupported},
		"rope by layer type":    {qwen3, fieldSet{"rope_parameters": `{"full_attention":{"rope_type":"default","rope_theta":1}}`}, "full_attention has parameters of its own", ErrUnsupported},
		"several axes":          {qwen2, fieldSet{"use_mrope": "true"}, "use_mrope is true", ErrUnsupported},
		"chunked":               {qwen2, fieldSet{"dual_chunk_attention_config": `{"chunk_size":262144}`}, "dual_chunk_attention_config is set", ErrUnsupported},
		"qwen kv heads":         {qwen2, fieldSet{"num_key_value_heads": "-"}, "num_key_value_heads is missing", ErrFormat},
		"qwen2 uneven heads":    {qwen2, fieldSet{"num_attention_heads": "10"}, "head_dim is missing", ErrFormat},
		"endless text":          {qwen2, fieldSet{"hidden_act": `"` + long + `"`}, "... (1048576 bytes)", ErrUnsupported},
		"endless architectures": {qwen2, fieldSet{"architectures": `["` + long + `"]`}, "... (1048580 bytes)", ErrUnsupported},
	} {
		_, err := parseConfig(edit(t, tc.base, tc.fields), nil)
		if !errors.Is(err, tc.kind) || !strings.Contains(fmt.Sprint(err), tc.want) {
			t.Errorf("%s: error %.300v, want %v with %q", name, err, tc.kind, tc.want)
		}
		if n := len(fmt.Sprint(err)); n > 2000 {
			t.Errorf("%s: a message of %d bytes", name, n)
		}
	}
}

// FuzzConfig: no text makes the parser panic, and accepted configs keep the promises of Config.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(v4), []byte(`{"eos_token_id":[1]}`))
	f.Add([]byte(v5), []byte(`{}`))
	f.Add([]byte(qwen2), []byte(`{"eos_token_id":151645}`))
	f.Add([]byte(qwen3), []byte(`{}`))
	f.Add(edit(f, qwen2, slide("4096", "21")), []byte(`{"eos_token_id":[]}`))
	f.Add([]byte(deep()), []byte(deep()))
	f.Fuzz(func(t *testing.T, config, generation []byte) {
		c, err := parseConfig(config, generation)
		if err != nil {
			return
		}
		if c.Hidden < 1 || c.Layers < 1 || c.KVHeads < 1 || c.FFN < 1 || c.MaxPositions < 1 || c.HeadDim < 16 ||
			c.Hidden%16 != 0 || c.HeadDim%16 != 0 || c.Heads%c.KVHeads != 0 || !(c.NormEps > 0) || !(c.RopeTheta > 0) {
			t.Fatalf("accepted %+v", c)
		}
		for _, id := range append(c.EOS, c.BOS...) {
			if int(id) >= c.Vocab {
				t.Fatalf("special token %d of %d", id, c.Vocab)
			}
		}
	})
}
