package kvindex

import (
	"cmp"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/heap"
	"github.com/coppice-llm/coppice/kv"
)

// ApproximateConfig bounds an [Approximate]. The zero value works. The defaults are those of
// Dynamo's router of 2026-02.
type ApproximateConfig struct {
	// TTL is how long a routed prompt counts as cached. Default 2 minutes.
	TTL time.Duration `default:"2m" above:"0s"`
	// MaxBlocks bounds the blocks, summed over holders. Beyond it blocks are evicted. Default
	// 1<<20.
	MaxBlocks int `default:"1<<20" min:"1" max:"1<<29"`
	// KeepRatio is the share of MaxBlocks that remains after an eviction. Default 0.8.
	KeepRatio float64 `default:"0.8" above:"0" max:"1"`
	Holders   int     // see Config
	Seed      uint64  // see Config
}

// WithDefaults returns c with every zero field set to its default.
func (c ApproximateConfig) WithDefaults() ApproximateConfig { return bounds.Fill(c) }

// index returns the configuration of the tree. Its limits are twice MaxBlocks, because Route
// first stores a prompt, of up to MaxBlocks blocks, and then evicts others.
func (c ApproximateConfig) index() Config {
	return Config{Blocks: 2 * c.MaxBlocks, HolderBlocks: 2 * c.MaxBlocks, Holders: c.Holders, Seed: c.Seed}
}

// Validate reports all faults at once, each wrapping [ErrConfig].
func (c ApproximateConfig) Validate() error {
	c = c.WithDefaults()
	if err := bounds.CheckAs(ErrConfig, c); err != nil {
		return err
	}
	return c.index().Validate()
}

// Approximate guesses the contents of workers' caches from where prompts were sent. It serves
// workers without events. With a short TTL it also complements an Index: a worker's events come
// only after it has computed a prompt, and until then the guess sends prompts with the same
// prefix to the same worker (combine the two by [MaxOverlaps]). A guess may be wrong, so its
// overlaps may be too high.
//
// There is one timer at the end of each routed prompt, not one per block. The effect is the
// same: a block is kept as long as the timer of any prompt through it runs.
type Approximate struct {
	x      *Index
	cfg    ApproximateConfig
	timers timers
}

// NewApproximate makes an empty Approximate. The error wraps [ErrConfig].
func NewApproximate(cfg ApproximateConfig) (*Approximate, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	x, err := New(cfg.index())
	if err != nil {
		return nil, err
	}
	return &Approximate{x: x, cfg: cfg, timers: timers{at: timerPlaces{}}}, nil
}

// Index returns the tree. Only read it: blocks that you store in it would never expire.
func (a *Approximate) Index() *Index { return a.x }

// Find is [Index.Find].
func (a *Approximate) Find(hashes []kv.BlockHash, dst []Overlap) []Overlap {
	return a.x.Find(hashes, dst)
}

// Route records that the prompt run goes to holder h. h counts as holding all blocks of run
// until cfg.TTL after now. If there are then more than MaxBlocks blocks, Route evicts blocks of
// the least recently routed prompts, from the end of each prompt. The errors are those of
// [Index.Store], and ErrFull for a prompt of more than MaxBlocks blocks. now is the time since
// some fixed moment, and must not decrease from call to call.
func (a *Approximate) Route(h kv.Rank, run Run, now time.Duration) error {
	if len(run.Hashes) > a.cfg.MaxBlocks {
		return ErrFull
	}
	_, has, err := a.x.store(h, run)
	// The timer is at the last block that the holder has now: before the prompt's end after an
	// error.
	if has > 0 {
		// A prompt that is routed again only moves its timer: set replaces the timer with the same
		// mark.
		last := run.Hashes[has-1]
		id, off, _ := a.x.place(last)
		a.timers.set(timer{mark{h, last}, now + a.cfg.TTL, a.x.node(id).start + uint32(off)})
	}
	a.prune()
	a.x.verify("Route")
	return err
}

// Expire removes the blocks that were last routed at least cfg.TTL before now, and returns their
// number, summed over holders.
func (a *Approximate) Expire(now time.Duration) (blocks int) {
	for t, ok := a.timers.earliest(); ok && t.expires <= now; t, ok = a.timers.earliest() {
		blocks += a.retire(a.timers.pop(), a.x.held)
	}
	a.x.verify("Expire")
	return blocks
}

// prune evicts blocks if there are more than MaxBlocks, until KeepRatio·MaxBlocks are left. Each
// eviction so makes room for (1-KeepRatio)·MaxBlocks blocks, 210,000 by default, and a full
// index does not evict at every prompt.
func (a *Approximate) prune() {
	if a.x.held <= a.cfg.MaxBlocks {
		return
	}
	keep := int(float64(a.cfg.MaxBlocks) * a.cfg.KeepRatio)
	for a.x.held > keep && len(a.timers.at) > 0 {
		a.retire(a.timers.pop(), a.x.held-keep)
	}
}

// Clear removes all blocks of holder h, with their timers.
func (a *Approximate) Clear(h kv.Rank) {
	a.timers.drop(func(g kv.Rank) bool { return g == h })
	a.x.Clear(h)
}

// RemoveWorker forgets all holders that are ranks of worker w, with their blocks.
func (a *Approximate) RemoveWorker(w kv.WorkerID) {
	a.timers.drop(func(g kv.Rank) bool { return g.Worker == w })
	a.x.removeWorker(w)
}

// retire removes blocks that only the prompt of timer t keeps, from the end of the prompt, at
// most as many as most says. It returns their number. t has been taken off the heap. If retire
// stops because of most, the rest of the prompt gets a timer with the same expiry.
//
// Example: a holder has the prompts [a b c d] and [a b x]. When the timer of the first one
// expires, the walk starts at d and stops at b, where the other prompt continues: d and c are
// removed. When the timer of the second one expires, x, b and a are removed.
func (a *Approximate) retire(t timer, most int) (blocks int) {
	x := a.x
	slot, ok := x.holders.slot(t.holder)
	id, off, found := x.place(t.hash)
	if !ok || !found {
		return 0
	}
	n := x.node(id)
	if n.covered(slot) != off || x.continuesFor(slot, id, off, root) {
		return 0 // a longer prompt keeps it, or it has been removed
	}
	// Walk up from the end of the prompt, block by block, until most are counted or a block is
	// reached that another prompt of the holder keeps: it continues in another child, or ends
	// here.
	cutAt, keep := id, off
	for blocks < most {
		blocks++
		off--
		cutAt, keep = id, off
		if off == 0 {
			if n.parent == root {
				break
			}
			from := id
			id = n.parent
			n = x.node(id)
			if off = len(n.hashes); x.continuesFor(slot, id, off, from) {
				break
			}
		}
		if _, ends := a.timers.at[mark{t.holder, n.hashes[off-1]}]; ends {
			break
		}
	}
	// most was 0: nothing may be removed, so the timer stays.
	if blocks == 0 {
		a.timers.set(t)
		return 0
	}
	// The walk stopped because of most: the rest of the prompt gets the timer, at its new end.
	if blocks == most && off > 0 {
		end := timer{mark{t.holder, n.hashes[off-1]}, t.expires, n.start + uint32(off)}
		if _, ends := a.timers.at[end.mark]; !ends {
			a.timers.set(end)
		}
	}
	x.shorten(slot, cutAt, keep)
	return blocks
}

// continuesFor reports whether the holder in slot has a child of node id, other than the child
// but. off is the number of blocks that the holder covers of the node's run. If off is less than
// the run, the answer is false, because such a holder has no child below it. If the children are
// counted, it costs O(1), otherwise one step per child.
func (x *Index) continuesFor(slot uint32, id nodeID, off int, but nodeID) bool {
	n := x.node(id)
	if off < len(n.hashes) {
		return false
	}
	if counts := n.below(); counts != nil {
		others := int(slot) < len(counts) && counts[slot] > 0
		if others && but != root && x.node(but).isHeld(slot) {
			others = counts[slot] > 1
		}
		return others
	}
	for kid := n.child; kid != root; kid = x.node(kid).next {
		if kid != but && x.node(kid).isHeld(slot) {
			return true
		}
	}
	return false
}

// mark identifies a routed prompt by its holder and the hash of its last block.
type mark struct {
	holder kv.Rank
	hash   kv.BlockHash
}

// timer is the time at which a routed prompt expires.
type timer struct {
	mark
	expires time.Duration
	depth   uint32 // number of blocks of the prompt
}

// Before reports whether t expires before u. At the same time the longer prompt comes first, so
// that last blocks are removed before first ones. Holder and hash decide between equal lengths,
// so that the order is total. It implements heap.Element.
func (t timer) Before(u timer) bool {
	return cmp.Or(cmp.Compare(t.expires, u.expires), cmp.Compare(u.depth, t.depth),
		t.holder.Compare(u.holder), cmp.Compare(t.hash, u.hash)) < 0
}

// timerPlaces maps each mark to its timer's index in the heap.
type timerPlaces map[mark]int

// Place notes that timer t is at this index of the heap. It implements heap.Places.
func (p timerPlaces) Place(t timer, at int) { p[t.mark] = at }

// timers is a heap with one timer per mark, the earliest first. Prompts of one holder with the
// same last block share a timer, so there are at most as many timers as blocks.
type timers struct {
	heap heap.Heap[timer, timerPlaces]
	at   timerPlaces
}

// set adds timer t, or replaces the timer with the same mark.
func (ts *timers) set(t timer) {
	if at, ok := ts.at[t.mark]; ok {
		ts.heap.Set(ts.at, at, t)
	} else {
		ts.heap.Push(ts.at, t)
	}
}

// pop removes and returns the earliest timer. There must be one.
func (ts *timers) pop() timer { return ts.remove(0) }

func (ts *timers) remove(at int) timer {
	t := ts.heap.Remove(ts.at, at)
	delete(ts.at, t.mark)
	return t
}

// earliest returns the earliest timer, if there is one.
func (ts *timers) earliest() (timer, bool) {
	if len(ts.heap.Items) == 0 {
		return timer{}, false
	}
	return ts.heap.Items[0], true
}

// drop removes the timers of all holders for which of returns true. It visits all timers.
func (ts *timers) drop(of func(kv.Rank) bool) {
	var gone []mark
	for _, t := range ts.heap.Items {
		if of(t.holder) {
			gone = append(gone, t.mark)
		}
	}
	for _, m := range gone {
		ts.remove(ts.at[m])
	}
}
