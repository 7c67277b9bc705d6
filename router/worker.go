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

// ModelID names a model, or an adapter of one, that requests ask for and workers serve.
// The caller chooses the numbers; a hash of the name will do. 0 means any model.
type ModelID uint64

// PoolID names a group of workers to which a request may be restricted. A worker is in
// at most one pool. The caller chooses the numbers. 0 means no pool for a worker, any
// pool for a request.
type PoolID uint32

// MaxWorkerModels is the largest number of models of one worker.
const MaxWorkerModels = 1024

// WorkerSpec is a worker's description of itself when it joins. A zero field is
// unknown, except BlockTokens, which is required.
type WorkerSpec struct {
	BlockTokens int // tokens per block of its cache events; must equal Config.BlockTokens
	TotalBlocks int // capacity of its KV pool, in blocks
	BatchTokens int // most prompt tokens of one step (vLLM: max_num_batched_tokens)
	MaxRequests int // most requests that it runs at a time (vLLM: max_num_seqs)
	// ChunkTokens is the most that one long prompt takes of a step while other requests
	// decode (SGLang: chunked_prefill_size). Unknown counts as BatchTokens.
	ChunkTokens int
	// HitTokens is the number of tokens of whose multiples the worker reuses cached prefixes. It then always computes
	// a prompt's last token, as vLLM and SGLang do, and with it all tokens after the last multiple. Example: of a prompt
	// of 64 tokens that are all cached, a worker with 32 reuses 32. 0: it reuses cached tokens one by one.
	HitTokens int
	// Models that the worker serves, at most MaxWorkerModels, in any order. A worker without
	// models gets only requests for any model.
	Models []ModelID
	// Pool that the worker is in, see SetPool. 0: none.
	Pool PoolID
	// Profile gives the duration of the worker's steps. The zero Profile means Config.Profile.
	Profile Profile
}

// batch returns the prompt budget of a step, in tokens.
func (s *WorkerSpec) batch() float64 {
	if s.BatchTokens == 0 {
		return usualBatchTokens
	}
	return float64(s.BatchTokens)
}

// chunk returns the most prompt tokens that one prompt takes of a step with decoding rows.
func (s *WorkerSpec) chunk() float64 {
	if s.ChunkTokens == 0 {
		return s.batch()
	}
	return float64(s.ChunkTokens)
}

// steps returns the number of steps that n prompt tokens take: 20,000 tokens in batches
// of 8,192 take 3. A prompt that is fully cached still takes 1, for its first token.
func (s *WorkerSpec) steps(n float64) float64 { return max(1, math.Ceil(n/s.batch())) }

// usualBatchTokens is assumed for a worker with an unknown budget: vLLM's default of
// max_num_batched_tokens for serving.
const usualBatchTokens = 8192

// Health is the state of a worker. Only healthy workers are chosen.
type Health uint8

// The states of health.
const (
	Healthy  Health = iota
	Draining        // finishes its requests, gets no new ones
	Lost            // does not answer; its reservations count until they are released
)

var healthNames = enum.New[Health]("router", "health", "healthy", "draining", "lost")

func (h Health) String() string { return healthNames.Name(h) }

// Usage is a worker's own report of its load.
type Usage struct {
	UsedBlocks int // blocks of its KV pool in use
	Waiting    int // requests that it has not begun
}

// Errors about workers.
var (
	ErrUnknownWorker = errors.New("router: unknown worker, let it join first")
	ErrWorkerSpec    = errors.New("router: bad worker")
	ErrWorkersFull   = errors.New("router: as many workers as MaxWorkers")
)

// BlockSizeError refuses a worker whose block size differs from the router's. Hashes
// cover whole blocks, so none of the worker's would ever match a prompt's: every
// overlap would be 0, without any other sign.
type BlockSizeError struct {
	Worker    kv.Rank
	Got, Want int // tokens
}

func (e *BlockSizeError) Error() string {
	return fmt.Sprintf("router: worker %v has blocks of %d tokens, the router of %d: start both with the same block size", e.Worker, e.Got, e.Want)
}

// worker is the router's knowledge of one worker. Its slot is its index in
// fleet.workers.
//
// All counts are sums over its active reservations (Check compares them), kept current
// so that a choice reads them in O(1) per worker.
type worker struct {
	id     kv.Rank
	spec   WorkerSpec
	health Health

	hashed        int           // distinct blocks of active prompts
	private       int           // blocks of one request only: outputs, and prompts without hashes
	prefillTokens int           // prompt tokens still to be computed before first tokens
	prefilling    int           // active requests before their first token
	requests      int           // active
	contextTokens int           // prompt and output tokens of active requests; shared prefixes count for each
	predicted     time.Duration // time left for all prefilling prompts, by profile
	anchor        time.Duration // time from which the prediction for the first of prefillingQueue counts
	heard         time.Duration // latest known end of a step, or the time at which an idle worker got a request

	reports
	tree            int    // blocks in the index, see SetTree
	lastChosen      uint64 // Router.choices at the last choice; 0: never chosen
	active          list   // its reservations
	prefillingQueue list   // its reservations before their first token, oldest first
	debts
}

// reports is a worker's last Report.
type reports struct {
	reported       bool
	usage          Usage
	reservedSince  int // requests reserved since the report
	blocksAtReport int // hashed + private when the report arrived
}

// blocks returns the predicted number of blocks in use.
func (w *worker) blocks() int { return w.hashed + w.private }

// usedBlocks returns the reported blocks plus the change of the predicted blocks since the
// report. If the worker never reported, it returns the predicted blocks.
func (w *worker) usedBlocks() int {
	if !w.reported {
		return w.blocks()
	}
	return max(0, w.usage.UsedBlocks+w.blocks()-w.blocksAtReport)
}

// waiting returns the reported number of waiting requests plus the requests reserved since the
// report. If the worker never reported, it returns the number of prefilling requests.
func (w *worker) waiting() int {
	if !w.reported {
		return w.prefilling
	}
	return w.usage.Waiting + w.reservedSince
}

// busy reports whether a worker should get no further request: it has MaxRequests active
// requests, or more than factor·BatchTokens prompt tokens to compute. Factor 0 disables the
// second limit. Example: with factor 2 and BatchTokens 8,192, a worker with 16,385 prompt tokens
// is busy.
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

// unknownBatchTokens replaces an unknown budget in busy. It is so large that such a
// worker is never busy; the value is Dynamo's default.
const unknownBatchTokens = 10_000_000

// eligible reports whether the worker may run req: healthy, in the right pool, not
// avoided, in Among, and serving the model. Stalls and load are not considered.
func (w *worker) eligible(req *Request) bool {
	if w.health != Healthy || req.Pool != 0 && w.spec.Pool != req.Pool || req.Pinned != nil && *req.Pinned != w.id || slices.Contains(req.Avoid, w.id) || !req.allows(w.id.Worker) {
		return false
	}
	if req.Model == 0 {
		return true
	}
	_, ok := slices.BinarySearch(w.spec.Models, req.Model)
	return ok
}

// pending returns the time from now until the worker can begin a new prompt: the sum of the
// predictions of all prefilling prompts, less the time that has passed since anchor. It
// subtracts at most the prediction of the first prompt, because a late prompt says nothing about
// the next one.
func (w *worker) pending(now time.Duration, slab []reservation) time.Duration {
	if w.prefilling == 0 {
		return 0
	}
	return w.predicted - min(max(now-w.anchor, 0), slab[w.prefillingQueue.head].predicted)
}

// step returns the duration of a step without prompt tokens, in seconds. Context tokens and
// blocks are known only for all requests together. The step is charged with a share of them:
// decoding requests divided by all requests.
func (w *worker) step() float64 {
	rows, running := float64(w.requests), float64(w.requests-w.prefilling)
	p := &w.spec.Profile
	return p.decode(running, float64(w.contextTokens)*running/max(rows, 1)) + p.Block*(float64(w.blocks())*running/max(rows, 1))
}

// current returns the duration of the worker's current step, in seconds, without the
// part that grows with its prompt tokens.
func (w *worker) current() float64 {
	if w.prefilling > 0 {
		return w.step() + w.spec.Profile.Prompt
	}
	return w.step()
}

// nextToken returns the time between two tokens of a decoding request, in seconds. It assumes a
// step with as many of the worker's uncomputed prompt tokens as BatchTokens allows, or all of
// them if BatchTokens is unknown.
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

// Load is the predicted load of a worker: its active requests, as this router and its
// replicas know them.
type Load struct {
	Worker        kv.Rank
	Health        Health
	Stalled       bool          // late with tokens that it owes, see Config.Stall
	Requests      int           // active requests
	Prefilling    int           // active requests before their first token
	PrefillTokens int           // prompt tokens still to be computed for them
	Blocks        int           // distinct blocks of active requests
	ContextTokens int           // prompt and output tokens of active requests
	Pending       time.Duration // until a new prompt can begin
}

// load returns the worker's Load. now is needed for Pending.
func (w *worker) load(now time.Duration, slab []reservation) Load {
	return Load{
		Worker: w.id, Health: w.health, Stalled: w.stalled, Requests: w.requests, Prefilling: w.prefilling, PrefillTokens: w.prefillTokens,
		Blocks: w.blocks(), ContextTokens: w.contextTokens, Pending: w.pending(now, slab),
	}
}
