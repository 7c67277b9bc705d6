package model

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/internal/f32"
)

// GenerateGGUF writes the model of spec to the GGUF file at path: the weights that Generate
// makes, with matrices quantised to t. A matrix whose rows are not whole blocks of t, as with K
// types on small presets, is written as Q8_0; other writers also choose a wider type there.
// Norms and biases are F32. An existing file is replaced if it is a generated GGUF file;
// otherwise GenerateGGUF fails with ErrExists.
func GenerateGGUF(path string, spec Spec, t gguf.Type) error {
	if !t.Known() {
		return fmt.Errorf("model: %v can't be written", t)
	}
	c, trained, err := spec.parts()
	if err != nil {
		return err
	}
	if err := mayReplace(path); err != nil {
		return err
	}
	pairs, err := ggufPairs(c, spec, t, trained)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	f := file{filepath.Base(path), func(w io.Writer) error { return writeGGUF(w, c, spec.Seed, t, pairs) }}
	if err := writeAll(filepath.Dir(path), []file{f}); err != nil {
		return fmt.Errorf("model: write %s: %w", path, err)
	}
	return nil
}

const generatedBy = "coppice, random weights"

func mayReplace(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	w, meta, err := mapGGUF(path)
	if err != nil {
		return fmt.Errorf("%w: %s is no GGUF file; give another path or remove it", ErrExists, path)
	}
	defer w.close()
	if by, _ := meta.String("general.description"); by != generatedBy {
		return fmt.Errorf("%w: %s holds a model that was not generated; give another path or remove it", ErrExists, path)
	}
	return nil
}

// ggufArch returns the family's general.architecture.
func (a Arch) ggufArch() string {
	if a == Mistral {
		return string(Llama)
	}
	return a.String()
}

// ggufPairs returns the metadata of a generated model.
func ggufPairs(c *Config, spec Spec, t gguf.Type, trained []byte) ([]gguf.Pair, error) {
	arch := archOf(c.Architecture).ggufArch()
	pairs := []gguf.Pair{
		{Key: "general.architecture", Value: arch},
		{Key: "general.name", Value: fmt.Sprintf("%s %s, seed %d, %v", spec.Preset, archOf(c.Architecture), spec.Seed, t)},
		{Key: "general.description", Value: generatedBy},
		{Key: arch + ".block_count", Value: uint32(c.Layers)},
		{Key: arch + ".context_length", Value: uint32(c.MaxPositions)},
		{Key: arch + ".embedding_length", Value: uint32(c.Hidden)},
		{Key: arch + ".feed_forward_length", Value: uint32(c.FFN)},
		{Key: arch + ".attention.head_count", Value: uint32(c.Heads)},
		{Key: arch + ".attention.head_count_kv", Value: uint32(c.KVHeads)},
		{Key: arch + ".attention.key_length", Value: uint32(c.HeadDim)},
		{Key: arch + ".attention.value_length", Value: uint32(c.HeadDim)},
		{Key: arch + ".attention.layer_norm_rms_epsilon", Value: float32(c.NormEps)},
		{Key: arch + ".rope.freq_base", Value: float32(c.RopeTheta)},
		{Key: arch + ".rope.dimension_count", Value: uint32(c.HeadDim)},
		{Key: arch + ".vocab_size", Value: uint32(c.Vocab)},
	}
	var tokenizer struct {
		Added []struct {
			ID      int
			Content string
		} `json:"added_tokens"`
		Model struct {
			Vocab  map[string]int
			Merges []string
		}
	}
	if err := json.Unmarshal(trained, &tokenizer); err != nil {
		return nil, fmt.Errorf("model: generated tokenizer: %w", err)
	}
	tokens, kinds := make([]string, c.Vocab), make([]int32, c.Vocab)
	for name, id := range tokenizer.Model.Vocab {
		tokens[id], kinds[id] = name, tokenNormal
	}
	for _, a := range tokenizer.Added {
		tokens[a.ID], kinds[a.ID] = a.Content, tokenControl
	}
	return append(pairs,
		gguf.Pair{Key: wordKeys + "model", Value: "gpt2"},
		gguf.Pair{Key: wordKeys + "pre", Value: "smaug-bpe"}, // Llama 3's expression without ignore_merges
		gguf.Pair{Key: wordKeys + "tokens", Value: tokens},
		gguf.Pair{Key: wordKeys + "token_type", Value: kinds},
		gguf.Pair{Key: wordKeys + "merges", Value: tokenizer.Model.Merges},
		gguf.Pair{Key: wordKeys + "bos_token_id", Value: uint32(c.BOS[0])},
		gguf.Pair{Key: wordKeys + "eos_token_id", Value: uint32(c.EOS[0])},
		gguf.Pair{Key: wordKeys + "eot_token_id", Value: uint32(c.EOS[1])},
		gguf.Pair{Key: wordKeys + "add_bos_token", Value: true},
		gguf.Pair{Key: templateKey, Value: chatTemplate},
	), nil
}

// typeFor returns the type in which a weight of that shape is written.
func typeFor(shape []int, t gguf.Type) gguf.Type {
	switch {
	case len(shape) != 2:
		return gguf.F32
	case shape[1]%t.BlockValues() != 0:
		return gguf.Q8_0
	}
	return t
}

// writeGGUF writes header and weights, row by row.
func writeGGUF(out io.Writer, c *Config, seed uint64, t gguf.Type, pairs []gguf.Pair) error {
	m := &Model{config: c, layers: make([]Layer, c.Layers)}
	slots := m.slots()
	names := slices.Clone(weightNames)
	slices.Reverse(names) // Hugging Face's name first
	toGGUF, tensors := strings.NewReplacer(names...), make([]gguf.Tensor, len(slots))
	for i, s := range slots {
		tensors[i] = gguf.Tensor{Name: toGGUF.Replace(s.name), Type: typeFor(s.shape, t), Shape: s.shape}
	}
	header, err := gguf.Header(pairs, tensors)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(out, 1<<20)
	w.Write(header) // a write error is kept and returned by Flush
	permuted := archOf(c.Architecture).ggufArch() == string(Llama)
	for i, s := range slots {
		mean, std := moments(s)
		values := newStream(seed, s.name, mean, std)
		cols := s.shape[len(s.shape)-1]
		rows := product(s.shape) / cols
		row, packed := make([]float32, cols), make([]byte, tensors[i].Type.Bytes(cols))
		for r := range rows {
			from := r
			if permuted && len(s.shape) == 2 && (strings.HasSuffix(s.name, ".q_proj.weight") || strings.HasSuffix(s.name, ".k_proj.weight")) {
				from = permutedRow(r, c.HeadDim)
			}
			for j := range row {
				row[j] = f32.FromBF16(values.at(uint64(from*cols + j)))
			}
			gguf.Quantize(tensors[i].Type, packed, row)
			w.Write(packed)
		}
		w.Write(make([]byte, gguf.Padding(rows*len(packed))))
	}
	return w.Flush()
}

// permutedRow returns the row in Hugging Face's order for row r of a GGUF file; see unpermute.
func permutedRow(r, dim int) int {
	head, i := r/dim*dim, r%dim
	return head + i%2*(dim/2) + i/2
}
