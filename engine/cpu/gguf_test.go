package cpu

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/engine/model/random"
)

// ggufModel opens a GGUF file with the weights of spec, which it generates once.
func ggufModel(t testing.TB, spec random.Spec, typ gguf.Type) *model.Model {
	t.Helper()
	path := filepath.Join(ggufDir, fmt.Sprintf("%v-%s-%v-%d.gguf", spec.Preset, spec.Arch, typ, spec.Seed))
	if _, err := os.Stat(path); err != nil {
		if err := random.GenerateGGUF(path, spec, typ); err != nil {
			t.Fatal(err)
		}
	}
	return openModel(t, path)
}

// promptDigest digests the logits after a prompt.
func promptDigest(t testing.TB, m *model.Model) uint64 {
	t.Helper()
	b := openTest(t, m, Config{KVTokens: 64})
	tokens := randomTokens(11, 24, m.Config().Vocab)
	res := wait(t, b, &engine.Batch{Seq: 1, Rows: []engine.Row{{Tokens: tokens, Pages: pageRange(0, 2), Sample: true, Digest: true}}})
	return res.Out[0].Digest
}

// A GGUF file with the weights of a model directory gives the same logits bit for bit, which
// shows that rows are permuted back and rotary embeddings are computed correctly.
func TestGGUFComputesAsTheDirectory(t *testing.T) {
	for _, arch := range model.Archs() {
		spec := random.Spec{Preset: random.Mini, Arch: arch, Seed: 5}
		dir := t.TempDir()
		if err := random.Generate(dir, spec); err != nil {
			t.Fatal(err)
		}
		want := promptDigest(t, openModel(t, dir))
		if got := promptDigest(t, ggufModel(t, spec, gguf.BF16)); got != want {
			t.Errorf("%s: the file's logits have digest %x, the directory's %x", arch, got, want)
		}
	}
}

// Files of Llama 3.1 have a factor for each frequency.
func TestRopeFactorsDivide(t *testing.T) {
	c := &model.Config{HeadDim: 16, RopeTheta: 10000}
	plain := c.RopeFrequencies()
	c.RopeFactors = []float32{1, 1, 1, 2, 2, 4, 8, 8}
	for i, f := range c.RopeFrequencies() {
		if want := plain[i] / c.RopeFactors[i]; f != want {
			t.Errorf("frequency %d is %v, want %v", i, f, want)
		}
	}
}
