package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway/internal/dispatch"
	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/gateway/internal/prompt"
	"github.com/coppice-llm/coppice/internal/web"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/ollama"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/openai/responses"
	"github.com/coppice-llm/coppice/router"
)

// The gateway's own headers.
const (
	headerWorker = "X-Coppice-Worker" // in an answer: the worker that answered
	// headerOverlap, in an answer, is the number of prompt blocks that the worker held, see tellsOverlap.
	headerOverlap  = "X-Coppice-Overlap-Blocks"
	headerBlocks   = "X-Coppice-Prompt-Blocks"
	headerAttempts = "X-Coppice-Attempts"
	headerSession  = "X-Session-Id"         // in a request: one session, one worker
	headerRank     = "X-Data-Parallel-Rank" // vLLM's name
	headerWeights  = "X-Coppice-Weights"    // in an admin's request: ttft=1,itl=0.1
	headerPin      = "X-Coppice-Pin"        // in an admin's request: the name of the worker to use
)

// proxiedRequest is one request on its way to a worker, and its answer.
type proxiedRequest struct {
	g      *Gateway
	w      http.ResponseWriter
	client web.Client
	start  time.Time
	admin  bool
	wire   *wire // the API of the request and its answer

	buffer *requestBuffer // nil once a worker has begun to answer
	// ctx is the request's context, without the reverse proxy's trace of interim responses.
	ctx context.Context
	summary

	member   *members.Member // the worker that was asked last
	decision router.Decision
	attempt  *attempt
	attempts int                 // 1 + again.moves + again.repeats
	pools    *dispatch.Partition // the pools at the time of the request's arrival; nil without pools
	pool     router.PoolID       // current pool; 0 without pools
	status   int
	fault    error
	again    again
	picked   bool // the request is sent by the caller of Pick
	answer   answer
	doubted  []kv.BlockHash // blocks that an outdated index says the worker has, see dispatch.Ask.Doubted
	recorded recorded
}

// summary holds the facts about a prompt for headers and metrics.
type summary struct {
	model                string
	blocks, promptTokens int
	inexact              bool
	private              bool                                       // all blocks are of a namespace that only callers with the same tenant or salt have
	took                 struct{ read, hash, choose time.Duration } // time in the gateway itself
}

// requestKey is the key under which a request's context holds its *proxiedRequest, for RoundTrip
// and failed.
type requestKey struct{}

func (g *Gateway) newRequest(w http.ResponseWriter, r *http.Request, admin bool) *proxiedRequest {
	return &proxiedRequest{
		g: g, w: w, client: web.NewClient(w, r, g.cfg.WriteTimeout), start: time.Now(), pools: g.dispatch.Pools(),
		buffer: g.requests.Get().(*requestBuffer), admin: admin, wire: wireOf(r),
	}
}

// close ends the request, however it went.
func (p *proxiedRequest) close() {
	p.answer.Close()
	p.release()
}

// release gives back the request's buffer, which is needed only until a worker answers. It may
// be called again.
func (p *proxiedRequest) release() {
	b := p.buffer
	if b == nil {
		return
	}
	p.buffer = nil
	p.doubted = b.ask.Doubted(&p.decision)
	for _, pool := range b.ask.Left {
		p.g.metrics.PoolLeft.WithLabelValues(pool).Inc()
	}
	p.g.bodies.Add(-int64(b.held))
	if b.reset() {
		p.g.requests.Put(b)
	}
}

// poolName returns the name of the request's pool, "" without pools.
func (p *proxiedRequest) poolName() string { return p.pools.Name(p.pool) }

// readBody reads the request's body into the buffer. The error is for the client.
func (p *proxiedRequest) readBody(r *http.Request) (err error) {
	b := p.buffer
	b.body, err = p.g.bodies.Read(p.w, r, b.body, p.g.cfg.MaxBodyBytes, nil)
	if b.held = len(b.body); err == nil {
		p.client.Out.SetReadDeadline(time.Time{}) // later reads only notice a disconnect
	}
	return err
}

// refuseBody answers a request whose body was not read to its end, and returns the status. If there was no room
// for the body, refuseBody then reads the rest and keeps nothing.
func (p *proxiedRequest) refuseBody(r *http.Request, err error) int {
	rest := p.g.cfg.MaxBodyBytes - p.buffer.held
	if translate(err).Status != http.StatusServiceUnavailable {
		return p.g.refuse(p.w, r, err)
	}
	p.release()
	p.client.ReadOn(p.w.Header())
	status := p.g.refuse(p.w, r, err)
	if p.client.Out.Flush() == nil {
		p.client.Swallow(r.Body, rest)
	}
	return status
}

// readPrompt reads the prompt and options of a request to the endpoint kind, and fills the
// question to the dispatcher. tenant is the caller's. The error is for the client.
func (p *proxiedRequest) readPrompt(r *http.Request, kind prompt.Kind, tenant string) error {
	g, in, ask := p.g, &p.buffer.prompt, &p.buffer.ask
	began := time.Now()
	reading, fleet := g.reading.Load(), g.members.Summary()
	as := readAs(fleet)
	as.BlockTokens = g.dispatch.BlockTokens()
	if err := reading.Read(kind, tenant, p.buffer.body, as, in); err != nil {
		return badBody(err)
	}
	p.took.read = time.Since(began)
	known := p.serving(fleet, &in.Model)
	if in.Model != "" && !known && len(fleet.Models) > 0 {
		return noModel(in.Model, fleet.Models)
	}
	ns, blocks := in.Namespace, &in.Blocks
	if fleet.LoRAs[in.Model] {
		ns.LoRA, blocks = in.Model, nil
	}
	began = time.Now()
	ask.Reset()
	ask.Exact = in.Exact()
	req := &ask.Request
	req.Tenant = xxh3.HashString(tenant)
	// Only the first of several prompts is read: the others count as equally long.
	req.PromptTokens, req.Untold = atMost(max(1, len(in.Tokens)), in.Prompts, router.MaxPromptTokens), !in.Exact()
	if in.Exact() || !reading.exact { // otherwise tokens and bytes would be mixed in one index
		ask.SetPrompt(in.Tokens, ns, in.PublicTokens, as.BlockTokens, blocks)
	}
	p.took.hash = time.Since(began)
	p.blocks, p.promptTokens, p.inexact, p.model = len(req.Hashes), req.PromptTokens, !in.Exact(), in.Model
	p.private = ns.Salt != "" && in.PublicTokens == 0
	if !in.Stream {
		req.Reply = router.AtOnce
	}
	req.ExpectedOutput = atMost(in.OutputTokens, in.Choices, router.MaxPromptTokens)
	if known {
		req.Model = dispatch.ModelID(in.Model)
	}
	req.Session = sessionOf(tenant, cmp.Or(in.Session, r.Header.Get(headerSession), in.User))
	if err := p.readTargets(r, &in.Hints); err != nil {
		return err
	}
	if in.Names != "" {
		if err := p.pinTo(in.Names); err != nil {
			return responses.PreviousNotFound(in.Names)
		}
	}
	return p.readSteering(r)
}

// sessionOf returns the router's name of a tenant's session, 0 for one without a name.
func sessionOf(tenant, name string) uint64 {
	if name == "" {
		return 0
	}
	return max(1, xxh3.HashString(tenant+"\x00"+name))
}

// errNoSessionWorker refuses a hint about a session whose worker is unknown.
var errNoSessionWorker = conversation.NewError(http.StatusNotFound, "unknown_session",
	"the gateway knows no worker of this session: none of its requests came by here within --session-ttl. A session is named by prompt_cache_key, session_id or X-Session-Id")

// readHint prepares the question to the dispatcher for news of a session: its worker gets them. A worker that is alone gets all of them.
func (p *proxiedRequest) readHint(tenant string) error {
	if err := p.readModel(); err != nil {
		return err
	}
	var named struct{ Session string }
	if json.Unmarshal(p.buffer.body, &named) != nil || named.Session == "" {
		return nil // the worker will report the fault
	}
	known := false
	p.g.dispatch.With(func(r *router.Router, now time.Duration) {
		var worker kv.Rank
		if worker, known = r.SessionWorker(now, sessionOf(tenant, named.Session)); known {
			p.buffer.ask.Request.Pinned = &worker
		}
	})
	if !known && p.g.members.Summary().Total > 1 {
		return errNoSessionWorker
	}
	return nil
}

// readStored prepares the question to the dispatcher for a request about the stored response with this id.
func (p *proxiedRequest) readStored(id string) error {
	ask := &p.buffer.ask
	ask.Reset()
	ask.Request.PromptTokens, ask.Request.ExpectedOutput, ask.Request.Reply = 1, 1, router.Unknown
	p.promptTokens = 1
	return p.pinTo(id)
}

// pinTo restricts the request to the worker that has the response or item with this id. A worker of another kind may have made
// an id that names no worker: then any of that kind may be asked. Without such workers the id is unknown.
func (p *proxiedRequest) pinTo(id string) error {
	all := p.g.members.Summary().ByID
	worker := responses.WorkerOf(id)
	if all[kv.WorkerID(worker)] != nil {
		p.buffer.ask.Request.Pinned = &kv.Rank{Worker: kv.WorkerID(worker)}
		return nil
	}
	for _, m := range all {
		if m.Status().Foreign {
			return nil
		}
	}
	return responses.NotFound(id)
}

// tellsOverlap reports whether the caller may know how much of its prompt the worker held. Blocks without a salt at a
// worker that is not Coppice are those of all tenants: such workers know no tenants. At a Coppice worker their
// owners declared them public.
func (p *proxiedRequest) tellsOverlap() bool {
	return p.admin || p.private || !p.member.Status().Foreign
}

// atMost returns min(n * times, most) without overflow. times 0 means unknown and counts as 1.
func atMost(n, times, most int) int {
	if times = max(times, 1); n > most/times {
		return most
	}
	return n * times
}

// readSteering reads the two headers by which an admin overrides, for this request, the weights
// or the choice of the worker. Other callers may use neither. The error is for the client.
func (p *proxiedRequest) readSteering(r *http.Request) error {
	weights, pin := r.Header.Get(headerWeights), r.Header.Get(headerPin)
	if weights == "" && pin == "" {
		return nil
	}
	if !p.admin {
		return conversation.ErrAdminOnly
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
	if g.members.Summary().ByID[w.Worker] == nil {
		return badHeader(headerPin, fmt.Errorf("there is no worker %.100q; /v1/fleet lists them", pin))
	}
	req.Pinned = &w
	return nil
}

// readModel prepares the question to the dispatcher for a request that is not routed by its
// prompt, with the model that its body names. It never returns an error.
func (p *proxiedRequest) readModel() error {
	b := p.buffer
	b.ask.Reset()
	req := &b.ask.Request
	req.PromptTokens, req.ExpectedOutput, req.Reply = 1, 1, router.Unknown
	p.promptTokens = 1
	if openai.PeekCompletion(b.body, &b.peeked) != nil {
		return nil // the worker will report the fault
	}
	p.model = b.peeked.Model
	if p.serving(p.g.members.Summary(), &p.model) {
		req.Model = dispatch.ModelID(p.model)
	}
	return nil
}

// serving is Summary.Serving for a model that a request names. In Ollama's API the name may have a tag that the workers'
// name lacks.
func (p *proxiedRequest) serving(fleet *members.Summary, model *string) bool {
	if _, ok := fleet.Served[*model]; !ok && p.wire == &ollamaWire {
		*model = ollama.Untagged(*model)
	}
	return fleet.Serving(model)
}

// requestBuffer holds the parts of a request needed until a worker begins to answer: its body,
// the prompt read from it, and the question to the dispatcher. Its memory is reused for later
// requests.
type requestBuffer struct {
	body   []byte
	held   int          // body bytes that Gateway.bodies counts
	unread atomic.Int32 // attempts whose transport may still be reading the body
	prompt prompt.Prompt
	peeked openai.Peeked
	ask    dispatch.Ask
}

// maxKept is the largest body in bytes, and the largest prompt in tokens, whose memory is kept.
const maxKept = 256 << 10

// reset clears b for another request. It returns false if b must not be reused, because a
// transport may still be reading the body.
func (b *requestBuffer) reset() bool {
	b.held = 0
	b.ask.Reset()
	if b.unread.Load() != 0 {
		return false
	}
	b.body = b.body[:0]
	if cap(b.body) > maxKept {
		b.body = nil
	}
	if cap(b.prompt.Tokens) > maxKept {
		b.prompt = prompt.Prompt{}
	}
	return true
}

// reader returns a new reader of the body for one attempt.
func (b *requestBuffer) reader() *bodyReader {
	b.unread.Add(1)
	return &bodyReader{Reader: bytes.NewReader(b.body), unread: &b.unread}
}

// bodyReader is the body of an outgoing request. The transport may still read it after the
// answer has come, until it calls Close.
type bodyReader struct {
	*bytes.Reader
	unread *atomic.Int32
	once   sync.Once
}

// Close records that the transport has finished with the body. It may be called repeatedly.
func (r *bodyReader) Close() error {
	r.once.Do(func() { r.unread.Add(-1) })
	return nil
}
