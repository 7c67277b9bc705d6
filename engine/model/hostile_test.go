package model

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// deep is JSON nested a million levels deep: a parser that recurses without a limit would
// overflow its stack.
func deep() string { return strings.Repeat(`{"a":[`, 500_000) }

// setHeader replaces text in the JSON header of dir's weights.
func setHeader(t *testing.T, dir, from, to string) {
	t.Helper()
	file := read(t, dir, weightsFile)
	n := binary.LittleEndian.Uint64(file)
	header := bytes.Replace(file[8:8+n], []byte(from), []byte(to), 1)
	if bytes.Equal(header, file[8:8+n]) {
		t.Fatalf("the header has no %s", from)
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	write(t, append(append(out, header...), file[8+n:]...), dir, weightsFile)
}

// The first tensors of the nano preset, as in its header.
const (
	embedEntry = `"model.embed_tokens.weight":{"dtype":"BF16","shape":[320,64],"data_offsets":[0,40960]}`
	normEntry  = `"model.layers.0.input_layernorm.weight":{"dtype":"BF16","shape":[64],"data_offsets":[40960,41088]}`
	normOf0    = "model.layers.0.input_layernorm.weight"
)

// TestHostileWeights: each file is refused by a short error that names the file and the tensor.
func TestHostileWeights(t *testing.T) {
	header := func(from, to string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { setHeader(t, dir, from, to) }
	}
	norm := func(dtype, shape, offsets string) func(*testing.T, string) {
		return header(normEntry, `"`+normOf0+`":{"dtype":"`+dtype+`","shape":`+shape+`,"data_offsets":`+offsets+`}`)
	}
	raw := func(head uint64, rest string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			write(t, append(binary.LittleEndian.AppendUint64(nil, head), rest...), dir, weightsFile)
		}
	}
	long := strings.Repeat("x", 1<<20)
	for name, tc := range map[string]struct {
		change func(*testing.T, string)
		want   []string
		kind   error
	}{
		"outside the file":   {norm("BF16", "[64]", "[9999999,10000127]"), []string{normOf0, "[9999999, 10000127)"}, ErrFormat},
		"offsets wrap":       {norm("BF16", "[64]", "[18446744073709551488,18446744073709551615]"), []string{normOf0}, ErrFormat},
		"backwards":          {norm("BF16", "[64]", "[41088,40960]"), []string{normOf0, "[41088, 40960)"}, ErrFormat},
		"overlap":            {norm("BF16", "[64]", "[40958,41086]"), []string{normOf0, "model.embed_tokens.weight", "overlap"}, ErrFormat},
		"same bytes":         {norm("BF16", "[64]", "[0,128]"), []string{normOf0, "overlap"}, ErrFormat},
		"hole":               {norm("BF16", "[32]", "[41024,41088]"), []string{normOf0, "begins at 41024"}, ErrFormat},
		"too short":          {norm("BF16", "[64]", "[40960,41086]"), []string{normOf0, "126 bytes"}, ErrFormat},
		"other type":         {norm("F32", "[64]", "[40960,41088]"), []string{normOf0, "takes 256"}, ErrFormat},
		"unknown type":       {norm("F8_E5M2", "[128]", "[40960,41088]"), []string{normOf0, "F8_E5M2"}, ErrUnsupported},
		"integers":           {norm("I16", "[64]", "[40960,41088]"), []string{normOf0, "I16"}, ErrUnsupported},
		"same size as f32":   {norm("F32", "[32]", "[40960,41088]"), []string{normOf0, "has shape [32], config.json makes it [64]"}, ErrFormat},
		"another shape":      {norm("BF16", "[8,8]", "[40960,41088]"), []string{normOf0, "has shape [8 8]"}, ErrFormat},
		"product overflows":  {norm("BF16", "[4294967296,4294967296,64]", "[40960,41088]"), []string{normOf0, "does not fit"}, ErrFormat},
		"shape of strings":   {norm("BF16", `["64"]`, "[40960,41088]"), []string{normOf0}, ErrFormat},
		"endless shape":      {norm("BF16", "["+strings.Repeat("1,", 1<<20)+"64]", "[40960,41088]"), []string{normOf0, "1048577 numbers"}, ErrFormat},
		"endless offsets":    {norm("BF16", "[64]", "[0"+strings.Repeat(",0", 1<<20)+"]"), []string{normOf0, "1048577 numbers"}, ErrFormat},
		"deep entry":         {header(normEntry, `"`+normOf0+`":`+deep()), []string{normOf0, "depth"}, ErrFormat},
		"deep metadata":      {header(`{"format":"pt"}`, deep()), []string{"__metadata__", "depth"}, ErrFormat},
		"entry is null":      {header(normEntry, `"`+normOf0+`":null`), []string{normOf0, `dtype ""`}, ErrUnsupported},
		"renamed":            {header(normOf0, "model.layers.0.input_layernorm.Weight"), []string{"missing tensors: " + normOf0, "does not have: model.layers.0.input_layernorm.Weight"}, ErrFormat},
		"twice":              {header(embedEntry, embedEntry+","+embedEntry), []string{"model.embed_tokens.weight", "twice"}, ErrFormat},
		"endless name":       {header(normOf0, long), []string{"missing tensors: " + normOf0, "... (1048576 bytes)"}, ErrFormat},
		"endless bad name":   {header(`"`+normOf0+`":{"dtype":"BF16"`, `"`+long+`":{"dtype":"`+long+`"`), []string{"... (1048576 bytes)"}, ErrUnsupported},
		"header of 2^63":     {raw(1<<63, "{}"), []string{"at most 100000000"}, ErrFormat},
		"header past end":    {raw(1000, "{}"), []string{"cut short"}, ErrFormat},
		"header never opens": {raw(1<<20, long), []string{"not a JSON object"}, ErrFormat},
		"header never ends":  {raw(1<<20+2, `{"`+long), []string{"header"}, ErrFormat},
	} {
		t.Run(name, func(t *testing.T) {
			dir := nano(t)
			tc.change(t, dir)
			refused(t, dir, tc.kind, append(tc.want, filepath.Join(dir, weightsFile))...)
		})
	}
}

// refused checks the error of opening dir.
func refused(t *testing.T, dir string, kind error, want ...string) {
	t.Helper()
	m, err := Open(dir)
	if err == nil {
		m.Close()
		t.Fatal("it is accepted")
	}
	if !errors.Is(err, kind) {
		t.Errorf("error %.500v, want %v", err, kind)
	}
	text := err.Error()
	if len(text) > 3000 {
		t.Errorf("a message of %d bytes", len(text))
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("error %.500s lacks %q", text, w)
		}
	}
}

// TestHostileJSON: the other files, each too deep, too large, or no JSON at all.
func TestHostileJSON(t *testing.T) {
	for _, name := range []string{"config.json", "generation_config.json", indexFile} {
		t.Run(name, func(t *testing.T) {
			make := func(change func(path string) error) string {
				dir := nano(t)
				if name == indexFile {
					writeIndex(t, dir, rewrite(t, dir, nil, byLayer))
				}
				if err := change(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
				return dir
			}
			refused(t, make(func(path string) error { return os.WriteFile(path, []byte(deep()), 0o644) }), ErrFormat, name, "depth")
			refused(t, make(func(path string) error { return os.WriteFile(path, []byte(`{"weight_map":`+deep()), 0o644) }), ErrFormat, name, "depth")
			refused(t, make(func(path string) error { return os.WriteFile(path, nil, 0o644) }), ErrFormat, name)
			refused(t, make(func(path string) error { return os.Truncate(path, maxIndexBytes+1) }), ErrFormat, name, "at most")
			refused(t, make(func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o755)) }),
				ErrFormat, name, "not a regular file")
		})
	}
	dir := nano(t)
	if err := errors.Join(os.Remove(filepath.Join(dir, weightsFile)), os.Mkdir(filepath.Join(dir, weightsFile), 0o755)); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, ErrFormat, weightsFile, "not a regular file")
}

// TestManyFaults: a message stays short however many faults there are.
func TestManyFaults(t *testing.T) {
	dir := nano(t)
	setConfig(t, dir, map[string]string{"hidden_size": "80", "num_hidden_layers": "1000"})
	refused(t, dir, ErrFormat, " more tensors of another shape", "and 8974 more", weightsFile)
}

// TestShardsAreNamed: an error about a tensor names the shard that holds it.
func TestShardsAreNamed(t *testing.T) {
	dir := nano(t)
	writeIndex(t, dir, rewrite(t, dir, func(ts []*Tensor) []*Tensor {
		for _, x := range ts {
			if x.Name == "model.layers.1.self_attn.o_proj.weight" {
				x.Shape = []int{32, 128}
			}
		}
		return ts
	}, byLayer))
	refused(t, dir, ErrFormat, filepath.Join(dir, "model-1.safetensors"), `"model.layers.1.self_attn.o_proj.weight" has shape [32 128]`)
}

// TestHeaderBitFlips flips every bit of a header and of its length: either the file is refused,
// or its tensors are the same as before (the bit was in metadata, in white space, or in the
// case of a key).
func TestHeaderBitFlips(t *testing.T) {
	dir := nano(t)
	setConfig(t, dir, map[string]string{"num_hidden_layers": "1"}) // half as many bits, a quarter of the time
	rewrite(t, dir, func(ts []*Tensor) []*Tensor {
		return slices.DeleteFunc(ts, func(x *Tensor) bool { return strings.HasPrefix(x.Name, "model.layers.1.") })
	}, single)
	file := slices.Clone(read(t, dir, weightsFile))
	describe := func(tensors []*Tensor) string {
		var b strings.Builder
		for _, x := range tensors {
			fmt.Fprintln(&b, x.Name, x.DType, x.Shape, len(x.Data))
		}
		return b.String()
	}
	whole, err := parseSafetensors(file)
	if err != nil {
		t.Fatal(err)
	}
	config, err := parseConfig(read(t, dir, "config.json"), nil)
	if err != nil {
		t.Fatal(err)
	}
	want, refusals := describe(whole), 0
	bits := 8 * (8 + int(binary.LittleEndian.Uint64(file)))
	for bit := range bits {
		file[bit/8] ^= 1 << (bit % 8)
		tensors, err := parseSafetensors(file)
		if err == nil {
			w := &weights{tensors: map[string]*Tensor{}}
			for _, x := range tensors {
				w.tensors[x.Name] = x
			}
			err = (&Model{config: config}).bind(w)
		}
		switch {
		case err != nil && !errors.Is(err, ErrFormat) && !errors.Is(err, ErrUnsupported):
			t.Fatalf("bit %d: an error without a kind: %v", bit, err)
		case err != nil:
			refusals++
		case describe(tensors) != want:
			t.Fatalf("bit %d: accepted as\n%s", bit, describe(tensors))
		}
		file[bit/8] ^= 1 << (bit % 8)
	}
	if refusals < bits*9/10 {
		t.Errorf("%d of %d flips are refused, want most", refusals, bits)
	}
}
