package router

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// The refusals of Select and Take.
var (
	ErrRequest   = errors.New("router: bad request")
	ErrNoWorkers = errors.New("router: no eligible worker: all have left, are draining, lost or to be avoided, or serve another model or pool")
	ErrBusy      = errors.New("router: all workers are busy, or others wait: use Wait")
	ErrFull      = errors.New("router: as many reservations as MaxActive")
)

// Overlap is what a worker has of a prompt: consecutive blocks from its first
// token, each tier's beyond those of the tier before.
type Overlap struct {
	Worker                             kv.Rank
	Device, Host, Disk, Shared, Object int // blocks
}

// Blocks are those of all tiers.
func (o *Overlap) Blocks() int { return o.Device + o.Host + o.Disk + o.Shared + o.Object }

// MaxAvoid bounds Request.Avoid.
const MaxAvoid = 64

// Request is what is known of a request. Its slices are read during the call only,
// but by Wait, which keeps them until the ticket has ended.
type Request struct {
	PromptTokens int // at least 1
	// Hashes are the chained hashes of the prompt's full blocks, or of the first of
	// them; without, its blocks do not count as load.
	Hashes []kv.BlockHash
	// Untold: no worker's event will ever name its Hashes, as they are of bytes that stand
	// for its tokens. It is for replicas, which learn it with them.
	Untold bool
	// Reply says when something of the answer is seen, see Config.Stall.
	Reply Reply
	// Overlaps are what workers have of it, from the index, each worker once, in any
	// order. A worker that is not in it has nothing.
	Overlaps []Overlap
	// ExpectedOutput in tokens. Default Config.ExpectedOutput.
	ExpectedOutput int
	// Session is a hash of the conversation's or user's name; 0 is none. Under SessionTTL
	// the request goes where the session's last request went, if it can.
	Session uint64
	// Model is what it asks for: it goes only to workers that serve that. 0 is any.
	Model ModelID
	// Pool restricts it to the workers of one. 0 is any.
	Pool PoolID
	// Pinned is the only worker that it may go to.
	Pinned *kv.Rank
	// Avoid are workers that it must not go to, at most MaxAvoid: where it failed before.
	// Waiting requests with some are looked at one by one, so restrict requests by Model
	// or Pool, not by Avoid.
	Avoid []kv.Rank
	// Weights for this request alone.
	Weights *Weights
	// Priority among those that wait: the highest goes first.
	Priority int

	// Explain is filled in by Select and Take, if it is there.
	Explain *Explanation
}

// Reply says when something of an answer is seen.
type Reply uint8

// The kinds of reply.
const (
	Streamed Reply = iota // each token as it comes
	AtOnce                // all after the last token
	Unknown               // nobody knows: its worker owes nothing that could be late
)

// check refuses what cannot be meant.
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
	for i := range req.Overlaps {
		if o := &req.Overlaps[i]; min(o.Device, o.Host, o.Disk, o.Shared, o.Object) < 0 || max(o.Device, o.Host, o.Disk, o.Shared, o.Object) > MaxPromptTokens {
			return fmt.Errorf("%w: overlap %+v, want 0 to %d blocks", ErrRequest, *o, MaxPromptTokens)
		}
	}
	if req.Weights != nil && !req.Weights.sound() {
		return fmt.Errorf("%w: %w", ErrRequest, req.Weights.Validate())
	}
	return nil
}

// Reason says why a worker was chosen.
type Reason uint8

// The reasons.
const (
	ByCost   Reason = iota
	ByTie           // among equal costs, by tree or by chance
	ByChance        // under a temperature
	BySession
	ByPin
	reasons
)

var reasonNames = enum.New[Reason]("router", "reason", "cost", "tie", "chance", "session", "pin")

func (r Reason) String() string { return reasonNames.Name(r) }

// Reservation is the place of one request in the predicted load of a worker. It
// ends exactly once, by Release, Abandon, Rollback, Expire or Leave; all later calls with
// it are refused. The zero Reservation is none. It is comparable.
type Reservation struct {
	at int32
	id uint64 // from 1, never used again
}

// Decision is where a request goes.
type Decision struct {
	Reservation Reservation // to be released when the request ends
	Worker      kv.Rank
	Cost        float64 // in the policy's unit
	Overlap     Overlap // what the worker has of the prompt
	Reason      Reason
}

// inSeconds is d.Seconds(), without its divisions where there are no whole ones.
func inSeconds(d time.Duration) float64 {
	if d < time.Second {
		return float64(d) / 1e9
	}
	return d.Seconds()
}

// seconds is a duration, at most a century.
func seconds(s float64) time.Duration {
	return time.Duration(min(s, 3e9) * float64(time.Second))
}
