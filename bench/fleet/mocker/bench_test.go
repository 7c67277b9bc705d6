package mocker

import (
	"fmt"
	"testing"

	"github.com/coppice-llm/coppice/internal/invariants"
)

// churn keeps a worker busy: a new request replaces each one that ends. Prompts share 8
// beginnings, so that blocks are found, evicted and announced.
type churn struct {
	w        *Worker
	requests []*Request
	next     int
	free     []int
	rep      Report
}

func newChurn(tb testing.TB, cfg Config, prompt, output int) *churn {
	c := &churn{w: newWorker(tb, cfg)}
	for id := range 4 * c.w.cfg.MaxSeqs {
		tokens := append(tokensFrom(id%8, prompt/2), tokensFrom(8+id, prompt/2)...)
		c.requests = append(c.requests, request(id, tokens, output, c.w.cfg.BlockTokens))
	}
	for id := range c.w.cfg.MaxSeqs {
		submit(tb, c.w, 0, c.requests[id])
	}
	c.next = c.w.cfg.MaxSeqs
	for id := c.next; id < len(c.requests); id++ {
		c.free = append(c.free, id)
	}
	return c
}

func (c *churn) pass(tb testing.TB) {
	c.rep.Reset()
	if err := c.w.Pass(c.w.until, &c.rep); err != nil {
		tb.Fatal(err)
	}
	for _, id := range c.rep.Ended {
		submit(tb, c.w, c.w.now, c.requests[c.free[0]])
		copy(c.free, c.free[1:])
		c.free[len(c.free)-1] = id
	}
}

func TestPassesDoNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Skip("Check allocates")
	}
	c := newChurn(t, Config{Blocks: 250, BlockTokens: 16, MaxSeqs: 16, MaxBatchedTokens: 512}, 300, 40)
	for range 2000 {
		c.pass(t)
	}
	before := c.w.Stats()
	n := testing.AllocsPerRun(2000, func() { c.pass(t) })
	after := c.w.Stats()
	if n != 0 || after.Preemptions == before.Preemptions || after.Evicted == before.Evicted || after.Cached == before.Cached {
		t.Fatalf("%v allocations a pass; %+v", n, after)
	}
}

func BenchmarkPass(b *testing.B) {
	for _, seqs := range []int{16, 64, 256} {
		b.Run(fmt.Sprintf("seqs=%d/prompt=10240/output=512", seqs), func(b *testing.B) {
			c := newChurn(b, Config{MaxSeqs: seqs}, 10240, 512)
			for range 1000 {
				c.pass(b)
			}
			before := c.w.Stats()
			b.ReportAllocs()
			for b.Loop() {
				c.pass(b)
			}
			st := c.w.Stats()
			b.ReportMetric(float64(st.Tokens-before.Tokens)/float64(b.N), "tokens/pass")
		})
	}
}
