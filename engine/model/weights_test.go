package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const nanoSeed = 1

// nanoFiles holds the files of a generated model, by name.
var nanoFiles = sync.OnceValues(func() (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "nano")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := Generate(dir, "nano", Llama, nanoSeed); err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, name := range []string{"config.json", weightsFile, "tokenizer.json", "tokenizer_config.json", "generation_config.json"} {
		if files[name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	return files, nil
})

// nano writes the nano model to a fresh directory.
func nano(t *testing.T) string {
	t.Helper()
	files, err := nanoFiles()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range files {
		write(t, data, dir, name)
	}
	return dir
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t *testing.T, data []byte, path ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(path...), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// setConfig changes fields of dir's config.json like edit.
func setConfig(t *testing.T, dir string, fields map[string]string) {
	t.Helper()
	write(t, edit(t, string(read(t, dir, "config.json")), fields), dir, "config.json")
}

// rewrite parses dir's weights, lets change alter the tensors, and writes them to files, each
// with the tensors that shard assigns to it.
func rewrite(t *testing.T, dir string, change func([]*Tensor) []*Tensor, shard func(name string) string) map[string]string {
	t.Helper()
	tensors, err := parseSafetensors(read(t, dir, weightsFile))
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		tensors = change(tensors)
	}
	if err := os.Remove(filepath.Join(dir, weightsFile)); err != nil {
		t.Fatal(err)
	}
	where := map[string]string{}
	data := map[string][]byte{}
	header := map[string]map[string]any{}
	for _, x := range tensors {
		file := shard(x.Name)
		where[x.Name] = file
		if header[file] == nil {
			header[file] = map[string]any{}
		}
		begin := len(data[file])
		data[file] = append(data[file], x.Data...)
		header[file][x.Name] = map[string]any{"dtype": strings.ToUpper(x.DType.String()), "shape": x.Shape,
			"data_offsets": []int{begin, len(data[file])}}
	}
	for file, h := range header {
		text, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		write(t, append(safetensors(string(text), 0), data[file]...), dir, file)
	}
	return where
}

// single assigns all tensors to one file.
func single(string) string { return weightsFile }

// byLayer assigns the tensors to three shards.
func byLayer(name string) string {
	for i := range 2 {
		if strings.HasPrefix(name, fmt.Sprintf("model.layers.%d.", i)) {
			return fmt.Sprintf("model-%d.safetensors", i)
		}
	}
	return "model-rest.safetensors"
}

func writeIndex(t *testing.T, dir string, where map[string]string) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"metadata": map[string]int{"total_size": 1}, "weight_map": where})
	if err != nil {
		t.Fatal(err)
	}
	write(t, text, dir, indexFile)
}

func TestShardsAreTheSameModel(t *testing.T) {
	dir := nano(t)
	one := open(t, dir)
	writeIndex(t, dir, rewrite(t, dir, nil, byLayer))
	three := open(t, dir)
	if one.ID() != three.ID() {
		t.Errorf("ID %s in one file, %s in shards", one.ID(), three.ID())
	}
	if len(three.files) != 3 {
		t.Errorf("%d files are mapped, want 3", len(three.files))
	}
}

func TestShardFaults(t *testing.T) {
	const q = "model.layers.0.self_attn.q_proj.weight"
	for name, tc := range map[string]struct {
		change func(dir string, where map[string]string)
		want   string
	}{
		"missing shard":         {func(dir string, _ map[string]string) { os.Remove(filepath.Join(dir, "model-1.safetensors")) }, "model-1.safetensors does not exist"},
		"not in its shard":      {func(_ string, w map[string]string) { w[q] = "model-1.safetensors" }, `"` + q + `" is not in shard`},
		"not in the index":      {func(_ string, w map[string]string) { delete(w, q) }, "missing tensors: " + q},
		"parent directory":      {func(_ string, w map[string]string) { w[q] = "../secret.safetensors" }, `"../secret.safetensors" is outside`},
		"absolute path":         {func(_ string, w map[string]string) { w[q] = "/etc/passwd" }, "is outside"},
		"escape further down":   {func(_ string, w map[string]string) { w[q] = "a/../../x" }, "is outside"},
		"empty name":            {func(_ string, w map[string]string) { w[q] = "" }, `shard "" is outside`},
		"empty index":           {func(_ string, w map[string]string) { clear(w) }, "weight_map is missing or empty"},
		"directory for a shard": {func(dir string, w map[string]string) { w[q] = "sub"; os.Mkdir(filepath.Join(dir, "sub"), 0o755) }, "sub"},
		"cut shard": {func(dir string, _ map[string]string) { os.Truncate(filepath.Join(dir, "model-1.safetensors"), 5000) },
			"cut short"},
		"empty shard": {func(dir string, _ map[string]string) { os.Truncate(filepath.Join(dir, "model-1.safetensors"), 0) },
			"0 bytes is no size"},
	} {
		dir := nano(t)
		where := rewrite(t, dir, nil, byLayer)
		tc.change(dir, where)
		writeIndex(t, dir, where)
		m, err := Open(dir)
		if err == nil {
			m.Close()
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", name, err, tc.want)
		}
	}
	dir := nano(t)
	rewrite(t, dir, nil, byLayer)
	write(t, []byte("[1]"), dir, indexFile)
	if _, err := Open(dir); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), indexFile) {
		t.Errorf("index that is a list: error %v", err)
	}
}
