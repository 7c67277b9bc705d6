package model

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/zeebo/xxh3"
)

const openHint = "give a GGUF file or a directory of a Hugging Face model"

// Open reads the model at path: a GGUF file, with its further parts if it is split, or a
// directory with config.json, model.safetensors or its shards, tokenizer.json, and optionally
// tokenizer_config.json and generation_config.json. Weights are mapped, not copied, and read
// once for ID. The files must not be modified in place while the model is open; replacing them
// by rename, as random.Generate does, is safe.
//
// Errors name the file and a remedy. They wrap fs.ErrNotExist for a missing file,
// ErrFormat for a damaged one, and ErrUnsupported for a model that the engines do not compute.
func Open(path string) (*Model, error) {
	if IsGGUF(path) {
		return openGGUF(path)
	}
	return openDirectory(path)
}

func openDirectory(dir string) (*Model, error) {
	config, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	w, err := openWeights(dir)
	if err != nil {
		return nil, err
	}
	m, err := checkDirectory(dir, config, w)
	if err != nil {
		w.close()
		return nil, err
	}
	m.files = w.files
	if config.DType == undeclared {
		config.DType = m.embed.DType
	}
	m.id = m.hash()
	return m, nil
}

// checkDirectory makes the parts of a model that do not depend on the weights' values.
func checkDirectory(dir string, config *Config, w *weights) (*Model, error) {
	m := &Model{config: config}
	if err := m.openTokenizer(dir); err != nil {
		return nil, err
	}
	return m, m.bind(w)
}

func readConfig(dir string) (*Config, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("model: no model at %s; %s: %w", dir, openHint, err)
	}
	data, err := readFile(filepath.Join(dir, "config.json"), maxConfigBytes)
	if err != nil {
		return nil, fmt.Errorf("model: no config.json in %s; %s: %w", dir, openHint, err)
	}
	generation, err := readFile(filepath.Join(dir, "generation_config.json"), maxConfigBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("model: %w", err)
	}
	config, err := parseConfig(data, generation)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return config, nil
}

// Limits of the files that are read as a whole. Published configs have a few kilobytes, and an
// index has about 100 bytes per tensor.
const (
	maxConfigBytes = 16 << 20
	maxIndexBytes  = 64 << 20
)

// readFile reads a regular file of at most most bytes.
func readFile(path string, most int64) ([]byte, error) {
	f, info, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() > most {
		return nil, fmt.Errorf("%s: %w", path, damaged("%d bytes, at most %d are read", info.Size(), most))
	}
	data, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	return data, nil
}

// openRegular opens a regular file. It refuses directories, and pipes and devices, which may
// never end. It follows links, as Hugging Face's cache consists of them.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s: %w", path, damaged("not a regular file but %v", info.Mode().Type()))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	return f, info, nil
}

// hash computes ID. Hashing the lengths and names, too, keeps two different layouts with the
// same concatenated bytes apart.
func (m *Model) hash() string {
	h := xxh3.New()
	fmt.Fprintf(h, "coppice model v1\n%s\n", m.config.canonical())
	for _, s := range m.slots() {
		t := *s.dst
		fmt.Fprintf(h, "%s %v %v\n", t.Name, t.Type(), t.Shape)
		h.Write(t.Data)
	}
	sum := h.Sum128().Bytes()
	return hex.EncodeToString(sum[:])
}
