package fleetview

import (
	"embed"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/internal/web"
)

// Recent is the number of routed requests that a Recorder keeps.
const Recent = 64

// Routed is one finished request.
type Routed struct {
	Seq          uint64  `json:"seq"`      // from 1, in the order in which requests ended
	AgeSeconds   float64 `json:"age_s"`    // time since the request ended
	Model        string  `json:"model"`    // as in the request
	Worker       string  `json:"worker"`   // asked last; "": none
	Status       int     `json:"status"`   // of the answer; 499: the client left first
	Attempts     int     `json:"attempts"` // number of attempts
	Reason       string  `json:"reason"`   // why the worker was chosen: cost, tie, chance, session, pin
	PromptTokens int     `json:"prompt_tokens"`
	// PredictedTokens is the predicted number of cached prompt tokens at the worker.
	PredictedTokens int `json:"predicted_tokens"`
	// CachedTokens is the number of cached prompt tokens by the answer's usage; null if the
	// answer has none.
	CachedTokens *int     `json:"cached_tokens"`
	TTFTMillis   *float64 `json:"ttft_ms"` // streams only, from arrival at the router
	TotalMillis  float64  `json:"total_ms"`
	Error        string   `json:"error,omitempty"`

	Ended time.Time `json:"-"`
}

// Sums adds up the finished requests of one worker or of the fleet.
type Sums struct {
	Requests     uint64 `json:"requests"`
	Failed       uint64 `json:"failed"`  // status 429, or 500 and more: the fleet did not serve them
	Refused      uint64 `json:"refused"` // other statuses from 400 on: the request's own fault. 499, clients that left, counts in neither
	PromptTokens uint64 `json:"prompt_tokens"`
	// ConfirmedTokens counts the prompt tokens of requests whose answers report their cached
	// tokens. PredictedTokens and CachedTokens count the same requests only.
	ConfirmedTokens uint64 `json:"confirmed_tokens"`
	PredictedTokens uint64 `json:"predicted_tokens"`
	CachedTokens    uint64 `json:"cached_tokens"`
}

// add adds one request to the sums.
func (s *Sums) add(r *Routed) {
	s.Requests++
	switch {
	case r.Status == clientGone:
	case r.Status >= 500 || r.Status == http.StatusTooManyRequests:
		s.Failed++
	case r.Status >= 400:
		s.Refused++
	}
	s.PromptTokens += uint64(r.PromptTokens)
	if r.CachedTokens != nil {
		s.ConfirmedTokens += uint64(r.PromptTokens)
		s.PredictedTokens += uint64(r.PredictedTokens)
		s.CachedTokens += uint64(*r.CachedTokens)
	}
}

// clientGone is the status of a request whose client left before its answer. It is never sent.
const clientGone = 499

// Recorder keeps the latest requests and the sums. Its methods may be called from any goroutine.
type Recorder struct {
	mu      sync.Mutex
	ring    [Recent]Routed
	seq     uint64
	fleet   Sums
	workers map[string]*Sums
}

// NewRecorder makes an empty Recorder.
func NewRecorder() *Recorder { return &Recorder{workers: map[string]*Sums{}} }

// Add records a finished request. It sets Seq of the copy that it keeps.
func (c *Recorder) Add(r Routed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	r.Seq = c.seq
	c.ring[c.seq%Recent] = r
	c.fleet.add(&r)
	if r.Worker == "" {
		return
	}
	s := c.workers[r.Worker]
	if s == nil {
		s = new(Sums)
		c.workers[r.Worker] = s
	}
	s.add(&r)
}

// Forget drops the sums of a worker that has left the fleet.
func (c *Recorder) Forget(worker string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.workers, worker)
}

// Read returns the sums of the fleet and of each worker by name, and the latest requests, newest
// first.
func (c *Recorder) Read(now time.Time) (fleet Sums, workers map[string]Sums, recent []Routed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	workers = make(map[string]Sums, len(c.workers))
	for name, s := range maps.All(c.workers) {
		workers[name] = *s
	}
	recent = make([]Routed, 0, min(c.seq, Recent))
	for seq := c.seq; seq > 0 && c.seq-seq < Recent; seq-- {
		r := c.ring[seq%Recent]
		r.AgeSeconds = max(0, now.Sub(r.Ended).Seconds())
		recent = append(recent, r)
	}
	return c.fleet, workers, slices.Clip(recent)
}

// Schema is the value of State.Schema. It increases when a field is removed or changes its
// meaning.
const Schema = 1

// State is the answer of /v1/fleet/view, for the page and coppice top.
type State struct {
	Schema   int      `json:"schema"`
	Version  string   `json:"version,omitempty"`
	UptimeS  float64  `json:"uptime_s"`
	Policy   string   `json:"policy"`
	Prompts  string   `json:"prompts"` // tokens or bytes: the unit by which prompts are compared
	Open     int      `json:"open_requests"`
	Queued   int      `json:"queued_requests"` // waiting while all workers are busy
	Troubles []string `json:"troubles"`
	Fleet    Sums     `json:"fleet"`
	Workers  []Worker `json:"workers"`
	Recent   []Routed `json:"recent"` // newest first
}

// About describes a worker.
type About struct {
	Name   string   `json:"name"`
	URL    string   `json:"url"`
	State  string   `json:"state"`
	Error  string   `json:"error,omitempty"`
	Mode   string   `json:"mode"` // source of its index entries: events, approximate, outdated or waiting
	Pool   string   `json:"pool,omitempty"`
	Models []string `json:"models"`
}

// Worker is one worker of a State, summed over its ranks.
type Worker struct {
	About
	Requests int `json:"active_requests"`
	Prefill  int `json:"active_prefill_tokens"` // prompt tokens still to compute, as predicted
	// HeldTokens is the number of tokens known to be in its cache.
	HeldTokens int  `json:"held_tokens"`
	Sums       Sums `json:"sums"`
}

//go:embed page
var page embed.FS

// Page serves the page at / and its files below /page/. The page holds no data and needs no key:
// the data comes from /v1/fleet/view, with the key that the page asks for.
func Page() http.Handler { return web.Page(page) }
