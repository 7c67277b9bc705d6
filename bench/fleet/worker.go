package fleet

import (
	"slices"
	"time"

	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// Request is a prompt with its hashes and its predetermined answer.
type Request struct {
	ID           int
	Tokens       []kv.Token     // of the prompt
	Locals       []kv.LocalHash // of the prompt's full blocks of BlockTokens
	Hashes       []kv.BlockHash // chained hashes of the same blocks
	Answer       []kv.Token     // the output: len = OutputTokens
	OutputTokens int
}

// Worker is a simulated server of the fleet. It reads no clock: virtual time comes in as now. A
// pass is one step of the device and the handling of its result.
type Worker interface {
	// Submit adds a request, which must not change until it has ended. An error means
	// that the worker refuses it.
	Submit(now time.Duration, r *Request) error
	// Wake returns the end of the pass in progress; ok is false if there is none.
	Wake() (at time.Duration, ok bool)
	// Pass ends the pass in progress, appends its outcome to out, and begins the next
	// pass. now must be the time that Wake returns.
	Pass(now time.Duration, out *Report) error
	// Usage returns the current load.
	Usage() Usage
}

// Report is the outcome of a pass.
type Report struct {
	Tokens   []int      // request IDs, one for each output token
	Ended    []int      // IDs of the requests that ended
	Events   []kv.Event // cache events in order, published at the end of the pass; see keep
	Computed int        // prompt tokens computed, including again after a preemption
	Cached   int        // prompt tokens found in the cache; counted once for a request
}

// reset empties a report and keeps its memory.
func (r *Report) reset() {
	clear(r.Events)
	*r = Report{Tokens: r.Tokens[:0], Ended: r.Ended[:0], Events: r.Events[:0]}
}

// keep returns a deep copy of events, whose slices the worker may reuse in its next pass.
func keep(events []kv.Event) []kv.Event {
	kept := make([]kv.Event, len(events))
	for i, e := range events {
		e.Blocks, e.Hashes = slices.Clone(e.Blocks), slices.Clone(e.Hashes)
		kept[i] = e
	}
	return kept
}

// Usage is the load of a worker.
type Usage struct {
	UsedBlocks int // blocks of the KV pool that running requests hold
	Waiting    int // requests not admitted yet
	Running    int
}

// Kind selects the implementation of workers.
type Kind uint8

// The kinds of worker.
const (
	Ours   Kind = iota // our scheduler with a device of engine/sim's cost model
	Mocker             // NVIDIA Dynamo's mocker
)

var kinds = enum.New[Kind]("fleet", "worker", "ours", "mocker")

func (k Kind) String() string { return kinds.Name(k) }

// UnmarshalText accepts the names that String returns.
func (k *Kind) UnmarshalText(text []byte) error { return kinds.Read(k, text) }
