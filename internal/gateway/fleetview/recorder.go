package fleetview

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Recent is how many routed requests a Recorder keeps.
const Recent = 64

// Routed is one request that has ended at the router.
type Routed struct {
	Seq          uint64  `json:"seq"`      // from 1, in the order of their ends
	AgeSeconds   float64 `json:"age_s"`    // since its end
	Model        string  `json:"model"`    // as the request named it
	Worker       string  `json:"worker"`   // that was asked last; empty: none was
	Status       int     `json:"status"`   // of the answer; 499: the client had gone
	Attempts     int     `json:"attempts"` // workers asked, one after another
	Reason       string  `json:"reason"`   // why this worker: cost, tie, chance, session, pin
	PromptTokens int     `json:"prompt_tokens"`
	// PredictedTokens of the prompt were predicted to be cached at the worker.
	PredictedTokens int `json:"predicted_tokens"`
	// CachedTokens of the prompt were cached, by the answer's usage; null if that is not
	// in the answer.
	CachedTokens *int     `json:"cached_tokens"`
	TTFTMillis   *float64 `json:"ttft_ms"` // of streams, from the arrival at the router
	TotalMillis  float64  `json:"total_ms"`
	Error        string   `json:"error,omitempty"`

	Ended time.Time `json:"-"`
}

// Sums are of the requests that a worker, or the fleet, has ended.
type Sums struct {
	Requests     uint64 `json:"requests"`
	Failed       uint64 `json:"failed"` // of them, with a status of 400 or more, but for clients that left (499)
	PromptTokens uint64 `json:"prompt_tokens"`
	// Confirmed are the prompt tokens of requests whose answers say how many of them were
	// cached; PredictedTokens and CachedTokens are of these.
	ConfirmedTokens uint64 `json:"confirmed_tokens"`
	PredictedTokens uint64 `json:"predicted_tokens"`
	CachedTokens    uint64 `json:"cached_tokens"`
}

// add counts one request.
func (s *Sums) add(r *Routed) {
	s.Requests++
	if r.Status >= 400 && r.Status != clientGone {
		s.Failed++
	}
	s.PromptTokens += uint64(r.PromptTokens)
	if r.CachedTokens != nil {
		s.ConfirmedTokens += uint64(r.PromptTokens)
		s.PredictedTokens += uint64(r.PredictedTokens)
		s.CachedTokens += uint64(*r.CachedTokens)
	}
}

// clientGone is the status of a request whose client left before its answer; it is on no
// wire.
const clientGone = 499

// Recorder keeps the latest requests and sums. Its methods may be called from any
// goroutine.
type Recorder struct {
	mu      sync.Mutex
	ring    [Recent]Routed
	seq     uint64
	fleet   Sums
	workers map[string]*Sums
}

// NewRecorder makes an empty one.
func NewRecorder() *Recorder { return &Recorder{workers: map[string]*Sums{}} }

// Add takes a request that has ended. Seq is set here.
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

// Read returns the sums of the fleet and of each worker by name, and the latest requests,
// the newest first.
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
