package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/mempool/stores"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/scheduler"
)

// bitsOutput is the number of tokens that each request of TestRealBits generates.
const bitsOutput = 6

// bitsShared is the number of tokens that two prompts of TestRealBits share.
const bitsShared = 48

// bitsTest runs the same requests on SmolLM2 in different ways. The first way gives the tokens and the
// digests of all logit bits that the others must give.
type bitsTest struct {
	*testing.T
	file    string
	kvType  kv.DType
	prompts [][]kv.Token
	want    []coppice.Ending // of asks, alone, whole and without a cache
}

// TestRealBits checks with SmolLM2, for each type of KV, at temperature 0 and 1, that tokens and logit bits
// are the same whether a prompt is cached or not, computed beside others or alone, in chunks or whole, and
// whether its KV comes back from host memory or from a disk. Planted differences must be found: KV of another
// prefix in the cache, and KV of another type.
func TestRealBits(t *testing.T) {
	file := smol.path(t)
	tok, err := local.Tokenizer(file)
	if err != nil {
		t.Fatal(err)
	}
	text := tok.Encode(nil, opticks.Text())
	// Two prompts that share three pages, and another one.
	prompts := [][]kv.Token{text[:64], slices.Concat(text[:bitsShared], text[900:940]), text[2000:2072]}
	digests := map[uint64]kv.DType{}
	for _, d := range cpu.KVTypes() {
		t.Run(d.String(), func(t *testing.T) {
			b := &bitsTest{T: t, file: file, kvType: d, prompts: prompts}
			b.reference()
			b.Run("cached", b.cached)
			b.Run("tiers", b.tiers)
			b.Run("planted", b.planted)
			first := b.want[0].LogitDigest
			if other, found := digests[first]; found {
				t.Errorf("KV of %v and of %v give the same logit bits: the digest finds no difference", other, d)
			}
			digests[first] = d
		})
	}
}

// request asks for prompt n, at temperature 1 if warm.
func (b *bitsTest) request(n int, warm bool) coppice.Request {
	r := coppice.Request{Tokens: b.prompts[n], MaxTokens: bitsOutput, IgnoreEOS: true, Digest: true}
	if warm {
		r.Sampling = engine.SamplingParams{Temperature: 1, Seed: 7}
	}
	return r
}

// asks returns all requests: each prompt at both temperatures.
func (b *bitsTest) asks() (all []coppice.Request) {
	for n := range b.prompts {
		all = append(all, b.request(n, false), b.request(n, true))
	}
	return all
}

// run runs one request to its end.
func (b *bitsTest) run(t *testing.T, node *coppice.Node, r coppice.Request) coppice.Ending {
	t.Helper()
	res, err := node.Text(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return res.Ending
}

// difference says how an ending differs from the reference of ask i; "" if it doesn't.
func (b *bitsTest) difference(i int, got coppice.Ending) string {
	want := &b.want[i]
	switch {
	case !slices.Equal(got.Tokens, want.Tokens):
		return fmt.Sprintf("tokens %v, want %v", got.Tokens[got.PromptTokens:], want.Tokens[want.PromptTokens:])
	case got.LogitDigest != want.LogitDigest:
		return fmt.Sprintf("the same tokens with other logit bits: digest %x, want %x", got.LogitDigest, want.LogitDigest)
	}
	return ""
}

func (b *bitsTest) same(t *testing.T, how string, i int, got coppice.Ending) {
	t.Helper()
	if d := b.difference(i, got); d != "" {
		t.Errorf("%s, prompt %d, temperature %d: %s", how, i/2, i%2, d)
	}
}

// local opens the model by local.Open.
func (b *bitsTest) local(t *testing.T, kvTokens int, cfg coppice.Config) *local.Model {
	t.Helper()
	m, err := local.Open(b.file, local.Options{Node: cfg, Backend: func(m *model.Model, _ *coppice.Config) (engine.Backend, error) {
		backend, err := cpu.Open(m, cpu.Config{KVTokens: kvTokens, KVType: b.kvType})
		if err != nil {
			return nil, err // not backend: a nil pointer in an interface is not nil
		}
		return backend, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// reference computes b.want by coppice.Open, one request after the other, each prompt in one step, without a cache.
func (b *bitsTest) reference() {
	b.Helper()
	m, err := model.Open(b.file)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	backend, err := cpu.Open(m, cpu.Config{KVTokens: 1024, KVType: b.kvType})
	if err != nil {
		b.Fatal(err)
	}
	node, err := coppice.Open(coppice.Config{Backend: backend, Scheduler: scheduler.Config{DisableCache: true, StepTokens: 512, Speculate: scheduler.SpeculateOff}})
	if err != nil {
		b.Fatal(err)
	}
	for _, r := range b.asks() {
		e := b.run(b.T, node, r)
		if e.CachedTokens != 0 || e.OutputTokens != bitsOutput {
			b.Errorf("the reference has %d cached tokens and %d of output", e.CachedTokens, e.OutputTokens)
		}
		b.want = append(b.want, e)
	}
	if steps, want := b.steps(b.T, node), uint64(len(b.want)*bitsOutput); steps != want {
		b.Errorf("the reference took %d steps, want %d: one for each prompt and for each further token", steps, want)
	}
	if err := node.Close(); err != nil {
		b.Fatal(err)
	}
}

func (b *bitsTest) steps(t *testing.T, node *coppice.Node) uint64 {
	t.Helper()
	st, err := node.Stats(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return st.Scheduler.Steps
}

// cached runs the requests in chunks, then cached, then all at once with a cache of their own.
func (b *bitsTest) cached(t *testing.T) {
	node := b.local(t, 2048, coppice.Config{Scheduler: scheduler.Config{StepTokens: 32, ChunkTokens: 32, Speculate: scheduler.SpeculateOff}}).Node
	for n := range b.prompts {
		before := b.steps(t, node)
		b.same(t, "in chunks", 2*n, b.run(t, node, b.request(n, false)))
		if steps := b.steps(t, node) - before; steps < bitsOutput+1 {
			t.Errorf("prompt %d took %d steps: it was not computed in chunks", n, steps)
		}
	}
	for i, r := range b.asks() {
		e := b.run(t, node, r)
		b.same(t, "cached", i, e)
		if whole := len(r.Tokens) / 16 * 16; e.CachedTokens < whole-16 {
			t.Errorf("%d tokens of prompt %d were cached, want about %d", e.CachedTokens, i/2, whole)
		}
	}
	together := b.asks()
	for i := range together {
		together[i].Namespace = kv.Namespace{Salt: "together"}
	}
	before := b.steps(t, node)
	results, err := node.Batch(context.Background(), together)
	if err != nil {
		t.Fatal(err)
	}
	for i := range results {
		b.same(t, "beside others", i, results[i].Ending)
	}
	if steps := b.steps(t, node) - before; steps >= uint64(len(together)*bitsOutput) {
		t.Errorf("%d requests took %d steps: none was computed beside another", len(together), steps)
	}
}

// tiers runs two prompts in turns on a device with room for one, five of its seven pages, so that they come back from host
// memory, and again in a node that finds them on disk.
func (b *bitsTest) tiers(t *testing.T) {
	dir := t.TempDir()
	for _, tier := range []kv.Tier{kv.TierHost, kv.TierDisk} {
		cfg := stores.Config{Disk: dir, DiskBytes: 256 << 20, ExtentPages: 2}
		if tier == kv.TierHost {
			cfg.HostBytes = 128 << 20
		}
		// A second for a token, so that fetching always seems faster than computing.
		m := b.local(t, 112, coppice.Config{Tiers: coppice.Tiers{Open: cfg.Open, Write: tiering.Through, TokenSeconds: 1}})
		from := map[int]int{} // by ask: tokens that came from the tier
		// On a stalled machine reads may pass their deadline: then the prompt is computed, with the same bits.
		for round := 0; round < 20 && len(from) < 4; round++ {
			for _, n := range []int{0, 2} {
				i := 2*n + round%2
				e := b.run(t, m.Node, b.request(n, round%2 == 1))
				b.same(t, "with "+tier.String(), i, e)
				if found := e.CachedByTier[tier]; found > 0 {
					from[i] += found
				}
				if tier == kv.TierHost {
					b.written(t, m.Node)
				}
			}
		}
		if t.Logf("tokens from %v, by request: %v", tier, from); len(from) < 4 {
			t.Errorf("from %v came %v, want tokens of both prompts at both temperatures", tier, from)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// written waits until the first tier has both extents of a prompt: KV that leaves the device is found in a tier only
// once its copy is complete.
func (b *bitsTest) written(t *testing.T, node *coppice.Node) {
	t.Helper()
	until(t, "copies to host memory", func() string {
		st, err := node.Stats(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if m := st.Tiers[0]; m.Extents < 2 && m.Lost+m.Errors == 0 {
			return fmt.Sprintf("%d extents", m.Extents)
		}
		return ""
	})
}

// planting is a backend that, while on, computes prompts with another token at position 3 than it was given.
type planting struct {
	*cpu.Backend
	on atomic.Bool
}

func (p *planting) Submit(batch *engine.Batch) (engine.Ticket, error) {
	if p.on.Load() {
		other := *batch
		other.Rows = slices.Clone(batch.Rows)
		for i := range other.Rows {
			if r := &other.Rows[i]; r.Start == 0 && len(r.Tokens) > 3 {
				r.Tokens = slices.Clone(r.Tokens)
				r.Tokens[3] ^= 1
			}
		}
		batch = &other
	}
	return p.Backend.Submit(batch)
}

// planted checks that the comparisons of TestRealBits find one wrong token: in the cached prefix, and in the prompt.
func (b *bitsTest) planted(t *testing.T) {
	p := &planting{}
	m, err := local.Open(b.file, local.Options{Backend: func(m *model.Model, _ *coppice.Config) (engine.Backend, error) {
		var err error
		if p.Backend, err = cpu.Open(m, cpu.Config{KVTokens: 1024, KVType: b.kvType}); err != nil {
			return nil, err
		}
		return p, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b.same(t, "nothing planted", 4, b.run(t, m.Node, b.request(2, false)))
	p.on.Store(true)
	b.run(t, m.Node, b.request(0, false))
	p.on.Store(false)
	for i := range 2 {
		e := b.run(t, m.Node, b.request(0, i == 1))
		if e.CachedTokens < bitsShared || b.difference(i, e) == "" {
			t.Errorf("temperature %d: cached KV of another prefix was not found, with %d tokens cached", i, e.CachedTokens)
		}
	}
	r := b.request(2, false)
	r.Tokens = slices.Clone(r.Tokens)
	r.Tokens[3] ^= 1
	if e := b.run(t, m.Node, r); e.LogitDigest == b.want[4].LogitDigest {
		t.Error("a prompt with another token at position 3 has the same logit bits")
	}
}
