package tiering

import (
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// MoveID numbers moves from 1 in ascending order. If a move needs a copy between the device and
// host memory (at most one), that copy has the same number as its engine.MoveID.
type MoveID uint64

// Kind is the kind of a [Move].
type Kind uint8

// The kinds.
const (
	Write  Kind = iota // copy an extent from From to To, a lower tier
	Read               // copy an extent from From to the device
	Drop               // remove an extent from From
	Cancel             // stop the move with this ID, which has begun; Moved must still answer that move
)

var kindNames = [...]string{"write", "read", "drop", "cancel"}

func (k Kind) String() string { return kindNames[k] }

// Move is one operation for the owner to carry out.
type Move struct {
	ID       MoveID
	Kind     Kind
	From, To kv.Tier
	Extent   mempool.Extent // its slices belong to the policy and never change
	// Pages are the device's pages that a Write reads or a Read fills, one for each page of
	// Extent in ascending position. kv.NoPage marks a page of a Read that the device has
	// already; it is not copied. The policy leaves Pages nil; its owner sets them.
	Pages    []kv.PageID
	Deadline time.Duration // on the clock of now; 0 for none
}

// Change reports that an extent was added to a tier or removed from it.
type Change struct {
	Tier   kv.Tier
	Key    mempool.Key
	Stored bool // added; false if removed
}

// RequestID names a request that waits for a prefix.
type RequestID uint64

// Policy is the state of all tiers. It may be used by one goroutine at a time.
type Policy struct {
	cfg      Config
	tiers    [kv.Tiers]*tier // nil if there is no such tier
	nodes    map[mempool.Key]*node
	ghosts   ghosts
	reads    []*move // queued
	writes   []*move // queued, parents before children
	drops    []*move // queued, children before parents
	flights  map[MoveID]*move
	out      []Move // begun, to be returned by the next Begun
	changes  []Change
	wants    map[RequestID]*want
	moves    MoveID        // the latest number
	cost     estimate      // seconds to compute a token; 0 if not known
	computed sum           // prompt tokens since the last measurement of cost
	flush    time.Duration // end of a shutdown: no write begins after it
	flushing bool
	last     []lastWrite // of a shutdown, not queued yet
}

// tier is the policy's state of one tier.
type tier struct {
	TierConfig
	index    *mempool.Index
	reserved int64                   // bytes of writes to it that are queued or in flight
	spaces   map[kv.Namespace]int64  // reserved, by namespace
	moves    int                     // in flight, to it and from it
	kinds    [Drop]int               // in flight: writes to it and reads from it
	writing  map[mempool.Key]*move   // writes to it, queued or in flight
	children map[mempool.Key][]*move // writing, by parent
	reading  map[mempool.Key]*move   // reads from it, queued or in flight
	dropping map[mempool.Key]bool    // drops from it, queued or in flight
	sinking  map[mempool.Key]bool    // extents being written to the tier below, to be dropped then
	orphans  map[mempool.Key]int     // by parent: drops of extents that the store has but not the index
	speed    estimate                // seconds to read a byte
	bytes    sum                     // bytes read since the last measurement of speed
	readAt   time.Duration           // end of the latest read
	misses   int                     // late reads since the last one in time
	stalls   int                     // late reads that began after the one before them was late
	stats    Stats
}

// node is an extent that is in some tier or on its way to one.
type node struct {
	mempool.Extent
	uses    int
	idle    bool // its conversation is idle, see Idle
	offered bool // Offer has handled it since its last use; it is then pinned in the device's index
	sunk    bool // a tier has tried to sink it since its last use
}

// move is a Move with its state.
type move struct {
	Move
	begun    bool
	canceled bool
	void     bool // a write whose result must not be found, see Discard
	orphan   bool // a drop of an extent that the index does not have
	early    bool // a read of an extent whose write to From is in flight
	size     int64
	stalls   int // of a read: those of its tier when it began
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

// Computed tells the policy that the device has the extents xs now, parents before children. It
// returns dst with the keys of tails on the device appended whose pages the new extents contain
// too, and removes these tails from its index of the device.
func (p *Policy) Computed(now time.Duration, xs []mempool.Extent, dst []mempool.Key) []mempool.Key {
	device := p.tiers[kv.TierDevice].index
	for i := range xs {
		known := p.nodes[xs[i].Key] != nil
		n := p.node(&xs[i])
		if n.uses == 0 || !known { // a ghost starts with its earlier uses
			n.uses++
		}
		if tail, ok := outgrown(p, kv.TierDevice, &xs[i]); ok && !device.Has(xs[i].Key) {
			dst = append(dst, tail)
			p.gone(kv.TierDevice, tail)
		}
		if !p.add(kv.TierDevice, &xs[i], 0) { // its parent is not on the device
			p.forget(xs[i].Key)
			continue
		}
		if first := p.below(kv.TierDevice); p.cfg.Mode == Through || first >= kv.TierDisk && n.uses >= p.cfg.Uses {
			p.write(now, xs[i].Key, kv.TierDevice, first, false)
		}
	}
	return dst
}

// outgrown returns the key of a sibling of x in tier t whose pages are all among those of x. ok is
// false if there is none.
func outgrown(p *Policy, t kv.Tier, x *mempool.Extent) (tail mempool.Key, ok bool) {
	ix := p.tiers[t].index
	h, ok := ix.Part(x)
	if !ok || h.Key == x.Key {
		return tail, false
	}
	y, _ := ix.Extent(h.Key)
	return h.Key, h.Pages == p.cfg.Layout.Pages(&y)
}

// covered reports whether x is a tail, and a sibling in tier t, or on its way to that tier, has
// all pages of x. Siblings have the same parent.
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

// Used reports another use of extents by a request. It updates their ages in all tiers and may
// queue writes of those that have enough uses now.
func (p *Policy) Used(now time.Duration, keys []mempool.Key) {
	for _, k := range keys {
		if n := p.nodes[k]; n != nil {
			p.use(now, n)
		}
	}
}

// use counts a use of an extent, updates its age in all tiers, and admits it once it has enough uses.
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

// reoffer makes Offer consider an extent again.
func reoffer(p *Policy, n *node) {
	if n.offered {
		n.offered = false
		p.tiers[kv.TierDevice].index.Unpin(n.Key)
	}
}

// Idle reports that the conversation that ends with extent k is not expected to continue soon.
// Its extents are admitted to disk even after a single use.
func (p *Policy) Idle(now time.Duration, k mempool.Key) {
	for n := p.nodes[k]; n != nil; n = p.nodes[n.Parent] {
		n.idle = true
		reoffer(p, n)
	}
	if n := p.nodes[k]; n != nil {
		p.admit(now, n)
	}
}

// admit queues writes of an extent to the tiers below host memory, from the fastest lower tier
// that has it. If the extent is on the device, admit also queues its write to the first tier below
// the device, unless that is host memory and the mode is WriteBack.
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

// below returns the next existing tier after t; kv.Tiers if there is none.
func (p *Policy) below(t kv.Tier) kv.Tier {
	for t++; int(t) < kv.Tiers && p.tiers[t] == nil; t++ {
	}
	return t
}

// fastest returns the first tier in [from, to) that has extent k, or to if none has it.
func (p *Policy) fastest(k mempool.Key, from, to kv.Tier) kv.Tier {
	for ; from < to && !p.on(from, k); from++ {
	}
	return from
}

// on reports whether a tier has an extent and is not dropping it.
func (p *Policy) on(t kv.Tier, k mempool.Key) bool {
	return int(t) < kv.Tiers && p.tiers[t] != nil && p.tiers[t].index.Has(k) && !p.tiers[t].dropping[k]
}

// Evicted reports that the device has evicted an extent. Its descendants leave the device with it,
// as no lookup reaches them. Writes of them from the device that have not begun are abandoned.
// Evicted returns dst with the keys of all of them appended that were on the device, children first.
func (p *Policy) Evicted(k mempool.Key, dst []mempool.Key) []mempool.Key {
	for _, h := range p.tiers[kv.TierDevice].index.RemoveTree(k, nil) {
		p.removed(kv.TierDevice, h.Key)
		dst = append(dst, h.Key)
	}
	return dst
}

// Gone reports that a tier's store no longer has some extents.
func (p *Policy) Gone(t kv.Tier, keys []mempool.Key) {
	for _, k := range keys {
		p.gone(t, k)
	}
}

// gone removes an extent and its descendants from a tier's index.
func (p *Policy) gone(t kv.Tier, k mempool.Key) {
	for _, h := range p.tiers[t].index.RemoveTree(k, nil) {
		p.removed(t, h.Key)
	}
}

// Found tells the policy that tier t has the extents xs, as a store's Contents or a Probe
// returned them, parents first. An extent that continues one that is being dropped, which another
// process may have written meanwhile, is dropped too: without its parent no lookup reaches it.
func (p *Policy) Found(t kv.Tier, xs []mempool.Extent) {
	of := p.tiers[t]
	for i := range xs {
		x := &xs[i]
		switch m := of.writing[x.Key]; {
		case of.dropping[x.Key] || m != nil && m.void && m.begun: // found before its drop, or written by a void write
		case of.dropping[x.Parent]:
			if m == nil { // else wrote drops it
				dropUnknown(p, t, x)
			}
		default:
			p.node(x)
			p.add(t, x, of.SlotBytes)
			p.forget(x.Key)
		}
	}
}

// Busy reports whether any move is in flight, or any write or drop is queued. Queued reads do
// not count.
func (p *Policy) Busy() bool {
	return len(p.flights)+len(p.writes)+len(p.drops)+len(p.out)+len(p.last) > 0
}

// Changes returns dst with the changes of the tiers below the device since the last call appended.
func (p *Policy) Changes(dst []Change) []Change {
	dst = append(dst, p.changes...)
	p.changes = p.changes[:0]
	return dst
}

// Holds reports whether tier t has extent k, by the policy's index. The tier may be about to drop
// the extent.
func (p *Policy) Holds(t kv.Tier, k mempool.Key) bool {
	return p.tiers[t] != nil && p.tiers[t].index.Has(k)
}

// Has reports whether tier t exists below the device.
func (p *Policy) Has(t kv.Tier) bool {
	return t != kv.TierDevice && int(t) < kv.Tiers && p.tiers[t] != nil
}

// HasBelowHost reports whether there is a tier below host memory, that is, whether Idle has an
// effect.
func (p *Policy) HasBelowHost() bool { return int(p.below(kv.TierHost)) < kv.Tiers }

// Uses returns the uses of an extent; 0 if it is in no tier.
func (p *Policy) Uses(k mempool.Key) int {
	if n := p.nodes[k]; n != nil {
		return n.uses
	}
	return 0
}

// Extent returns the extent with key k if it is in some tier or on its way to one. The caller
// must not change its slices.
func (p *Policy) Extent(k mempool.Key) (x mempool.Extent, ok bool) {
	if n := p.nodes[k]; n != nil {
		return n.Extent, true
	}
	return x, false
}

// node returns the state of an extent, which it creates if needed.
func (p *Policy) node(x *mempool.Extent) *node {
	n := p.nodes[x.Key]
	if n == nil {
		n = &node{Extent: x.Clone(), uses: p.ghosts.take(x.Key)}
		p.nodes[x.Key] = n
	}
	return n
}

// add adds an extent to a tier's index. It returns false if the index refuses it, for example
// because its parent is missing.
func (p *Policy) add(t kv.Tier, x *mempool.Extent, bytes int) bool {
	added, err := p.tiers[t].index.Add(x, bytes, 0)
	if added && t != kv.TierDevice {
		p.changes = append(p.changes, Change{t, x.Key, true})
	}
	return err == nil
}

// removed records that a tier's index has lost an extent.
func (p *Policy) removed(t kv.Tier, k mempool.Key) {
	if t != kv.TierDevice {
		p.changes = append(p.changes, Change{t, k, false})
	} else if n := p.nodes[k]; n != nil {
		n.offered = false
	}
	p.forget(k)
}

// forget deletes the state of an extent that is in no tier and not on its way to one. Its uses
// become a ghost.
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

// Check returns an error unless, in every tier, the reserved bytes are those of the writes queued
// and in flight, the counts of moves are right, and the quota is not exceeded. device is the number
// of extents that the owner knows on the device; it must be the policy's.
func (p *Policy) Check(device int) error {
	if n := p.tiers[kv.TierDevice].index.Len(); n != device {
		return fmt.Errorf("tiering: %d extents are on the device, the owner knows %d", n, device)
	}
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
