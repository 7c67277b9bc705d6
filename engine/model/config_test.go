package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// v4 is a config as written by transformers 4, v5 the same model as written by version 5.
const v4 = `{
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 1, "eos_token_id": [2, 3], "head_dim": 64, "hidden_act": "silu", "hidden_size": 128,
  "initializer_range": 0.02, "intermediate_size": 352, "max_position_embeddings": 131072, "mlp_bias": false,
  "model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers_version": "4.45.0", "use_cache": true, "vocab_size": 1000
}`

const v5 = `{
  "architectures": ["LlamaForCausalLM"], "attention_bias": false,
  "bos_token_id": 1, "dtype": "bfloat16", "eos_token_id": [2, 3], "head_dim": 64, "hidden_act": "silu",
  "hidden_size": 128, "intermediate_size": 352, "max_position_embeddings": 131072, "mlp_bias": false,
  "model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
  "rms_norm_eps": 1e-05,
  "rope_parameters": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192, "rope_theta": 500000.0, "rope_type": "llama3"},
  "tie_word_embeddings": true, "transformers_version": "5.0.0", "vocab_size": 1000
}`

func TestConfigOfBothForms(t *testing.T) {
	want := &Config{
		Architecture: "LlamaForCausalLM", Hidden: 128, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 352,
		Vocab: 1000, MaxPositions: 131072, NormEps: 1e-5, RopeTheta: 500000,
		RopeScaling: &RopeScaling{Factor: 32, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 8192},
		TiedHead:    true, BOS: []kv.Token{1}, EOS: []kv.Token{2, 3}, DType: kv.BF16,
	}
	for name, text := range map[string]string{"v4": v4, "v5": v5} {
		got, err := parseConfig([]byte(text), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// edit returns a config with some fields set to JSON values, or removed if the value is "-".
func edit(t testing.TB, text string, fields map[string]string) []byte {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	for k, v := range fields {
		if m[k] = json.RawMessage(v); v == "-" {
			delete(m, k)
		}
	}
	out, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestConfigDefaultsAndVariants(t *testing.T) {
	type set = map[string]string
	for name, tc := range map[string]struct {
		fields     set
		generation string
		check      func(*Config) bool
	}{
		"no rope_scaling":       {set{"rope_scaling": "-"}, "", func(c *Config) bool { return c.RopeScaling == nil && c.RopeTheta == 500000 }},
		"null rope_scaling":     {set{"rope_scaling": "null"}, "", func(c *Config) bool { return c.RopeScaling == nil }},
		"default rope":          {set{"rope_scaling": `{"rope_type":"default"}`}, "", func(c *Config) bool { return c.RopeScaling == nil }},
		"no rope_theta":         {set{"rope_theta": "-"}, "", func(c *Config) bool { return c.RopeTheta == 10000 }},
		"v5 without a type":     {set{"rope_parameters": `{"rope_theta":7}`}, "", func(c *Config) bool { return c.RopeScaling == nil && c.RopeTheta == 7 }},
		"v5 wins over v4":       {set{"rope_parameters": `{"rope_type":"default","rope_theta":7}`}, "", func(c *Config) bool { return c.RopeScaling == nil && c.RopeTheta == 7 }},
		"old name of rope type": {set{"rope_scaling": `{"type":"llama3","factor":2,"low_freq_factor":1,"high_freq_factor":2,"original_max_position_embeddings":64}`}, "", func(c *Config) bool { return c.RopeScaling.Factor == 2 }},
		"no head_dim":           {set{"head_dim": "-"}, "", func(c *Config) bool { return c.HeadDim == 32 }},
		"null head_dim":         {set{"head_dim": "null"}, "", func(c *Config) bool { return c.HeadDim == 32 }},
		"no kv heads":           {set{"num_key_value_heads": "-"}, "", func(c *Config) bool { return c.KVHeads == 4 }},
		"no tie":                {set{"tie_word_embeddings": "-"}, "", func(c *Config) bool { return !c.TiedHead }},
		"f16":                   {set{"torch_dtype": `"float16"`}, "", func(c *Config) bool { return c.DType == kv.F16 }},
		"no dtype":              {set{"torch_dtype": "-"}, "", func(c *Config) bool { return c.DType == undeclared }},
		"one eos":               {set{"eos_token_id": "9"}, "", func(c *Config) bool { return reflect.DeepEqual(c.EOS, []kv.Token{9}) }},
		"no eos":                {set{"eos_token_id": "null"}, "", func(c *Config) bool { return c.EOS == nil }},
		"generation's eos":      {nil, `{"eos_token_id":5}`, func(c *Config) bool { return reflect.DeepEqual(c.EOS, []kv.Token{5}) && c.BOS[0] == 1 }},
		"generation's eos list": {nil, `{"eos_token_id":[7,8]}`, func(c *Config) bool { return reflect.DeepEqual(c.EOS, []kv.Token{7, 8}) }},
		"generation names none": {nil, `{"temperature":0.6}`, func(c *Config) bool { return reflect.DeepEqual(c.EOS, []kv.Token{2, 3}) }},
		"mistral":               {set{"architectures": `["MistralForCausalLM"]`, "sliding_window": "null"}, "", func(c *Config) bool { return c.Architecture == "MistralForCausalLM" }},
		"window of the context": {set{"architectures": `["MistralForCausalLM"]`, "sliding_window": "131072"}, "", func(c *Config) bool { return true }},
		"default window":        {set{"architectures": `["MistralForCausalLM"]`, "max_position_embeddings": "4096"}, "", func(c *Config) bool { return true }},
		"full attention layers": {set{"layer_types": `["full_attention","full_attention"]`}, "", func(c *Config) bool { return true }},
		"dense by expert count": {set{"num_experts": "0"}, "", func(c *Config) bool { return true }},
	} {
		var generation []byte
		if tc.generation != "" {
			generation = []byte(tc.generation)
		}
		c, err := parseConfig(edit(t, v4, tc.fields), generation)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !tc.check(c) {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func TestConfigRefuses(t *testing.T) {
	type set = map[string]string
	for name, tc := range map[string]struct {
		fields set
		want   string
		kind   error
	}{
		"architecture":          {set{"architectures": `["GemmaForCausalLM"]`}, "supported are [LlamaForCausalLM MistralForCausalLM Qwen2ForCausalLM Qwen3ForCausalLM]", ErrUnsupported},
		"no architecture":       {set{"architectures": "-"}, "architectures is missing", ErrFormat},
		"two architectures":     {set{"architectures": `["LlamaForCausalLM","LlamaForCausalLM"]`}, "supported are", ErrUnsupported},
		"activation":            {set{"hidden_act": `"gelu"`}, `hidden_act is "gelu"; only "silu"`, ErrUnsupported},
		"quantised":             {set{"quantization_config": `{"quant_method":"awq"}`}, "quantization_config", ErrUnsupported},
		"experts":               {set{"num_local_experts": "8"}, "num_local_experts is 8; mixture of experts", ErrUnsupported},
		"routed experts":        {set{"n_routed_experts": "64"}, "mixture of experts", ErrUnsupported},
		"yarn":                  {set{"rope_scaling": `{"rope_type":"yarn","factor":4}`}, `rope_type is "yarn"; supported are "default" and "llama3"`, ErrUnsupported},
		"linear, old name":      {set{"rope_scaling": `{"type":"linear","factor":4}`}, `rope_type is "linear"`, ErrUnsupported},
		"yarn in v5":            {set{"rope_parameters": `{"rope_type":"yarn","rope_theta":1}`}, `rope_parameters: model: unsupported model: rope_type is "yarn"`, ErrUnsupported},
		"rope without type":     {set{"rope_scaling": `{"factor":4}`}, "rope_type is missing", ErrFormat},
		"rope without factor":   {set{"rope_scaling": `{"rope_type":"llama3"}`}, "factor is missing", ErrFormat},
		"rope factors reversed": {set{"rope_scaling": `{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":1,"original_max_position_embeddings":8192}`}, "high_freq_factor is 1, want more than", ErrFormat},
		"rope is a number":      {set{"rope_scaling": `4`}, "rope_scaling is not a JSON object", ErrFormat},
		"partial rope":          {set{"partial_rotary_factor": "0.5"}, "partial_rotary_factor is 0.5", ErrUnsupported},
		"window":                {set{"architectures": `["MistralForCausalLM"]`, "sliding_window": "4096"}, "set max_position_embeddings to 4096", ErrUnsupported},
		"window by default":     {set{"architectures": `["MistralForCausalLM"]`}, "sliding_window is 4096", ErrUnsupported},
		"window minus one":      {set{"sliding_window": "131071"}, "sliding_window is 131071", ErrUnsupported},
		"sliding layers":        {set{"layer_types": `["full_attention","sliding_attention"]`}, "sliding_attention", ErrUnsupported},
		"mistral's kv heads":    {set{"architectures": `["MistralForCausalLM"]`, "sliding_window": "null", "num_key_value_heads": "-"}, "num_key_value_heads is missing", ErrFormat},
		"hidden":                {set{"hidden_size": "136"}, "hidden_size is 136, want a multiple of 16", ErrUnsupported},
		"head_dim":              {set{"head_dim": "40"}, "head_dim is 40, want a multiple of 16", ErrUnsupported},
		"head_dim uneven":       {set{"head_dim": "-", "num_attention_heads": "3", "num_key_value_heads": "3"}, "head_dim is missing", ErrFormat},
		"heads":                 {set{"num_key_value_heads": "3"}, "not a multiple of num_key_value_heads 3", ErrUnsupported},
		"width":                 {set{"head_dim": "8388608"}, "is 33554432, at most 16777216", ErrUnsupported},
		"layers":                {set{"num_hidden_layers": "1025"}, "num_hidden_layers is 1025", ErrUnsupported},
		"zero layers":           {set{"num_hidden_layers": "0"}, "num_hidden_layers is 0", ErrFormat},
		"negative heads":        {set{"num_attention_heads": "-4"}, "num_attention_heads is -4", ErrFormat},
		"fractional vocab":      {set{"vocab_size": "1000.5"}, "vocab_size is 1000.5, want a whole number", ErrFormat},
		"huge vocab":            {set{"vocab_size": "16777217"}, "at most 16777216", ErrFormat},
		"text for a number":     {set{"intermediate_size": `"352"`}, `intermediate_size is "352"`, ErrFormat},
		"zero eps":              {set{"rms_norm_eps": "0"}, "rms_norm_eps is 0, want a number above 0", ErrFormat},
		"endless eps":           {set{"rms_norm_eps": "1e999"}, "rms_norm_eps is 1e999", ErrFormat},
		"theta":                 {set{"rope_theta": "-1"}, "rope_theta is -1", ErrFormat},
		"dtype":                 {set{"torch_dtype": `"float8_e4m3fn"`}, `torch_dtype is "float8_e4m3fn"; supported are float32`, ErrUnsupported},
		"eos outside":           {set{"eos_token_id": "1000"}, "eos_token_id has 1000, outside the vocabulary of 1000", ErrFormat},
		"negative bos":          {set{"bos_token_id": "-1"}, "bos_token_id has -1", ErrFormat},
		"eos is text":           {set{"eos_token_id": `"</s>"`}, "want a token id or a list", ErrFormat},
	} {
		_, err := parseConfig(edit(t, v4, tc.fields), nil)
		if !errors.Is(err, tc.kind) || !strings.Contains(fmt.Sprint(err), tc.want) {
			t.Errorf("%s: error %v, want %v with %q", name, err, tc.kind, tc.want)
		}
	}
}

func TestConfigReportsAllFaultsAtOnce(t *testing.T) {
	_, err := parseConfig([]byte(`{"mlp_bias":true,"rope_scaling":{"rope_type":"dynamic"},"sliding_window":"x"}`),
		[]byte(`{"eos_token_id":"x"}`))
	for _, want := range []string{
		"architectures is missing", "hidden_size is missing", "num_hidden_layers is missing", "num_attention_heads is missing",
		"intermediate_size is missing", "vocab_size is missing", "max_position_embeddings is missing", "rms_norm_eps is missing",
		"mlp_bias is true", `rope_type is "dynamic"`, `sliding_window is "x"`, "generation_config.json: model: damaged file: eos_token_id",
	} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q is not reported in\n%v", want, err)
		}
	}
}

func TestConfigIsNotJSON(t *testing.T) {
	for _, text := range []string{"", "null", "[]", "{", "<html>", `{"a":1} x`} {
		if _, err := parseConfig([]byte(text), nil); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: error %v", text, err)
		}
	}
	if _, err := parseConfig([]byte(v4), []byte("[")); !errors.Is(err, ErrFormat) {
		t.Errorf("bad generation_config.json: error %v", err)
	}
}
