package model

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Spec selects the model that Generate makes. Equal specs give equal bytes on every machine.
type Spec struct {
	Preset    Preset
	Seed      uint64
	Arch      Arch // Llama if empty
	Positions int  // if more than the preset has, which is the default
}

// generatorVersion is written to config.json; it must change whenever the weights of a Spec do.
const generatorVersion = 1

// ErrExists is wrapped if Generate would overwrite another model or file.
var ErrExists = errors.New("model: the directory is in use")

// Generate writes the model of spec to dir, which Open and transformers can read: config.json,
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
		{weightsFile, func(w io.Writer) error { return writeWeights(w, c, spec.Seed) }},
		{"tokenizer.json", literal(vocabulary)},
		{"tokenizer_config.json", literal(tokenizerConfig(c))},
		{"generation_config.json", literal(generationConfig(c))},
		{"config.json", literal(configJSON(c, spec))},
	}
	if err := mayWrite(dir, files); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	if err := writeAll(dir, files); err != nil {
		return fmt.Errorf("model: write %s: %w", dir, err)
	}
	return nil
}

// parts returns the config of the model of s, and its tokenizer.json.
func (s Spec) parts() (c *Config, vocabulary []byte, err error) {
	if c, err = s.config(); err != nil {
		return nil, nil, err
	}
	c.MaxPositions = max(c.MaxPositions, s.Positions)
	if vocabulary, err = trainTokenizer(c.Vocab); err != nil {
		return nil, nil, err
	}
	return c, vocabulary, c.takeSpecials(vocabulary)
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
		return fmt.Errorf("model: %w", err)
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
