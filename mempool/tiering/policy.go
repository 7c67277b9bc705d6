package tiering

import (
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// MoveID numbers a move, from 1, ascending. The copy of a move between the device and host
// memory, one at most, has the same number as an engine.MoveID.
type MoveID uint64

// Kind is what a [Move] does.
type Kind uint8

// The kinds.
const (
	Write  Kind = iota // copy an extent from From to To, a slower tier
	Read               // copy an extent from From to the device
	Drop               // remove an extent from From
	Cancel             // the move with this ID, begun before, is needed no more; Moved answers it still
)

var kindNames = [...]string{"write", "read", "drop", "cancel"}

func (k Kind) String() string { return kindNames[k] }

// Move is one thing to do.
type Move struct {
	ID       MoveID
	Kind     Kind
	From, To kv.Tier
	Extent   mempool.Extent // its slices are the policy's, and constant
	// Pages are those of the device that a Write from it reads or a Read to it fills: one
	// for each page of Extent, by ascending position. kv.NoPage is a page of a Read that
	// the device has already, so it is not copied. The owner of the policy fills them in.
	Pages    []kv.PageID
	Deadline time.Duration // on the clock of now; 0: none
}

// Change says that a tier has an extent from now on, or no longer.
type Change struct {
	Tier   kv.Tier
	Key    mempool.Key
	Stored bool
}

// RequestID names a request that waits for a prefix.
type RequestID uint64

// Policy is the state. It belongs to one owner.
type Policy struct {
	cfg      Config
	tiers    [kv.Tiers]*tier // nil: not there
	nodes    map[mempool.Key]*node
	ghosts   ghosts
	reads    []*move // queued
	writes   []*move // queued, parents before children
	drops    []*move // queued, children before parents
	flights  map[MoveID]*move
	out      []Move // that Next is to append first
	changes  []Change
	wants    map[RequestID]*want
	moves    MoveID        // so far
	cost     estimate      // seconds to compute a token; 0: not known
	computed sum           // since cost was measured last
	flush    time.Duration // of a shutdown: nothing is begun after it
	flushing bool
	last     []lastWrite // of the shutdown, not queued yet
}

// tier is what the policy knows of one tier.
type tier struct {
	TierConfig
	index    *mempool.Index
	reserved int64 // bytes of writes to it that are queued or in flight
	spaces   map[kv.Namespace]int64
	moves    int       // in flight
	kinds    [Drop]int // of them, the writes to it and the reads
	writing  map[mempool.Key]*move
	children map[mempool.Key][]*move // of writing, by parent
	reading  map[mempool.Key]*move
	dropping map[mempool.Key]bool
	sinking  map[mempool.Key]bool // written to the tier below before they are dropped
	orphans  map[mempool.Key]int  // by parent: drops of what the index has not
	speed    estimate             // seconds to read a byte
	bytes    sum                  // read since then
	readAt   time.Duration        // when the latest read ended
	misses   int                  // late reads since one came in time
	stats    Stats
}

// node is an extent that is somewhere.
type node struct {
	mempool.Extent
	uses    int
	idle    bool // its conversation is
	offered bool // to the tier below since its last use; it is pinned in the device's index then
	sunk    bool // a tier above the lowest tried to write it down before dropping it, since its last use
}

// move is a Move with its state.
type move struct {
	Move
	begun    bool
	canceled bool
	void     bool // a write of what must not be found
	orphan   bool // a drop of what the index has not
	early    bool // a read of an extent whose write to From is in flight
	size     int64
	waiters  []*want
}

// New makes a policy for empty tiers.
func New(c Config) (*Policy, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.TokenSeconds > 0 {
		c.TokenGuess = c.TokenSeconds
	}
	p := &Policy{cfg: c, nodes: map[mempool.Key]*node{}, flights: map[MoveID]*move{}, wants: map[RequestID]*want{}, cost: estimate{guess: c.TokenGuess}}
	for i := range p.tiers {
		if i == int(kv.TierDevice) || c.Tiers[i].Bytes > 0 {
			p.tiers[i] = &tier{TierConfig: c.Tiers[i], index: mempool.NewIndex(c.Layout), spaces: map[kv.Namespace]int64{},
				writing: map[mempool.Key]*move{}, children: map[mempool.Key][]*move{}, reading: map[mempool.Key]*move{}, dropping: map[mempool.Key]bool{}, sinking: map[mempool.Key]bool{}, orphans: map[mempool.Key]int{}, speed: estimate{guess: 1 / max(c.Tiers[i].Bandwidth, 1)}}
		}
	}
	return p, nil
}

// Computed says that extents are on the device, whole: parents before children. It appends
// the tails on the device that they make superfluous, which are there no more for the policy.
func (p *Policy) Computed(now time.Duration, xs []mempool.Extent, dst []mempool.Key) []mempool.Key {
	device := p.tiers[kv.TierDevice].index
	for i := range xs {
		known := p.nodes[xs[i].Key] != nil
		n := p.node(&xs[i])
		if n.uses == 0 || !known { // one that was forgotten has its earlier uses
			n.uses++
		}
		if tail, ok := outgrown(p, kv.TierDevice, &xs[i]); ok && !device.Has(xs[i].Key) {
			dst = append(dst, tail)
			p.gone(kv.TierDevice, tail)
		}
		if !p.add(kv.TierDevice, &xs[i], 0) { // its parent is not there
			p.forget(xs[i].Key)
			continue
		}
		if first := p.below(kv.TierDevice); p.cfg.Mode == Through || first >= kv.TierDisk && n.uses >= p.cfg.Uses {
			p.write(now, xs[i].Key, kv.TierDevice, first, false)
		}
	}
	return dst
}

// outgrown finds a tail in a tier all of whose pages x has too.
func outgrown(p *Policy, t kv.Tier, x *mempool.Extent) (tail mempool.Key, ok bool) {
	ix := p.tiers[t].index
	h, ok := ix.Part(x)
	if !ok || h.Key == x.Key {
		return tail, false
	}
	y, _ := ix.Extent(h.Key)
	return h.Key, h.Pages == p.cfg.Layout.Pages(&y)
}

// covered reports whether a brother of x, in a tier or on its way there, has all pages of x.
func covered(p *Policy, t kv.Tier, x *mempool.Extent) bool {
	l := &p.cfg.Layout
	if len(x.Tokens) == l.ExtentTokens() {
		return false
	}
	if h, ok := p.tiers[t].index.Part(x); ok && h.Pages == l.Pages(x) && !p.tiers[t].dropping[h.Key] {
		return true
	}
	for _, m := range p.tiers[t].children[x.Parent] {
		if !m.canceled && m.Extent.Key != x.Key && l.SharedPages(&m.Extent, x) == l.Pages(x) {
			return true
		}
	}
	return false
}

// Used says that a request uses extents that are on the device or were read, again.
func (p *Policy) Used(now time.Duration, keys []mempool.Key) {
	for _, k := range keys {
		if n := p.nodes[k]; n != nil {
			p.use(now, n)
		}
	}
}

func (p *Policy) use(now time.Duration, n *node) {
	n.uses++
	n.sunk = false
	reoffer(p, n)
	for _, t := range p.tiers {
		if t != nil {
			t.index.Touch(n.Key)
		}
	}
	if n.uses >= p.cfg.Uses {
		p.admit(now, n)
	}
}

// reoffer lets Offer look at an extent again.
func reoffer(p *Policy, n *node) {
	if n.offered {
		n.offered = false
		p.tiers[kv.TierDevice].index.Unpin(n.Key)
	}
}

// Idle says that nobody will ask for a conversation for some time: its extents go to disk,
// though used once only.
func (p *Policy) Idle(now time.Duration, k mempool.Key) {
	for n := p.nodes[k]; n != nil; n = p.nodes[n.Parent] {
		n.idle = true
		reoffer(p, n)
	}
	if n := p.nodes[k]; n != nil {
		p.admit(now, n)
	}
}

// admit writes an extent to the tiers below the host, from the fastest that has it. From
// the device it goes through the host, if there is one, and to that no earlier than the mode
// says.
func (p *Policy) admit(now time.Duration, n *node) {
	first := p.below(kv.TierDevice)
	if (p.cfg.Mode != WriteBack || first >= kv.TierDisk) && p.on(kv.TierDevice, n.Key) {
		p.write(now, n.Key, kv.TierDevice, first, false)
	}
	for to := kv.TierDisk; int(to) < kv.Tiers; to++ {
		if p.tiers[to] == nil || to == first {
			continue
		}
		if from := p.fastest(n.Key, kv.TierHost, to); from < to {
			p.write(now, n.Key, from, to, false)
		}
	}
}

// below is the next tier that there is, after t; kv.Tiers if there is none.
func (p *Policy) below(t kv.Tier) kv.Tier {
	for t++; int(t) < kv.Tiers && p.tiers[t] == nil; t++ {
	}
	return t
}

// fastest is the first tier of [from, to) that has an extent, to if none has.
func (p *Policy) fastest(k mempool.Key, from, to kv.Tier) kv.Tier {
	for ; from < to && !p.on(from, k); from++ {
	}
	return from
}

// on reports whether a tier has an extent, and will have.
func (p *Policy) on(t kv.Tier, k mempool.Key) bool {
	return int(t) < kv.Tiers && p.tiers[t] != nil && p.tiers[t].index.Has(k) && !p.tiers[t].dropping[k]
}

// Evicted says that an extent is on the device no more, nor any below it. A write of it
// that has not begun is not done.
func (p *Policy) Evicted(k mempool.Key) { p.gone(kv.TierDevice, k) }

// Gone says that extents are in a tier no more: its store said so.
func (p *Policy) Gone(t kv.Tier, keys []mempool.Key) {
	for _, k := range keys {
		p.gone(t, k)
	}
}

// gone removes an extent and what is below it from a tier's index.
func (p *Policy) gone(t kv.Tier, k mempool.Key) {
	for _, h := range p.tiers[t].index.RemoveTree(k, nil) {
		p.removed(t, h.Key)
	}
}

// Found says what a tier has, as a store's Contents or a Probe tell: parents first.
func (p *Policy) Found(t kv.Tier, xs []mempool.Extent) {
	for i := range xs {
		p.node(&xs[i])
		p.add(t, &xs[i], p.tiers[t].SlotBytes)
		p.forget(xs[i].Key)
	}
}

// Busy reports whether writes or drops wait or are in flight, or reads are in flight.
func (p *Policy) Busy() bool {
	return len(p.flights)+len(p.writes)+len(p.drops)+len(p.out)+len(p.last) > 0
}

// Changes appends what changed in the tiers below the device since the last call.
func (p *Policy) Changes(dst []Change) []Change {
	dst = append(dst, p.changes...)
	p.changes = p.changes[:0]
	return dst
}

// Holds reports whether a tier has an extent, as far as the policy knows.
func (p *Policy) Holds(t kv.Tier, k mempool.Key) bool {
	return p.tiers[t] != nil && p.tiers[t].index.Has(k)
}

// Has reports whether there is such a tier below the device.
func (p *Policy) Has(t kv.Tier) bool {
	return t != kv.TierDevice && int(t) < kv.Tiers && p.tiers[t] != nil
}

// HasBelowHost reports whether there is a tier that admits extents when they are idle.
func (p *Policy) HasBelowHost() bool { return int(p.below(kv.TierHost)) < kv.Tiers }

// Uses is how often an extent was used; 0 for one that is nowhere.
func (p *Policy) Uses(k mempool.Key) int {
	if n := p.nodes[k]; n != nil {
		return n.uses
	}
	return 0
}

// Extent is an extent that is in some tier, or on its way. Its slices must not be changed.
func (p *Policy) Extent(k mempool.Key) (x mempool.Extent, ok bool) {
	if n := p.nodes[k]; n != nil {
		return n.Extent, true
	}
	return x, false
}

// Bytes is what a tier has, and what is on its way to it.
func (p *Policy) Bytes(t kv.Tier) (held, reserved int64) {
	if p.tiers[t] == nil {
		return 0, 0
	}
	return p.tiers[t].index.Bytes(), p.tiers[t].reserved
}

// node is the state of an extent, new if need be.
func (p *Policy) node(x *mempool.Extent) *node {
	n := p.nodes[x.Key]
	if n == nil {
		n = &node{Extent: x.Clone(), uses: p.ghosts.take(x.Key)}
		p.nodes[x.Key] = n
	}
	return n
}

// add notes that a tier has an extent.
func (p *Policy) add(t kv.Tier, x *mempool.Extent, bytes int) bool {
	added, err := p.tiers[t].index.Add(x, bytes, 0)
	if added && t != kv.TierDevice {
		p.changes = append(p.changes, Change{t, x.Key, true})
	}
	return err == nil
}

// removed notes that a tier has an extent no more.
func (p *Policy) removed(t kv.Tier, k mempool.Key) {
	if t != kv.TierDevice {
		p.changes = append(p.changes, Change{t, k, false})
	} else if n := p.nodes[k]; n != nil {
		n.offered = false
	}
	p.forget(k)
}

// forget forgets an extent that is nowhere, nor on its way.
func (p *Policy) forget(k mempool.Key) {
	for _, t := range p.tiers {
		if t != nil && (t.index.Has(k) || t.writing[k] != nil || t.reading[k] != nil) {
			return
		}
	}
	if n := p.nodes[k]; n != nil && n.uses > 0 {
		p.ghosts.put(k, n.uses)
	}
	delete(p.nodes, k)
}

// Check walks the ledgers: what is reserved is on its way, and no tier has more than its
// quota.
func (p *Policy) Check() error {
	var moves [kv.Tiers]int
	var kinds [kv.Tiers][Drop]int
	for _, m := range p.flights {
		moves[m.From]++
		switch m.Kind {
		case Write:
			moves[m.To]++
			kinds[m.To][Write]++
		case Read:
			kinds[m.From][Read]++
		}
	}
	for i, t := range p.tiers {
		if t == nil {
			continue
		}
		if err := t.index.Check(); err != nil {
			return err
		}
		var reserved int64
		for _, m := range t.writing {
			reserved += m.size
		}
		if reserved != t.reserved || i > 0 && (t.moves != moves[i] || t.kinds != kinds[i]) {
			return fmt.Errorf("tiering: %s: %d bytes are reserved of %d, %d moves of %d", kv.Tier(i), t.reserved, reserved, t.moves, moves[i])
		}
		if held := t.index.Bytes() + t.reserved; i > 0 && held > t.Bytes && !t.Kept {
			return fmt.Errorf("tiering: %s: %d bytes of %d", kv.Tier(i), held, t.Bytes)
		}
	}
	for _, m := range slices.Concat(p.reads, p.writes, p.drops) {
		if m.begun || p.flights[m.ID] != nil {
			return fmt.Errorf("tiering: move %d waits and is in flight", m.ID)
		}
	}
	return nil
}
