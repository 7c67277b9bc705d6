package model

import (
	"cmp"
	"slices"

	"github.com/coppice-llm/coppice/internal/enum"
)

// Arch is a model family, named by Hugging Face's model_type. The zero value means Llama.
type Arch string

// The families that can be read. All share the layer (RMSNorm, rotary embedding,
// grouped-query attention, SwiGLU); the differences are:
const (
	Llama   Arch = "llama"   // biases if attention_bias and mlp_bias are set
	Mistral Arch = "mistral" // like Llama, without biases
	Qwen2   Arch = "qwen2"   // biases on q, k and v, none on o; Qwen2.5 is the same
	Qwen3   Arch = "qwen3"   // a norm on each head of q and k; head_dim is independent of Hidden
)

var archs = []Arch{Llama, Mistral, Qwen2, Qwen3}

// classes are the families' values in "architectures" of config.json.
var classes = map[Arch]string{Llama: "LlamaForCausalLM", Mistral: "MistralForCausalLM", Qwen2: "Qwen2ForCausalLM", Qwen3: "Qwen3ForCausalLM"}

// Class returns the family's value in "architectures" of config.json.
func (a Arch) Class() string { return classes[cmp.Or(a, Llama)] }

// Archs lists the supported families.
func Archs() []Arch { return slices.Clone(archs) }

// String returns the model_type, "llama" for the zero value.
func (a Arch) String() string { return string(cmp.Or(a, Llama)) }

// UnmarshalText accepts the name of a supported family. Its error lists all names.
func (a *Arch) UnmarshalText(text []byte) error { return enum.Pick("model", "arch", a, text, archs...) }

// archOf returns the family of a class, "" if there is none.
func archOf(class string) Arch {
	for a, c := range classes {
		if c == class {
			return a
		}
	}
	return ""
}

// parts sets the family's additions to the common layer, as in the modelling code of
// transformers (models/{llama,mistral,qwen2,qwen3}/modeling_*.py, the constructors of Attention
// and MLP).
func (f *fields) parts(c *Config) {
	attention, mlp := f.flag("attention_bias"), f.flag("mlp_bias")
	switch arch := archOf(c.Architecture); arch {
	case Llama:
		c.QKVBias, c.OBias, c.MLPBias = attention, attention, mlp
		return
	case Qwen2:
		// Qwen2Config has no attention_bias: q, k and v always have a bias, o never has one.
		c.QKVBias = true
	case Qwen3:
		c.QKVBias, c.OBias, c.QKNorm = attention, attention, true
	case Mistral:
		if attention {
			f.fail(unsupported("attention_bias is true; %s has no biases", c.Architecture))
		}
	}
	if mlp {
		f.fail(unsupported("mlp_bias is true; only %s may have biases there", classes[Llama]))
	}
}

// window refuses sliding-window attention that is shorter than the context, if any layer uses
// it. With a window of w, a token attends to the w positions up to its own, so w >=
// MaxPositions is full attention.
func (f *fields) window(c *Config) {
	window, from := f.slidingWindow(c), 0
	if qwen := archOf(c.Architecture); qwen == Qwen2 || qwen == Qwen3 {
		from = 28 // the first layer with the window, the default of Qwen2Config
		f.read("max_window_layers", &from, "a whole number")
	}
	slides := from < c.Layers
	if f.has("layer_types") {
		slides = f.slidingLayers(window) || archOf(c.Architecture) == Mistral // Mistral uses the window in all layers
	}
	if slides && window > 0 && window < c.MaxPositions {
		f.fail(unsupported("sliding_window is %d, less than max_position_embeddings %d; "+
			"set max_position_embeddings to %d to use the model within its window", window, c.MaxPositions, window))
	}
}

// slidingWindow returns the window that layers may use, 0 for none.
func (f *fields) slidingWindow(c *Config) int {
	arch := archOf(c.Architecture)
	qwen := arch == Qwen2 || arch == Qwen3
	if qwen && !f.flag("use_sliding_window") {
		return 0
	}
	if _, there := f.raw["sliding_window"]; !there && (qwen || arch == Mistral) {
		return 4096 // the default of both configs; null means none
	}
	if !f.has("sliding_window") {
		return 0
	}
	return f.count("sliding_window", false, 0)
}

// slidingLayers reports whether layer_types assigns the window to any layer, and refuses kinds
// of attention that are not supported.
func (f *fields) slidingLayers(window int) bool {
	var kinds []string
	f.read("layer_types", &kinds, "a list of names")
	slides := false
	for _, k := range kinds {
		switch {
		case k == "full_attention":
		case k == "sliding_attention" && window > 0:
			slides = true
		default:
			f.fail(unsupported("layer_types has %q; only \"full_attention\" is supported", clip(k)))
			return slides
		}
	}
	return slides
}
