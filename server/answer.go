package server

import (
	"context"
	"iter"
	"net/http"
	"sync"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/server/openai"
	"github.com/coppice-llm/coppice/server/view"
)

// piece is news of one of a request's prompts.
type piece struct {
	prompt int
	coppice.Piece
}

// pieces yields what comes of requests, all of them at once, until each had its final
// piece or one of them an error; then the others are aborted. Nothing of them runs when
// it returns.
func (s *Server) pieces(ctx context.Context, reqs []coppice.Request) iter.Seq2[*piece, error] {
	if len(reqs) == 1 {
		return func(yield func(*piece, error) bool) {
			var p piece
			var err error
			for p.Piece, err = range s.cfg.Node.Generate(ctx, reqs[0]) {
				if !yield(&p, err) || err != nil {
					return
				}
			}
		}
	}
	return func(yield func(*piece, error) bool) {
		type news struct {
			piece
			err error
		}
		ctx, cancel := context.WithCancel(ctx)
		left := make(chan struct{}) // closed when nobody hears any more
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		defer close(left)
		come := make(chan news)
		for i := range reqs {
			all.Go(func() {
				for p, err := range s.cfg.Node.Generate(ctx, reqs[i]) {
					select {
					case come <- news{piece{i, p}, err}:
					case <-left: // not ctx, whose end is news too
						return
					}
					if err != nil {
						return
					}
				}
			})
		}
		for open := len(reqs); open > 0; {
			n := <-come // each of them sends a final piece or an error
			if n.Final {
				open--
			}
			if !yield(&n.piece, n.err) || n.err != nil {
				return
			}
		}
	}
}

// gauge measures the pieces of a request's choices as they pass.
type gauge struct {
	c     *call
	n     int         // choices of a prompt
	last  []time.Time // of each choice: its latest piece
	one   [1]time.Time
	count int // pieces
	left  int // prompts without their final piece
}

func (c *call) newGauge(prompts, n int) *gauge {
	g := &gauge{c: c, n: n, left: prompts}
	if g.last = g.one[:]; prompts*n > 1 {
		g.last = make([]time.Time, prompts*n)
	}
	c.generates = true
	return g
}

// oftenObserved is how many pieces there are for each that the page hears of.
const oftenObserved = 8

// pass notes a piece. It tells whether it is the last of all.
func (g *gauge) pass(now time.Time, p *piece) (last bool) {
	c, m := g.c, g.c.s.metrics
	if n := len(p.Tokens); n > 0 {
		c.bill.outputTokens += n
		at := &g.last[p.prompt*g.n+p.Sample]
		if at.IsZero() {
			first := now.Sub(c.start)
			if c.bill.firstToken == 0 {
				c.bill.firstToken = first
			}
			m.firstToken.Observe(first.Seconds())
			if c.s.feed != nil {
				c.s.feed.Observe(view.Observation{TTFT: first})
			}
		} else {
			gap := now.Sub(*at) / time.Duration(n)
			m.nextToken.Observe(gap.Seconds())
			if g.count++; c.s.feed != nil && g.count%oftenObserved == 0 {
				c.s.feed.Observe(view.Observation{ITL: gap, Gaps: oftenObserved})
			}
		}
		*at = now
	}
	if e := p.Ending; e != nil {
		c.ended(p.prompt, p.Sample, e)
	}
	if p.Final {
		g.left--
	}
	return g.left == 0
}

// ended bills a choice.
func (c *call) ended(prompt, sample int, e *coppice.Ending) {
	c.bill.reason = e.Reason
	if sample == 0 { // the others find all of the prompt cached by this one
		c.bill.promptTokens += e.PromptTokens
		c.bill.cachedTokens += e.CachedTokens
		c.s.metrics.queued.Observe(e.Queued.Seconds())
	}
	c.trace(prompt, sample, e)
}

// stream answers with server-sent events, one write for all that has come since the
// last. Until the first of them an error has its own status, from then on it is an event.
func (c *call) stream(reqs []coppice.Request, out *openai.Stream, n int) error {
	ctx, cancel := c.context()
	defer cancel()
	buf := c.s.buffer()
	defer c.s.release(buf)
	c.rest()
	g := c.newGauge(len(reqs), n)
	for p, err := range c.s.pieces(ctx, reqs) {
		now := time.Now()
		last := g.pass(now, p)
		b := (*buf)[:0]
		switch {
		case err == nil:
			if b = out.Piece(b, p.prompt, &p.Piece); last {
				b = out.Done(b)
			}
		case c.status == 0:
			return err
		default:
			c.fault = err
			e := c.translate(err)
			if e == nil {
				return nil
			}
			b = out.Error(b, e)
		}
		if *buf = b; len(b) == 0 {
			continue
		}
		c.extend(now)
		if c.status == 0 {
			c.w.Header().Set("Cache-Control", "no-cache")
			c.w.Header().Set("X-Accel-Buffering", "no") // proxies would hold it back
			c.begin(http.StatusOK, "text/event-stream")
		}
		if !c.write(b) || !c.flush() {
			return nil
		}
		c.rest()
	}
	return nil
}

// flush sends what was written.
func (c *call) flush() bool {
	if c.gone == nil {
		c.gone = c.out.Flush()
	}
	return c.gone == nil
}

// respond answers with one JSON object when all has come.
func (c *call) respond(reqs []coppice.Request, out *openai.Response, n int) error {
	ctx, cancel := c.context()
	defer cancel()
	c.rest()
	g := c.newGauge(len(reqs), n)
	for p, err := range c.s.pieces(ctx, reqs) {
		g.pass(time.Now(), p)
		if err != nil {
			return err
		}
		out.Piece(p.prompt, &p.Piece)
	}
	buf := c.s.buffer()
	defer c.s.release(buf)
	*buf = out.Append((*buf)[:0])
	return c.json(http.StatusOK, *buf)
}
