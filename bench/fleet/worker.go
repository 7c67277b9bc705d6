package fleet

import (
	"time"

	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// Request is a prompt on its way through the fleet.
type Request struct {
	ID           int
	Tokens       []kv.Token     // of the prompt
	Locals       []kv.LocalHash // of its full blocks of BlockTokens
	Hashes       []kv.BlockHash // chained, of the same blocks
	Answer       []kv.Token     // what a worker that has no model of its own says, OutputTokens of them
	OutputTokens int
}

// Worker is a server of the fleet: pure, on the virtual time that comes in as now.
// A pass is what it does in one go: a step of the device and all that its result
// brings about.
type Worker interface {
	// Submit: r arrived. It is not changed until it ended.
	Submit(now time.Duration, r *Request) error
	// Wake is when the pass that is under way ends; not ok: there is none.
	Wake() (at time.Duration, ok bool)
	// Pass, at the time that Wake said, ends that pass, appends what came of it to out
	// and begins the next.
	Pass(now time.Duration, out *Report) error
	// Usage is what it would say of itself.
	Usage() Usage
}

// Report is what came of a pass.
type Report struct {
	Tokens   []int      // IDs, one for each output token
	Ended    []int      // IDs of requests of which nothing more comes
	Events   []kv.Event // of its cache, in order; visible now, not when the pass began
	Computed int        // prompt tokens that were run, again after a preemption
	Cached   int        // prompt tokens that were in the cache; counted once for a request
}

func (r *Report) reset() {
	clear(r.Events)
	*r = Report{Tokens: r.Tokens[:0], Ended: r.Ended[:0], Events: r.Events[:0]}
}

// Usage is what a worker says of itself.
type Usage struct {
	UsedBlocks int // of its KV pool, by requests that run
	Waiting    int // requests that it has not begun
	Running    int
}

// Kind is a make of worker.
type Kind uint8

// The kinds of worker.
const (
	Ours   Kind = iota // our scheduler before a device of engine/sim's cost model
	Mocker             // NVIDIA Dynamo's mocker
)

var kinds = enum.New[Kind]("fleet", "worker", "ours", "mocker")

func (k Kind) String() string { return kinds.Name(k) }

// UnmarshalText takes the names that String gives.
func (k *Kind) UnmarshalText(text []byte) error { return kinds.Read(k, text) }
