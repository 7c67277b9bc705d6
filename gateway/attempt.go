package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/router"
)

// attempt is a request at one worker. When the worker is lost and nothing was heard of the
// answer for a while, its keeper ends the attempt.
type attempt struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	heard  atomic.Int64 // Unix nanoseconds: when anything came, or the attempt began

	own   bool        // the worker is Coppice's own: it reports when the request enters a plan
	spare bool        // another attempt may follow
	sent  atomic.Bool // the request's header has been written to a connection
	phase atomic.Uint32
}

// The phases of an attempt. The first two end in one of the others, and only once.
const (
	waits uint32 = iota // as far as is known
	begun               // the worker has begun to compute the request, or to answer it
	moved               // the request was taken from a worker that had not begun
)

// begin notes that the worker has begun; false: the request was taken from it before.
func (a *attempt) begin() bool {
	return a.phase.CompareAndSwap(waits, begun) || a.phase.Load() == begun
}

// errSilent ends an attempt at a worker that is lost.
var errSilent = errors.New("gateway: the worker is lost, and nothing comes from it")

// errStalled ends an attempt at a worker that is late, so that another one is asked.
var errStalled = errors.New("gateway: the worker is late, and has not begun with the request")

// lostPatience is how long a worker may be lost and its answers silent: one that is merely
// too busy for the gateway's questions goes on.
const lostPatience = 5 * time.Second

// try notes an attempt, which ends with ctx; nil: the worker has left.
func (m *member) try(ctx context.Context) *attempt {
	a := &attempt{}
	a.heard.Store(time.Now().UnixNano())
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left {
		return nil
	}
	a.own = !m.foreign
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	m.tries[a] = struct{}{}
	return a
}

// tried says that it is over.
func (m *member) tried(a *attempt) {
	m.mu.Lock()
	delete(m.tries, a)
	m.mu.Unlock()
	a.cancel(nil)
}

// cut ends the attempts of which nothing was heard for too long, once the worker is lost for
// as long: an answer that is no stream is silent until it is whole.
func (m *member) cut(now time.Time) {
	before := now.Add(-lostPatience)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost.After(before) {
		return
	}
	for a := range m.tries {
		if a.heard.Load() < before.UnixNano() {
			a.cancel(errSilent)
		}
	}
}

// outlive has no more attempts begin at a worker that has left the router, and those that
// have looked after.
func (m *member) outlive() {
	m.mu.Lock()
	m.left = true
	m.mu.Unlock()
	g := m.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed { // or all requests end
		g.clock.Go(m.linger)
	}
}

// linger asks a worker that has left how it is for as long as it has requests: that it went
// may be because its machine did, and then nothing else tells them.
func (m *member) linger() {
	t := time.NewTicker(m.g.cfg.ProbeEvery)
	defer t.Stop()
	for m.trying() {
		select {
		case <-m.g.ctx.Done():
			return
		case <-t.C:
		}
		ctx, cancel := context.WithTimeout(m.g.ctx, m.g.cfg.ProbeTimeout)
		_, err := m.ready(ctx)
		cancel()
		m.mu.Lock()
		switch {
		case err == nil:
			m.state, m.fails = Draining, 0
		case exhausted(err):
		default:
			if m.fails++; m.state != Lost && m.fails >= m.g.cfg.FailAfter {
				m.state, m.lost = Lost, time.Now()
			}
		}
		lost := m.state == Lost
		m.mu.Unlock()
		if lost {
			m.cut(time.Now())
		}
	}
}

func (m *member) trying() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.tries) > 0
}

// send asks the chosen worker. On an error nothing of an answer has been seen, and the
// reservation is gone; again: the same worker may be asked once more.
func (j *journey) send(r *http.Request) (res *http.Response, again bool, err error) {
	g, m, d, try := j.g, j.member, j.decision, j.try
	j.attempts++
	try.spare = j.attempts <= g.cfg.Retries
	out := j.request(r.WithContext(httptrace.WithClientTrace(try.ctx, j.trace(try))), m, d)
	if res, err = g.transport.RoundTrip(out); err == nil {
		if err = j.receive(res, try); err == nil && !try.begin() {
			err = errStalled
		}
		if err == nil {
			return res, false, nil
		}
		res.Body.Close()
	}
	m.tried(try)
	gone := r.Context().Err() != nil
	switch {
	case exhausted(err):
		g.chooser.rollback(d.Reservation)
		g.log.Error("out of file descriptors: raise the limit, or lower --max-conns", zap.Error(err))
		return nil, false, errInternal
	case refused(err) && !try.sent.Load():
		g.chooser.rollback(d.Reservation)
		if !gone {
			m.suspect(d.Worker, err)
		}
	case errors.As(err, new(*busyError)):
		g.chooser.release(d.Reservation)
	default:
		g.chooser.abandon(d.Reservation)
		if again = true; !gone {
			m.nudge()
		}
	}
	if j.stuck = !try.movable(err); j.stuck {
		j.fault = failedLate(m.name(), try.phase.Load() == begun)
	} else {
		j.fault = unavailable(m.name(), err)
	}
	if !gone {
		g.log.Warn("worker did not answer", m.field(), zap.Int("attempt", j.attempts), zap.Bool("begun", try.phase.Load() == begun), zap.Error(err))
	}
	return nil, again, j.fault
}

// request is what goes to the worker.
func (j *journey) request(out *http.Request, m *member, d router.Decision) *http.Request {
	at := *out.URL
	at.Scheme, at.Host, at.Path, at.RawPath = m.url.Scheme, m.url.Host, m.url.Path+out.URL.Path, ""
	out.URL, out.Host = &at, ""
	out.Body, out.ContentLength = http.NoBody, int64(len(j.load.body))
	if len(j.load.body) > 0 {
		l := j.load
		out.Body = l.reader()
		out.GetBody = func() (io.ReadCloser, error) { return l.reader(), nil } // for a connection that had just been closed
	}
	if m.given.Ranks > 1 || j.try.own {
		out.Header = out.Header.Clone()
	}
	if m.given.Ranks > 1 {
		out.Header.Set(headerRank, strconv.Itoa(int(d.Worker.DP)))
	}
	if j.try.own {
		out.Header.Set(headerProgress, progressInterim)
	}
	return out
}

// refused tells that no connection came about.
func refused(err error) bool {
	dialled := (*net.OpError)(nil)
	return errors.As(err, &dialled) && dialled.Op == "dial" || errors.Is(err, syscall.ECONNREFUSED)
}

// exhausted tells that it is this process that has no more descriptors, and no worker's
// fault.
func exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// receive waits for the first bytes of the answer, for until then another worker may
// answer as well.
func (j *journey) receive(res *http.Response, try *attempt) error {
	j.status = res.StatusCode
	if res.StatusCode < http.StatusOK {
		return fmt.Errorf("it answers with status %d, as if it switched protocols, which nobody asked for", res.StatusCode)
	}
	if try.declined(res) && j.attempts <= j.g.cfg.Retries && j.others() {
		return &busyError{res.StatusCode}
	}
	if res.StatusCode == http.StatusServiceUnavailable {
		j.member.nudge()
	}
	if err := j.answer.begin(j, res, try); err != nil {
		return err
	}
	h := res.Header
	for name := range h { // the gateway's own say who may read the answer
		if strings.HasPrefix(name, "Access-Control-") {
			delete(h, name)
		}
	}
	h.Set(headerWorker, j.member.name())
	if pool := j.pools.name(j.pool); pool != "" {
		h.Set(headerPool, pool)
	}
	h.Set(headerOverlap, strconv.Itoa(j.decision.Overlap.Blocks()))
	h.Set(headerBlocks, strconv.Itoa(j.blocks))
	h.Set(headerAttempts, strconv.Itoa(j.attempts))
	res.Body = &j.answer
	return nil
}

type busyError struct{ status int }

func (e *busyError) Error() string { return "it answers with status " + strconv.Itoa(e.status) }
