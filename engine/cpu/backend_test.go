package cpu

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/enginetest"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/kv"
)

// nanoDir holds the model that the conformance suite runs on, ggufDir the files of ggufModel that tests share.
var nanoDir, ggufDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "coppice-cpu")
	if err == nil {
		err = random.Generate(dir, random.Spec{Preset: random.Nano, Seed: 1})
	}
	if err != nil {
		panic(err)
	}
	nanoDir, ggufDir = dir, filepath.Join(dir, "gguf")
	os.Mkdir(ggufDir, 0o755)
	code := leaks.Run(m)
	os.RemoveAll(dir)
	os.Exit(code)
}

func conform(threads int) enginetest.Factory {
	return func(t testing.TB, o enginetest.Options) engine.Backend {
		m, err := model.Open(nanoDir)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		return openSuite(t, m, suiteConfig(o, threads))
	}
}

func suiteConfig(o enginetest.Options, threads int) Config {
	return Config{
		PageTokens: o.PageTokens, Pages: o.Pages, MaxSlots: o.MaxSlots, MaxRows: o.MaxRows,
		MaxTokens: o.MaxTokens, MaxInflight: o.MaxInflight, Threads: threads,
	}
}

// openSuite opens a backend that the suite closes.
func openSuite(t testing.TB, m *model.Model, cfg Config) *Backend {
	t.Helper()
	b, err := Open(m, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestConformance(t *testing.T) { enginetest.Run(t, conform(2)) }
func TestControls(t *testing.T)    { enginetest.RunControls(t, conform(2)) }

// TestSteadyStateAllocations bounds the allocations of a step: the ticket, its channel, the
// result and the outputs.
func TestSteadyStateAllocations(t *testing.T) {
	m := testModel(t, random.Nano)
	b := openTest(t, m, Config{KVTokens: 512, Threads: 2})
	batch := &engine.Batch{Seq: 1}
	for r := range 4 {
		batch.Binds = append(batch.Binds, engine.SlotBind{Slot: engine.Slot(r), Sampling: engine.SamplingParams{
			Temperature: float32(r), TopP: 0.9, TopK: 20, RepetitionPenalty: 1.2, Seed: 1}})
		batch.Rows = append(batch.Rows, engine.Row{Slot: engine.Slot(r), Tokens: randomTokens(1, 20, 300), Pages: pageRange(8*r, 2), Sample: true})
	}
	wait(t, b, batch)
	batch.Binds = nil
	for r := range batch.Rows {
		row := &batch.Rows[r]
		row.Start, row.Deferred, row.Tokens, row.Digest, row.Pages = 20, true, nil, true, nil
	}
	step := func(what string) {
		if n := testing.AllocsPerRun(50, func() {
			batch.Seq++
			ticket, err := b.Submit(batch)
			if err != nil {
				t.Fatal(err)
			}
			<-ticket.Done()
		}); n > 4 {
			t.Errorf("a step %s allocates %v times, want at most 4", what, n)
		}
	}
	step("of decode rows")
	for r := range batch.Rows {
		row := &batch.Rows[r]
		row.Start, row.Deferred, row.Tokens, row.Digest = 20, false, randomTokens(1, 1, 300), false
		row.Drafts = randomTokens(2, 11, 300)
	}
	batch.Seq++
	wait(t, b, batch) // some of the drafts, if not all, are refused
	step("with drafts")
}

func TestOpenRefusesConfigs(t *testing.T) {
	m := testModel(t, random.Nano)
	for _, c := range []Config{
		{}, {Pages: -1}, {Pages: 4, PageTokens: 3}, {Pages: 4, PageTokens: 512}, {Pages: 4, MaxInflight: 1},
		{Pages: 4, Threads: -1}, {Pages: 4, MaxRows: -1}, {Pages: 4, MaxTokens: 1 << 20}, {Pages: 4, MaxSlots: -1},
	} {
		if b, err := Open(m, c); err == nil {
			b.Close()
			t.Errorf("Open(%+v) made a backend", c)
		}
	}
	b := openTest(t, m, Config{KVTokens: 100})
	if i := b.Info(); i.NumPages != 7 || i.PageTokens != 16 || i.KVType != kv.F32 || i.MaxInflight != 2 || !i.Deterministic {
		t.Errorf("info of a default backend: %+v", i)
	}
}
