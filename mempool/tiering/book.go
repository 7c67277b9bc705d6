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
	// already; it is not copied. Those of a Read are its owner's, see Fill.
	Pages    []kv.PageID
	Deadline time.Duration // on the clock of now; 0 for none
}

// Change reports that an extent was added to a tier or removed from it.
type Change struct {
	Tier   kv.Tier
	Key    mempool.Key
	Stored bool           // added; false if removed
	Hashes []kv.BlockHash // of its blocks, as Computed got them; nil if it was not being written from the device
}

// RequestID names a request that waits for a prefix.
type RequestID uint64

// Policy is the state of all tiers. It may be used by one goroutine at a time.
type Policy struct {
	cfg      Config
	tiers    [kv.Tiers]*tier // nil if there is no such tier
	nodes    map[mempool.Key]*node
	Device   Device
	ghosts   ghosts
	reads    []*move // queued
	writes   []*move // queued, parents before children
	drops    []*move // queued, children before parents
	flights  map[MoveID]*move
	out      []Move // begun, to be returned by Next
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
	pages   []kv.PageID    // of the device; nil if it is not there
	hashes  []kv.BlockHash // of its blocks, as Computed got them last; nil if unknown
	named   bool           // Changes returns hashes: a Write from the device was in flight since the last call
	uses    int
	idle    bool // its conversation is idle, see Idle
	offered bool // Offer has handled it since its last use; it is then pinned in the device's index
	sunk    bool // a tier has tried to sink it since its last use
	leaving bool // scratch of Evict: it is in the list
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
	p := &Policy{cfg: c, nodes: map[mempool.Key]*node{}, Device: newDevice(), flights: map[MoveID]*move{}, wants: map[RequestID]*want{}, cost: estimate{guess: c.TokenGuess}}
	for i := range p.tiers {
		if i == int(kv.TierDevice) || c.Tiers[i].Bytes > 0 {
			p.tiers[i] = &tier{TierConfig: c.Tiers[i], index: mempool.NewIndex(c.Layout), spaces: map[kv.Namespace]int64{},
				writing: map[mempool.Key]*move{}, children: map[mempool.Key][]*move{}, reading: map[mempool.Key]*move{}, dropping: map[mempool.Key]bool{}, sinking: map[mempool.Key]bool{}, orphans: map[mempool.Key]int{}, speed: estimate{guess: 1 / max(c.Tiers[i].Bandwidth, 1)}}
		}
	}
	return p, nil
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

// Used reports another use of an extent by a request. It updates its age in all tiers and may queue
// writes of it if it has enough uses now.
func (p *Policy) Used(now time.Duration, k mempool.Key) {
	n := p.nodes[k]
	if n == nil {
		return
	}
	n.uses++
	n.sunk = false
	reoffer(p, n)
	for _, t := range p.tiers {
		if t != nil {
			t.index.Touch(k)
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
			p.add(t, x)
			p.forget(x.Key)
		}
	}
}

// Busy reports whether any move is in flight, or any write or drop is queued. Queued reads do
// not count.
func (p *Policy) Busy() bool {
	return len(p.flights)+len(p.writes)+len(p.drops)+len(p.out)+len(p.last) > 0
}

// Due reports whether moves have begun that Next has not returned.
func (p *Policy) Due() bool { return len(p.out) > 0 }

// InFlight reports whether move id has begun and has not ended.
func (p *Policy) InFlight(id MoveID) bool { return p.flights[id] != nil }

// Changes returns dst with the changes of the tiers below the device since the last call appended.
func (p *Policy) Changes(dst []Change) []Change {
	for _, c := range p.changes {
		if n := p.nodes[c.Key]; c.Stored && n != nil && n.named {
			c.Hashes = n.hashes
		}
		dst = append(dst, c)
	}
	for _, k := range p.Device.written {
		if n := p.nodes[k]; n != nil {
			n.named = false
		}
	}
	p.changes, p.Device.written = p.changes[:0], p.Device.written[:0]
	return dst
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

// add adds an extent to the index of a tier below the device. It returns false if the index refuses it,
// for example because its parent is missing.
func (p *Policy) add(t kv.Tier, x *mempool.Extent) bool {
	added, err := p.tiers[t].index.Add(x, p.tiers[t].SlotBytes, 0)
	if added {
		p.changes = append(p.changes, Change{Tier: t, Key: x.Key, Stored: true})
	}
	return err == nil
}

// removed records that a tier's index has lost an extent.
func (p *Policy) removed(t kv.Tier, k mempool.Key) {
	if t != kv.TierDevice {
		p.changes = append(p.changes, Change{Tier: t, Key: k})
	} else {
		p.Device.left(p.nodes[k])
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
// and in flight, the counts of moves are right, the quota is not exceeded, and the device's extents
// have pages.
func (p *Policy) Check() error {
	if err := p.Device.check(p); err != nil {
		return err
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
