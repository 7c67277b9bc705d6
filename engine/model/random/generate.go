package random

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
)

// Spec selects the model that Generate makes. Equal specs give equal bytes on every machine.
type Spec struct {
	Preset    Preset
	Seed      uint64
	Arch      model.Arch // Llama if empty
	Positions int        // if more than the preset has, which is the default
}

// generatorVersion is written to config.json; it must change whenever the weights of a Spec do.
const generatorVersion = 1

// ErrExists is wrapped if Generate would overwrite another model or file.
var ErrExists = errors.New("random: the directory is in use")

// Generate writes the model of spec to dir, which [model.Open] and transformers can read: config.json,
// model.safetensors, tokenizer.json, tokenizer_config.json and generation_config.json. It
// creates dir if necessary; other files in it stay as they are.
//
// Files are written under temporary names and renamed when all are complete, config.json last,
// so a directory with a config.json is complete. If dir holds any of the files, Generate fails
// with ErrExists, unless config.json equals the one to be written (it has arch, preset and
// seed): then the files are written again. Weights are streamed; memory does not grow with the
// model.
func Generate(dir string, spec Spec) error {
	c, vocabulary, err := spec.parts()
	if err != nil {
		return err
	}
	files := []file{
		{"model.safetensors", func(w io.Writer) error { return writeWeights(w, c, spec.Seed) }},
		{"tokenizer.json", literal(vocabulary)},
		{"tokenizer_config.json", literal(tokenizerConfig(c))},
		{"generation_config.json", literal(generationConfig(c))},
		{"config.json", literal(configJSON(c, spec))},
	}
	if err := mayWrite(dir, files); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("random: %w", err)
	}
	if err := writeAll(dir, files); err != nil {
		return fmt.Errorf("random: write %s: %w", dir, err)
	}
	return nil
}

// parts returns the config of the model of s, and its tokenizer.json.
func (s Spec) parts() (c *model.Config, vocabulary []byte, err error) {
	if c, err = s.config(); err != nil {
		return nil, nil, err
	}
	c.MaxPositions = max(c.MaxPositions, s.Positions)
	if vocabulary, err = trainTokenizer(c.Vocab); err != nil {
		return nil, nil, err
	}
	return c, vocabulary, takeSpecials(c, vocabulary)
}

// file is a file to write: its name in the directory, and a function that writes its contents.
type file struct {
	name  string
	write func(io.Writer) error
}

func literal(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// mayWrite returns an error that wraps ErrExists if dir holds any of files, unless its config.json
// equals the one to write. The last of files must be config.json.
func mayWrite(dir string, files []file) error {
	var want bytes.Buffer
	if err := files[len(files)-1].write(&want); err != nil {
		return err
	}
	have, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err == nil {
		if bytes.Equal(have, want.Bytes()) {
			return nil
		}
		return fmt.Errorf("%w: %s holds another model's config.json; give another directory or remove it", ErrExists, dir)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("random: %w", err)
	}
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%w: %s is there without config.json; give another directory or remove it", ErrExists, path)
		}
	}
	return nil
}

// writeAll writes every file under a temporary name and then renames them in order. On an error
// it removes the temporary files.
func writeAll(dir string, files []file) (err error) {
	temps := make([]string, 0, len(files))
	defer func() {
		for _, t := range temps {
			if err != nil {
				os.Remove(t) // those renamed no longer exist
			}
		}
	}()
	for _, f := range files {
		out, err := os.CreateTemp(dir, "."+f.name+".*")
		if err != nil {
			return err
		}
		temps = append(temps, out.Name())
		err = f.write(out)
		if err == nil {
			err = out.Chmod(0o644) // CreateTemp's 0600 is too strict for a model
		}
		if err == nil {
			err = out.Sync()
		}
		if err = errors.Join(err, out.Close()); err != nil {
			return err
		}
	}
	for i, f := range files {
		if err := os.Rename(temps[i], filepath.Join(dir, f.name)); err != nil {
			return err
		}
	}
	return nil
}

// configJSON writes config.json in the form of transformers v4, which v5 reads, too. The last
// field is an addition: it holds the Spec, so that config.json differs whenever the weights do.
func configJSON(c *model.Config, spec Spec) []byte {
	type origin struct {
		Preset    Preset `json:"preset"`
		Seed      uint64 `json:"seed"`
		Generator int    `json:"generator"`
	}
	return indented(struct {
		Architectures []string        `json:"architectures"`
		ModelType     string          `json:"model_type"`
		Hidden        int             `json:"hidden_size"`
		Layers        int             `json:"num_hidden_layers"`
		Heads         int             `json:"num_attention_heads"`
		KVHeads       int             `json:"num_key_value_heads"`
		HeadDim       int             `json:"head_dim"`
		FFN           int             `json:"intermediate_size"`
		Vocab         int             `json:"vocab_size"`
		MaxPositions  int             `json:"max_position_embeddings"`
		Act           string          `json:"hidden_act"`
		Window        json.RawMessage `json:"sliding_window,omitempty"`
		AttentionBias bool            `json:"attention_bias"`
		MLPBias       bool            `json:"mlp_bias"`
		NormEps       float64         `json:"rms_norm_eps"`
		RopeTheta     float64         `json:"rope_theta"`
		RopeScaling   *struct{}       `json:"rope_scaling"`
		Tied          bool            `json:"tie_word_embeddings"`
		BOS           kv.Token        `json:"bos_token_id"`
		EOS           []kv.Token      `json:"eos_token_id"`
		DType         string          `json:"torch_dtype"`
		Origin        origin          `json:"coppice_generated"`
	}{
		Architectures: []string{c.Architecture}, ModelType: spec.Arch.String(),
		Hidden: c.Hidden, Layers: c.Layers, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, FFN: c.FFN,
		Vocab: c.Vocab, MaxPositions: c.MaxPositions, Act: "silu", Window: noWindow(spec.Arch),
		AttentionBias: c.OBias, MLPBias: c.MLPBias, // Qwen2 has no field for its biases
		NormEps: c.NormEps, RopeTheta: c.RopeTheta, Tied: c.TiedHead,
		BOS: c.BOS[0], EOS: c.EOS, DType: "bfloat16",
		Origin: origin{spec.Preset, spec.Seed, generatorVersion},
	})
}

// noWindow returns the null that MistralConfig needs to have no default window.
func noWindow(arch model.Arch) json.RawMessage {
	if arch == model.Mistral {
		return json.RawMessage("null")
	}
	return nil
}

func generationConfig(c *model.Config) []byte {
	return indented(struct {
		BOS kv.Token   `json:"bos_token_id"`
		EOS []kv.Token `json:"eos_token_id"`
	}{c.BOS[0], c.EOS})
}

func indented(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // token texts contain angle brackets
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("random: encode %+v: %v", v, err)) // cannot happen: plain structs of finite numbers
	}
	return b.Bytes()
}
