package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway/prompt"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/server/openai"
)

// journey is one request on its way to a worker, and its answer back.
type journey struct {
	g     *Gateway
	w     http.ResponseWriter
	out   *http.ResponseController
	start time.Time
	until time.Time // what the client's connection may be written to
	// load is what it takes to ask a worker; nil once one has begun to answer.
	load  *luggage
	admin bool
	http2 bool
	// ctx is the request's, without the proxy's trace of interim responses.
	ctx context.Context

	// Of the prompt, for headers and figures.
	model                string
	blocks, promptTokens int
	inexact              bool

	member   *member
	decision router.Decision
	try      *attempt
	attempts int
	before   int           // of them, at pools that it has left
	pools    *pools        // as they were when it came; nil without
	pool     router.PoolID // where it is, or was to go; 0 without pools
	status   int
	fault    error
	stuck    bool // no other worker may be asked: the last one may have begun
	answer   answer

	// What the gateway itself took.
	read, hash, find time.Duration
}

type journeyKey struct{}

func (g *Gateway) journey(w http.ResponseWriter, r *http.Request, admin bool) *journey {
	return &journey{g: g, w: w, http2: r.ProtoMajor >= 2, out: http.NewResponseController(w), start: time.Now(), pools: g.pools.Load(), load: g.luggage.Get().(*luggage), admin: admin}
}

// arrive ends the journey, whatever became of it.
func (j *journey) arrive() {
	j.answer.Close()
	j.unload()
}

// unload gives back what is only needed to ask.
func (j *journey) unload() {
	if j.load != nil {
		j.load.put(j.g)
		j.load = nil
	}
}

// prepare reads what the request asks for, so that it can be asked about.
func (j *journey) prepare(r *http.Request, kind prompt.Kind, tenant string) error {
	g, p, a := j.g, &j.load.prompt, &j.load.ask
	begun := time.Now()
	words := g.words.Load()
	if err := words.reader.ReadAs(kind, tenant, j.load.body, g.roll.Load().as(), p); err != nil {
		return badBody(err)
	}
	j.read = time.Since(begun)
	roll := g.roll.Load()
	_, known := roll.served[p.Model]
	if p.Model != "" && !known && len(roll.models) > 0 {
		return noModel(p.Model, roll.models)
	}
	ns := p.Namespace
	if roll.loras[p.Model] {
		ns.LoRA = p.Model
	}
	begun = time.Now()
	a.Reset()
	a.exact = p.Exact
	a.hashes.Reset(p.Tokens, ns)
	a.hashes.SetPublic(p.PublicTokens)
	req := &a.req
	// Only the first of several prompts is read: the others are taken to be as long.
	req.PromptTokens, req.Untold = atMost(max(1, len(p.Tokens)), p.Prompts, router.MaxPromptTokens), !p.Exact
	if p.Exact || !words.exact {
		req.Hashes = a.hashes.Hashes(g.chooser.blockTokens)
	} else {
		a.hashes.Reset(nil, kv.Namespace{}) // bytes among tokens would mean something else
	}
	j.hash = time.Since(begun)
	j.blocks, j.promptTokens, j.inexact = len(req.Hashes), req.PromptTokens, !p.Exact
	j.model = p.Model
	if !p.Stream {
		req.Reply = router.AtOnce
	}
	req.ExpectedOutput = atMost(p.OutputTokens, p.Choices, router.MaxPromptTokens)
	if known {
		req.Model = modelOf(p.Model)
	}
	if s := r.Header.Get(headerSession); s != "" {
		req.Session = max(1, xxh3.HashString(tenant+"\x00"+s))
	} else if p.User != "" {
		req.Session = max(1, xxh3.HashString(tenant+"\x00"+p.User))
	}
	if err := j.targets(r, &p.Hints); err != nil {
		return err
	}
	return j.steer(r)
}

// atMost is n of each of times, which counts as 1 if it is not known, and no more than most.
func atMost(n, times, most int) int {
	if times = max(times, 1); n > most/times {
		return most
	}
	return n * times
}

// steer takes what an admin's request says of where it is to go.
func (j *journey) steer(r *http.Request) error {
	weights, pin := r.Header.Get(headerWeights), r.Header.Get(headerPin)
	if weights == "" && pin == "" {
		return nil
	}
	if !j.admin {
		return errNoAdmin
	}
	g, req := j.g, &j.load.ask.req
	if weights != "" {
		w := g.Weights()
		for text := range strings.SplitSeq(weights, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(text), "=")
			v, err := strconv.ParseFloat(value, 64)
			if err == nil {
				err = w.Set(name, v)
			}
			if err != nil {
				return badHeader(headerWeights, err)
			}
		}
		if err := w.Validate(); err != nil {
			return badHeader(headerWeights, err)
		}
		req.Weights = &w
	}
	if pin == "" {
		return nil
	}
	w := kv.Rank{Worker: kv.WorkerID(card.IDOf(pin))}
	if g.roll.Load().byID[w.Worker] == nil {
		return badHeader(headerPin, fmt.Errorf("there is no worker %.100q; /v1/fleet lists them", pin))
	}
	req.Pinned = &w
	return nil
}

// address reads which model a request is for that is not about a prompt.
func (j *journey) address() error {
	l := j.load
	l.ask.Reset()
	l.ask.req.PromptTokens, l.ask.req.ExpectedOutput, l.ask.req.Reply = 1, 1, router.Unknown
	j.promptTokens = 1
	if openai.PeekCompletion(l.body, &l.peeked) != nil {
		return nil // the worker judges it
	}
	j.model = l.peeked.Model
	if _, known := j.g.roll.Load().served[j.model]; known {
		l.ask.req.Model = modelOf(j.model)
	}
	return nil
}

// modelOf is what the router calls a model.
func modelOf(name string) router.ModelID {
	if name == "" {
		return 0
	}
	return router.ModelID(max(1, xxh3.HashString(name)))
}

// RoundTrip sends a request to the worker that is chosen for it, and on to others as long
// as none has begun to answer. The reverse proxy calls it; r is its to change.
func (g *Gateway) RoundTrip(r *http.Request) (*http.Response, error) {
	j := r.Context().Value(journeyKey{}).(*journey)
	ctx := j.ctx
	if r.Header.Get(headerProgress) == progressInterim { // the client wants interim responses
		ctx = r.Context()
	}
	for {
		if err := j.choose(ctx); err != nil {
			return nil, err
		}
		res, again, err := j.send(r)
		if err == nil {
			j.unload()
			return res, nil
		}
		if r.Context().Err() != nil {
			return nil, context.Cause(r.Context())
		}
		if j.stuck || j.attempts > max(0, g.cfg.Retries) {
			return nil, err
		}
		req := &j.load.ask.req
		req.Session = 0
		if late := errors.Is(context.Cause(j.try.ctx), errStalled); late {
			// Who is late is not chosen but where all are.
		} else if !j.ascend() && (!again || j.attempts > 1 || j.others()) {
			req.Avoid = append(req.Avoid, j.decision.Worker)
		}
		g.metrics.retries.Inc()
	}
}

// choose reserves a worker, and begins an attempt there.
func (j *journey) choose(ctx context.Context) error {
	begun := time.Now()
	for {
		d, err := j.reserve(ctx)
		j.find = time.Since(begun)
		if errors.Is(err, router.ErrNoWorkers) && j.fault != nil {
			return j.fault // nobody else is left to ask: the first reason says more
		}
		if errors.Is(err, router.ErrNoWorkers) {
			return j.nobody()
		}
		if err != nil {
			return err
		}
		j.decision = d
		roll := j.g.roll.Load()
		j.landed(roll)
		if m := roll.byID[d.Worker.Worker]; m != nil {
			if j.try = m.try(ctx); j.try != nil {
				j.member = m
				return nil
			}
		}
		j.g.chooser.rollback(d.Reservation) // it left at this moment, and will not be chosen again
	}
}

// reserve is the router's choice, in the first of the pools that can take the request.
func (j *journey) reserve(ctx context.Context) (router.Decision, error) {
	patience := j.g.cfg.QueueTimeout
	d, err := j.g.chooser.choose(ctx, &j.load.ask, patience)
	for err != nil && j.elsewhere(err) {
		if err == errPatience {
			patience = 1 // it has waited
		}
		d, err = j.g.chooser.choose(ctx, &j.load.ask, patience)
	}
	return d, err
}

// others tells whether there is another worker to ask than those that were.
func (j *journey) others() bool {
	roll := j.g.roll.Load()
	if len(j.load.staged.pools) > 0 {
		return j.othersStaged(roll)
	}
	if ready, ok := roll.served[j.model]; ok {
		return ready > j.attempts
	}
	return roll.ready > j.attempts
}

// The headers of the gateway's own.
const (
	headerWorker   = "X-Coppice-Worker"         // who answered
	headerOverlap  = "X-Coppice-Overlap-Blocks" // of the prompt, that it was known to have
	headerBlocks   = "X-Coppice-Prompt-Blocks"
	headerAttempts = "X-Coppice-Attempts"
	headerSession  = "X-Session-Id"         // of a request: same session, same worker
	headerRank     = "X-Data-Parallel-Rank" // as vLLM reads it
	headerWeights  = "X-Coppice-Weights"    // of an admin's request: ttft=1,itl=0.1
	headerPin      = "X-Coppice-Pin"        // of an admin's request: the name of the one worker that it may go to
)
