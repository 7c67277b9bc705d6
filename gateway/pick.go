package gateway

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// Wants restricts and changes a request to [Gateway.Pick]. The zero value does neither.
type Wants struct {
	// Among, unless nil, are the only workers that may be chosen, by the host:port of their URLs.
	Among []string
	// Fallbacks is the most workers that Pick names beside the chosen one.
	Fallbacks int
	// Priority is that of the request while all workers are busy: higher ones first.
	Priority int32
	// Tenant shares the workers with other tenants if Config.Router.Order is router.Fair. "": the tenant of the request's key.
	Tenant string
	// Edit, unless nil, returns the body that the worker is to get for that of the client. It may change the body in
	// place. Its error is for the client.
	Edit func(body []byte) ([]byte, error)
}

// Answer is an answer that the gateway gives itself: the reason why it refuses a request, or for example a list of models.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Pick is a request for which the gateway has reserved a worker, and which something else sends there, such as a
// proxy that asks the gateway. The caller reports the answer with Begin and Pass, and must call End in any case. A
// Pick belongs to one goroutine.
type Pick struct {
	p         *proxiedRequest
	r         *http.Request
	end       func()   // of the context
	fallbacks []string // host:port
	begun     bool     // Begin was called
	ended     bool
}

// Pick does for request r what the gateway does for a request of its own clients, up to sending it: it checks the key, reads
// the body and the prompt, and chooses and reserves a worker. It waits while all workers are busy, for as long as
// Config.QueueTimeout or the request's context. Paths for operators, such as /metrics, do not exist for Pick. Either the Pick
// or the Answer is nil.
func (g *Gateway) Pick(r *http.Request, wants Wants) (*Pick, *Answer) {
	w := &picker{wants: wants, Answer: Answer{Status: http.StatusOK, Header: http.Header{}}}
	if forOperators(r.URL.Path) {
		g.unknown(w, r)
		return nil, &w.Answer
	}
	g.routes.ServeHTTP(w, r)
	p := w.admitted
	if p == nil {
		return nil, &w.Answer
	}
	p.picked = true
	k := &Pick{p: p, r: r}
	req := &p.buffer.ask.Request
	if req.Priority = wants.Priority; wants.Among != nil {
		req.Among = g.at(wants.Among)
	}
	if wants.Tenant != "" {
		req.Tenant = xxh3.HashString(wants.Tenant)
	}
	p.ctx, k.end = g.open.Bound(r.Context())
	if err := p.choose(p.ctx); err != nil {
		if p.ctx.Err() != nil {
			err = context.Cause(p.ctx)
		}
		if p.status = statusGone; r.Context().Err() == nil {
			p.status, p.fault = g.refuse(w, r, err), err
		}
		k.leave()
		return nil, &w.Answer
	}
	p.attempts = 1
	k.fallbacks = p.fallbacks(wants.Fallbacks)
	return k, nil
}

// forOperators reports whether a path of the gateway is for its operators, not for clients of the workers.
func forOperators(path string) bool {
	return path == "/" || path == "/metrics" || path == "/v1/fleet" || strings.HasPrefix(path, "/v1/fleet/") || strings.HasPrefix(path, "/page/")
}

// at returns the workers at these addresses, host:port, in ascending order.
func (g *Gateway) at(addrs []string) []kv.WorkerID {
	ids := []kv.WorkerID{}
	for id, m := range g.members.Summary().ByID {
		if slices.Contains(addrs, m.URL().Host) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// fallbacks returns the addresses of up to n workers that could take the request too, those of the lowest cost first.
func (p *proxiedRequest) fallbacks(n int) (addrs []string) {
	if n <= 0 || p.decision.Reason == router.ByPin {
		return nil
	}
	e, _, err := p.g.dispatch.Explain(&p.buffer.ask)
	if err != nil {
		return nil // the chosen worker was the last one
	}
	slices.SortStableFunc(e.Candidates, func(a, b router.Candidate) int { return cmp.Compare(a.Cost, b.Cost) })
	all := p.g.members.Summary().ByID
	for _, c := range e.Candidates {
		m := all[c.Worker.Worker]
		if len(addrs) == n {
			break
		}
		// A proxy can't change the rank or the path when it falls back.
		if m == nil || m == p.member || m.Ranks() > 1 || m.URL().Path != p.member.URL().Path || slices.Contains(addrs, m.URL().Host) {
			continue
		}
		addrs = append(addrs, m.URL().Host)
	}
	return addrs
}

// Worker returns the URL of the chosen worker. The caller must not change it.
func (k *Pick) Worker() *url.URL { return k.p.member.URL() }

// Path returns the path and query to ask the chosen worker for, "" for those of the client.
func (k *Pick) Path() string {
	base := k.p.member.URL().Path
	if base == "" || base == "/" {
		return ""
	}
	return base + k.r.URL.RequestURI()
}

// Fallbacks returns the host:port of the workers to try if the chosen one can't be reached, the best first.
func (k *Pick) Fallbacks() []string { return k.fallbacks }

// Repeatable reports whether the request may be sent to a fallback although a worker may have begun it, because that worker failed
// before its answer began. A request that a worker declined or never got may always be sent to a fallback.
func (k *Pick) Repeatable() bool {
	return k.p.g.cfg.Repeats > 0 && !k.p.hasEffects(k.r)
}

// Body returns the body to send. It is valid until Begin or End.
func (k *Pick) Body() []byte { return k.p.buffer.body }

// Header sets the headers in h that the chosen worker needs beside those of the client.
func (k *Pick) Header(h http.Header) { k.p.steer(h) }

// Begin reports the header of the worker's answer, and adds the gateway's own headers to h. bodyless says that
// there is no body. served is the host:port of the worker that answers, if that is known, else "": where a proxy
// has fallen back to another worker, the reservation moves there.
func (k *Pick) Begin(status int, h http.Header, bodyless bool, served string) {
	p := k.p
	if k.begun || k.ended {
		return
	}
	k.begun = true
	if served != "" && served != p.member.URL().Host {
		p.moveTo(served)
	}
	p.attempt.begin()
	p.status = status
	if status == http.StatusServiceUnavailable {
		p.member.Nudge()
	}
	p.answer.expect(p, &http.Response{Header: h, Body: http.NoBody, ContentLength: -1, Request: k.r})
	p.mark(h)
	if bodyless {
		p.answer.pass(nil, io.EOF)
	}
	p.release()
}

// moveTo moves the reservation to the worker at an address, host:port, because that worker answers the request. If the
// worker is unknown or full, only the reservation ends.
func (p *proxiedRequest) moveTo(addr string) {
	g, ask := p.g, &p.buffer.ask
	ids := g.at([]string{addr})
	if len(ids) == 0 {
		return
	}
	m := g.members.Summary().ByID[ids[0]]
	attempt := g.attempts.start(p.ctx, m, false)
	if attempt == nil {
		return // it has just left
	}
	g.dispatch.Rollback(p.decision.Reservation)
	g.attempts.end(p.member, p.attempt)
	p.member.Nudge() // it did not answer
	rank := kv.Rank{Worker: ids[0]}
	ask.Request.Pinned, ask.Request.Among, ask.Request.Avoid = &rank, nil, ask.Request.Avoid[:0]
	d, err := g.dispatch.Choose(p.ctx, ask, 1)
	if err != nil {
		d = router.Decision{Worker: rank}
	}
	p.decision, p.member, p.attempt = d, m, attempt
	p.attempts++
}

// Pass reports the next bytes b of the answer's body, after Begin; last says that the body ends with them. It returns the bytes to
// forward now, which are valid until the next call: of a stream, whole events.
func (k *Pick) Pass(b []byte, last bool) []byte {
	if !k.begun || k.ended || k.p.answer.ended != nil {
		return b
	}
	var err error
	if last {
		err = io.EOF
	}
	return k.p.answer.pass(b, err)
}

// End ends the request. If its answer is not complete, the client or the worker has left. It may be called again.
func (k *Pick) End() {
	if k.ended {
		return
	}
	k.ended = true
	p := k.p
	switch {
	case !k.begun:
		p.status = statusGone
		p.g.attempts.end(p.member, p.attempt)
		p.g.dispatch.Abandon(p.decision.Reservation)
	case p.answer.ended == nil && !p.answer.done:
		p.status = statusGone
	}
	k.leave()
}

// leave ends the request in the gateway. How its context ended says nothing: a proxy ends it after the last byte too.
func (k *Pick) leave() {
	k.end()
	k.p.leave(k.r.WithContext(context.WithoutCancel(k.r.Context())))
}

// picker is the ResponseWriter of a request to Pick. It keeps the gateway's own answer, and admitted if there is none.
type picker struct {
	Answer
	wants    Wants
	admitted *proxiedRequest
	wrote    bool // the header
}

// Header implements http.ResponseWriter.
func (w *picker) Header() http.Header { return w.Answer.Header }

// WriteHeader implements http.ResponseWriter.
func (w *picker) WriteHeader(status int) {
	if !w.wrote {
		w.wrote, w.Status = true, status
	}
}

// Write implements http.ResponseWriter.
func (w *picker) Write(b []byte) (int, error) {
	w.wrote = true
	w.Body = append(w.Body, b...)
	return len(b), nil
}

// edit replaces the body of p as Wants.Edit says.
func (w *picker) edit(p *proxiedRequest) error {
	if w.wants.Edit == nil {
		return nil
	}
	body, err := w.wants.Edit(p.buffer.body)
	if err == nil {
		p.buffer.body = body
	}
	return err
}
