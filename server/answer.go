package server

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/server/view"
)

// piece is a result of coppice.Stream.Next with the index of the prompt it belongs to.
type piece struct {
	prompt int
	coppice.Piece
	err error
}

// flow merges the pieces of all prompts of one HTTP request, until each prompt has had its final
// piece. call.settle releases the flow.
type flow struct {
	*gauge
	ctx     context.Context // its end aborts the streams
	stop    func()          // releases ctx
	streams []*coppice.Stream
	session coppice.SessionRef // of the first prompt; without a name it is none
	tools   func() []string    // that its answer calls; nil: the answer has not ended
	single  [1]*coppice.Stream // backing array of streams for one prompt, the usual case: no allocation
	latest  piece
	results chan piece // used only with several prompts; one goroutine per prompt sends on it
	all     sync.WaitGroup
}

// open starts one stream per element of reqs, which holds one request per prompt, with n choices
// each. It returns the flow that merges the streams. If the node refuses a request, open returns
// the node's error; c.after, which runs after the answer, then aborts the streams already opened.
func (c *call) open(reqs []coppice.Request, n int) (*flow, error) {
	f := &flow{gauge: c.newGauge(len(reqs), n)}
	f.ctx, f.stop = c.s.open.Bound(c.r.Context())
	if f.streams = f.single[:0]; len(reqs) > 1 {
		f.results = make(chan piece)
	}
	c.after = func() { c.settle(f) }
	f.session = coppice.SessionRef{Namespace: reqs[0].Namespace, Tenant: reqs[0].Tenant, Name: reqs[0].Session}
	for i := range reqs {
		stream, err := c.s.cfg.Node.Stream(reqs[i])
		if err != nil {
			f.left = i // the i streams opened so far are the ones to settle
			return nil, err
		}
		f.streams = append(f.streams, stream)
		if f.results != nil {
			f.all.Go(func() { f.forward(i, stream) })
		}
	}
	return f, nil
}

// forward sends the pieces of stream i to f.results, up to and including the final one. It cannot
// leak: settle receives until every stream has sent its final piece.
func (f *flow) forward(i int, stream *coppice.Stream) {
	for ctx := f.ctx; ; {
		p, err := stream.Next(ctx)
		f.results <- piece{i, p, err}
		if p.Final {
			return
		}
		if err != nil && p.Ending == nil { // ctx has ended; wait for the endings regardless of it
			ctx = context.Background()
		}
	}
}

// next returns the next piece, which is valid until the following call. If the context ends
// first, it returns the context's error and a piece without an Ending. If tick sends a value first, it returns nil.
func (f *flow) next(tick <-chan time.Time) (p *piece, err error) {
	switch {
	case f.results != nil:
		select {
		case f.latest = <-f.results:
		case <-tick:
			return nil, nil
		}
	case tick != nil && !f.streams[0].Ready(f.ctx, tick):
		return nil, nil
	default:
		f.latest.Piece, f.latest.err = f.streams[0].Next(f.ctx)
	}
	if e := f.latest.Ending; e != nil && errors.Is(f.latest.err, errRepeated) { // stopped, and not aborted
		stopped := *e
		stopped.Reason, stopped.Err = coppice.Stop, nil
		f.latest.Ending, f.latest.err = &stopped, nil
	}
	return &f.latest, f.latest.err
}

// errRepeated ends a request whose outputs repeat a call.
var errRepeated = errors.New("server: the outputs repeat a call")

// end stops the requests of f, whose outputs have no more to give.
func (f *flow) end() {
	for _, stream := range f.streams {
		stream.Abort(errRepeated)
	}
}

// settle runs after the answer. It aborts the requests of f that still run and waits for their
// endings, so that tokens computed for a client that disconnected, or for an answer that became an
// error, are billed too. The wait is short: the node ends an aborted request after the step that
// is running.
func (c *call) settle(f *flow) {
	defer f.stop()
	if f.left > 0 && c.status != 0 {
		c.flush() // the client has its answer: do not make it wait for the endings
	}
	for _, stream := range f.streams {
		stream.Abort(nil) // no effect on a stream that has ended
	}
	if f.results == nil {
		f.ctx = context.Background()
	}
	for f.left > 0 {
		p, _ := f.next(nil)
		f.bill(p)
	}
	f.all.Wait()
	f.awaitTools()
}

// awaitTools tells the node which tools the answer to a turn of a session calls, so that the cache knows when the next turn may
// come. The client has the answer by then.
func (f *flow) awaitTools() {
	if f.tools == nil || f.session.Name == "" {
		return
	}
	if names := f.tools(); len(names) > 0 {
		if f.c.status != 0 {
			f.c.flush()
		}
		ctx, stop := f.c.s.open.Bound(context.Background())
		defer stop()
		_ = f.c.s.cfg.Node.AwaitTools(ctx, f.session, names...) // fails if the session is forgotten already, or the node ends
	}
}

// gauge measures latencies and counts tokens of the pieces of one HTTP request.
type gauge struct {
	c     *call
	n     int          // choices per prompt
	last  []time.Time  // time of the latest piece of each choice, at prompt*n + choice
	one   [1]time.Time // backing array of last for one choice
	count int          // pieces after the first of their choice
	left  int          // prompts whose final piece has not arrived
	bills []promptBill
}

// promptBill counts the tokens of one prompt over all its choices.
type promptBill struct {
	coppice.Bill
	begun  bool          // queued is set
	queued time.Duration // shortest queue time of its choices
}

// newGauge returns a gauge for the given number of prompts with n choices each. It also sets
// c.generates, which marks c as a request for tokens.
func (c *call) newGauge(prompts, n int) *gauge {
	g := &gauge{c: c, n: n, left: prompts, bills: make([]promptBill, prompts)}
	if g.last = g.one[:]; prompts*n > 1 {
		g.last = make([]time.Time, prompts*n)
	}
	c.generates = true
	return g
}

// itlSampling is the sampling interval of the live page: one in itlSampling gaps between tokens is
// reported to the page.
const itlSampling = 8

// pass records the latencies and counts the tokens of p, a piece that arrived at now. last reports
// whether every prompt has had its final piece.
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
			if g.count++; c.s.feed != nil && g.count%itlSampling == 0 {
				c.s.feed.Observe(view.Observation{ITL: gap, Gaps: itlSampling})
			}
		}
		*at = now
	}
	g.bill(p)
	return g.left == 0
}

// bill counts the tokens of a piece, whether or not a client still receives it.
func (g *gauge) bill(p *piece) {
	c, b := g.c, &g.bills[p.prompt]
	c.bill.outputTokens += len(p.Tokens)
	if e := p.Ending; e != nil {
		c.bill.reason = e.Reason
		b.Add(e)
		c.keepPrefix(e)
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

// stream runs reqs, n choices each, and answers with the server-sent events that out makes of the
// pieces. It writes once per piece; a piece holds all tokens since the previous one. An error
// before the first event is returned, so that it gets its own HTTP status; a later one is sent as
// an event, because the status is already on the wire.
func (c *call) stream(reqs []coppice.Request, out streamed, n int) error {
	buf := c.s.buffer()
	defer c.s.release(buf)
	c.client.Rest()
	f, err := c.open(reqs, n)
	if err != nil {
		return err
	}
	ping := newPinger(c.s.cfg.PingInterval)
	defer ping.timer.Stop()
	for last := false; err == nil && !last; {
		var p *piece
		p, err = f.next(ping.timer.C)
		now := time.Now()
		b := (*buf)[:0]
		switch {
		case p == nil:
			if ping.due(now) {
				b = out.Ping(b)
			}
		case p.Begun:
			c.begun()
			ping.admitted(now)
		default:
			if last = f.pass(now, p); err == nil {
				err = c.charge(keptBytes(&p.Piece) + repeatedBytes(&p.Piece, out))
			}
			if err != nil {
				break
			}
			if b = out.Piece(b, p.prompt, &p.Piece); last {
				f.tools = out.Tools
				b = out.Done(b)
			}
			if out.Repeated() {
				f.end()
			}
		}
		if err != nil {
			if c.status == 0 {
				return err
			}
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
		if !c.send(b, out.ContentType()) {
			return nil
		}
		ping.wrote(now)
	}
	return nil
}

// send writes a part of a stream and flushes it. It reports whether the client is still there.
func (c *call) send(b []byte, contentType string) bool {
	c.client.Extend()
	if c.status == 0 {
		c.w.Header().Set("Cache-Control", "no-cache")
		c.w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx buffers the stream
		c.begin(http.StatusOK, contentType)
	}
	if !c.write(b) || !c.flush() {
		return false
	}
	c.client.Rest()
	return true
}

// flush sends the written bytes to the client. It reports whether the client is still there.
func (c *call) flush() bool {
	if c.gone == nil {
		c.gone = c.client.Out.Flush()
	}
	return c.gone == nil
}

// respond runs reqs, n choices each, and answers with the one JSON object that out makes of the
// pieces, once all pieces have arrived.
func (c *call) respond(reqs []coppice.Request, out collected, n int) error {
	c.client.Rest()
	f, err := c.open(reqs, n)
	if err == nil {
		bytes := func(p *piece) int { return keptBytes(&p.Piece) + collectedBytes(&p.Piece) }
		err = f.collect(c, bytes, func(p *piece) {
			if out.Piece(p.prompt, &p.Piece); out.Repeated() {
				f.end()
			}
		})
	}
	if err != nil {
		return err
	}
	buf := c.s.buffer()
	defer c.s.release(buf)
	*buf = out.Append((*buf)[:0])
	f.tools = out.Tools
	return c.json(http.StatusOK, *buf)
}

// collect waits for all pieces of the answer to c. It charges each for its bytes, and then takes it.
func (f *flow) collect(c *call, bytes func(*piece) int, take func(*piece)) (err error) {
	for last := false; err == nil && !last; {
		var p *piece
		if p, err = f.next(nil); p.Begun {
			c.begun()
			continue
		}
		last = f.pass(time.Now(), p)
		if err == nil {
			err = c.charge(bytes(p))
		}
		if err == nil {
			take(p)
		}
	}
	return err
}
