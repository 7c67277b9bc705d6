package model

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// maxCount bounds every count of a config, and Heads*HeadDim. Published models stay below 2^20;
// 2^24 leaves room and fits 32-bit integers.
const maxCount = 1 << 24

// maxLayers bounds the memory that Open allocates because of config.json alone.
const maxLayers = 1024

// generatedField of config.json says that the weights are random; package random writes it.
const generatedField = "coppice_generated"

// GeneratedBy is the general.description of a GGUF file with random weights.
const GeneratedBy = "coppice, random weights"

// parseConfig parses config.json and, unless nil, generation_config.json. It reports all faults
// at once.
func parseConfig(config, generation []byte) (*Config, error) {
	f, err := newFields("config.json", config)
	if err != nil {
		return nil, err
	}
	c := &Config{Architecture: f.architecture(), Generated: f.has(generatedField)}
	f.refuseFeatures()
	f.parts(c)
	f.shape(c)
	f.rope(c)
	f.window(c)
	f.dtype(c)
	f.tokens(c)
	if generation != nil {
		g, err := newFields("generation_config.json", generation)
		if err != nil {
			f.fail(err)
		} else {
			g.tokens(c)
			f.errs = append(f.errs, g.errs...)
		}
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return c, nil
}

func (f *fields) architecture() string {
	var names []string
	switch {
	case !f.has("architectures"):
		f.fail(damaged("architectures is missing, want one of %v", sortedValues(classes)))
	case !f.read("architectures", &names, "a list of names"):
	case len(names) != 1 || archOf(names[0]) == "":
		f.fail(unsupported("architectures is %s; supported are %v", f.text("architectures"), sortedValues(classes)))
	default:
		return names[0]
	}
	return ""
}

// refuseFeatures reports every feature in use that the engines do not compute. Ignoring one
// would give a model that outputs nonsense.
func (f *fields) refuseFeatures() {
	if act := f.string("hidden_act", "silu"); act != "silu" {
		f.fail(unsupported("hidden_act is %q; only \"silu\" is supported", clip(act)))
	}
	for _, name := range []string{"quantization_config", "compression_config"} {
		if f.has(name) {
			f.fail(unsupported("%s is set; only plain F32, F16 and BF16 weights are supported, use the original model", name))
		}
	}
	if f.has("dual_chunk_attention_config") {
		f.fail(unsupported("dual_chunk_attention_config is set; only plain attention is supported"))
	}
	if f.flag("use_mrope") {
		f.fail(unsupported("use_mrope is true; rotary embeddings of several axes are not supported"))
	}
	for _, name := range []string{"num_local_experts", "num_experts", "n_routed_experts"} {
		n := 0
		if f.read(name, &n, "a whole number") && n > 0 {
			f.fail(unsupported("%s is %d; mixture of experts is not supported, only dense models", name, n))
		}
	}
}

func (f *fields) shape(c *Config) {
	c.Hidden = f.count("hidden_size", true, 0)
	c.Layers = f.count("num_hidden_layers", true, 0)
	if c.Layers > maxLayers {
		f.fail(unsupported("num_hidden_layers is %d, at most %d", c.Layers, maxLayers))
	}
	c.Heads = f.count("num_attention_heads", true, 0)
	// Null means one per query head. Absent means the same in LlamaConfig only; the defaults of
	// MistralConfig (8) and Qwen's (32) fit hardly any model, so an absent value is an error
	// there.
	_, there := f.raw["num_key_value_heads"]
	c.KVHeads = f.count("num_key_value_heads", !there && archOf(c.Architecture) != Llama, c.Heads)
	c.FFN = f.count("intermediate_size", true, 0)
	c.Vocab = f.count("vocab_size", true, 0)
	c.MaxPositions = f.count("max_position_embeddings", true, 0)
	c.NormEps = f.positive("rms_norm_eps", true, 0)
	c.TiedHead = f.flag("tie_word_embeddings")
	if c.Heads > 0 && c.KVHeads > 0 && c.Heads%c.KVHeads != 0 {
		f.fail(unsupported("num_attention_heads is %d, not a multiple of num_key_value_heads %d", c.Heads, c.KVHeads))
	}
	if c.Hidden%16 != 0 {
		f.fail(unsupported("hidden_size is %d, want a multiple of 16", c.Hidden))
	}
	f.headDim(c)
}

// headDim reads head_dim. Its default is 128 in Qwen3Config and Hidden/Heads in the others.
func (f *fields) headDim(c *Config) {
	whole := 128
	if archOf(c.Architecture) != Qwen3 {
		whole = c.Hidden / max(c.Heads, 1)
	}
	if !f.has("head_dim") && c.Heads > 0 && c.Hidden%c.Heads != 0 && archOf(c.Architecture) != Qwen3 {
		f.fail(damaged("head_dim is missing, and hidden_size %d is not a multiple of num_attention_heads %d", c.Hidden, c.Heads))
		return
	}
	c.HeadDim = f.count("head_dim", false, whole)
	if c.HeadDim%16 != 0 {
		f.fail(unsupported("head_dim is %d, want a multiple of 16", c.HeadDim))
	}
	if width := int64(c.Heads) * int64(c.HeadDim); width > maxCount {
		f.fail(unsupported("num_attention_heads %d times head_dim %d is %d, at most %d", c.Heads, c.HeadDim, width, maxCount))
	}
}

// rope reads the rotary embedding: transformers v5 has all its fields in rope_parameters, v4
// has rope_theta next to rope_scaling.
func (f *fields) rope(c *Config) {
	const defaultTheta = 10000 // the default of all four configs
	if p := f.positive("partial_rotary_factor", false, 1); p != 1 {
		f.fail(unsupported("partial_rotary_factor is %v; only 1 is supported", p))
	}
	c.RopeTheta = f.positive("rope_theta", false, defaultTheta)
	name := "rope_parameters"
	if !f.has(name) {
		name = "rope_scaling"
	}
	if !f.has(name) {
		return
	}
	r, err := newFields("config.json: "+name, f.raw[name])
	if err != nil {
		f.fail(err)
		return
	}
	for _, kind := range []string{"full_attention", "sliding_attention"} {
		if r.has(kind) {
			r.fail(unsupported("%s has parameters of its own; only one rotary embedding for all layers is supported", kind))
		}
	}
	c.RopeTheta = r.positive("rope_theta", false, c.RopeTheta)
	if p := r.positive("partial_rotary_factor", false, 1); p != 1 {
		r.fail(unsupported("partial_rotary_factor is %v; only 1 is supported", p))
	}
	r.scaling(c)
	f.errs = append(f.errs, r.errs...)
}

func (f *fields) scaling(c *Config) {
	// transformers before 4.43 used the name "type".
	kind := f.string("rope_type", f.string("type", ""))
	if kind == "" && !f.has("factor") {
		kind = "default" // as transformers v5 treats it
	}
	switch kind {
	case "default":
	case "llama3":
		s := &RopeScaling{
			Factor:               f.positive("factor", true, 0),
			LowFreqFactor:        f.positive("low_freq_factor", true, 0),
			HighFreqFactor:       f.positive("high_freq_factor", true, 0),
			OriginalMaxPositions: f.count("original_max_position_embeddings", true, 0),
		}
		if len(f.errs) == 0 && s.HighFreqFactor <= s.LowFreqFactor {
			f.fail(damaged("high_freq_factor is %v, want more than low_freq_factor %v", s.HighFreqFactor, s.LowFreqFactor))
		}
		c.RopeScaling = s
	case "":
		f.fail(damaged("rope_type is missing, want \"default\" or \"llama3\""))
	default:
		f.fail(unsupported("rope_type is %q; supported are \"default\" and \"llama3\"", clip(kind)))
	}
}

// dtype reads the declared type: "dtype" in v5, "torch_dtype" in v4.
func (f *fields) dtype(c *Config) {
	name := "dtype"
	if !f.has(name) {
		name = "torch_dtype"
	}
	c.DType = undeclared
	if !f.has(name) {
		return
	}
	switch s := f.string(name, ""); s {
	case "float32":
		c.DType = kv.F32
	case "float16":
		c.DType = kv.F16
	case "bfloat16":
		c.DType = kv.BF16
	default:
		f.fail(unsupported("%s is %q; supported are float32, float16 and bfloat16", name, clip(s)))
	}
}

// undeclared is the value of Config.DType until the embedding's type is known.
const undeclared = kv.DType(255)

// tokens reads the special ids; those named in this file override those in c.
func (f *fields) tokens(c *Config) {
	f.special("bos_token_id", &c.BOS, c.Vocab)
	f.special("eos_token_id", &c.EOS, c.Vocab)
}

func (f *fields) special(name string, dst *[]kv.Token, vocab int) {
	ids, ok := f.ids(name)
	if !ok || vocab == 0 { // a vocabulary of 0 was reported before
		return
	}
	*dst = nil
	for _, id := range ids {
		if id < 0 || id >= vocab {
			f.fail(damaged("%s has %d, outside the vocabulary of %d tokens", name, id, vocab))
			continue
		}
		*dst = append(*dst, kv.Token(id))
	}
}

// canonical returns the fields of the config that logits depend on, as fixed JSON.
func (c *Config) canonical() []byte {
	fixed := *c
	fixed.BOS, fixed.EOS, fixed.MaxPositions, fixed.DType = nil, nil, 0, 0
	out, err := json.Marshal(&fixed)
	if err != nil {
		panic(fmt.Sprintf("model: config %+v: %v", fixed, err)) // cannot happen: parseConfig has checked that numbers are finite
	}
	// IDs were defined when the type was written as a number, F32 being 0; keep them unchanged.
	return bytes.Replace(out, []byte(`"DType":"f32"`), []byte(`"DType":0`), 1)
}
