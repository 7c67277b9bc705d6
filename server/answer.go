package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/internal/server/answer"
	"github.com/coppice-llm/coppice/internal/server/view"
)

// piece is news of one of a request's prompts.
type piece struct {
	prompt int
	coppice.Piece
}

// flow is what comes of requests, all of them at once, until each had its final piece. Its
// call settles it.
type flow struct {
	*gauge
	ctx     context.Context // whose end aborts them
	stop    func()          // lets go of ctx
	streams []*coppice.Stream
	single  [1]*coppice.Stream // place for the usual list
	latest  piece
	come    chan news // of several
	all     sync.WaitGroup
}

type news struct {
	piece
	err error
}

// open has the node run requests of n choices each. If it refuses one, the others are
// aborted.
func (c *call) open(reqs []coppice.Request, n int) (*flow, error) {
	f := &flow{gauge: c.newGauge(len(reqs), n)}
	f.ctx, f.stop = c.s.door.Bound(c.r.Context())
	if f.streams = f.single[:0]; len(reqs) > 1 {
		f.come = make(chan news)
	}
	c.after = func() { c.settle(f) }
	for i := range reqs {
		stream, err := c.s.cfg.Node.Stream(reqs[i])
		if err != nil {
			f.left = i // no more were opened
			return nil, err
		}
		f.streams = append(f.streams, stream)
		if f.come != nil {
			f.all.Go(func() { f.carry(i, stream) })
		}
	}
	return f, nil
}

// carry sends on what comes of one of several, up to its final piece: who settles the flow
// takes all.
func (f *flow) carry(i int, stream *coppice.Stream) {
	for ctx := f.ctx; ; {
		p, err := stream.Next(ctx)
		f.come <- news{piece{i, p}, err}
		if p.Final {
			return
		}
		if err != nil && p.Ending == nil { // ctx has ended; the endings are to come
			ctx = context.Background()
		}
	}
}

// next waits for the next piece, which is valid until the one after it, or for the end of
// the context, an error without an Ending.
func (f *flow) next() (p *piece, err error) {
	if f.come != nil {
		n := <-f.come
		f.latest, err = n.piece, n.err
	} else {
		f.latest.Piece, err = f.streams[0].Next(f.ctx)
	}
	return &f.latest, err
}

// settle ends what still runs of the call's requests, behind its answer, and waits for the
// endings: what was computed for a client who left, or whose answer was an error, is billed
// too. The node ends every request, an aborted one with the step that it is in.
func (c *call) settle(f *flow) {
	defer f.stop()
	if f.left > 0 && c.status != 0 {
		c.flush() // who has the answer need not wait
	}
	for _, stream := range f.streams {
		stream.Abort(nil) // of no effect on one that has ended
	}
	if f.come == nil {
		f.ctx = context.Background()
	}
	for f.left > 0 {
		p, _ := f.next()
		f.bill(p)
	}
	f.all.Wait()
}

// gauge measures the pieces of a request's choices as they pass.
type gauge struct {
	c     *call
	n     int         // choices of a prompt
	last  []time.Time // of each choice: its latest piece
	one   [1]time.Time
	count int // pieces
	left  int // prompts without their final piece
	bills []promptBill
}

// promptBill is what one prompt of a request took.
type promptBill struct {
	coppice.Bill
	begun  bool
	queued time.Duration // until the first of its choices had its turn
}

func (c *call) newGauge(prompts, n int) *gauge {
	g := &gauge{c: c, n: n, left: prompts, bills: make([]promptBill, prompts)}
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
		at := &g.last[p.prompt*g.n+p.Sample]
		if at.IsZero() {
			first := now.Sub(c.start)
			if c.bill.firstToken == 0 {
				c.bill.firstToken = first
			}
			m.FirstToken.Observe(first.Seconds())
			if c.s.feed != nil {
				c.s.feed.Observe(view.Observation{TTFT: first})
			}
		} else {
			gap := now.Sub(*at) / time.Duration(n)
			m.NextToken.Observe(gap.Seconds())
			if g.count++; c.s.feed != nil && g.count%oftenObserved == 0 {
				c.s.feed.Observe(view.Observation{ITL: gap, Gaps: oftenObserved})
			}
		}
		*at = now
	}
	g.bill(p)
	return g.left == 0
}

// bill counts a piece, whether or not there is somebody to have it.
func (g *gauge) bill(p *piece) {
	c, b := g.c, &g.bills[p.prompt]
	c.bill.outputTokens += len(p.Tokens)
	if e := p.Ending; e != nil {
		c.bill.reason = e.Reason
		b.Add(e)
		if e.CachedTokens+e.ComputedTokens > 0 && (!b.begun || e.Queued < b.queued) {
			b.begun, b.queued = true, e.Queued
		}
		c.trace(p.prompt, p.Sample, e)
	}
	if p.Final {
		g.left--
		c.bill.promptTokens += b.PromptTokens
		c.bill.cachedTokens += b.CachedTokens
		c.bill.servedTokens += b.ComputedTokens + b.OutputTokens
		if b.begun {
			c.s.metrics.Queued.Observe(b.queued.Seconds())
		}
	}
}

// stream answers with server-sent events, one write for all that has come since the
// last. Until the first of them an error has its own status, from then on it is an event.
func (c *call) stream(reqs []coppice.Request, out *answer.Stream, n int) error {
	buf := c.s.buffer()
	defer c.s.release(buf)
	c.client.Rest()
	f, err := c.open(reqs, n)
	if err != nil {
		return err
	}
	for last := false; err == nil && !last; {
		var p *piece
		if p, err = f.next(); p.Begun {
			c.begun()
			continue
		}
		now := time.Now()
		last = f.pass(now, p)
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
		c.client.Extend()
		if c.status == 0 {
			c.w.Header().Set("Cache-Control", "no-cache")
			c.w.Header().Set("X-Accel-Buffering", "no") // proxies would hold it back
			c.begin(http.StatusOK, "text/event-stream")
		}
		if !c.write(b) || !c.flush() {
			return nil
		}
		c.client.Rest()
	}
	return nil
}

// flush sends what was written.
func (c *call) flush() bool {
	if c.gone == nil {
		c.gone = c.client.Out.Flush()
	}
	return c.gone == nil
}

// respond answers with one JSON object when all has come.
func (c *call) respond(reqs []coppice.Request, out *answer.Response, n int) error {
	c.client.Rest()
	f, err := c.open(reqs, n)
	for last := false; err == nil && !last; {
		var p *piece
		if p, err = f.next(); p.Begun {
			c.begun()
			continue
		}
		if err == nil {
			out.Piece(p.prompt, &p.Piece)
		}
		last = f.pass(time.Now(), p)
	}
	if err != nil {
		return err
	}
	buf := c.s.buffer()
	defer c.s.release(buf)
	*buf = out.Append((*buf)[:0])
	return c.json(http.StatusOK, *buf)
}
