package model

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer/tokenfile"
)

// IsGGUF reports whether path is a file, which is read as GGUF; other models are directories.
func IsGGUF(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

// openGGUF is Open for a GGUF file and the further parts of a split one.
func openGGUF(path string) (*Model, error) {
	w, meta, err := mapGGUF(path)
	if err != nil {
		return nil, err
	}
	m, err := fromGGUF(path, w, meta)
	if err != nil {
		w.close()
		return nil, err
	}
	return m, nil
}

func fromGGUF(path string, w *weights, meta *gguf.Meta) (*Model, error) {
	m, err := checkGGUF(path, w, meta)
	if err != nil {
		return nil, err
	}
	if archOf(m.config.Architecture) == Llama {
		for i := range m.layers {
			m.layers[i].unpermute(m.config)
		}
	}
	m.files = w.files
	m.id = m.hash()
	return m, nil
}

// checkGGUF makes the parts of a model that do not depend on the weights' values.
func checkGGUF(path string, w *weights, meta *gguf.Meta) (*Model, error) {
	vocab, err := readVocabulary(meta)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	m := &Model{}
	if m.config, err = ggufConfig(meta, w, vocab); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	words, err := vocab.files()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if m.tok, err = tokenfile.Parse(words["tokenizer.json"], words["tokenizer_config.json"]); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := m.checkVocabulary(path, "the tokenizer", "token_embd.weight"); err != nil {
		return nil, err
	}
	if err := renameTensors(w, m.config); err != nil {
		return nil, err
	}
	return m, m.bind(w)
}

// mapGGUF maps the file at path and its further parts. The metadata are those of the first
// file, valid until the weights are closed.
func mapGGUF(path string) (*weights, *gguf.Meta, error) {
	w := &weights{tensors: map[string]*Tensor{}, path: path}
	first, err := w.part(path)
	if err == nil {
		err = w.otherParts(path, &first.Meta)
	}
	if err != nil {
		w.close()
		return nil, nil, err
	}
	return w, &first.Meta, nil
}

// part maps the file at path and adds its tensors to w.
func (w *weights) part(path string) (*gguf.File, error) {
	data, err := w.mapFile(path, "GGUF")
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(data, []byte("GGUF")) {
		return nil, fmt.Errorf("%s: %w", path, damaged("the file is no GGUF file; %s", openHint))
	}
	return w.add(data, path)
}

// add parses data, the bytes of the file at path, and adds its tensors to w. A name that w has
// already is an error.
func (w *weights) add(data []byte, path string) (*gguf.File, error) {
	f, err := gguf.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, t := range f.Tensors {
		if w.tensors[t.Name] != nil {
			return nil, fmt.Errorf("%s: %w", path, damaged("tensor %q is in %s too", clip(t.Name), w.tensors[t.Name].file))
		}
		w.tensors[t.Name] = ggufTensor(t, path)
	}
	return f, nil
}

// ggufTensor converts t, a tensor of the file at path. The result shares the bytes of t.
func ggufTensor(t gguf.Tensor, path string) *Tensor {
	out := &Tensor{Name: t.Name, DType: kv.F32, Shape: t.Shape, Data: t.Data, file: path}
	switch t.Type {
	case gguf.F32:
	case gguf.F16:
		out.DType = kv.F16
	case gguf.BF16:
		out.DType = kv.BF16
	default:
		out.Quant = t.Type
	}
	return out
}

var partName = regexp.MustCompile(`^(.*)-([0-9]{5})-of-([0-9]{5})\.gguf$`)

// maxParts bounds the parts of a split model, because each part is mapped.
const maxParts = 1024

// otherParts maps the further parts of a split model, if meta, the metadata of the first file at
// path, says that there are any.
func (w *weights) otherParts(path string, meta *gguf.Meta) error {
	count, ok := meta.Uint("split.count")
	if !ok || count < 2 {
		return nil
	}
	no, _ := meta.Uint("split.no")
	name := partName.FindStringSubmatch(filepath.Base(path))
	switch {
	case no != 0:
		return fmt.Errorf("%s: %w", path, damaged("this is part %d of %d; give the first one", no+1, count))
	case count > maxParts:
		return fmt.Errorf("%s: %w", path, damaged("split.count is %d, at most %d", count, maxParts))
	case name == nil || name[3] != fmt.Sprintf("%05d", count):
		return fmt.Errorf("%s: %w", path, damaged("it is one of %d parts, whose names end in -00001-of-%05d.gguf", count, count))
	}
	for i := uint64(1); i < count; i++ {
		other := filepath.Join(filepath.Dir(path), fmt.Sprintf("%s-%05d-of-%05d.gguf", name[1], i+1, count))
		f, err := w.part(other)
		if err != nil {
			return fmt.Errorf("part %d of %d: %w", i+1, count, err)
		}
		if no, ok := f.Meta.Uint("split.no"); !ok || no != i {
			return fmt.Errorf("%s: %w", other, damaged("split.no is %s, want %d", f.Meta.Text("split.no"), i))
		}
	}
	if want, ok := meta.Uint("split.tensors.count"); ok && want != uint64(len(w.tensors)) {
		return fmt.Errorf("%s: %w", path, damaged("its parts hold %d tensors, split.tensors.count is %d", len(w.tensors), want))
	}
	return nil
}

// weightNames pairs llama.cpp's names of weights with Hugging Face's.
var weightNames = []string{
	"token_embd.", "model.embed_tokens.", "output_norm.", "model.norm.", "attn_output.", "self_attn.o_proj.",
	"attn_q_norm.", "self_attn.q_norm.", "attn_k_norm.", "self_attn.k_norm.",
	"attn_norm.", "input_layernorm.", "ffn_norm.", "post_attention_layernorm.",
	"attn_q.", "self_attn.q_proj.", "attn_k.", "self_attn.k_proj.", "attn_v.", "self_attn.v_proj.",
	"ffn_gate.", "mlp.gate_proj.", "ffn_up.", "mlp.up_proj.", "ffn_down.", "mlp.down_proj.",
	"output.", "lm_head.", "blk.", "model.layers.",
}

// GGUFName returns the name in GGUF files of the weight that transformers calls name.
func GGUFName(name string) string {
	names := slices.Clone(weightNames)
	slices.Reverse(names) // transformers' name first
	return strings.NewReplacer(names...).Replace(name)
}

const ropeFactors = "rope_freqs.weight"

// renameTensors gives the weights the names that bind expects.
func renameTensors(w *weights, c *Config) error {
	renamed, names := make(map[string]*Tensor, len(w.tensors)), strings.NewReplacer(weightNames...)
	for _, name := range sortedKeys(w.tensors) {
		t := w.tensors[name]
		if name == ropeFactors && c.RopeFactors != nil {
			continue
		}
		if t.Name = names.Replace(name); renamed[t.Name] != nil {
			return fmt.Errorf("%s: %w", t.file, damaged("two tensors are called %q", clip(t.Name)))
		}
		renamed[t.Name] = t
	}
	w.tensors = renamed
	return nil
}

// unpermute restores the order of the rows of q and k that Hugging Face's rotary embedding needs:
// it rotates dimension i with dimension i+dim/2. llama.cpp rotates neighbouring dimensions
// instead. So in its files row i of the first half of a head is row 2i, and row i of the second
// half is row 2i+1.
func (l *Layer) unpermute(c *Config) {
	l.Q, l.QBias = l.Q.unpermuted(c.HeadDim), l.QBias.unpermuted(c.HeadDim)
	l.K, l.KBias = l.K.unpermuted(c.HeadDim), l.KBias.unpermuted(c.HeadDim)
}

func (t *Tensor) unpermuted(dim int) *Tensor {
	if t == nil {
		return nil
	}
	out := *t
	out.Data = make([]byte, len(t.Data))
	size := len(t.Data) / t.Shape[0] // bytes of a row
	for r := range t.Shape[0] {
		head, i := r/dim*dim, r%dim
		from := head + i%(dim/2)*2 + i/(dim/2)
		copy(out.Data[r*size:(r+1)*size], t.Data[from*size:])
	}
	return &out
}
