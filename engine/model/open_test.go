package model

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// open opens dir and closes it at the end of the test.
func open(t *testing.T, dir string) *Model {
	t.Helper()
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(m.Close(), m.Close()); err != nil {
			t.Errorf("close twice: %v", err)
		}
	})
	return m
}

func TestOpen(t *testing.T) {
	m := open(t, nano(t))
	c := m.Config()
	if c.Vocab != 320 || c.Hidden != 64 || c.Layers != 2 || c.HeadDim != 16 || c.DType != kv.BF16 || c.TiedHead {
		t.Errorf("config %+v", c)
	}
	tok := m.Tokenizer()
	if bos, ok := tok.BOS(); !ok || !slices.Equal(c.BOS, []kv.Token{bos}) || tok.VocabSize() != c.Vocab {
		t.Errorf("BOS %v of %d tokens, config has %v of %d", bos, tok.VocabSize(), c.BOS, c.Vocab)
	}
	if eot, ok := tok.AddedToken("<|eot_id|>"); !ok || !slices.Contains(c.EOS, eot) || !slices.Contains(c.EOS, tok.EOS()[0]) {
		t.Errorf("EOS %v, the tokenizer has %v and turns end with %v", c.EOS, tok.EOS(), eot)
	}
	if m.Head() == m.Embed() || len(m.Layers()) != 2 {
		t.Error("nano's head is tied, or layers are missing")
	}
}

func TestTiedHeadIsTheEmbedding(t *testing.T) {
	dir := nano(t)
	before := open(t, dir).ID()
	setConfig(t, dir, map[string]string{"tie_word_embeddings": "true"}) // lm_head.weight remains as an unused copy
	m := open(t, dir)
	if m.Head() != m.Embed() || m.ID() == before {
		t.Errorf("head is %q, ID %s, before %s", m.Head().Name, m.ID(), before)
	}
}

func TestIDFollowsWhatLogitsDependOn(t *testing.T) {
	dir := nano(t)
	base := open(t, dir).ID()
	if len(base) != 32 {
		t.Errorf("ID %q", base)
	}
	for field, tc := range map[string]struct {
		value string
		same  bool
	}{
		"eos_token_id":            {"5", true},
		"max_position_embeddings": {"128", true},
		"rope_theta":              {"20000", false},
		"rms_norm_eps":            {"1e-6", false},
		"rope_scaling":            {`{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":512}`, false},
	} {
		dir := nano(t)
		setConfig(t, dir, map[string]string{field: tc.value})
		if id := open(t, dir).ID(); (id == base) != tc.same {
			t.Errorf("%s %s: ID %s, base %s", field, tc.value, id, base)
		}
	}
	weights := read(t, dir, weightsFile)
	weights[len(weights)-1] ^= 1
	write(t, weights, dir, weightsFile+".new")
	if err := os.Rename(filepath.Join(dir, weightsFile+".new"), filepath.Join(dir, weightsFile)); err != nil {
		t.Fatal(err)
	}
	if open(t, dir).ID() == base {
		t.Error("one bit of the last weight does not show in the ID")
	}
}

// TestAlignmentDoesNotMatter shifts all tensors by one byte of header.
func TestAlignmentDoesNotMatter(t *testing.T) {
	dir := nano(t)
	before := open(t, dir)
	file := read(t, dir, weightsFile)
	n := binary.LittleEndian.Uint64(file)
	shifted := slices.Insert(slices.Clone(file), int(8+n), ' ')
	binary.LittleEndian.PutUint64(shifted, n+1)
	other := nano(t)
	write(t, shifted, other, weightsFile)
	after := open(t, other)
	a, b := make([]float32, before.Norm().Len()), make([]float32, after.Norm().Len())
	before.Norm().Widen(a, 0, len(a))
	after.Norm().Widen(b, 0, len(b))
	if !slices.Equal(a, b) || before.ID() != after.ID() {
		t.Error("weights at odd addresses differ")
	}
}

func TestOpenSaysWhatIsMissing(t *testing.T) {
	base := t.TempDir()
	absent := filepath.Join(base, "absent")
	if _, err := Open(absent); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), absent) || !strings.Contains(err.Error(), "give a GGUF file") {
		t.Errorf("missing directory: %v", err)
	}
	plain := filepath.Join(base, "plain")
	for text, want := range map[string]string{"": "0 bytes is no size of a GGUF file", "plain text": "is no GGUF file; give a GGUF file or a directory of a Hugging Face model"} {
		write(t, []byte(text), plain)
		if _, err := Open(plain); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q for a model: %v, want %q", text, err, want)
		}
	}
	for file, advice := range map[string]string{"config.json": "give a GGUF file", "tokenizer.json": "complete the download", weightsFile: "complete the download"} {
		dir := nano(t)
		if err := os.Remove(filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
		_, err := Open(dir)
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("no %s: error %v", file, err)
			continue
		}
		for _, want := range []string{file, dir, advice} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("no %s: error %q lacks %q", file, err, want)
			}
		}
	}
	dir := nano(t) // these two files are optional
	for _, file := range []string{"generation_config.json", "tokenizer_config.json"} {
		if err := os.Remove(filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir)
}

func TestOpenRefuses(t *testing.T) {
	none := func([]*Tensor) []*Tensor { return nil }
	without := func(name string) func([]*Tensor) []*Tensor {
		return func(ts []*Tensor) []*Tensor {
			return slices.DeleteFunc(ts, func(x *Tensor) bool { return x.Name == name })
		}
	}
	with := func(name string) func([]*Tensor) []*Tensor {
		return func(ts []*Tensor) []*Tensor {
			return append(ts, &Tensor{Name: name, DType: kv.F32, Shape: []int{1}, Data: make([]byte, 4)})
		}
	}
	for name, tc := range map[string]struct {
		fields  map[string]string
		weights func([]*Tensor) []*Tensor
		want    string
		kind    error
	}{
		"wrong shape":       {map[string]string{"intermediate_size": "208"}, nil, `"model.layers.0.mlp.gate_proj.weight" has shape [192 64], config.json makes it [208 64]`, ErrFormat},
		"more layers":       {map[string]string{"num_hidden_layers": "3"}, nil, "missing tensors: model.layers.2.input_layernorm.weight", ErrFormat},
		"fewer layers":      {map[string]string{"num_hidden_layers": "1"}, nil, "does not have: model.layers.1.", ErrUnsupported},
		"missing tensor":    {nil, without("model.norm.weight"), "missing tensors: model.norm.weight", ErrFormat},
		"missing head":      {nil, without("lm_head.weight"), "missing tensors: lm_head.weight", ErrFormat},
		"no tensors":        {nil, none, "complete the download", fs.ErrNotExist},
		"a bias":            {nil, with("model.layers.0.self_attn.q_proj.bias"), "q_proj.bias", ErrUnsupported},
		"a query norm":      {nil, with("model.layers.0.self_attn.q_norm.weight"), "q_norm.weight", ErrUnsupported},
		"unsupported":       {map[string]string{"architectures": `["Qwen3MoeForCausalLM"]`}, nil, "Qwen3MoeForCausalLM", ErrUnsupported},
		"end token outside": {map[string]string{"vocab_size": "319", "eos_token_id": "1"}, nil, "generation_config.json", ErrFormat},
	} {
		dir := nano(t)
		setConfig(t, dir, tc.fields)
		if tc.weights != nil {
			rewrite(t, dir, tc.weights, single)
		}
		m, err := Open(dir)
		if err == nil {
			m.Close()
		}
		if !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %v with %q", name, err, tc.kind, tc.want)
		}
	}
}

func TestCutWeights(t *testing.T) {
	dir := nano(t)
	path := filepath.Join(dir, weightsFile)
	size := int64(len(read(t, path)))
	for _, n := range []int64{size - 1, size / 2, 2000, 9, 8, 7, 0} { // descending, as each cut is of the file cut before
		if err := os.Truncate(path, n); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), path) {
			t.Errorf("cut to %d of %d bytes: error %v", n, size, err)
		}
	}
}

func TestOldConstantsAreIgnored(t *testing.T) {
	dir := nano(t)
	rewrite(t, dir, func(ts []*Tensor) []*Tensor {
		return append(ts, &Tensor{Name: "model.layers.0.self_attn.rotary_emb.inv_freq", DType: kv.F32, Shape: []int{8}, Data: make([]byte, 32)})
	}, single)
	open(t, dir)
}

func TestTokenizerMustFit(t *testing.T) {
	dir := nano(t)
	if err := os.Remove(filepath.Join(dir, "generation_config.json")); err != nil {
		t.Fatal(err)
	}
	setConfig(t, dir, map[string]string{"vocab_size": "319", "eos_token_id": "1"})
	_, err := Open(dir)
	if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "tokenizer.json has 320 tokens, vocab_size in config.json is 319") {
		t.Errorf("error %v", err)
	}
	write(t, []byte("{"), dir, "tokenizer.json")
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "tokenizer.json") {
		t.Errorf("broken tokenizer.json: error %v", err)
	}
}

func TestOtherFloatTypes(t *testing.T) {
	dir := nano(t)
	setConfig(t, dir, map[string]string{"torch_dtype": "-"})
	want := open(t, dir)
	other := nano(t)
	setConfig(t, other, map[string]string{"torch_dtype": "-"})
	rewrite(t, other, func(ts []*Tensor) []*Tensor { // a bf16 value is the upper half of the f32
		for _, x := range ts {
			data := make([]byte, 0, 2*len(x.Data))
			for i := 0; i < len(x.Data); i += 2 {
				data = append(data, 0, 0, x.Data[i], x.Data[i+1])
			}
			x.DType, x.Data = kv.F32, data
		}
		return ts
	}, single)
	got := open(t, other)
	if want.Config().DType != kv.BF16 || got.Config().DType != kv.F32 || got.ID() == want.ID() {
		t.Errorf("types %v and %v", want.Config().DType, got.Config().DType)
	}
	a, b := make([]float32, 64*64), make([]float32, 64*64)
	want.Layers()[1].O.Widen(a, 0, len(a))
	got.Layers()[1].O.Widen(b, 0, len(b))
	if !slices.Equal(a, b) {
		t.Error("the same values as f32 and bf16 differ")
	}
}

func TestLFSPointer(t *testing.T) {
	dir := nano(t)
	write(t, []byte("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"), dir, weightsFile)
	if _, err := Open(dir); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "git lfs pull") {
		t.Errorf("error %v", err)
	}
}
