package model

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// transformers' names of the weights outside the layers. All families share them.
const (
	embedName = "model.embed_tokens.weight"
	normName  = "model.norm.weight"
	headName  = "lm_head.weight"
)

// Weight is the name and the shape of a weight.
type Weight struct {
	Name  string // as transformers names it
	Shape []int  // outermost first
}

// Values returns the number of the weight's values.
func (w *Weight) Values() int {
	n := 1
	for _, axis := range w.Shape {
		n *= axis
	}
	return n
}

// slot is a weight that a config requires, and its place in a model.
type slot struct {
	Weight
	dst **Tensor
}

// Weights lists the weights of a model with this config, in the order in which ID hashes them: embedding, layers, norm and
// head.
func (c *Config) Weights() []Weight {
	var all []Weight
	for _, s := range (&Model{config: c, layers: make([]Layer, c.Layers)}).slots() {
		all = append(all, s.Weight)
	}
	return all
}

// New returns a model of the weights that [Config.Weights] lists, in that order. It has no tokenizer, and the given ID.
func New(c *Config, id string, weights []*Tensor) *Model {
	m := &Model{config: c, id: id, layers: make([]Layer, c.Layers)}
	for i, s := range m.slots() {
		*s.dst = weights[i]
	}
	if c.TiedHead {
		m.head = m.embed
	}
	return m
}

// slots lists the weights of m that m.config requires, in the order of [Config.Weights]. m.layers must be allocated.
func (m *Model) slots() []slot {
	c := m.config
	out := []slot{{Weight{embedName, []int{c.Vocab, c.Hidden}}, &m.embed}}
	for i := range m.layers {
		out = m.layers[i].slots(out, c, fmt.Sprintf("model.layers.%d.", i))
	}
	out = append(out, slot{Weight{normName, []int{c.Hidden}}, &m.norm})
	if !c.TiedHead {
		out = append(out, slot{Weight{headName, []int{c.Vocab, c.Hidden}}, &m.head})
	}
	return out
}

// slots appends the layer's weights; a bias follows its matrix.
func (l *Layer) slots(out []slot, c *Config, prefix string) []slot {
	add := func(there bool, name string, dst **Tensor, shape ...int) {
		if there {
			out = append(out, slot{Weight{prefix + name, shape}, dst})
		}
	}
	q, kvw := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	add(true, "input_layernorm.weight", &l.AttnNorm, c.Hidden)
	add(true, "self_attn.q_proj.weight", &l.Q, q, c.Hidden)
	add(c.QKVBias, "self_attn.q_proj.bias", &l.QBias, q)
	add(true, "self_attn.k_proj.weight", &l.K, kvw, c.Hidden)
	add(c.QKVBias, "self_attn.k_proj.bias", &l.KBias, kvw)
	add(true, "self_attn.v_proj.weight", &l.V, kvw, c.Hidden)
	add(c.QKVBias, "self_attn.v_proj.bias", &l.VBias, kvw)
	add(c.QKNorm, "self_attn.q_norm.weight", &l.QNorm, c.HeadDim)
	add(c.QKNorm, "self_attn.k_norm.weight", &l.KNorm, c.HeadDim)
	add(true, "self_attn.o_proj.weight", &l.O, c.Hidden, q)
	add(c.OBias, "self_attn.o_proj.bias", &l.OBias, c.Hidden)
	add(true, "post_attention_layernorm.weight", &l.FFNNorm, c.Hidden)
	add(true, "mlp.gate_proj.weight", &l.Gate, c.FFN, c.Hidden)
	add(c.MLPBias, "mlp.gate_proj.bias", &l.GateBias, c.FFN)
	add(true, "mlp.up_proj.weight", &l.Up, c.FFN, c.Hidden)
	add(c.MLPBias, "mlp.up_proj.bias", &l.UpBias, c.FFN)
	add(true, "mlp.down_proj.weight", &l.Down, c.Hidden, c.FFN)
	add(c.MLPBias, "mlp.down_proj.bias", &l.DownBias, c.Hidden)
	return out
}

// bind assigns the tensors to m's fields. It reports all missing, misshapen and unexpected
// tensors together, with their files. An unexpected weight, say a bias, is an error because it
// means that the model computes something that config.json does not describe.
func (m *Model) bind(w *weights) error {
	m.layers = make([]Layer, m.config.Layers)
	rest := fullNames(w.tensors)
	var missing []string
	var errs []error
	for _, s := range m.slots() {
		t := rest[s.Name]
		delete(rest, s.Name)
		switch {
		case t == nil:
			missing = append(missing, s.Name)
		case !slices.Equal(t.Shape, s.Shape):
			errs = append(errs, fmt.Errorf("%s: %w", t.file,
				damaged("tensor %q has shape %v, config.json makes it %v", s.Name, t.Shape, s.Shape)))
		default:
			*s.dst = t
		}
	}
	if m.config.TiedHead {
		m.head = m.embed
		delete(rest, headName) // a copy that some writers store
	}
	maps.DeleteFunc(rest, func(name string, _ *Tensor) bool {
		return strings.HasSuffix(name, ".rotary_emb.inv_freq") // a constant that old writers stored
	})
	const most = 8
	if n := len(errs) - most; n > 0 {
		errs = append(errs[:most], damaged("%d more tensors of another shape", n))
	}
	if len(missing) > 0 {
		errs = append(errs, fmt.Errorf("%s: %w", w.path, damaged("missing tensors: %s", some(missing))))
	}
	if len(rest) > 0 {
		errs = append(errs, fmt.Errorf("%s: %w", w.path,
			unsupported("tensors that %s does not have: %s", m.config.Architecture, some(sortedKeys(rest)))))
	}
	return errors.Join(errs...)
}

// fullNames returns a copy of tensors with the names that slots has: models that are published for
// embeddings leave out the head, and with it the prefix "model." of all other weights.
func fullNames(tensors map[string]*Tensor) map[string]*Tensor {
	const prefix = "model."
	if tensors[strings.TrimPrefix(embedName, prefix)] == nil || tensors[embedName] != nil {
		return maps.Clone(tensors)
	}
	all := make(map[string]*Tensor, len(tensors))
	for name, t := range tensors {
		if name != headName {
			name = prefix + name
		}
		all[name] = t
	}
	return all
}

// some joins the first few names.
func some(names []string) string {
	const most = 8
	var list []string
	for _, name := range names[:min(len(names), most)] {
		list = append(list, clip(name))
	}
	if len(names) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list, ", "), len(names)-most)
}

// sortedKeys makes messages and the order of work deterministic.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func sortedValues[K comparable](m map[K]string) []string { return slices.Sorted(maps.Values(m)) }
