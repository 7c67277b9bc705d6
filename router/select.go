package router

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// The refusals of Select and Take.
var (
	ErrRequest   = errors.New("router: bad request")
	ErrNoWorkers = errors.New("router: no worker that may be chosen: all left, are draining, lost or to be avoided, or of other models or pools")
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

// Phase says which part of a request a worker gets.
type Phase uint8

// The phases.
const (
	Whole      Phase = iota // prefill and decode
	DecodeOnly              // its KV comes from elsewhere: no prefill is predicted
)

// MaxAvoid bounds Request.Avoid.
const MaxAvoid = 64

// Request is what is known of a request. Its slices are read during the call only,
// but by Wait, which keeps them until the ticket has ended.
type Request struct {
	PromptTokens int // at least 1
	// Hashes are the chained hashes of the prompt's full blocks, or of the first of
	// them; without, its blocks do not count as load.
	Hashes []kv.BlockHash
	// Unshared: no other request shares its blocks, whatever their hashes.
	Unshared bool
	// Untold: no worker's event will ever name its Hashes, as they are of bytes that stand
	// for its tokens. It is for replicas, which learn it with them.
	Untold bool
	Phase  Phase
	// Reply says when something of the answer is seen, see Config.Stall.
	Reply Reply
	// Overlaps are what workers have of it, from the index, each worker once, in any
	// order. Who is not in it has nothing.
	Overlaps []Overlap
	// ExpectedOutput in tokens. Default Config.ExpectedOutput.
	ExpectedOutput int
	// Session is a hash of whom it belongs to; 0 is nobody. Under SessionTTL it goes
	// where the session's last request went, if it can.
	Session uint64
	// Model is what it asks for: it goes only to workers that serve that. 0 is any.
	Model ModelID
	// Pool restricts it to the workers of one. 0 is any.
	Pool PoolID
	// Pinned is the only worker that it may go to.
	Pinned *kv.Rank
	// Avoid are workers that it must not go to, at most MaxAvoid: where it failed before.
	// Those who wait with some are looked at one by one, so it is not the way to say who
	// serves what.
	Avoid []kv.Rank
	// Weights for this request alone.
	Weights *Weights

	// Priority, of those who wait: the highest goes first.
	Priority int
	// Jump is by how much its arrival counts as earlier than it was, see [Order].
	Jump time.Duration
	// Deadline is until when it may wait; 0 is for ever.
	Deadline time.Duration

	// Explain is filled in by Select and Take, if it is there.
	Explain *Explanation
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
)

var reasonNames = [...]string{"cost", "tie", "chance", "session", "pin"}

func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Decision is where a request goes.
type Decision struct {
	Reservation Reservation // to be released when the request ends
	Worker      kv.Rank
	Cost        float64 // in the policy's unit
	Overlap     Overlap // what the worker has of the prompt
	Reason      Reason
}

// scratch is what one choice computes; it is reused.
type scratch struct {
	candidates []int32   // slots, in the order of workers; not to be changed, it may be a model's
	fit        []int32   // candidates, where some of the model's workers are not
	costs      []float64 // by slot, of candidates
	shareOf    []int32   // by slot: of shares
	shares     []share   // the first is of who has nothing
	depths     []int32   // by slot: blocks that active requests of the worker hold
	deep       bool      // depths are there
	ties       []int32
	chances    []float64 // by candidate
}

func (s *scratch) reset(slots int) {
	if cap(s.costs) < slots {
		*s = scratch{
			fit: make([]int32, 0, slots), costs: make([]float64, slots), shareOf: make([]int32, slots), shares: make([]share, 0, 2*slots+1),
			depths: make([]int32, slots), ties: make([]int32, 0, slots), chances: make([]float64, 0, slots),
		}
	}
	s.costs, s.shareOf, s.depths = s.costs[:slots], s.shareOf[:slots], s.depths[:slots]
	clear(s.shareOf)
	s.candidates, s.fit, s.chances, s.deep = nil, s.fit[:0], s.chances[:0], false
	s.shares = append(s.shares[:0], share{kind: none})
}

// share is what workers have of the prompt: those of equal overlaps that were named
// one after the other. What follows from it is kept for the kind that asked last.
type share struct {
	Overlap
	promised int     // blocks of it that the index does not have
	kind     int32   // none: nobody asked
	prompt   float64 // seconds of what is left of the prompt, without steps
	steps    float64 // that it takes
	delay    float64 // seconds of it that a decoding row waits for
	row      float64 // seconds by which a row beside theirs makes a step longer
}

// overlap is what a worker has of the prompt.
func (s *scratch) overlap(slot int32) *Overlap { return &s.shares[s.shareOf[slot]].Overlap }

// Select chooses a worker and reserves on it, in one step: the next request sees
// the load of this one. The reservation is to be released when the request ends,
// however it ends, or rolled back. Errors: [ErrRequest], [ErrNoWorkers], [ErrBusy],
// [ErrFull]; nothing is reserved then. It costs O(workers + blocks of the prompt)
// and allocates nothing in steady state.
func (r *Router) Select(now time.Duration, req *Request) (Decision, error) {
	r.advance(now)
	if err := r.check(req); err != nil {
		r.metrics.Refused++
		return Decision{}, err
	}
	if r.queue.before(req, r) || r.allBusy(req) {
		r.metrics.Busy++
		return Decision{}, ErrBusy
	}
	return r.choose(req)
}

// check refuses what cannot be meant.
func (r *Router) check(req *Request) error {
	if req.PromptTokens < 1 || req.PromptTokens > MaxPromptTokens {
		return fmt.Errorf("%w: PromptTokens is %d, want 1 to %d", ErrRequest, req.PromptTokens, MaxPromptTokens)
	}
	if whole := kv.FloorPages(req.PromptTokens, r.cfg.BlockTokens); len(req.Hashes) > whole {
		return fmt.Errorf("%w: %d hashes for %d tokens, which have %d full blocks of %d: were they hashed by another block size?",
			ErrRequest, len(req.Hashes), req.PromptTokens, whole, r.cfg.BlockTokens)
	}
	if req.ExpectedOutput < 0 || req.ExpectedOutput > MaxPromptTokens {
		return fmt.Errorf("%w: ExpectedOutput is %d, want 0 (unknown) to %d", ErrRequest, req.ExpectedOutput, MaxPromptTokens)
	}
	if len(req.Avoid) > MaxAvoid {
		return fmt.Errorf("%w: it avoids %d workers, want at most %d: say by Model who serves it", ErrRequest, len(req.Avoid), MaxAvoid)
	}
	if req.Phase > DecodeOnly {
		return fmt.Errorf("%w: Phase is %d, want 0 or 1", ErrRequest, req.Phase)
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

// allBusy tells whether every worker that req may go to is busy. If there is none,
// it is not for being busy.
func (r *Router) allBusy(req *Request) bool {
	any, free := r.prospects(req)
	return any && !free
}

// choose scores, picks and reserves.
func (r *Router) choose(req *Request) (Decision, error) {
	if r.active >= r.cfg.MaxActive {
		r.metrics.Refused++
		return Decision{}, ErrFull
	}
	s := r.score(req)
	if len(r.scratch.candidates) == 0 {
		r.metrics.Refused++
		return Decision{}, ErrNoWorkers
	}
	slot, reason := r.pick(req, &s)
	if req.Explain != nil {
		r.explain(req.Explain, &s, slot, reason)
	}
	return r.book(req, &s, slot, reason), nil
}

// pick is the worker among the candidates.
func (r *Router) pick(req *Request, s *scorer) (int32, Reason) {
	if req.Pinned != nil {
		return r.scratch.candidates[0], ByPin
	}
	if slot := r.sessionSlot(req); slot != noEntry {
		return slot, BySession
	}
	if s.weights.Temperature > 0 {
		return r.sample(s.weights), ByChance
	}
	ties, tied := r.lowest(s.policy)
	if !tied {
		return ties[0], ByCost
	}
	if s.policy == CostRoundRobin || len(ties) == 1 {
		return ties[0], ByTie
	}
	return ties[r.chance.below(len(ties))], ByTie
}

// sessionSlot is the worker of the request's session, if it may be chosen and is
// not busy.
func (r *Router) sessionSlot(req *Request) int32 {
	w, ok := r.sessions.get(r.now, req.Session)
	if !ok {
		return noEntry
	}
	slot := r.slotOf(w)
	if slot == noEntry || !r.eligible(slot, req) || r.workers[slot].standing != ready {
		return noEntry
	}
	return slot
}

// eligible tells whether a worker may be chosen for req; those to be avoided are marked.
func (r *Router) eligible(slot int32, req *Request) bool {
	w := &r.workers[slot]
	return w.health == Healthy && w.mark != r.marks && (req.Pinned == nil || *req.Pinned == w.id) && w.serves(req)
}

// book reserves on the chosen worker.
func (r *Router) book(req *Request, s *scorer, slot int32, reason Reason) Decision {
	w := &r.workers[slot]
	o := r.scratch.overlap(slot)
	a := asked{hashes: req.Hashes, promptTokens: req.PromptTokens, decodeOnly: s.decodeOnly, untold: req.Untold}
	a.known = o.Blocks() - r.scratch.shares[r.scratch.shareOf[slot]].promised
	if !s.decodeOnly {
		a.uncached = s.uncached(o)
		a.predicted = seconds(s.prefill(&w.spec.Profile, o, a.uncached))
	}
	if req.Unshared {
		a.hashes, a.privatePart = nil, s.blocks
	}
	r.lastID++
	r.choices++
	w.lastChosen = r.choices
	term := s.due(r, req, slot)
	at := r.reserve(slot, ownPeer, r.lastID, &a)
	e := &r.slab[at]
	w.owe(r.slab, at, req, r.now, term)
	r.recount(slot)
	r.claim(e, req.Session)
	r.journalReserved(e, a.hashes)
	r.metrics.count(s, o, reason)
	overlap := *o
	overlap.Worker = w.id
	return Decision{Reservation{at, r.lastID}, w.id, r.scratch.costs[slot], overlap, reason}
}
