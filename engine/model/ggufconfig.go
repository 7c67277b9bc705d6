package model

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/engine/model/gguf"
)

// ggufArchs are the supported values of general.architecture. Mistral's files say llama, as
// both compute the same.
var ggufArchs = map[string]Arch{"llama": Llama, "qwen2": Qwen2, "qwen3": Qwen3}

// metaFields reads the metadata of one architecture and collects all errors.
type metaFields struct {
	meta   *gguf.Meta
	prefix string // "llama."
	seen   map[string]bool
	errs   []error
}

func (f *metaFields) fail(err error) { f.errs = append(f.errs, err) }

// count reads the integer under prefix and name, in [1, maxCount]. If it is absent and fallback is
// not 0, count returns fallback. If it is absent otherwise, or invalid, count records an error and
// returns 1.
func (f *metaFields) count(name string, fallback int) int {
	return metaNumber(f, name, fallback, f.meta.Uint, func(n uint64) bool { return n >= 1 && n <= maxCount }, "a whole number above 0, at most 16777216")
}

// positive reads a number above 0. It handles an absent or invalid value as count does.
func (f *metaFields) positive(name string, fallback float64) float64 {
	return metaNumber(f, name, fallback, f.meta.Float, func(v float64) bool { return v > 0 && !math.IsInf(v, 0) }, "a number above 0")
}

func metaNumber[T int | float64, V uint64 | float64](f *metaFields, name string, fallback T, read func(string) (V, bool), valid func(V) bool, want string) T {
	key := f.prefix + name
	f.seen[key] = true
	if !f.meta.Has(key) && fallback > 0 {
		return fallback
	}
	v, ok := read(key)
	if !ok || !valid(v) {
		f.fail(damaged("%s is %s, want %s", key, f.meta.Text(key), want))
		return 1
	}
	return T(v)
}

// only records an error if the value under prefix and name is present and not in harmless, the
// values without effect.
func (f *metaFields) only(name string, harmless ...string) {
	key := f.prefix + name
	f.seen[key] = true
	if f.meta.Has(key) && !slices.Contains(harmless, f.meta.Text(key)) {
		f.fail(unsupported("%s is %s; supported is %s", key, f.meta.Text(key), strings.Join(harmless, " or ")))
	}
}

// ggufConfig reads the shape of a model from metadata and tensors.
func ggufConfig(meta *gguf.Meta, w *weights, v *vocabulary) (*Config, error) {
	name, _ := meta.String("general.architecture")
	arch, ok := ggufArchs[name]
	if !ok {
		return nil, unsupported("general.architecture is %s; supported are %s", meta.Text("general.architecture"), strings.Join(sortedKeys(ggufArchs), ", "))
	}
	f := &metaFields{meta: meta, prefix: name + ".", seen: map[string]bool{}}
	c := &Config{Architecture: classes[arch], QKNorm: arch == Qwen3, BOS: v.bos, EOS: v.eos, Generated: generated(meta)}
	f.shape(c, w)
	f.rope(c, w)
	f.refuse(c)
	c.TiedHead = w.tensors["output.weight"] == nil
	c.QKVBias = w.tensors["blk.0.attn_q.bias"] != nil
	c.OBias = w.tensors["blk.0.attn_output.bias"] != nil
	c.MLPBias = w.tensors["blk.0.ffn_gate.bias"] != nil
	return c, errors.Join(f.errs...)
}

// generated reports whether the file says that its weights are random.
func generated(meta *gguf.Meta) bool {
	by, _ := meta.String("general.description")
	return by == GeneratedBy
}

func (f *metaFields) shape(c *Config, w *weights) {
	c.Hidden = f.count("embedding_length", 0)
	c.Layers = f.count("block_count", 0)
	c.Heads = f.count("attention.head_count", 0)
	c.KVHeads = f.count("attention.head_count_kv", c.Heads)
	c.HeadDim = f.count("attention.key_length", max(c.Hidden/c.Heads, 1))
	c.FFN = f.count("feed_forward_length", 0)
	c.MaxPositions = f.count("context_length", 0)
	c.NormEps = f.positive("attention.layer_norm_rms_epsilon", 0)
	if dim := f.count("attention.value_length", c.HeadDim); dim != c.HeadDim {
		f.fail(unsupported("%sattention.value_length is %d, key_length %d; supported are equal ones", f.prefix, dim, c.HeadDim))
	}
	f.seen[f.prefix+"vocab_size"] = true // taken from the embedding
	f.seen[f.prefix+poolingKey] = true   // see ReadPooling
	embed := w.tensors["token_embd.weight"]
	switch {
	case embed == nil || len(embed.Shape) != 2:
		f.fail(damaged("there is no matrix token_embd.weight"))
	case embed.Shape[0] > maxCount:
		f.fail(unsupported("token_embd.weight has %d rows, at most %d", embed.Shape[0], maxCount))
	default:
		c.Vocab, c.DType = embed.Shape[0], embed.DType
	}
	if c.Layers > maxLayers {
		f.fail(unsupported("%sblock_count is %d, at most %d", f.prefix, c.Layers, maxLayers))
	}
	if c.Heads%c.KVHeads != 0 {
		f.fail(unsupported("%sattention.head_count is %d, not a multiple of head_count_kv %d", f.prefix, c.Heads, c.KVHeads))
	}
	if c.Hidden%16 != 0 || c.HeadDim%16 != 0 {
		f.fail(unsupported("the width is %d, that of a head %d, want multiples of 16", c.Hidden, c.HeadDim))
	}
	if width := int64(c.Heads) * int64(c.HeadDim); width > maxCount {
		f.fail(unsupported("%d heads of %d are %d wide, at most %d", c.Heads, c.HeadDim, width, maxCount))
	}
}

// rope reads the base of the rotary frequencies, and their divisors: files of Llama 3.1 and
// later store the scaling as a tensor.
func (f *metaFields) rope(c *Config, w *weights) {
	c.RopeTheta = f.positive("rope.freq_base", 10000)
	if dim := f.count("rope.dimension_count", c.HeadDim); dim != c.HeadDim {
		f.fail(unsupported("%srope.dimension_count is %d, heads are %d wide; supported are rotary embeddings of whole heads", f.prefix, dim, c.HeadDim))
	}
	kind := f.prefix + "rope.scaling.type"
	f.seen[kind] = true
	if scale := f.positive("rope.scaling.factor", 1); scale != 1 && f.meta.Text(kind) != `"none"` {
		f.fail(unsupported("%srope.scaling.factor is %v and rope.scaling.type %s; supported are frequencies as they are, and factors in a tensor %s", f.prefix, scale, f.meta.Text(kind), ropeFactors))
	}
	f.only("rope.scale_linear", "1")
	t := w.tensors[ropeFactors]
	if t == nil {
		return
	}
	if len(t.Shape) != 1 || t.Shape[0] != c.HeadDim/2 {
		f.fail(damaged("tensor %q has shape %v, want [%d]", ropeFactors, t.Shape, c.HeadDim/2))
		return
	}
	c.RopeFactors = make([]float32, t.Shape[0])
	t.Widen(c.RopeFactors, 0, t.Shape[0])
	for i, v := range c.RopeFactors {
		if !(v > 0) || math.IsInf(float64(v), 0) {
			f.fail(damaged("tensor %q has %v at %d, want numbers above 0", ropeFactors, v, i))
			return
		}
	}
}

// refuse records an error for every other value of the architecture's metadata that is not known
// to be harmless: ignoring one could give a model that outputs nonsense.
func (f *metaFields) refuse(c *Config) {
	f.only("expert_count", "0")
	f.only("expert_used_count", "0")
	f.only("attention.causal", "true")
	f.only("tensor_data_layout", `"Meta AI original pth"`)
	window := f.prefix + "attention.sliding_window"
	f.seen[window] = true
	if n, ok := f.meta.Uint(window); f.meta.Has(window) && (!ok || n > 0 && n < uint64(c.MaxPositions)) {
		f.fail(unsupported("%s is %s, less than the context of %d", window, f.meta.Text(window), c.MaxPositions))
	}
	for _, key := range f.meta.Keys() {
		if strings.HasPrefix(key, f.prefix) && !f.seen[key] && !strings.HasPrefix(key, f.prefix+"rope.scaling.") {
			f.fail(unsupported("%s is %s, which is not known here", clip(key), f.meta.Text(key)))
		}
	}
	if n := len(f.errs); n > 8 {
		f.errs = append(f.errs[:8], fmt.Errorf("and %d more", n-8))
	}
}
