package fleet

import (
	"fmt"
	"testing"
)

// churn keeps a worker busy: a new request replaces each one that ends. Prompts share 8
// beginnings, so that blocks are found, evicted and announced.
type churn struct {
	w        *mocker
	requests []*Request
	next     int
	free     []int
	rep      Report
}

func newChurn(tb testing.TB, cfg mockSizes, prompt, output int) *churn {
	c := &churn{w: mockOf(cfg)}
	for id := range 4 * c.w.maxSeqs {
		tokens := append(tokensFrom(id%8, prompt/2), tokensFrom(8+id, prompt/2)...)
		c.requests = append(c.requests, request(id, tokens, output, c.w.blockTokens))
	}
	for id := range c.w.maxSeqs {
		submit(tb, c.w, 0, c.requests[id])
	}
	c.next = c.w.maxSeqs
	for id := c.next; id < len(c.requests); id++ {
		c.free = append(c.free, id)
	}
	return c
}

func (c *churn) pass(tb testing.TB) {
	c.rep.reset()
	if err := c.w.Pass(c.w.until, &c.rep); err != nil {
		tb.Fatal(err)
	}
	for _, id := range c.rep.Ended {
		submit(tb, c.w, c.w.until, c.requests[c.free[0]])
		copy(c.free, c.free[1:])
		c.free[len(c.free)-1] = id
	}
}

func BenchmarkPass(b *testing.B) {
	for _, seqs := range []int{16, 64, 256} {
		b.Run(fmt.Sprintf("seqs=%d/prompt=10240/output=512", seqs), func(b *testing.B) {
			c := newChurn(b, mockSizes{MaxSeqs: seqs}, 10240, 512)
			for range 1000 {
				c.pass(b)
			}
			tokens := 0
			b.ReportAllocs()
			for b.Loop() {
				c.pass(b)
				tokens += len(c.rep.Tokens)
			}
			b.ReportMetric(float64(tokens)/float64(b.N), "tokens/pass")
		})
	}
}
