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
	Extent   mempool.Extent // its slices belong to the book and never change
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

// Book is the state of all tiers. It may be used by one goroutine at a time.
type Book struct {
	cfg      Config
	tiers    [kv.Tiers]*tier // nil if there is no such tier
	nodes    map[mempool.Key]*node
	Device   Device
	ghosts   ghosts
	reads    []*entry // queued
	writes   []*entry // queued, parents before children
	drops    []*entry // queued, children before parents
	flights  map[MoveID]*entry
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

// tier is the book's state of one tier.
type tier struct {
	TierConfig
	index    *mempool.Index
	reserved int64                    // bytes of writes to it that are queued or in flight
	spaces   map[kv.Namespace]int64   // reserved, by namespace
	moves    int                      // in flight, to it and from it
	kinds    [Drop]int                // in flight: writes to it and reads from it
	writing  map[mempool.Key]*entry   // writes to it, queued or in flight
	children map[mempool.Key][]*entry // writing, by parent
	reading  map[mempool.Key]*entry   // reads from it, queued or in flight
	dropping map[mempool.Key]bool     // drops from it, queued or in flight
	demoting map[mempool.Key]bool     // extents being written to the tier below, to be dropped then
	orphans  map[mempool.Key]int      // by parent: drops of extents that the store has but not the index
	speed    estimate                 // seconds to read a byte
	bytes    sum                      // bytes read since the last measurement of speed
	readAt   time.Duration            // end of the latest read
	misses   int                      // late reads since the last one in time
	stalls   int                      // late reads that began after the one before them was late
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
	demoted bool // a lower tier has tried to demote it since its last use
	leaving bool // scratch of Evict: it is in the list
}

// entry is a move in the book, with its state.
type entry struct {
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

// New makes a book for empty tiers.
func New(c Config) (*Book, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.TokenSeconds > 0 {
		c.TokenGuess = c.TokenSeconds
	}
	b := &Book{cfg: c, nodes: map[mempool.Key]*node{}, Device: newDevice(), flights: map[MoveID]*entry{}, wants: map[RequestID]*want{}, cost: estimate{guess: c.TokenGuess}}
	for i := range b.tiers {
		if i == int(kv.TierDevice) || c.Tiers[i].Bytes > 0 {
			b.tiers[i] = &tier{TierConfig: c.Tiers[i], index: mempool.NewIndex(c.Layout), spaces: map[kv.Namespace]int64{},
				writing: map[mempool.Key]*entry{}, children: map[mempool.Key][]*entry{}, reading: map[mempool.Key]*entry{}, dropping: map[mempool.Key]bool{}, demoting: map[mempool.Key]bool{}, orphans: map[mempool.Key]int{}, speed: estimate{guess: 1 / max(c.Tiers[i].Bandwidth, 1)}}
		}
	}
	return b, nil
}

// outgrown returns the key of a sibling of x in tier t whose pages are all among those of x. ok is
// false if there is none.
func outgrown(b *Book, t kv.Tier, x *mempool.Extent) (tail mempool.Key, ok bool) {
	ix := b.tiers[t].index
	h, ok := ix.Part(x)
	if !ok || h.Key == x.Key {
		return tail, false
	}
	y, _ := ix.Extent(h.Key)
	return h.Key, h.Pages == b.cfg.Layout.Pages(&y)
}

// covered reports whether x is a tail, and a sibling in tier t, or on its way to that tier, has
// all pages of x. Siblings have the same parent.
func covered(b *Book, t kv.Tier, x *mempool.Extent) bool {
	l := &b.cfg.Layout
	if len(x.Tokens) == l.ExtentTokens() {
		return false
	}
	if h, ok := b.tiers[t].index.Part(x); ok && h.Pages == l.Pages(x) && !b.tiers[t].dropping[h.Key] {
		return true
	}
	for _, m := range b.tiers[t].children[x.Parent] {
		if !m.canceled && m.Extent.Key != x.Key && l.SharedPages(&m.Extent, x) == l.Pages(x) {
			return true
		}
	}
	return false
}

// Used reports another use of an extent by a request. It updates its age in all tiers and may queue
// writes of it if it has enough uses now.
func (b *Book) Used(now time.Duration, k mempool.Key) {
	n := b.nodes[k]
	if n == nil {
		return
	}
	n.uses++
	n.demoted = false
	reoffer(b, n)
	for _, t := range b.tiers {
		if t != nil {
			t.index.Touch(k)
		}
	}
	if n.uses >= b.cfg.Uses {
		b.admit(now, n)
	}
}

// reoffer makes Offer consider an extent again.
func reoffer(b *Book, n *node) {
	if n.offered {
		n.offered = false
		b.tiers[kv.TierDevice].index.Unpin(n.Key)
	}
}

// Idle reports that the conversation that ends with extent k is not expected to continue soon.
// Its extents are admitted to disk even after a single use.
func (b *Book) Idle(now time.Duration, k mempool.Key) {
	for n := b.nodes[k]; n != nil; n = b.nodes[n.Parent] {
		n.idle = true
		reoffer(b, n)
	}
	if n := b.nodes[k]; n != nil {
		b.admit(now, n)
	}
}

// admit queues writes of an extent to the tiers below host memory, from the fastest lower tier
// that has it. If the extent is on the device, admit also queues its write to the first tier below
// the device, unless that is host memory and the mode is WriteBack.
func (b *Book) admit(now time.Duration, n *node) {
	first := b.below(kv.TierDevice)
	if (b.cfg.Mode != WriteBack || first >= kv.TierDisk) && b.on(kv.TierDevice, n.Key) {
		b.write(now, n.Key, kv.TierDevice, first, false)
	}
	for to := kv.TierDisk; int(to) < kv.Tiers; to++ {
		if b.tiers[to] == nil || to == first {
			continue
		}
		if from := b.fastest(n.Key, kv.TierHost, to); from < to {
			b.write(now, n.Key, from, to, false)
		}
	}
}

// below returns the next existing tier after t; kv.Tiers if there is none.
func (b *Book) below(t kv.Tier) kv.Tier {
	for t++; int(t) < kv.Tiers && b.tiers[t] == nil; t++ {
	}
	return t
}

// fastest returns the first tier in [from, to) that has extent k, or to if none has it.
func (b *Book) fastest(k mempool.Key, from, to kv.Tier) kv.Tier {
	for ; from < to && !b.on(from, k); from++ {
	}
	return from
}

// on reports whether a tier has an extent and is not dropping it.
func (b *Book) on(t kv.Tier, k mempool.Key) bool {
	return int(t) < kv.Tiers && b.tiers[t] != nil && b.tiers[t].index.Has(k) && !b.tiers[t].dropping[k]
}

// Gone reports that a tier's store no longer has some extents.
func (b *Book) Gone(t kv.Tier, keys []mempool.Key) {
	for _, k := range keys {
		b.gone(t, k)
	}
}

// gone removes an extent and its descendants from a tier's index.
func (b *Book) gone(t kv.Tier, k mempool.Key) {
	for _, h := range b.tiers[t].index.RemoveTree(k, nil) {
		b.removed(t, h.Key)
	}
}

// Found tells the book that tier t has the extents xs, as a store's Contents or a Probe
// returned them, parents first. An extent that continues one that is being dropped, which another
// process may have written meanwhile, is dropped too: without its parent no lookup reaches it.
func (b *Book) Found(t kv.Tier, xs []mempool.Extent) {
	of := b.tiers[t]
	for i := range xs {
		x := &xs[i]
		switch m := of.writing[x.Key]; {
		case of.dropping[x.Key] || m != nil && m.void && m.begun: // found before its drop, or written by a void write
		case of.dropping[x.Parent]:
			if m == nil { // else wrote drops it
				dropUnknown(b, t, x)
			}
		default:
			b.node(x)
			b.add(t, x)
			b.forget(x.Key)
		}
	}
}

// Busy reports whether any move is in flight, or any write or drop is queued. Queued reads do
// not count.
func (b *Book) Busy() bool {
	return len(b.flights)+len(b.writes)+len(b.drops)+len(b.out)+len(b.last) > 0
}

// Due reports whether moves have begun that Next has not returned.
func (b *Book) Due() bool { return len(b.out) > 0 }

// InFlight reports whether move id has begun and has not ended.
func (b *Book) InFlight(id MoveID) bool { return b.flights[id] != nil }

// Changes returns dst with the changes of the tiers below the device since the last call appended.
func (b *Book) Changes(dst []Change) []Change {
	for _, c := range b.changes {
		if n := b.nodes[c.Key]; c.Stored && n != nil && n.named {
			c.Hashes = n.hashes
		}
		dst = append(dst, c)
	}
	for _, k := range b.Device.written {
		if n := b.nodes[k]; n != nil {
			n.named = false
		}
	}
	b.changes, b.Device.written = b.changes[:0], b.Device.written[:0]
	return dst
}

// Has reports whether tier t exists below the device.
func (b *Book) Has(t kv.Tier) bool {
	return t != kv.TierDevice && int(t) < kv.Tiers && b.tiers[t] != nil
}

// HasBelowHost reports whether there is a tier below host memory, that is, whether Idle has an
// effect.
func (b *Book) HasBelowHost() bool { return int(b.below(kv.TierHost)) < kv.Tiers }

// Uses returns the uses of an extent; 0 if it is in no tier.
func (b *Book) Uses(k mempool.Key) int {
	if n := b.nodes[k]; n != nil {
		return n.uses
	}
	return 0
}

// Extent returns the extent with key k if it is in some tier or on its way to one. The caller
// must not change its slices.
func (b *Book) Extent(k mempool.Key) (x mempool.Extent, ok bool) {
	if n := b.nodes[k]; n != nil {
		return n.Extent, true
	}
	return x, false
}

// node returns the state of an extent, which it creates if needed.
func (b *Book) node(x *mempool.Extent) *node {
	n := b.nodes[x.Key]
	if n == nil {
		n = &node{Extent: x.Clone(), uses: b.ghosts.take(x.Key)}
		b.nodes[x.Key] = n
	}
	return n
}

// add adds an extent to the index of a tier below the device. It returns false if the index refuses it,
// for example because its parent is missing.
func (b *Book) add(t kv.Tier, x *mempool.Extent) bool {
	added, err := b.tiers[t].index.Add(x, b.tiers[t].SlotBytes, 0)
	if added && !b.cfg.NoChanges {
		b.changes = append(b.changes, Change{Tier: t, Key: x.Key, Stored: true})
	}
	return err == nil
}

// removed records that a tier's index has lost an extent.
func (b *Book) removed(t kv.Tier, k mempool.Key) {
	if t == kv.TierDevice {
		b.Device.left(b.nodes[k])
	} else if !b.cfg.NoChanges {
		b.changes = append(b.changes, Change{Tier: t, Key: k})
	}
	b.forget(k)
}

// forget deletes the state of an extent that is in no tier and not on its way to one. Its uses
// become a ghost.
func (b *Book) forget(k mempool.Key) {
	for _, t := range b.tiers {
		if t != nil && (t.index.Has(k) || t.writing[k] != nil || t.reading[k] != nil) {
			return
		}
	}
	if n := b.nodes[k]; n != nil && n.uses > 0 {
		b.ghosts.put(k, n.uses)
	}
	delete(b.nodes, k)
}

// Check returns an error unless, in every tier, the reserved bytes are those of the writes queued
// and in flight, the counts of moves are right, the quota is not exceeded, and the device's extents
// have pages.
func (b *Book) Check() error {
	if err := b.Device.check(b); err != nil {
		return err
	}
	var moves [kv.Tiers]int
	var kinds [kv.Tiers][Drop]int
	for _, m := range b.flights {
		moves[m.From]++
		switch m.Kind {
		case Write:
			moves[m.To]++
			kinds[m.To][Write]++
		case Read:
			kinds[m.From][Read]++
		}
	}
	for i, t := range b.tiers {
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
	for _, m := range slices.Concat(b.reads, b.writes, b.drops) {
		if m.begun || b.flights[m.ID] != nil {
			return fmt.Errorf("tiering: move %d waits and is in flight", m.ID)
		}
	}
	return nil
}
