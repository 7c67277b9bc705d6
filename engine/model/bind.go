package model

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The names that transformers gives to the weights of LlamaForCausalLM, which
// MistralForCausalLM shares.
const (
	embedName = "model.embed_tokens.weight"
	normName  = "model.norm.weight"
	headName  = "lm_head.weight"
)

// slot is one weight that a config asks for.
type slot struct {
	name  string
	shape []int
	dst   **Tensor
}

// slots lists the weights of m by m.config in the fixed order that ID hashes
// and Generate writes. m.layers must be allocated.
func (m *Model) slots() []slot {
	c := m.config
	q, kvw := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	out := []slot{{embedName, []int{c.Vocab, c.Hidden}, &m.embed}}
	for i := range m.layers {
		l, prefix := &m.layers[i], fmt.Sprintf("model.layers.%d.", i)
		out = append(out,
			slot{prefix + "input_layernorm.weight", []int{c.Hidden}, &l.AttnNorm},
			slot{prefix + "self_attn.q_proj.weight", []int{q, c.Hidden}, &l.Q},
			slot{prefix + "self_attn.k_proj.weight", []int{kvw, c.Hidden}, &l.K},
			slot{prefix + "self_attn.v_proj.weight", []int{kvw, c.Hidden}, &l.V},
			slot{prefix + "self_attn.o_proj.weight", []int{c.Hidden, q}, &l.O},
			slot{prefix + "post_attention_layernorm.weight", []int{c.Hidden}, &l.FFNNorm},
			slot{prefix + "mlp.gate_proj.weight", []int{c.FFN, c.Hidden}, &l.Gate},
			slot{prefix + "mlp.up_proj.weight", []int{c.FFN, c.Hidden}, &l.Up},
			slot{prefix + "mlp.down_proj.weight", []int{c.Hidden, c.FFN}, &l.Down})
	}
	out = append(out, slot{normName, []int{c.Hidden}, &m.norm})
	if !c.TiedHead {
		out = append(out, slot{headName, []int{c.Vocab, c.Hidden}, &m.head})
	}
	return out
}

// bind puts the tensors into their places. It reports all missing, misshapen
// and unexpected ones together: an unexpected weight, say a bias, means that the
// model computes something else than config.json admits to.
func (m *Model) bind(tensors map[string]*Tensor) error {
	m.layers = make([]Layer, m.config.Layers)
	rest := maps.Clone(tensors)
	var missing []string
	var errs []error
	for _, s := range m.slots() {
		t := rest[s.name]
		delete(rest, s.name)
		switch {
		case t == nil:
			missing = append(missing, s.name)
		case !slices.Equal(t.Shape, s.shape):
			errs = append(errs, damaged("tensor %q has shape %v, config.json makes it %v", s.name, t.Shape, s.shape))
		default:
			*s.dst = t
		}
	}
	if m.config.TiedHead {
		m.head = m.embed
		delete(rest, headName) // a copy that some writers keep
	}
	maps.DeleteFunc(rest, func(name string, _ *Tensor) bool {
		return strings.HasSuffix(name, ".rotary_emb.inv_freq") // a constant that old writers kept
	})
	if len(missing) > 0 {
		errs = append(errs, damaged("missing tensors: %s", some(missing)))
	}
	if len(rest) > 0 {
		errs = append(errs, unsupported("tensors that %s does not have: %s", m.config.Architecture, some(sortedKeys(rest))))
	}
	return errors.Join(errs...)
}

// some lists the first few names.
func some(names []string) string {
	const most = 8
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// sortedKeys makes messages and the order of work the same on each run.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
