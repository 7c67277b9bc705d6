package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

const (
	weightsFile = "model.safetensors"
	indexFile   = "model.safetensors.index.json"
)

// weights holds the tensors of a model by name, and their mappings.
type weights struct {
	tensors map[string]*Tensor
	files   []*mapping
	path    string // for messages: the single file of weights, or the index of shards
}

func (w *weights) close() {
	for _, f := range w.files {
		f.close() // only called after another, more important error
	}
}

// openWeights maps model.safetensors, or the shards in the index; if both exist, the single
// file has precedence, as in transformers.
func openWeights(dir string) (*weights, error) {
	w := &weights{}
	err := w.single(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = w.sharded(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("model: neither %s nor %s is in %s; only safetensors weights are read there (no .bin; of GGUF give the file): "+
			"complete the download: %w",
			weightsFile, indexFile, dir, fs.ErrNotExist)
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *weights) single(dir string) (err error) {
	w.path = filepath.Join(dir, weightsFile)
	w.tensors, err = w.open(w.path)
	return err
}

// sharded takes from each shard the tensors that the index assigns to it.
func (w *weights) sharded(dir string) error {
	path := filepath.Join(dir, indexFile)
	w.path, w.tensors = path, map[string]*Tensor{}
	data, err := readFile(path, maxIndexBytes)
	if err != nil {
		return err
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return fmt.Errorf("%s: %w", path, damaged("%v", err))
	}
	if len(index.WeightMap) == 0 {
		return fmt.Errorf("%s: %w", path, damaged("weight_map is missing or empty"))
	}
	byShard := map[string][]string{}
	for name, shard := range index.WeightMap {
		byShard[shard] = append(byShard[shard], name)
	}
	for _, shard := range sortedKeys(byShard) {
		if err := w.shard(dir, shard, byShard[shard]); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

func (w *weights) shard(dir, shard string, names []string) error {
	if !filepath.IsLocal(shard) {
		return damaged("shard %q is outside the model's directory", clip(shard))
	}
	path := filepath.Join(dir, shard)
	held, err := w.open(path)
	if errors.Is(err, fs.ErrNotExist) {
		// Not wrapped: openWeights takes ErrNotExist to mean that there is no index.
		return damaged("shard %s does not exist; complete the download", path)
	}
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if held[name] == nil {
			return damaged("tensor %q is not in shard %s", clip(name), path)
		}
		w.tensors[name] = held[name]
	}
	return nil
}

// open maps the safetensors file at path and returns its tensors by name. w.close unmaps it.
func (w *weights) open(path string) (map[string]*Tensor, error) {
	data, err := w.mapFile(path, "safetensors")
	if err != nil {
		return nil, err
	}
	tensors, err := parseSafetensors(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	byName := make(map[string]*Tensor, len(tensors))
	for _, t := range tensors {
		t.file, byName[t.Name] = path, t
	}
	return byName, nil
}

// mapFile maps the file at path and returns its bytes. kind names the format, for messages.
// w.close unmaps the file.
func (w *weights) mapFile(path, kind string) ([]byte, error) {
	f, info, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := int(info.Size())
	if size < 8 || int64(size) != info.Size() {
		return nil, fmt.Errorf("%s: %w", path, damaged("%d bytes is no size of a %s file; download it again", info.Size(), kind))
	}
	m, err := openMapping(f, size)
	if err != nil {
		return nil, fmt.Errorf("model: map %s: %w", path, err)
	}
	w.files = append(w.files, m)
	if bytes.HasPrefix(m.data, []byte("version https://git-lfs")) {
		return nil, fmt.Errorf("%s: %w", path, damaged("a Git LFS pointer, not the weights; run \"git lfs pull\""))
	}
	return m.data, nil
}
