package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// headerProgress asks a Coppice worker for an interim response 103 when the request first enters
// a plan. That response has the header headerPhase: running.
const (
	headerProgress  = "X-Coppice-Progress"
	headerPhase     = "X-Coppice-Phase"
	progressInterim = "103"
	phaseRunning    = "running"
)

// RoundTrip sends a request to the worker chosen for it. If the worker fails before a byte of its answer went to the
// client, other workers are asked, as another says. The reverse proxy calls RoundTrip with a request that RoundTrip may
// change.
func (g *Gateway) RoundTrip(r *http.Request) (*http.Response, error) {
	p := r.Context().Value(requestKey{}).(*proxiedRequest)
	ctx := p.ctx
	if r.Header.Get(headerProgress) == progressInterim { // the client itself wants interim responses
		ctx = r.Context()
	}
	for {
		if err := p.choose(ctx); err != nil {
			return nil, err
		}
		res, again, err := p.send(r)
		if err == nil {
			p.release()
			return res, nil
		}
		if r.Context().Err() != nil {
			return nil, context.Cause(r.Context())
		}
		if !p.another(r) {
			return nil, p.last(r, err)
		}
		ask := &p.buffer.ask
		ask.Request.Session = 0
		var avoid bool
		if late := errors.Is(context.Cause(p.attempt.ctx), errStalled); late {
			avoid = p.others() // otherwise the next probe, if answered, may make it the best choice again
		} else {
			avoid = !g.dispatch.Ascend(ask, p.served(g.members.Summary())) && (!again || p.attempts > 1 || p.others())
		}
		if avoid {
			ask.Request.Avoid = append(ask.Request.Avoid, p.decision.Worker)
		}
	}
}

// choose reserves a worker and starts an attempt there, which ends with ctx. It waits for up to
// QueueTimeout while all workers are busy, and while all are lost but one has been lost only just now.
func (p *proxiedRequest) choose(ctx context.Context) error {
	g, ask, began := p.g, &p.buffer.ask, time.Now()
	for {
		d, err := g.dispatch.Choose(ctx, ask, g.cfg.QueueTimeout)
		p.took.choose = time.Since(began)
		if errors.Is(err, router.ErrNoWorkers) {
			// Workers that failed before the last one may have recovered.
			avoided := len(ask.Request.Avoid)
			ask.Request.Avoid = slices.DeleteFunc(ask.Request.Avoid, func(w kv.Rank) bool { return w != p.decision.Worker })
			if len(ask.Request.Avoid) < avoided || p.awaitReturn(ctx, g.cfg.QueueTimeout-time.Since(began)) {
				continue
			}
			if p.fault != nil {
				return p.fault // the first failure explains more than ErrNoWorkers
			}
			return p.noWorkers()
		}
		if err != nil {
			return err
		}
		p.decision = d
		if p.pool = ask.Request.Pool; p.pool == 0 {
			p.pool = g.dispatch.PoolOf(d.Worker.Worker)
		}
		if m := g.members.Summary().ByID[d.Worker.Worker]; m != nil {
			if p.attempt = g.attempts.start(ctx, m, !p.picked && p.again.moves < g.cfg.Retries); p.attempt != nil {
				p.member = m
				p.remember(began)
				return nil
			}
		}
		g.dispatch.Rollback(d.Reservation) // the worker has just left, so it will not be chosen again
	}
}

// returnPoll is the time after which a request that no worker can take asks again.
const returnPoll = 20 * time.Millisecond

// awaitReturn waits for a moment and returns true if a lost worker that could take the request may be back by then. A worker that is only
// too busy for probes, or was restarted, is back soon; one that has been lost for longer than lostPatience is not waited for.
func (p *proxiedRequest) awaitReturn(ctx context.Context, left time.Duration) bool {
	if left <= 0 || !p.mayReturn(time.Now().Add(-p.g.attempts.lostPatience())) {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(min(left, returnPoll)):
		return true
	}
}

// mayReturn reports whether a worker that could take the request, were it healthy, has been lost after the time since.
func (p *proxiedRequest) mayReturn(since time.Time) bool {
	ask, all := &p.buffer.ask, p.g.members.Summary()
	model := p.served(all)
	for id, m := range all.ByID {
		if m.Away().After(since) && (model == "" || slices.Contains(m.Status().Models, model)) &&
			(ask.Request.Pool == 0 || ask.Request.Pool == p.g.dispatch.PoolOf(id)) &&
			(ask.Request.Among == nil || slices.Contains(ask.Request.Among, id)) &&
			!slices.ContainsFunc(ask.Request.Avoid, func(w kv.Rank) bool { return w.Worker == id }) {
			return true
		}
	}
	return false
}

// served returns the request's model if a worker lists it, else "", which means any.
func (p *proxiedRequest) served(s *members.Summary) string {
	if _, ok := s.Served[p.model]; ok {
		return p.model
	}
	return ""
}

// others reports whether there is a healthy worker for the request that was not asked yet, by
// their number.
func (p *proxiedRequest) others() bool {
	ask := &p.buffer.ask
	return p.g.dispatch.Reachable(ask, p.served(p.g.members.Summary())) > ask.Asked
}

// noWorkers returns the error for a request that no worker can take.
func (p *proxiedRequest) noWorkers() error {
	if p.buffer.ask.Request.Among != nil {
		return errNoneAmong
	}
	pools := p.buffer.ask.GridPools()
	if len(pools) == 0 {
		return p.g.noWorkers(p.g.members.Summary().Total)
	}
	return noWorkerInPool(pools, p.model)
}

// send sends the request to the chosen worker and waits for the beginning of the answer. On an
// error nothing of an answer has been used and the reservation has ended; again says that the
// same worker may be asked once more.
func (p *proxiedRequest) send(r *http.Request) (res *http.Response, again bool, err error) {
	g, m, d, a := p.g, p.member, p.decision, p.attempt
	p.attempts++
	p.buffer.ask.Asked++
	out := p.outgoing(r.WithContext(httptrace.WithClientTrace(a.ctx, p.trace())))
	if res, err = g.transport.RoundTrip(out); err == nil {
		if err = p.receive(res); err == nil && !a.begin() {
			err = errStalled
		}
		if err == nil {
			p.count(outcomeAnswered)
			return res, false, nil
		}
		res.Body.Close()
	}
	g.attempts.end(m, a)
	gone := r.Context().Err() != nil
	switch {
	case members.Exhausted(err):
		g.dispatch.Rollback(d.Reservation)
		p.again.begun = false
		p.count(outcomeUnreached)
		g.log.Error("out of file descriptors: raise the limit or lower --max-conns", zap.Error(err))
		return nil, false, errInternal
	case unconnected(err) && !a.sent.Load():
		g.dispatch.Rollback(d.Reservation)
		if !gone {
			g.members.Suspect(m, d.Worker, err)
		}
	case errors.As(err, new(*busyError)):
		g.dispatch.Release(d.Reservation)
	default:
		g.dispatch.Abandon(d.Reservation)
		if again = true; !gone {
			m.Nudge()
		}
	}
	p.again.begun, p.fault = !a.movable(err), unavailable(m.Name(), err)
	p.count(a.outcome(err, gone))
	if !gone {
		g.log.Warn("worker did not answer", m.Field(), zap.Int("attempt", p.attempts), zap.Bool("begun", a.phase.Load() == begun), zap.Error(err))
	}
	return nil, again, p.fault
}

// trace returns hooks that record in the attempt that the header was written and that the worker
// has begun. The transport calls them from its own goroutines.
func (p *proxiedRequest) trace() *httptrace.ClientTrace {
	a, d, reservation := p.attempt, p.g.dispatch, p.decision.Reservation
	return &httptrace.ClientTrace{
		WroteHeaders: func() { a.sent.Store(true) },
		Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			if code == http.StatusEarlyHints && header.Get(headerPhase) == phaseRunning && a.begin() {
				d.Started(reservation)
			}
			return nil
		},
	}
}

// outgoing changes out, a copy of the client's request, into the request for the worker.
func (p *proxiedRequest) outgoing(out *http.Request) *http.Request {
	at, to, b := *out.URL, p.member.URL(), p.buffer
	at.Scheme, at.Host, at.Path, at.RawPath = to.Scheme, to.Host, to.Path+out.URL.Path, ""
	out.URL, out.Host = &at, ""
	out.Body, out.ContentLength = http.NoBody, int64(len(b.body))
	if len(b.body) > 0 {
		out.Body = b.reader()
		out.GetBody = func() (io.ReadCloser, error) { return b.reader(), nil } // to retry on a stale connection
	}
	if p.member.Ranks() > 1 || p.attempt.own {
		out.Header = out.Header.Clone()
	}
	p.steer(out.Header)
	if p.attempt.own {
		out.Header.Set(headerProgress, progressInterim)
	}
	return out
}

// steer sets the header that names the rank of a worker with several.
func (p *proxiedRequest) steer(h http.Header) {
	if p.member.Ranks() > 1 {
		h.Set(headerRank, strconv.Itoa(int(p.decision.Worker.DP)))
	}
}

// receive checks the status of res and waits for the first bytes of the answer. If it returns an
// error, another worker can still be asked. Otherwise it replaces the body of res by p.answer
// and adds the gateway's headers.
func (p *proxiedRequest) receive(res *http.Response) error {
	p.status = res.StatusCode
	if res.StatusCode < http.StatusOK {
		return fmt.Errorf("it answers with status %d and switches protocols, without a request to do so", res.StatusCode)
	}
	if p.attempt.declined(res) && p.again.moves < p.g.cfg.Retries && p.others() {
		return &busyError{res.StatusCode}
	}
	if res.StatusCode == http.StatusServiceUnavailable {
		p.member.Nudge()
	}
	if err := p.answer.begin(p, res); err != nil {
		return err
	}
	for name := range res.Header { // CORS headers are the gateway's, not the worker's
		if strings.HasPrefix(name, "Access-Control-") {
			delete(res.Header, name)
		}
	}
	p.mark(res.Header)
	res.Body = &p.answer
	return nil
}

// mark adds the gateway's own headers to h, the header of an answer.
func (p *proxiedRequest) mark(h http.Header) {
	h.Set(headerWorker, p.member.Name())
	if pool := p.poolName(); pool != "" {
		h.Set(headerPool, pool)
	}
	if h.Del(headerOverlap); p.tellsOverlap() {
		h.Set(headerOverlap, strconv.Itoa(p.decision.Overlap.Blocks()))
	}
	h.Set(headerBlocks, strconv.Itoa(p.blocks))
	h.Set(headerAttempts, strconv.Itoa(p.attempts))
}

// failed answers a request that no worker answered, with err. The reverse proxy calls it.
func (g *Gateway) failed(w http.ResponseWriter, r *http.Request, err error) {
	p := r.Context().Value(requestKey{}).(*proxiedRequest)
	if cause := context.Cause(r.Context()); cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause // the gateway is shutting down
	} else if cause != nil {
		p.status = statusGone
		return
	}
	p.client.Extend()
	p.status = g.refuse(w, r, err)
}
