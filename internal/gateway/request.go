package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/internal/gateway/dispatch"
	"github.com/coppice-llm/coppice/internal/gateway/members"
	"github.com/coppice-llm/coppice/internal/gateway/prompt"
	"github.com/coppice-llm/coppice/internal/web"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/router"
)

// The headers of the gateway's own.
const (
	headerWorker   = "X-Coppice-Worker"         // of an answer: the worker that answered
	headerOverlap  = "X-Coppice-Overlap-Blocks" // blocks of the prompt that the worker was known to hold
	headerBlocks   = "X-Coppice-Prompt-Blocks"
	headerAttempts = "X-Coppice-Attempts"
	headerSession  = "X-Session-Id"         // of a request: same session, same worker
	headerRank     = "X-Data-Parallel-Rank" // as vLLM reads it
	headerWeights  = "X-Coppice-Weights"    // of an admin's request: ttft=1,itl=0.1
	headerPin      = "X-Coppice-Pin"        // of an admin's request: the name of the one worker that it may go to
)

// proxiedRequest is one request on its way to a worker, and its answer back.
type proxiedRequest struct {
	g      *Gateway
	w      http.ResponseWriter
	client web.Client
	start  time.Time
	admin  bool
	buffer *requestBuffer // nil once a worker has begun to answer
	// ctx is the request's, without the proxy's trace of interim responses.
	ctx context.Context
	summary

	member   *members.Member // that was asked last
	decision router.Decision
	attempt  *attempt
	attempts int
	pools    *dispatch.Pools // as they were when it came; nil without
	pool     router.PoolID   // where it is, or was to go; 0 without pools
	status   int
	fault    error
	stuck    bool // no other worker may be asked: the last one may have begun
	answer   answer
}

// summary is what headers and figures say of a prompt.
type summary struct {
	model                string
	blocks, promptTokens int
	inexact              bool
	took                 struct{ read, hash, choose time.Duration } // by the gateway itself
}

type requestKey struct{}

func (g *Gateway) newRequest(w http.ResponseWriter, r *http.Request, admin bool) *proxiedRequest {
	return &proxiedRequest{
		g: g, w: w, client: web.NewClient(w, r, g.cfg.WriteTimeout), start: time.Now(), pools: g.dispatch.Pools(),
		buffer: g.requests.Get().(*requestBuffer), admin: admin,
	}
}

// close ends the request, whatever became of it.
func (p *proxiedRequest) close() {
	p.answer.Close()
	p.release()
}

// release gives back what is only needed to ask.
func (p *proxiedRequest) release() {
	b := p.buffer
	if b == nil {
		return
	}
	p.buffer = nil
	for _, pool := range b.ask.Left {
		p.g.metrics.PoolLeft.WithLabelValues(pool).Inc()
	}
	p.g.bodies.Add(-int64(b.held))
	if b.reset() {
		p.g.requests.Put(b)
	}
}

// poolName is the pool that the request is in, "" without pools.
func (p *proxiedRequest) poolName() string { return p.pools.Name(p.pool) }

// readBody reads the body, within its limits.
func (p *proxiedRequest) readBody(r *http.Request) error {
	g, w, b := p.g, p.w, p.buffer
	if r.ContentLength > int64(g.cfg.MaxBodyBytes) {
		return tooLong(w, g.cfg.MaxBodyBytes)
	}
	in := http.MaxBytesReader(w, r.Body, int64(g.cfg.MaxBodyBytes))
	for {
		if len(b.body) == cap(b.body) {
			b.body = append(b.body, 0)[:len(b.body)]
		}
		n, err := in.Read(b.body[len(b.body):cap(b.body)])
		b.body = b.body[:len(b.body)+n]
		b.held += n
		if held := g.bodies.Add(int64(n)); held > int64(g.cfg.MaxBodiesBytes) {
			return errBodies
		}
		switch long := (*http.MaxBytesError)(nil); {
		case err == nil:
		case errors.Is(err, io.EOF):
			p.client.Out.SetReadDeadline(time.Time{}) // from here on reading only finds out that the client leaves
			return nil
		case errors.As(err, &long):
			return tooLong(w, g.cfg.MaxBodyBytes)
		case errors.Is(err, os.ErrDeadlineExceeded):
			w.Header().Set("Connection", "close")
			return errSlow
		default:
			return errBroken
		}
	}
}

func tooLong(w http.ResponseWriter, most int) error {
	w.Header().Set("Connection", "close") // the rest of it is not waited for
	return &openai.Error{Status: http.StatusRequestEntityTooLarge, Type: "invalid_request_error", Code: "body_too_large",
		Message: fmt.Sprintf("the body has more than %d bytes, which is the most that the gateway takes", most)}
}

// readPrompt reads what the request asks for, so that a worker can be chosen for it.
func (p *proxiedRequest) readPrompt(r *http.Request, kind prompt.Kind, tenant string) error {
	g, in, ask := p.g, &p.buffer.prompt, &p.buffer.ask
	began := time.Now()
	reading, fleet := g.reading.Load(), g.members.Snapshot()
	if err := reading.ReadAs(kind, tenant, p.buffer.body, readAs(fleet), in); err != nil {
		return badBody(err)
	}
	p.took.read = time.Since(began)
	_, known := fleet.Served[in.Model]
	if in.Model != "" && !known && len(fleet.Models) > 0 {
		return noModel(in.Model, fleet.Models)
	}
	ns := in.Namespace
	if fleet.LoRAs[in.Model] {
		ns.LoRA = in.Model
	}
	began = time.Now()
	ask.Reset()
	ask.Exact = in.Exact
	req := &ask.Request
	// Only the first of several prompts is read: the others are taken to be as long.
	req.PromptTokens, req.Untold = atMost(max(1, len(in.Tokens)), in.Prompts, router.MaxPromptTokens), !in.Exact
	if in.Exact || !reading.exact { // bytes among tokens would mean something else
		ask.SetPrompt(in.Tokens, ns, in.PublicTokens, g.dispatch.BlockTokens())
	}
	p.took.hash = time.Since(began)
	p.blocks, p.promptTokens, p.inexact, p.model = len(req.Hashes), req.PromptTokens, !in.Exact, in.Model
	if !in.Stream {
		req.Reply = router.AtOnce
	}
	req.ExpectedOutput = atMost(in.OutputTokens, in.Choices, router.MaxPromptTokens)
	if known {
		req.Model = dispatch.ModelID(in.Model)
	}
	if s := r.Header.Get(headerSession); s != "" {
		req.Session = max(1, xxh3.HashString(tenant+"\x00"+s))
	} else if in.User != "" {
		req.Session = max(1, xxh3.HashString(tenant+"\x00"+in.User))
	}
	if err := p.readTargets(r, &in.Hints); err != nil {
		return err
	}
	return p.readSteering(r)
}

// atMost is n times times, which counts as 1 if it is not known, and no more than most.
func atMost(n, times, most int) int {
	if times = max(times, 1); n > most/times {
		return most
	}
	return n * times
}

// readSteering reads what an admin's request says of where it is to go.
func (p *proxiedRequest) readSteering(r *http.Request) error {
	weights, pin := r.Header.Get(headerWeights), r.Header.Get(headerPin)
	if weights == "" && pin == "" {
		return nil
	}
	if !p.admin {
		return errNoAdmin
	}
	g, req := p.g, &p.buffer.ask.Request
	if weights != "" {
		w := g.dispatch.Weights()
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
	if g.members.Snapshot().ByID[w.Worker] == nil {
		return badHeader(headerPin, fmt.Errorf("there is no worker %.100q; /v1/fleet lists them", pin))
	}
	req.Pinned = &w
	return nil
}

// readModel reads which model a request without a prompt is for.
func (p *proxiedRequest) readModel() error {
	b := p.buffer
	b.ask.Reset()
	req := &b.ask.Request
	req.PromptTokens, req.ExpectedOutput, req.Reply = 1, 1, router.Unknown
	p.promptTokens = 1
	if openai.PeekCompletion(b.body, &b.peeked) != nil {
		return nil // the worker judges it
	}
	p.model = b.peeked.Model
	if _, known := p.g.members.Snapshot().Served[p.model]; known {
		req.Model = dispatch.ModelID(p.model)
	}
	return nil
}
