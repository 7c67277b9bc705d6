package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/engine/model/gguf"
)

// poolingKey is the key of a pooling in the metadata of a GGUF file, after the architecture.
const poolingKey = "pooling_type"

// ggufPoolings are the values of poolingKey by number.
//
// Source: gguf-py/gguf/constants.py of llama.cpp, PoolingType.
var ggufPoolings = []string{"", "mean", "cls", "last", "rank"}

// ReadPooling returns how the embeddings of the model at path are made of its states: "last", "mean", or
// the name of another way, such as "cls"; "" if its files don't say. A GGUF file says it in its metadata,
// a directory in modules.json of sentence-transformers and in the folder that it names. Errors are those
// of Open.
func ReadPooling(path string) (string, error) {
	if !IsGGUF(path) {
		kind, err := directoryPooling(path)
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		return kind, nil
	}
	w, meta, err := mapGGUF(path)
	if err != nil {
		return "", err
	}
	defer w.close()
	kind, err := ggufPooling(meta)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return kind, nil
}

func ggufPooling(meta *gguf.Meta) (string, error) {
	arch, _ := meta.String("general.architecture")
	key := arch + "." + poolingKey
	if !meta.Has(key) {
		return "", nil
	}
	n, ok := meta.Uint(key)
	if !ok || n >= uint64(len(ggufPoolings)) {
		return "", damaged("%s is %s, want 0 to %d", key, meta.Text(key), len(ggufPoolings)-1)
	}
	return ggufPoolings[n], nil
}

// directoryPooling reads the pooling of a directory of sentence-transformers.
//
// Source: sentence_transformers/models/Pooling.py of sentence-transformers.
func directoryPooling(dir string) (string, error) {
	var modules []struct{ Path, Type string }
	if err := readInto(filepath.Join(dir, "modules.json"), &modules); err != nil || modules == nil {
		return "", err
	}
	for _, m := range modules {
		if !strings.HasSuffix(m.Type, ".Pooling") {
			continue
		}
		if !filepath.IsLocal(m.Path) {
			return "", damaged("modules.json names the folder %q, which is outside the model", clip(m.Path))
		}
		fields := map[string]any{}
		if err := readInto(filepath.Join(dir, m.Path, "config.json"), &fields); err != nil {
			return "", err
		}
		return poolingOf(fields), nil
	}
	return "", nil
}

// poolingOf returns the pooling of the config of a Pooling module: the names of the modes that are set,
// which are concatenated if there are several.
func poolingOf(fields map[string]any) string {
	const prefix = "pooling_mode_"
	if mode, ok := fields["pooling_mode"].(string); ok {
		return namedPooling(mode)
	}
	var modes []string
	for name, v := range fields {
		if mode, ok := strings.CutPrefix(name, prefix); ok && v == true {
			modes = append(modes, namedPooling(mode))
		}
	}
	slices.Sort(modes)
	return strings.Join(modes, "+")
}

func namedPooling(mode string) string {
	switch mode {
	case "lasttoken":
		return "last"
	case "mean_tokens":
		return "mean"
	case "cls_token":
		return "cls"
	}
	return clip(mode)
}

// readInto decodes the JSON file at path into v. A file that is missing is no error.
func readInto(path string, v any) error {
	data, err := readFile(path, maxConfigBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return damaged("%s: %v", filepath.Base(path), err)
	}
	return nil
}
