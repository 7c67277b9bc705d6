package router

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// Errors of Select and Take.
var (
	ErrRequest   = errors.New("router: bad request")
	ErrNoWorkers = errors.New("router: no eligible worker: all have left, are draining, lost or excluded, or serve another model or pool")
	ErrBusy      = errors.New("router: all workers are busy, or others wait: use Wait")
	ErrFull      = errors.New("router: as many reservations as MaxActive")
)

// Overlap is a worker's cached part of a prompt: consecutive blocks from the first
// token. Each tier counts the blocks after those of the tier before. Example: 3 on the
// device and 2 on disk are blocks [0, 3) and [3, 5).
type Overlap struct {
	Worker                             kv.Rank
	Device, Host, Disk, Shared, Object int // blocks
}

// Blocks returns the number of cached blocks in all tiers.
func (o *Overlap) Blocks() int { return o.Device + o.Host + o.Disk + o.Shared + o.Object }

// MaxAvoid is the largest length of Request.Avoid.
const MaxAvoid = 64

// Request describes a request for routing. Its slices are read during the call only;
// Wait keeps them until the ticket ends.
type Request struct {
	PromptTokens int // at least 1
	// Hashes are the chained hashes of the prompt's full blocks, or of the first of
	// them. Blocks without a hash count as private load.
	Hashes []kv.BlockHash
	// Untold says that no event of a worker will name these Hashes. They were made from the
	// prompt's bytes, because the tokenizer is unknown. Replicas learn it with the reservation.
	Untold bool
	// Reply is the form in which the answer arrives. Only Config.Stall uses it.
	Reply Reply
	// Overlaps are the workers' cached parts of the prompt, from the index: each worker
	// at most once, in any order. A worker without an entry has nothing cached.
	Overlaps []Overlap
	// ExpectedOutput is the expected number of output tokens. Default Config.ExpectedOutput.
	ExpectedOutput int
	// Session is a hash of the conversation's or user's name; 0: none. With SessionTTL
	// the request goes to the worker of the session's last request, if possible.
	Session uint64
	// Model restricts the request to workers that serve this model. 0: any.
	Model ModelID
	// Pool restricts the request to the workers of one pool. 0: any.
	Pool PoolID
	// Pinned restricts the request to one worker.
	Pinned *kv.Rank
	// Avoid excludes up to MaxAvoid workers, for example those at which the request has failed
	// before. Waiting requests with exclusions are checked one by one, so restrict requests by
	// Model or Pool where possible.
	Avoid []kv.Rank
	// Among, unless nil, restricts the request to all ranks of these workers, which are in ascending order.
	// An empty list allows no worker. While such requests wait, they are checked one by one too.
	Among []kv.WorkerID
	// Priority and Tenant say when the request is placed if it has to wait: higher priorities first, and under the order Fair,
	// tenants in turns. Tenant is a hash of the tenant's name.
	Priority int32
	Tenant   uint64
	// Weights replaces the router's weights for this request.
	Weights *Weights
}

// allows reports whether Among allows worker id.
func (req *Request) allows(id kv.WorkerID) bool {
	if req.Among == nil {
		return true
	}
	_, ok := slices.BinarySearch(req.Among, id)
	return ok
}

// Reply is the form in which an answer becomes visible to the router.
type Reply uint8

// The kinds of reply.
const (
	Streamed Reply = iota // token by token
	AtOnce                // all after the last token
	Unknown               // unknown: the worker owes nothing that could be late
)

// check returns the first fault of a request, an [ErrRequest], or nil.
func (req *Request) check(cfg *Config) error {
	if req.PromptTokens < 1 || req.PromptTokens > MaxPromptTokens {
		return fmt.Errorf("%w: PromptTokens is %d, want 1 to %d", ErrRequest, req.PromptTokens, MaxPromptTokens)
	}
	if whole := kv.FloorPages(req.PromptTokens, cfg.BlockTokens); len(req.Hashes) > whole {
		return fmt.Errorf("%w: %d hashes for %d tokens, which have %d full blocks of %d: were they hashed by another block size?",
			ErrRequest, len(req.Hashes), req.PromptTokens, whole, cfg.BlockTokens)
	}
	if req.ExpectedOutput < 0 || req.ExpectedOutput > MaxPromptTokens {
		return fmt.Errorf("%w: ExpectedOutput is %d, want 0 (unknown) to %d", ErrRequest, req.ExpectedOutput, MaxPromptTokens)
	}
	if len(req.Avoid) > MaxAvoid {
		return fmt.Errorf("%w: it avoids %d workers, want at most %d: restrict it by Model or Pool", ErrRequest, len(req.Avoid), MaxAvoid)
	}
	if len(req.Among) > cfg.MaxWorkers || !slices.IsSorted(req.Among) {
		return fmt.Errorf("%w: Among has %d workers, want at most %d in ascending order", ErrRequest, len(req.Among), cfg.MaxWorkers)
	}
	for i := range req.Overlaps {
		if o := &req.Overlaps[i]; min(o.Device, o.Host, o.Disk, o.Shared, o.Object) < 0 || max(o.Device, o.Host, o.Disk, o.Shared, o.Object) > MaxPromptTokens {
			return fmt.Errorf("%w: overlap %+v, want 0 to %d blocks", ErrRequest, *o, MaxPromptTokens)
		}
	}
	if req.Weights != nil {
		if err := req.Weights.Validate(); err != nil {
			return fmt.Errorf("%w: %w", ErrRequest, err)
		}
	}
	return nil
}

// Reason is the reason for the choice of a worker.
type Reason uint8

// The reasons.
const (
	ByCost   Reason = iota
	ByTie           // among equal lowest costs, by tree, at random or the first
	ByChance        // drawn at random, because Weights.Temperature is above 0
	BySession
	ByPin
	reasons
)

var reasonNames = enum.New[Reason]("router", "reason", "cost", "tie", "chance", "session", "pin")

func (r Reason) String() string { return reasonNames.Name(r) }

// Reservation is one request's share of a worker's predicted load. It ends exactly
// once: by Release, Abandon, Rollback, Expire or Leave. Every later call with it is
// refused. The zero Reservation is none. Reservations are comparable.
type Reservation struct {
	at int32
	id uint64 // from 1, never reused
}

// Decision is the choice for a request.
type Decision struct {
	Reservation Reservation // release it when the request ends
	Worker      kv.Rank
	Cost        float64 // in the policy's unit
	Overlap     Overlap // the worker's cached part of the prompt, with predicted blocks
	Reason      Reason
}

// inSeconds returns d.Seconds(). For durations below a second it avoids the integer
// divisions, which show in a choice among 512 workers.
func inSeconds(d time.Duration) float64 {
	if d < time.Second {
		return float64(d) / 1e9
	}
	return d.Seconds()
}

// seconds converts s seconds to a duration. More than 3e9 seconds, about a century, become 3e9,
// so that the duration can't overflow.
func seconds(s float64) time.Duration {
	return time.Duration(min(s, 3e9) * float64(time.Second))
}
