package random

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer/tokenfile"
)

const (
	nanoSeed    = 1
	weightsFile = "model.safetensors"
)

// nano writes the nano model to a fresh directory.
func nano(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := Generate(dir, Spec{Preset: Nano, Seed: nanoSeed}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func open(t *testing.T, path string) *model.Model {
	t.Helper()
	m, err := model.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
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

// TestNanoBytes pins the generator's output: reports name models by preset and seed, so the
// bytes may not change unless generatorVersion does. Package tokenizer pins tokenizer.json.
func TestNanoBytes(t *testing.T) {
	dir := nano(t)
	for file, want := range map[string]string{
		weightsFile:              "f9af7c9d76ed254c",
		"config.json":            "d07c9da6ebb5e337",
		"generation_config.json": "0a0ab7f8f332d828",
		"tokenizer_config.json":  "3596a0236ef1fa52",
	} {
		if got := fmt.Sprintf("%016x", xxh3.Hash(read(t, dir, file))); got != want {
			t.Errorf("%s: XXH3-64 %s, want %s", file, got, want)
		}
	}
	if id, want := open(t, dir).ID(), "8160d8529e1495549d422d52107f537a"; id != want {
		t.Errorf("ID %s, want %s", id, want)
	}
}

// TestValues: every value of every weight follows from its name, the seed and its index.
func TestValues(t *testing.T) {
	dir := nano(t)
	c := open(t, dir).Config()
	data := read(t, dir, weightsFile)
	data = data[8+binary.LittleEndian.Uint64(data):]
	for _, w := range c.Weights() {
		values := newStream(nanoSeed, w)
		for i := range w.Values() {
			if got := binary.LittleEndian.Uint16(data[2*i:]); got != values.at(uint64(i)) {
				t.Fatalf("%s: element %d is %#x", w.Name, i, got)
			}
		}
		data = data[2*w.Values():]
	}
	if len(data) > 0 {
		t.Errorf("%d bytes more", len(data))
	}
}

func TestGenerateMakesTheDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := Generate(dir, Spec{Preset: Nano, Seed: nanoSeed + 1}); err != nil {
		t.Fatal(err)
	}
	if got, other := open(t, dir).ID(), open(t, nano(t)).ID(); got == other {
		t.Error("another seed gave the same weights")
	}
}

func TestGenerateTwiceIsTheSame(t *testing.T) {
	dir := nano(t)
	before := read(t, dir, weightsFile)
	if err := os.Remove(filepath.Join(dir, "tokenizer.json")); err != nil {
		t.Fatal(err)
	}
	write(t, []byte("mine"), dir, "notes.txt")
	if err := Generate(dir, Spec{Preset: Nano, Seed: nanoSeed}); err != nil {
		t.Fatalf("again into the same directory: %v", err)
	}
	if !slices.Equal(before, read(t, dir, weightsFile)) {
		t.Error("the second run gave other weights")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{"config.json", "generation_config.json", weightsFile, "notes.txt", "tokenizer.json", "tokenizer_config.json"}
	if !slices.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
}

func TestGenerateOverwritesNothing(t *testing.T) {
	dir := nano(t)
	before := read(t, dir, weightsFile)
	for _, spec := range []Spec{{Preset: Nano, Seed: nanoSeed + 1}, {Preset: Demo, Seed: nanoSeed}, {Preset: Nano, Seed: nanoSeed, Arch: model.Mistral}} {
		if err := Generate(dir, spec); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%v over nano: error %v", spec, err)
		}
	}
	if !slices.Equal(before, read(t, dir, weightsFile)) {
		t.Error("the weights changed")
	}
	foreign := t.TempDir()
	write(t, []byte("precious"), foreign, weightsFile)
	if err := Generate(foreign, Spec{Preset: Nano, Seed: 1}); !errors.Is(err, ErrExists) || string(read(t, foreign, weightsFile)) != "precious" {
		t.Errorf("over foreign weights: error %v", err)
	}
}

func TestGenerateFailsCleanly(t *testing.T) {
	dir := t.TempDir()
	broken := errors.New("disk full")
	err := writeAll(dir, []file{
		{"a", literal([]byte("a"))},
		{"b", func(w io.Writer) error { return broken }},
	})
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("%v is left behind", entries)
	}
	plain := filepath.Join(dir, "plain")
	write(t, nil, plain)
	if err := Generate(plain, Spec{Preset: Nano, Seed: 1}); err == nil {
		t.Error("a file is accepted as the directory")
	}
}

// TestPresets opens each preset of each family as far as its weights' shapes, in a sparse file. Large vocabularies take
// seconds and only differ in made-up words, so the tokenizer is nano's.
func TestPresets(t *testing.T) {
	vocabulary, err := trainTokenizer(320)
	if err != nil {
		t.Fatal(err)
	}
	var p Preset
	for _, known := range presets {
		if err := p.UnmarshalText([]byte(known)); err != nil || p != known || p.String() != string(known) {
			t.Errorf("%q: %v, %v", known, p, err)
		}
		for _, arch := range model.Archs() {
			checkShape(t, Spec{Preset: known, Arch: arch}, vocabulary)
		}
	}
	for _, bad := range []string{"", "huge", "Nano"} {
		err := p.UnmarshalText([]byte(bad))
		if err == nil || !strings.Contains(err.Error(), "nano, demo, mini, tiny, small") {
			t.Errorf("%q: error %v", bad, err)
		}
		if err := Generate(t.TempDir(), Spec{Preset: Preset(bad)}); err == nil || !strings.Contains(err.Error(), "nano, demo, mini, tiny, small") {
			t.Errorf("Generate %q: error %v", bad, err)
		}
	}
}

func checkShape(t *testing.T, spec Spec, vocabulary []byte) {
	t.Helper()
	c, err := spec.config()
	if err != nil {
		t.Fatal(err)
	}
	if err := takeSpecials(c, vocabulary); err != nil {
		t.Fatal(err)
	}
	dir, values := t.TempDir(), 0
	for _, w := range c.Weights() {
		values += w.Values()
	}
	header := weightsHeader(c.Weights())
	write(t, header, dir, weightsFile)
	write(t, vocabulary, dir, "tokenizer.json")
	write(t, generationConfig(c), dir, "generation_config.json")
	write(t, configJSON(c, spec), dir, "config.json")
	if err := os.Truncate(filepath.Join(dir, weightsFile), int64(len(header)+2*values)); err != nil {
		t.Fatal(err)
	}
	s := model.Inspect(dir)
	want := model.Summary{Architecture: spec.Arch.String(), Weights: "bf16", Parameters: int64(values), Bytes: int64(2 * values),
		Context: c.MaxPositions, KVValues: 2 * c.Layers * c.KVHeads * c.HeadDim, Generated: true}
	if s != want {
		t.Errorf("%+v: %+v, want %+v", spec, s, want)
	}
}

func TestUnknownArch(t *testing.T) {
	if err := Generate(t.TempDir(), Spec{Preset: Nano, Arch: "gemma"}); err == nil || !strings.Contains(err.Error(), `unknown arch "gemma"`) {
		t.Errorf("Generate: error %v", err)
	}
}

// TestArchBytes pins the weights of each family, as TestNanoBytes does for Llama: weights that
// a family shares with Llama have the same values.
func TestArchBytes(t *testing.T) {
	for arch, want := range map[model.Arch]struct{ weights, id string }{
		model.Mistral: {"f9af7c9d76ed254c", "aa0a4bdb545d331b8f2d25f6a7ff4a9b"}, // the same as Llama's
		model.Qwen2:   {"0d6cee7927b82e25", "be72e74c98b2c5d290f0947ef20a4ea6"},
		model.Qwen3:   {"ba3416c2ef1a7f91", "dca9e6ab91586dc85ce723e4a258f7f4"},
	} {
		dir := t.TempDir()
		spec := Spec{Preset: Nano, Seed: nanoSeed, Arch: arch}
		if err := Generate(dir, spec); err != nil {
			t.Fatal(err)
		}
		m := open(t, dir)
		shape, _, err := spec.parts()
		if err != nil {
			t.Fatal(err)
		}
		if shape.DType = kv.BF16; !reflect.DeepEqual(m.Config(), shape) {
			t.Errorf("%s: config %+v, want %+v", arch, m.Config(), shape)
		}
		if got := fmt.Sprintf("%016x", xxh3.Hash(read(t, dir, weightsFile))); got != want.weights || m.ID() != want.id {
			t.Errorf("%s: weights %s, ID %s, want %s and %s", arch, got, m.ID(), want.weights, want.id)
		}
		c, l := m.Config(), m.Layers()[1]
		if (l.QBias != nil) != c.QKVBias || (l.VBias != nil) != c.QKVBias || (l.QNorm != nil) != c.QKNorm || (l.KNorm != nil) != c.QKNorm {
			t.Errorf("%s: %+v has layers %+v", arch, c, l)
		}
	}
}

// TestMadeUpWordsFillTheVocabulary trains one vocabulary larger than the text alone allows.
func TestMadeUpWordsFillTheVocabulary(t *testing.T) {
	const vocab = 6144 // the text alone yields 6004
	data, err := trainTokenizer(vocab)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenfile.Parse(data, nil)
	if err != nil || tok.VocabSize() != vocab {
		t.Errorf("%d tokens, want %d: %v", tok.VocabSize(), vocab, err)
	}
	words := strings.Fields(madeUpWords(40000)) // more than any preset needs
	seen := map[string]bool{}
	for _, w := range words {
		seen[w] = true
	}
	if len(words) != 40000 || len(seen) != len(words) {
		t.Errorf("%d different of %d words", len(seen), len(words))
	}
}

func TestValuesHaveTheirMoments(t *testing.T) {
	const n = 200000
	for _, tc := range []struct{ mean, std float64 }{{0, 1}, {0, 0.125}, {1, 0.1}} {
		s := streamOf(7, "some.weight", tc.mean, tc.std)
		sum, squares, most := 0.0, 0.0, 0.0
		for i := range uint64(n) {
			v := float64(math.Float32frombits(uint32(s.at(i)) << 16))
			d := v - tc.mean
			sum, squares, most = sum+d, squares+d*d, max(most, math.Abs(d))
		}
		// Bounds: five standard errors; the sum of four uniforms is at most 2*sqrt(3) deviations.
		if mean := sum / n / tc.std; math.Abs(mean) > 5/math.Sqrt(n) {
			t.Errorf("mean %v: off by %v deviations", tc.mean, mean)
		}
		if std := math.Sqrt(squares/n) / tc.std; math.Abs(std-1) > 0.01 {
			t.Errorf("deviation %v times %v", std, tc.std)
		}
		if most/tc.std < 3 || most/tc.std > 3.5 {
			t.Errorf("largest value is %v deviations off", most/tc.std)
		}
	}
}

func TestValuesDependOnSeedNameAndIndex(t *testing.T) {
	take := func(seed uint64, name string) string {
		s := streamOf(seed, name, 0, 1)
		return fmt.Sprint(s.at(0), s.at(1), s.at(2), s.at(3))
	}
	seen := map[string]string{}
	for _, seed := range []uint64{0, 1, 2, 1 << 63} {
		for _, name := range []string{"", "a", "b", "ab"} {
			v := take(seed, name)
			if other, ok := seen[v]; ok {
				t.Errorf("seed %d, name %q gives the values of %s", seed, name, other)
			}
			seen[v] = fmt.Sprint(seed, name)
		}
	}
	if s := streamOf(1, "a", 0, 1); s.at(0) == s.at(1) && s.at(1) == s.at(2) {
		t.Error("values do not depend on the index")
	}
}

func TestWeightsHeaderIsAligned(t *testing.T) {
	c, err := Spec{Preset: Nano}.config()
	if err != nil {
		t.Fatal(err)
	}
	h := weightsHeader(c.Weights())
	if n := binary.LittleEndian.Uint64(h); n%8 != 0 || int(n) != len(h)-8 {
		t.Errorf("header of %d bytes says %d", len(h)-8, n)
	}
}
