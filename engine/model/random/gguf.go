package random

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/engine/model/gguf/writer"
	"github.com/coppice-llm/coppice/internal/f32"
)

// GenerateGGUF writes the model of spec to the GGUF file at path: the weights that Generate
// makes, with matrices quantised to t. A matrix whose rows are not whole blocks of t, as with K
// types on small presets, is written as Q8_0; other writers also choose a wider type there.
// Norms and biases are F32. An existing file is replaced if it is a generated GGUF file;
// otherwise GenerateGGUF fails with ErrExists.
func GenerateGGUF(path string, spec Spec, t gguf.Type) error {
	if !t.Known() {
		return fmt.Errorf("random: %v can't be written", t)
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
		return fmt.Errorf("random: %w", err)
	}
	f := file{filepath.Base(path), func(w io.Writer) error { return writeGGUF(w, c, spec, t, pairs) }}
	if err := writeAll(filepath.Dir(path), []file{f}); err != nil {
		return fmt.Errorf("random: write %s: %w", path, err)
	}
	return nil
}

// mayReplace returns an error that wraps ErrExists if path holds anything but a generated model.
func mayReplace(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if !model.IsGGUF(path) || !model.Inspect(path).Generated {
		return fmt.Errorf("%w: %s holds no generated model; give another path or remove it", ErrExists, path)
	}
	return nil
}

// ggufArch returns the general.architecture of a family.
func ggufArch(a model.Arch) string {
	if a == model.Mistral {
		return string(model.Llama)
	}
	return a.String()
}

// Keys and kinds of tokens in GGUF's metadata.
const (
	wordKeys     = "tokenizer.ggml."
	tokenNormal  = 1
	tokenControl = 3
)

// ggufPairs returns the metadata of a generated model.
func ggufPairs(c *model.Config, spec Spec, t gguf.Type, trained []byte) ([]writer.Pair, error) {
	arch := ggufArch(spec.Arch)
	pairs := []writer.Pair{
		{Key: "general.architecture", Value: arch},
		{Key: "general.name", Value: fmt.Sprintf("%s %s, seed %d, %v", spec.Preset, spec.Arch, spec.Seed, t)},
		{Key: "general.description", Value: model.GeneratedBy},
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
		return nil, fmt.Errorf("random: generated tokenizer: %w", err)
	}
	tokens, kinds := make([]string, c.Vocab), make([]int32, c.Vocab)
	for name, id := range tokenizer.Model.Vocab {
		tokens[id], kinds[id] = name, tokenNormal
	}
	for _, a := range tokenizer.Added {
		tokens[a.ID], kinds[a.ID] = a.Content, tokenControl
	}
	return append(pairs,
		writer.Pair{Key: wordKeys + "model", Value: "gpt2"},
		writer.Pair{Key: wordKeys + "pre", Value: "smaug-bpe"}, // Llama 3's expression without ignore_merges
		writer.Pair{Key: wordKeys + "tokens", Value: tokens},
		writer.Pair{Key: wordKeys + "token_type", Value: kinds},
		writer.Pair{Key: wordKeys + "merges", Value: tokenizer.Model.Merges},
		writer.Pair{Key: wordKeys + "bos_token_id", Value: uint32(c.BOS[0])},
		writer.Pair{Key: wordKeys + "eos_token_id", Value: uint32(c.EOS[0])},
		writer.Pair{Key: wordKeys + "eot_token_id", Value: uint32(c.EOS[1])},
		writer.Pair{Key: wordKeys + "add_bos_token", Value: true},
		writer.Pair{Key: "tokenizer.chat_template", Value: chatTemplate},
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
func writeGGUF(out io.Writer, c *model.Config, spec Spec, t gguf.Type, pairs []writer.Pair) error {
	weights := c.Weights()
	tensors := make([]gguf.Tensor, len(weights))
	for i, w := range weights {
		tensors[i] = gguf.Tensor{Name: model.GGUFName(w.Name), Type: typeFor(w.Shape, t), Shape: w.Shape}
	}
	header, err := writer.Header(pairs, tensors)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(out, 1<<20)
	buffered.Write(header) // a write error is kept and returned by Flush
	permuted := ggufArch(spec.Arch) == string(model.Llama)
	for i, w := range weights {
		values := newStream(spec.Seed, w)
		cols := w.Shape[len(w.Shape)-1]
		rows := w.Values() / cols
		row, packed := make([]float32, cols), make([]byte, tensors[i].Type.Bytes(cols))
		for r := range rows {
			from := r
			if permuted && len(w.Shape) == 2 && (strings.HasSuffix(w.Name, ".q_proj.weight") || strings.HasSuffix(w.Name, ".k_proj.weight")) {
				from = permutedRow(r, c.HeadDim)
			}
			for j := range row {
				row[j] = f32.FromBF16(values.at(uint64(from*cols + j)))
			}
			writer.Quantize(tensors[i].Type, packed, row)
			buffered.Write(packed)
		}
		buffered.Write(make([]byte, writer.Padding(rows*len(packed))))
	}
	return buffered.Flush()
}

// permutedRow returns the row in Hugging Face's order for row r of a GGUF file, whose rotary embedding turns neighbouring
// dimensions; package model undoes it.
func permutedRow(r, dim int) int {
	head, i := r/dim*dim, r%dim
	return head + i%2*(dim/2) + i/2
}
