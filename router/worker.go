package router

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// ModelID names what requests ask for and workers serve: a model, or an adapter of
// one. The caller chooses the numbers, a hash of the name will do. 0 is any model.
type ModelID uint64

// PoolID names a group of workers that requests may be restricted to: a worker is in one
// at a time, whatever it serves. The caller chooses the numbers. 0 is none for a worker,
// and any for a request.
type PoolID uint32

// MaxWorkerModels bounds the models of one worker.
const MaxWorkerModels = 1024

// WorkerSpec is what a worker says of itself when it joins. Zeros are unknown, but
// for BlockTokens.
type WorkerSpec struct {
	BlockTokens int // of its cache events; must be the router's
	TotalBlocks int // of its KV pool
	BatchTokens int // prompt tokens that a step takes at most
	MaxRequests int // requests that it runs at a time
	// ChunkTokens are those of a step that one long prompt takes at most while others
	// decode. Unknown counts as BatchTokens.
	ChunkTokens int
	// Models are what it serves, at most MaxWorkerModels, in any order. A worker of none
	// gets only requests of any model.
	Models []ModelID
	// Pool is the one that it is in, see SetPool. 0 is none.
	Pool PoolID
	// Profile is how long its steps take. The zero Profile is the router's.
	Profile Profile
}

// batch is the budget of a step, in tokens.
func (s *WorkerSpec) batch() float64 {
	if s.BatchTokens == 0 {
		return usualBatchTokens
	}
	return float64(s.BatchTokens)
}

// chunk is what one prompt takes of a step beside decoding rows.
func (s *WorkerSpec) chunk() float64 {
	if s.ChunkTokens == 0 {
		return s.batch()
	}
	return float64(s.ChunkTokens)
}

// steps is how many steps it takes to compute n tokens.
func (s *WorkerSpec) steps(n float64) float64 { return max(1, math.Ceil(n/s.batch())) }

// usualBatchTokens is the budget of a step where a worker did not say: vLLM's
// default of max_num_batched_tokens for serving.
const usualBatchTokens = 8192

// Health says whether a worker may be chosen.
type Health uint8

// The states of health.
const (
	Healthy  Health = iota
	Draining        // ends what it has, gets nothing new
	Lost            // does not answer; what it has counts until it is released
)

var healthNames = enum.New[Health]("router", "health", "healthy", "draining", "lost")

func (h Health) String() string { return healthNames.Name(h) }

// Usage is what a worker reports of itself.
type Usage struct {
	UsedBlocks int // of its KV pool
	Waiting    int // requests that it has not begun
}

// The errors about workers.
var (
	ErrUnknownWorker = errors.New("router: unknown worker, let it join first")
	ErrWorkerSpec    = errors.New("router: bad worker")
	ErrWorkersFull   = errors.New("router: as many workers as MaxWorkers")
)

// BlockSizeError refuses a worker whose blocks have another size than the
// router's: no hash of its blocks would ever match, and every overlap be zero.
type BlockSizeError struct {
	Worker    kv.Rank
	Got, Want int // tokens
}

func (e *BlockSizeError) Error() string {
	return fmt.Sprintf("router: worker %v has blocks of %d tokens, the router of %d: start both with the same block size", e.Worker, e.Got, e.Want)
}

// worker is what the router knows of one. Its slot is its index in fleet.workers.
type worker struct {
	id     kv.Rank
	spec   WorkerSpec
	health Health

	hashed        int           // distinct blocks of active prompts
	private       int           // blocks that one request alone has: outputs, prompts without hashes of their own
	prefillTokens int           // of active requests, to be computed before their first token
	prefilling    int           // active requests before their first token
	requests      int           // active
	contextTokens int           // prompts and outputs of active requests, each by itself
	predicted     time.Duration // sum of what prefilling will take, by profile
	anchor        time.Duration // since when the first of prefilling is being computed
	heard         time.Duration // when a step ended last, or the first one began, as far as is known

	reports
	tree            int    // blocks in the index, by SetTree
	lastChosen      uint64 // Router.choices when it was chosen last; 0 never
	active          list   // its reservations
	prefillingQueue list   // those before their first token, oldest first
	debts
}

// reports is what a worker said of itself last.
type reports struct {
	reported       bool
	usage          Usage
	reservedSince  int // requests reserved since the report
	blocksAtReport int // hashed + private, then
}

func (w *worker) blocks() int { return w.hashed + w.private }

// usedBlocks is what it reported and what was added since, or what is predicted.
func (w *worker) usedBlocks() int {
	if !w.reported {
		return w.blocks()
	}
	return max(0, w.usage.UsedBlocks+w.blocks()-w.blocksAtReport)
}

// waiting is what it reported and what was added since, or what is predicted.
func (w *worker) waiting() int {
	if !w.reported {
		return w.prefilling
	}
	return w.usage.Waiting + w.reservedSince
}

// busy reports whether it has as much as it should.
func (w *worker) busy(factor float64) bool {
	if w.spec.MaxRequests > 0 && w.requests >= w.spec.MaxRequests {
		return true
	}
	if factor == 0 {
		return false
	}
	batch := w.spec.BatchTokens
	if batch == 0 {
		batch = unknownBatchTokens
	}
	return float64(w.prefillTokens) > factor*float64(batch)
}

// unknownBatchTokens keeps a worker of unknown size from ever being busy; it is
// Dynamo's default.
const unknownBatchTokens = 10_000_000

// eligible reports whether a healthy worker may be chosen for req, stalled or not.
func (w *worker) eligible(req *Request) bool {
	if w.health != Healthy || req.Pool != 0 && w.spec.Pool != req.Pool || req.Pinned != nil && *req.Pinned != w.id || slices.Contains(req.Avoid, w.id) {
		return false
	}
	if req.Model == 0 {
		return true
	}
	_, ok := slices.BinarySearch(w.spec.Models, req.Model)
	return ok
}

// pending is how long the prompts before a new one will take: the predictions, less
// what has passed of the first.
func (w *worker) pending(now time.Duration, slab []reservation) time.Duration {
	if w.prefilling == 0 {
		return 0
	}
	return w.predicted - min(max(now-w.anchor, 0), slab[w.prefillingQueue.head].predicted)
}

// step is how long a step without prompts takes, in seconds.
func (w *worker) step() float64 {
	rows, running := float64(w.requests), float64(w.requests-w.prefilling)
	p := &w.spec.Profile
	return p.decode(running, float64(w.contextTokens)*running/max(rows, 1)) + p.Block*(float64(w.blocks())*running/max(rows, 1))
}

// current is how long the worker's current step takes, in seconds, without what grows
// with its prompts.
func (w *worker) current() float64 {
	if w.prefilling > 0 {
		return w.step() + w.spec.Profile.Prompt
	}
	return w.step()
}

// nextToken is how long a worker that decodes takes to the next token, in seconds: a step
// with as many prompt tokens as fit into it.
func (w *worker) nextToken() float64 {
	if w.prefilling == 0 {
		return w.current()
	}
	n := float64(w.prefillTokens)
	if batch := float64(w.spec.BatchTokens); batch > 0 {
		n = min(n, batch)
	}
	return w.current() + w.spec.Profile.prefill(n, 0)
}

// Load is what a worker is predicted to have: its active requests as this router
// and its replicas know them.
type Load struct {
	Worker        kv.Rank
	Health        Health
	Stalled       bool // it is late with what it owes
	Requests      int  // active
	Prefilling    int  // of them before their first token
	PrefillTokens int  // still to be computed for those
	Blocks        int  // distinct ones of active requests
	ContextTokens int  // prompts and outputs of active requests
	Pending       time.Duration
}

func (w *worker) load(now time.Duration, slab []reservation) Load {
	return Load{
		Worker: w.id, Health: w.health, Stalled: w.stalled, Requests: w.requests, Prefilling: w.prefilling, PrefillTokens: w.prefillTokens,
		Blocks: w.blocks(), ContextTokens: w.contextTokens, Pending: w.pending(now, slab),
	}
}
