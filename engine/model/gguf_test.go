package model

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/engine/model/gguf/writer"
	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
)

// generateGGUF writes a generated GGUF file of the arch and type, and opens it.
func generateGGUF(t testing.TB, preset string, arch Arch, seed uint64, typ gguf.Type) (string, *Model) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := GenerateGGUF(path, preset, arch, seed, typ); err != nil {
		t.Fatal(err)
	}
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return path, m
}

// widened returns all values of a tensor.
func widened(t *Tensor) []float32 {
	out := make([]float32, t.Len())
	t.Widen(out, 0, len(out))
	return out
}

// A GGUF file holds the same model as the directory of its preset and seed: the weights in the directory's
// order, rounded to the file's type, and the same shape, tokens and end tokens.
func TestGGUFIsTheDirectory(t *testing.T) {
	for _, tc := range []struct {
		preset string
		types  []gguf.Type
	}{
		{"nano", []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q4_0, gguf.Q8_0}},
		{"mini", []gguf.Type{gguf.BF16, gguf.Q4_1, gguf.Q5_0, gguf.Q5_1, gguf.Q4_K, gguf.Q5_K, gguf.Q6_K, gguf.IQ4_NL, gguf.MXFP4}},
	} {
		for i, arch := range Archs() {
			types := tc.types
			if i > 0 && !*allTypes {
				types = []gguf.Type{types[0], types[len(types)-1]}
			}
			dir := t.TempDir()
			if err := Generate(dir, tc.preset, arch, 7); err != nil {
				t.Fatal(err)
			}
			want, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer want.Close()
			for _, typ := range types {
				_, got := generateGGUF(t, tc.preset, arch, 7, typ)
				compareModels(t, fmt.Sprintf("%s %s %v", tc.preset, arch, typ), got, want, typ)
			}
		}
	}
}

func compareModels(t *testing.T, name string, got, want *Model, typ gguf.Type) {
	t.Helper()
	shape, wantShape := *got.Config(), *want.Config()
	shape.DType = wantShape.DType
	shape.NormEps = float64(float32(shape.NormEps))
	wantShape.NormEps = float64(float32(wantShape.NormEps))
	if wantShape.Architecture == classes[Mistral] {
		wantShape.Architecture = classes[Llama]
	}
	if fmt.Sprintf("%+v", shape) != fmt.Sprintf("%+v", wantShape) {
		t.Errorf("%s: config\n got %+v\nwant %+v", name, shape, wantShape)
	}
	slots := got.slots()
	quantized := 0
	for i, s := range want.slots() {
		g, w := *slots[i].dst, *s.dst
		values := widened(w)
		if len(s.Shape) == 2 {
			as := typ
			if s.Shape[1]%typ.BlockValues() != 0 {
				as = gguf.Q8_0
			}
			packed := make([]byte, as.Bytes(len(values)))
			writer.Quantize(as, packed, values)
			gguf.Dequantize(as, values, packed)
			quantized++
		}
		if !slices.Equal(widened(g), values) {
			t.Errorf("%s: %s differs", name, s.Name)
		}
	}
	if quantized < 9 {
		t.Errorf("%s: %d matrices", name, quantized)
	}
	text := opticks.Text()[:3000] + "<|eot_id|>  12345 ünïcode 🙂"
	if !slices.Equal(got.Tokenizer().EncodePrompt(nil, text), want.Tokenizer().EncodePrompt(nil, text)) {
		t.Errorf("%s: other tokens", name)
	}
	if !slices.Equal(got.Config().EOS, want.Config().EOS) {
		t.Errorf("%s: ends %v, want %v", name, got.Config().EOS, want.Config().EOS)
	}
}

// rewriteGGUF parses a file, lets change alter the tensors, and writes it again.
func rewriteGGUF(t testing.TB, path string, pairs []writer.Pair, change func(tensors []gguf.Tensor) []gguf.Tensor) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	tensors := f.Tensors
	if change != nil {
		tensors = change(tensors)
	}
	out, err := writer.Header(pairs, tensors)
	if err != nil {
		t.Fatal(err)
	}
	for _, tensor := range tensors {
		out = append(out, tensor.Data...)
		out = append(out, make([]byte, writer.Padding(len(tensor.Data)))...)
	}
	return out
}

// pairsOf returns the metadata of the generated file at path.
func pairsOf(t testing.TB, path string) (pairs []writer.Pair) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range f.Meta.Keys() {
		pairs = append(pairs, writer.Pair{Key: key, Value: valueOf(t, &f.Meta, key)})
	}
	return pairs
}

// valueOf returns a value as generated files have it.
func valueOf(t testing.TB, meta *gguf.Meta, key string) any {
	t.Helper()
	if v, ok := meta.String(key); ok {
		return v
	}
	if v, ok := meta.Bool(key); ok {
		return v
	}
	if v, ok := meta.Uint(key); ok {
		return uint32(v)
	}
	if v, ok := meta.Float(key); ok {
		return float32(v)
	}
	if v, ok := meta.Strings(key); ok {
		return v
	}
	v, ok := meta.Uints(key)
	if !ok {
		t.Fatalf("%s is %s", key, meta.Text(key))
	}
	kinds := make([]int32, len(v))
	for i := range v {
		kinds[i] = int32(v[i])
	}
	return kinds
}

func TestGGUFInParts(t *testing.T) {
	path, whole := generateGGUF(t, "nano", Llama, 3, gguf.Q8_0)
	pairs, dir := pairsOf(t, path), t.TempDir()
	const parts = 3
	name := func(i int) string { return filepath.Join(dir, fmt.Sprintf("m-%05d-of-%05d.gguf", i+1, parts)) }
	write := func(i int, no uint32, meta []writer.Pair) {
		meta = append(slices.Clone(meta), writer.Pair{Key: "split.no", Value: no}, writer.Pair{Key: "split.count", Value: uint32(parts)})
		data := rewriteGGUF(t, path, meta, func(all []gguf.Tensor) []gguf.Tensor {
			n := len(all)
			return all[i*n/parts : (i+1)*n/parts]
		})
		if err := os.WriteFile(name(i), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(0, 0, pairs)
	write(1, 1, nil)
	write(2, 2, nil)
	m, err := Open(name(0))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.ID() != whole.ID() {
		t.Errorf("in parts it is %s, whole %s", m.ID(), whole.ID())
	}
	wantErr := func(path, want string) {
		t.Helper()
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", filepath.Base(path), err, want)
		}
	}
	write(1, 1, pairs)
	wantErr(name(1), "give the first one")
	write(1, 2, nil)
	wantErr(name(0), "split.no is 2, want 1")
	write(1, 1, append(slices.Clone(pairs), writer.Pair{Key: "x", Value: true}))
	if err := os.Rename(name(2), name(2)+".away"); err != nil {
		t.Fatal(err)
	}
	wantErr(name(0), "part 3 of 3")
	data, err := os.ReadFile(name(1))
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.Replace(data, []byte("split.no\x04\x00\x00\x00\x01"), []byte("split.no\x04\x00\x00\x00\x02"), 1)
	if err := os.WriteFile(name(2), data, 0o644); err != nil {
		t.Fatal(err)
	}
	wantErr(name(0), "is in "+name(1)+" too")
	one := filepath.Join(dir, "renamed.gguf")
	if err := os.Rename(name(0), one); err != nil {
		t.Fatal(err)
	}
	wantErr(one, "whose names end in -00001-of-00003.gguf")
}

// set replaces or adds a pair; a nil value removes it.
func set(pairs []writer.Pair, key string, value any) []writer.Pair {
	out := slices.DeleteFunc(slices.Clone(pairs), func(p writer.Pair) bool { return p.Key == key })
	if value != nil {
		out = append(out, writer.Pair{Key: key, Value: value})
	}
	return out
}

func TestGGUFRefused(t *testing.T) {
	path, _ := generateGGUF(t, "nano", Llama, 3, gguf.BF16)
	pairs := pairsOf(t, path)
	for _, tc := range []struct {
		key   string
		value any
		kind  error
		want  string
	}{
		{"general.architecture", "mamba", ErrUnsupported, `general.architecture is "mamba"; supported are llama, qwen2, qwen3`},
		{"general.architecture", nil, ErrUnsupported, "general.architecture is absent"},
		{"llama.block_count", uint32(3), ErrFormat, "missing tensors: model.layers.2"},
		{"llama.block_count", uint32(1), ErrUnsupported, "tensors that LlamaForCausalLM does not have"},
		{"llama.block_count", uint32(1 << 20), ErrUnsupported, "at most 1024"},
		{"llama.block_count", uint64(1 << 40), ErrFormat, "want a whole number"},
		{"llama.embedding_length", int32(-64), ErrFormat, "llama.embedding_length is -64"},
		{"llama.embedding_length", nil, ErrFormat, "llama.embedding_length is absent"},
		{"llama.embedding_length", uint32(128), ErrFormat, "has shape"},
		{"llama.attention.head_count", []int32{4, 4}, ErrFormat, "an array of 2 i32"},
		{"llama.attention.head_count_kv", uint32(3), ErrUnsupported, "not a multiple"},
		{"llama.attention.value_length", uint32(32), ErrUnsupported, "value_length"},
		{"llama.attention.layer_norm_rms_epsilon", float32(-1), ErrFormat, "want a number above 0"},
		{"llama.attention.sliding_window", uint32(1024), ErrUnsupported, "sliding_window is 1024"},
		{"llama.rope.dimension_count", uint32(8), ErrUnsupported, "whole heads"},
		{"llama.rope.scaling.factor", float32(4), ErrUnsupported, "rope.scaling.type"},
		{"llama.rope.freq_base", "x", ErrFormat, `freq_base is "x"`},
		{"llama.expert_count", uint32(8), ErrUnsupported, "expert_count is 8"},
		{"llama.attention.logit_softcapping", float32(30), ErrUnsupported, "logit_softcapping is 30, which is not known here"},
		{"tokenizer.ggml.model", "bert", ErrUnsupported, `tokenizer.ggml.model is "bert"`},
		{"tokenizer.ggml.model", "llama", ErrFormat, "tokenizer.ggml.scores is absent"},
		{"tokenizer.ggml.pre", nil, ErrUnsupported, "too old"},
		{"tokenizer.ggml.pre", "viking", ErrUnsupported, `tokenizer.ggml.pre is "viking"; supported are`},
		{"tokenizer.ggml.tokens", []string{"a"}, ErrFormat, "token_type"},
		{"tokenizer.ggml.tokens", nil, ErrFormat, "tokens is absent"},
		{"tokenizer.ggml.token_type", []int32{-1}, ErrFormat, "token_type"},
		{"tokenizer.ggml.merges", []string{"q zz"}, nil, "needs token"},
		{"tokenizer.ggml.merges", nil, ErrFormat, "merges is absent"},
		{"tokenizer.ggml.bos_token_id", uint32(1 << 20), ErrFormat, "outside the vocabulary of 320 tokens"},
		{"tokenizer.ggml.bos_token_id", nil, ErrFormat, "no bos_token_id"},
		{"tokenizer.ggml.eos_token_id", int32(-1), ErrFormat, "eos_token_id is -1"},
	} {
		changed := filepath.Join(t.TempDir(), "changed.gguf")
		if err := os.WriteFile(changed, rewriteGGUF(t, path, set(pairs, tc.key, tc.value), nil), 0o644); err != nil {
			t.Fatal(err)
		}
		m, err := Open(changed)
		if err == nil {
			m.Close()
		}
		if err == nil || tc.kind != nil && !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "changed.gguf") {
			t.Errorf("%s = %v: error %v, want %v with %q", tc.key, tc.value, err, tc.kind, tc.want)
		}
	}
}

// TestGGUFEnds: control tokens end an output by their names, whatever the metadata say. <|end|> does
// not where it ends a message only.
func TestGGUFEnds(t *testing.T) {
	for _, tc := range []struct {
		tokens string
		want   []kv.Token
	}{
		{"a <s> </s> <|end|>", []kv.Token{2, 3}},
		{"a <s> <|return|> <|end|> <|eom_id|>", []kv.Token{2, 3, 4}},
		{"a <s> <|return|> <|end|> <|channel|> <|call|>", []kv.Token{2, 5}},
		{"a <s> <|end|> <|return|> <|call|>", []kv.Token{3, 4}},
	} {
		tokens := strings.Fields(tc.tokens)
		kinds := slices.Repeat([]int32{tokenControl}, len(tokens))
		kinds[0] = tokenNormal
		header, err := writer.Header([]writer.Pair{
			{Key: wordKeys + "model", Value: "llama"}, {Key: wordKeys + "tokens", Value: tokens}, {Key: wordKeys + "token_type", Value: kinds},
			{Key: wordKeys + "scores", Value: make([]float32, len(tokens))}, {Key: wordKeys + "bos_token_id", Value: uint32(1)}, {Key: wordKeys + "eos_token_id", Value: uint32(2)},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		f, err := gguf.Parse(header)
		if err != nil {
			t.Fatal(err)
		}
		v, err := readVocabulary(&f.Meta)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(v.eos, tc.want) {
			t.Errorf("%s: ends %v, want %v", tc.tokens, v.eos, tc.want)
		}
	}
}

// TestGGUFDamageIsNamedOnce checks that the error about a file that is cut short says only once that
// the file is damaged.
func TestGGUFDamageIsNamedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cut.gguf")
	if err := os.WriteFile(path, []byte("GGUF\x03\x00\x00\x00\x01"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Open(path)
	if want := path + ": model: damaged file: at byte 8: "; !errors.Is(err, ErrFormat) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s...", err, want)
	}
}

func TestGGUFOfOtherTensorsRefused(t *testing.T) {
	path, _ := generateGGUF(t, "nano", Llama, 3, gguf.BF16)
	pairs := pairsOf(t, path)
	for name, change := range map[string]func([]gguf.Tensor) []gguf.Tensor{
		"missing tensors":    func(ts []gguf.Tensor) []gguf.Tensor { return slices.Delete(ts, 5, 6) },
		"there is no matrix": func(ts []gguf.Tensor) []gguf.Tensor { return ts[1:] },
		"tensors that LlamaFor": func(ts []gguf.Tensor) []gguf.Tensor {
			return append(ts, gguf.Tensor{Name: "x", Type: gguf.F32, Shape: []int{1}, Data: make([]byte, 4)})
		},
		"has shape [3], want [8]": func(ts []gguf.Tensor) []gguf.Tensor {
			return append(ts, gguf.Tensor{Name: ropeFactors, Type: gguf.F32, Shape: []int{3}, Data: make([]byte, 12)})
		},
		"has 0 at 0, want numbers": func(ts []gguf.Tensor) []gguf.Tensor {
			return append(ts, gguf.Tensor{Name: ropeFactors, Type: gguf.F32, Shape: []int{8}, Data: make([]byte, 32)})
		},
		"two tensors are called": func(ts []gguf.Tensor) []gguf.Tensor {
			return append(ts, gguf.Tensor{Name: "model.norm.weight", Type: gguf.F32, Shape: []int{64}, Data: make([]byte, 256)})
		},
	} {
		changed := filepath.Join(t.TempDir(), "changed.gguf")
		if err := os.WriteFile(changed, rewriteGGUF(t, path, pairs, change), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(changed); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want %q", err, name)
		}
	}
}

// FuzzGGUF reads files as Open does, without the file system.
func FuzzGGUF(f *testing.F) {
	path, _ := generateGGUF(f, "nano", Llama, 3, gguf.Q4_0)
	pairs := pairsOf(f, path)
	f.Add(rewriteGGUF(f, path, pairs, nil))
	small := []writer.Pair{}
	for _, p := range pairs {
		if _, long := p.Value.([]string); !long && p.Key != "tokenizer.ggml.token_type" {
			small = append(small, p)
		}
	}
	small = append(small, writer.Pair{Key: "tokenizer.ggml.tokens", Value: []string{"a", "b", "ab", "<s>"}},
		writer.Pair{Key: "tokenizer.ggml.token_type", Value: []int32{1, 1, 1, 3}})
	f.Add(rewriteGGUF(f, path, append(slices.Clone(small), writer.Pair{Key: "tokenizer.ggml.merges", Value: []string{"a b"}}), func([]gguf.Tensor) []gguf.Tensor { return nil }))
	f.Add(rewriteGGUF(f, path, append(set(small, "tokenizer.ggml.model", "llama"), writer.Pair{Key: "tokenizer.ggml.scores", Value: []float32{0, 0, -1, 0}}), func([]gguf.Tensor) []gguf.Tensor { return nil }))
	f.Fuzz(func(t *testing.T, data []byte) {
		w := &weights{tensors: map[string]*Tensor{}, path: "fuzz"}
		file, err := w.add(data, "fuzz")
		if err != nil {
			return
		}
		m, err := fromGGUF("fuzz", w, &file.Meta)
		if err != nil {
			return
		}
		m.Tokenizer().EncodePrompt(nil, "any text\n")
		for _, s := range m.slots() {
			widened(*s.dst)
		}
	})
}
