package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/kv"
)

// testModel generates and opens a preset once for a test.
func testModel(t testing.TB, p random.Preset) *model.Model {
	t.Helper()
	dir := t.TempDir()
	if err := random.Generate(dir, random.Spec{Preset: p, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func openTest(t testing.TB, m *model.Model, cfg Config) *Backend {
	t.Helper()
	b, err := Open(m, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func randomTokens(seed uint64, n, vocab int) []kv.Token {
	r := rand.New(rand.NewPCG(seed, 0))
	out := make([]kv.Token, n)
	for i := range out {
		out[i] = kv.Token(r.IntN(vocab))
	}
	return out
}

// listings are the backends of tests, for batches whose rows list all their pages.
var listings sync.Map // *Backend to engine.Backend

// wait runs a batch to its end. Its rows list all their pages.
func wait(t testing.TB, b *Backend, batch *engine.Batch) *engine.Result {
	t.Helper()
	listed, ok := listings.Load(b)
	if !ok {
		listed = engine.Listed(b)
		listings.Store(b, listed)
		t.Cleanup(func() { listings.Delete(b) })
	}
	ticket, err := listed.(engine.Backend).Submit(batch)
	if err != nil {
		t.Fatal(err)
	}
	<-ticket.Done()
	res, err := ticket.Result()
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func pageRange(lo, n int) []kv.PageID {
	p := make([]kv.PageID, n)
	for i := range p {
		p[i] = kv.PageID(lo + i)
	}
	return p
}

func digestOf(logits []float32) uint64 {
	var buf []byte
	for _, l := range logits {
		buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(l))
	}
	return xxh3.Hash(buf)
}

// archModels returns a generated model of each family, and one with all biases.
func archModels(t *testing.T) map[string]*model.Model {
	t.Helper()
	dirs := map[string]string{"biases": readGolden(t).model(t, "llama-bias-f16").dir(t)}
	for _, arch := range model.Archs() {
		dirs[string(arch)] = t.TempDir()
		if err := random.Generate(dirs[string(arch)], random.Spec{Preset: random.Nano, Arch: arch, Seed: 1}); err != nil {
			t.Fatal(err)
		}
	}
	models := map[string]*model.Model{}
	for name, dir := range dirs {
		m, err := model.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		models[name] = m
	}
	return models
}

// TestTwin compares the digests after every position with the plain twin's:
// equal bits, for several thread counts, page sizes and chunkings.
func TestTwin(t *testing.T) {
	for name, m := range archModels(t) {
		t.Run(name, func(t *testing.T) { againstTwin(t, m) })
	}
}

func againstTwin(t *testing.T, m *model.Model) {
	tokens := randomTokens(1, 45, m.Config().Vocab)
	want := twin(m, tokens)
	for _, c := range []struct{ threads, page, chunk int }{{1, 16, 45}, {2, 1, 7}, {3, 64, 13}, {2, 4, 1}} {
		t.Run(fmt.Sprintf("threads=%d/page=%d/chunk=%d", c.threads, c.page, c.chunk), func(t *testing.T) {
			b := openTest(t, m, Config{PageTokens: c.page, KVTokens: 128, Threads: c.threads})
			for lo := 0; lo < len(tokens); lo += c.chunk {
				hi := min(lo+c.chunk, len(tokens))
				res := wait(t, b, &engine.Batch{Seq: uint64(lo + 1), Rows: []engine.Row{{
					Start: int32(lo), Tokens: tokens[lo:hi], Pages: pageRange(0, kv.CeilPages(hi, c.page)), Sample: true, Digest: true,
				}}})
				if got := res.Out[0].Digest; got != digestOf(want[hi-1]) {
					t.Fatalf("logits after position %d differ from the twin's", hi-1)
				}
			}
		})
	}
}

// TestFloat64 bounds the distance to the same model in f64.
func TestFloat64(t *testing.T) {
	for name, m := range archModels(t) {
		tokens := randomTokens(2, 40, m.Config().Vocab)
		got, want := twin(m, tokens), wide(m, tokens)
		for p := range want {
			if rel, _, _ := relL2(got[p], want[p]); !(rel <= 1e-5) {
				t.Fatalf("%s, position %d: rel-L2 %.3g, want at most 1e-5", name, p, rel)
			}
		}
	}
}

func BenchmarkPrefill(b *testing.B) {
	m := testModel(b, random.Demo)
	be := openTest(b, m, Config{KVTokens: 1024})
	tokens := randomTokens(3, 512, m.Config().Vocab)
	seq := uint64(0)
	for b.Loop() {
		seq++
		wait(b, be, &engine.Batch{Seq: seq, Rows: []engine.Row{{Tokens: tokens, Pages: pageRange(0, 32), Sample: true}}})
	}
	b.ReportMetric(float64(512*b.N)/b.Elapsed().Seconds(), "tok/s")
}

func BenchmarkDecode(b *testing.B) {
	m := testModel(b, random.Demo)
	for _, rows := range []int{1, 16} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			be := openTest(b, m, Config{KVTokens: 128 * rows})
			batch := &engine.Batch{}
			for r := range rows {
				batch.Rows = append(batch.Rows, engine.Row{Slot: engine.Slot(r), Tokens: randomTokens(4, 17, 320), Pages: pageRange(8*r, 2), Sample: true})
			}
			batch.Seq = 1
			wait(b, be, batch)
			for r := range batch.Rows {
				row := &batch.Rows[r]
				row.Start, row.Deferred, row.Tokens, row.Pages = 100, true, nil, pageRange(8*r, 7)
			}
			for b.Loop() {
				batch.Seq++
				wait(b, be, batch)
			}
			b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "tok/s")
		})
	}
}
