package decisions

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// Version is the version of the form. Read refuses others.
const Version = 1

// Head begins a recording.
type Head struct {
	Version     int            `json:"version"`
	BlockTokens int            `json:"block_tokens"`
	Policy      string         `json:"policy"`
	Weights     router.Weights `json:"weights"`      // when the recording began
	TierWeights string         `json:"tier_weights"` // as router.TierWeights writes them
	Profile     router.Profile `json:"profile"`      // of workers without their own
	SessionTTL  time.Duration  `json:"session_ttl,omitempty"`
	Predict     bool           `json:"predict"` // prompts count as cached where they were sent, until their first token
	Began       string         `json:"began"`   // the time that all times count from, for people
}

// Worker describes a worker as the router knew it.
type Worker struct {
	Name        string           `json:"name"`
	ID          kv.WorkerID      `json:"id,string"`
	DP          uint32           `json:"dp,omitempty"`
	TotalBlocks int              `json:"total_blocks,omitempty"`
	BatchTokens int              `json:"batch_tokens,omitempty"`
	ChunkTokens int              `json:"chunk_tokens,omitempty"`
	MaxRequests int              `json:"max_requests,omitempty"`
	Models      []router.ModelID `json:"models,omitempty"`
	Pool        router.PoolID    `json:"pool,omitempty"`
	Profile     router.Profile   `json:"profile,omitzero"`
}

// Rank returns the worker's id in a router.
func (w *Worker) Rank() kv.Rank { return kv.Rank{Worker: w.ID, DP: w.DP} }

// Spec returns the description for [router.Router.Join], with blocks of this many tokens.
func (w *Worker) Spec(blockTokens int) router.WorkerSpec {
	return router.WorkerSpec{
		BlockTokens: blockTokens, TotalBlocks: w.TotalBlocks, BatchTokens: w.BatchTokens, ChunkTokens: w.ChunkTokens, MaxRequests: w.MaxRequests,
		Models: w.Models, Pool: w.Pool, Profile: w.Profile,
	}
}

// Describe returns a worker's description by its spec.
func Describe(name string, w kv.Rank, spec *router.WorkerSpec) Worker {
	return Worker{
		Name: name, ID: w.Worker, DP: w.DP, TotalBlocks: spec.TotalBlocks, BatchTokens: spec.BatchTokens, ChunkTokens: spec.ChunkTokens,
		MaxRequests: spec.MaxRequests, Models: spec.Models, Pool: spec.Pool, Profile: spec.Profile,
	}
}

// Decision is a choice of a worker for a request: what was known at its time, and what was learnt of it. Durations are in
// nanoseconds.
type Decision struct {
	// Of the request.
	At             time.Duration   `json:"at"` // of the choice
	Waited         time.Duration   `json:"waited,omitempty"`
	Attempt        int             `json:"attempt"` // 1 for the first worker that the request is sent to
	Model          router.ModelID  `json:"model,omitempty"`
	Pool           router.PoolID   `json:"pool,omitempty"`
	PromptTokens   int             `json:"prompt_tokens"`
	ExpectedOutput int             `json:"expected_output,omitempty"`
	Streamed       bool            `json:"streamed,omitempty"`
	Session        Hash            `json:"session,omitzero"`
	Weights        *router.Weights `json:"weights,omitempty"` // those of the request itself, nil for the router's

	// The prompt's blocks: those of an earlier prompt up to the block After, 0 for none, and then Blocks. After Read, Blocks is nil
	// and Recording.Chain has all of them. Cut says that a longer prompt had further blocks.
	After  Hash   `json:"after,omitzero"`
	Blocks []Hash `json:"blocks,omitempty"`
	Cut    bool   `json:"cut,omitempty"`
	last   Hash   // the last block, 0 for none

	// What the router knew and chose. Candidates has the chosen worker and those of the lowest cost, ordered by cost; Others
	// counts the rest.
	Reason     string      `json:"reason"`
	Chosen     int         `json:"chosen"` // index in Recording.Workers
	Candidates []Candidate `json:"candidates,omitempty"`
	Others     int         `json:"others,omitempty"`

	Result
}

// Candidate is a worker that could have been chosen, as the router saw it.
type Candidate struct {
	Worker  int       `json:"worker"` // index in Recording.Workers
	Cost    float64   `json:"cost"`
	Terms   []float64 `json:"terms,omitempty"` // of the cost, without weights
	Overlap []int     `json:"overlap"`         // cached blocks by tier: device, host, disk, shared, object; zeros at the end are left out

	Requests      int           `json:"requests,omitempty"` // active ones
	Prefilling    int           `json:"prefilling,omitempty"`
	PrefillTokens int           `json:"prefill_tokens,omitempty"`
	Blocks        int           `json:"blocks,omitempty"`
	ContextTokens int           `json:"context_tokens,omitempty"`
	Pending       time.Duration `json:"pending,omitempty"`
}

// CachedBlocks returns the candidate's cached blocks of the prompt, in all tiers.
func (c *Candidate) CachedBlocks() (n int) {
	for _, blocks := range c.Overlap {
		n += blocks
	}
	return n
}

// Result holds the facts that were learnt of a decision.
type Result struct {
	Outcome string `json:"outcome"` // of the attempt: "answered", or why it failed
	Status  int    `json:"status,omitempty"`
	// Cached is the number of cached prompt tokens by the answer's usage; nil if it tells none.
	Cached       *int          `json:"cached,omitempty"`
	TTFT         time.Duration `json:"ttft,omitempty"`  // from the choice to the first event of a stream; 0: unknown
	Total        time.Duration `json:"total,omitempty"` // from the choice to the end
	OutputTokens int           `json:"output_tokens,omitempty"`
}

// Answered is the outcome of an attempt whose answer went to the client.
const Answered = "answered"

// Hash is an encrypted block hash, written as 16 hexadecimal digits.
type Hash uint64

// MarshalText returns the digits.
func (h Hash) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(h)), nil }

// UnmarshalText reads the digits.
func (h *Hash) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	*h = Hash(n)
	return err
}

// line is a line of a recording. One field is set.
type line struct {
	Head     *Head     `json:"head,omitempty"`
	Worker   *Worker   `json:"worker,omitempty"`
	Decision *Decision `json:"decision,omitempty"`
}

func (l line) appendTo(dst []byte) []byte {
	text, err := json.Marshal(l)
	if err != nil {
		panic(fmt.Sprintf("decisions: %v", err)) // a cost that is not finite, which the router never has
	}
	return append(append(dst, text...), '\n')
}
