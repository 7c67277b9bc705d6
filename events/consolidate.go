package events

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/coppice-llm/coppice/kv"
)

// maxConsolidated bounds the blocks of one origin per rank. Further blocks are ignored.
const maxConsolidated = 1 << 24

// Consolidate merges several caches of a worker (origins), such as its engine's and an
// offloading server's, which publish separately and may name one block by different hashes. It
// returns one sink per origin. into receives their union, with hashes of kv.Chain: a block is
// stored in a tier when the first origin has it there, and removed when the last one removes it.
//
// Source: Dynamo's KV consolidator (lib/kvbm-consolidator). Two differences: blocks below an
// unknown parent are refused, not taken for roots; and a clear removes only the clearing
// origin's blocks.
func Consolidate(into Sink, origins int) []Sink {
	c := &consolidator{into: into, origins: origins, ranks: make(map[kv.Rank]*union)}
	sinks := make([]Sink, origins)
	for i := range sinks {
		sinks[i] = origin{c, i}
	}
	return sinks
}

// consolidator holds the unions of all ranks.
type consolidator struct {
	into    Sink
	origins int

	mu    sync.Mutex
	ranks map[kv.Rank]*union
}

// origin is the sink of one cache. at is its index among the origins.
type origin struct {
	*consolidator
	at int
}

// union is the contents of all origins of one rank.
type union struct {
	mu     sync.Mutex
	names  []map[kv.BlockHash]named // by origin: from the origin's own hash (a name) to the block
	blocks map[kv.BlockHash]*block
	order  uint64

	forgotten bool // another union takes its place when the rank is named again
}

// named is a block that one origin has, under the name that the origin uses.
type named struct {
	hash  kv.BlockHash // chained
	tiers uint8        // one bit per kv.Tier, never 0
}

// block is a block with at least one name.
type block struct {
	Stored               // a run of this block alone; its field Tier is unused
	names  [kv.Tiers]int // by tier: number of names, over all origins
	order  uint64        // ascending: parents have lower numbers than their children
}

// lock returns the union of rank r, which is made on first use, locked. If the union is forgotten before it
// is locked, lock takes the next one.
func (c *consolidator) lock(r kv.Rank) *union {
	for {
		c.mu.Lock()
		u := c.ranks[r]
		if u == nil {
			u = &union{names: make([]map[kv.BlockHash]named, c.origins), blocks: make(map[kv.BlockHash]*block)}
			for i := range u.names {
				u.names[i] = make(map[kv.BlockHash]named)
			}
			c.ranks[r] = u
		}
		c.mu.Unlock()
		u.mu.Lock()
		if !u.forgotten {
			return u
		}
		u.mu.Unlock()
	}
}

// Store implements [Sink].
func (o origin) Store(r kv.Rank, s Stored) error {
	u := o.lock(r)
	defer u.mu.Unlock()
	return u.add(o.at, s, func(s Stored) { _ = o.into.Store(r, s) }, func(t kv.Tier, h kv.BlockHash) { o.into.Remove(r, t, []kv.BlockHash{h}) })
}

// Remove implements [Sink].
func (o origin) Remove(r kv.Rank, tier kv.Tier, hashes []kv.BlockHash) {
	u := o.lock(r)
	defer u.mu.Unlock()
	var gone []kv.BlockHash
	for _, h := range hashes {
		u.release(o.at, h, 1<<tier, func(_ kv.Tier, h kv.BlockHash) { gone = append(gone, h) })
	}
	if len(gone) > 0 {
		o.into.Remove(r, tier, gone)
	}
}

// Clear implements [Sink].
func (o origin) Clear(r kv.Rank) {
	u := o.lock(r)
	defer u.mu.Unlock()
	o.clear(r, u)
}

// Replace implements [Sink].
func (o origin) Replace(r kv.Rank, dump []Stored) (refused int) {
	u := o.lock(r)
	defer u.mu.Unlock()
	for h := range u.names[o.at] {
		u.release(o.at, h, 1<<kv.Tiers-1, func(kv.Tier, kv.BlockHash) {})
	}
	for _, s := range dump {
		if u.add(o.at, s, func(Stored) {}, func(kv.Tier, kv.BlockHash) {}) != nil {
			refused += len(s.Blocks)
		}
	}
	return refused + o.into.Replace(r, u.dump())
}

// Forget implements [Sink].
func (o origin) Forget(r kv.Rank) {
	u := o.lock(r)
	defer u.mu.Unlock()
	o.clear(r, u)
	if len(u.blocks) == 0 {
		o.into.Forget(r) // before another union may store
		u.forgotten = true
		o.mu.Lock()
		delete(o.ranks, r)
		o.mu.Unlock()
	}
}

// clear removes all blocks of the origin from u, the union of rank r. Children are removed
// before their parents: an index drops everything after a removed block, and then has nothing to
// drop.
func (o origin) clear(r kv.Rank, u *union) {
	names := slices.SortedFunc(maps.Keys(u.names[o.at]), func(a, b kv.BlockHash) int {
		return cmp.Compare(u.blocks[u.names[o.at][b].hash].order, u.blocks[u.names[o.at][a].hash].order)
	})
	var gone [kv.Tiers][]kv.BlockHash
	for _, h := range names {
		u.release(o.at, h, 1<<kv.Tiers-1, func(t kv.Tier, h kv.BlockHash) { gone[t] = append(gone[t], h) })
	}
	if len(u.blocks) == 0 {
		o.into.Clear(r)
		return
	}
	for tier, hashes := range gone {
		if len(hashes) > 0 {
			o.into.Remove(r, kv.Tier(tier), hashes)
		}
	}
}

// add adds a run of blocks of the origin with index at. It calls stored for each part of the run
// that is new in its tier. If the origin has used a name for another block before, the name is
// released first, and removed is called for each tier in which it was the block's last name. The
// error is ErrUnknownParent.
func (u *union) add(at int, s Stored, stored func(Stored), removed func(kv.Tier, kv.BlockHash)) error {
	names := u.names[at]
	if s.Named {
		u.addNamed(names, s, stored)
		return nil
	}
	parent, hasParent := kv.BlockHash(0), s.HasParent
	if hasParent {
		name, known := names[s.Parent]
		if !known {
			return ErrUnknownParent
		}
		parent = name.hash
	}
	bit, run := uint8(1)<<s.Tier, Stored{Tier: s.Tier}
	flush := func() {
		if len(run.Blocks) > 0 {
			stored(run)
			run.Blocks = nil
		}
	}
	defer flush()
	for _, b := range s.Blocks {
		hash := kv.BlockHash(b.Local)
		if hasParent {
			hash = kv.Chain(parent, b.Local)
		}
		name, again := names[b.Hash]
		if again && name.hash != hash {
			flush()
			u.release(at, b.Hash, 1<<kv.Tiers-1, removed)
			name, again = named{}, false
		}
		if !again && len(names) >= maxConsolidated {
			return nil
		}
		held := u.blocks[hash]
		if held == nil {
			u.order++
			held = &block{Stored: Stored{Parent: parent, HasParent: hasParent, Blocks: []Block{{hash, b.Local}}}, order: u.order}
			u.blocks[hash] = held
		}
		had := held.names[s.Tier] > 0
		if name.tiers&bit == 0 {
			held.names[s.Tier]++
			names[b.Hash] = named{hash, name.tiers | bit}
		}
		if had {
			flush()
		} else {
			if len(run.Blocks) == 0 {
				run.Parent, run.HasParent = parent, hasParent
			}
			run.Blocks = append(run.Blocks, Block{hash, b.Local})
		}
		parent, hasParent = hash, true
	}
	return nil
}

// addNamed adds a tier to those blocks of s of which an origin has the name. names are those of the origin.
func (u *union) addNamed(names map[kv.BlockHash]named, s Stored, stored func(Stored)) {
	bit := uint8(1) << s.Tier
	for _, b := range s.Blocks {
		name := names[b.Hash]
		if name.tiers == 0 || name.tiers&bit != 0 {
			continue
		}
		names[b.Hash] = named{name.hash, name.tiers | bit}
		held := u.blocks[name.hash]
		if held.names[s.Tier]++; held.names[s.Tier] == 1 {
			one := held.Stored
			one.Tier = s.Tier
			stored(one)
		}
	}
}

// release takes block h, an origin's own hash, out of the given tiers (one bit each) of the
// origin with index at. If then no origin has the block in a tier, it calls removed with that
// tier and the chained hash.
func (u *union) release(at int, h kv.BlockHash, tiers uint8, removed func(kv.Tier, kv.BlockHash)) {
	name := u.names[at][h]
	held := u.blocks[name.hash]
	for tier := range kv.Tier(kv.Tiers) {
		if name.tiers&tiers&(1<<tier) != 0 {
			if held.names[tier]--; held.names[tier] == 0 {
				removed(tier, name.hash)
			}
		}
	}
	if name.tiers &^= tiers; name.tiers != 0 {
		u.names[at][h] = name
	} else {
		delete(u.names[at], h)
	}
	if held != nil && held.names == [len(held.names)]int{} {
		delete(u.blocks, name.hash)
	}
}

// dump returns all blocks, each as a run of its own and once per tier, parents before children.
func (u *union) dump() (all []Stored) {
	for _, b := range slices.SortedFunc(maps.Values(u.blocks), func(a, b *block) int { return cmp.Compare(a.order, b.order) }) {
		for tier, n := range b.names {
			if n > 0 {
				s := b.Stored
				s.Tier = kv.Tier(tier)
				all = append(all, s)
			}
		}
	}
	return all
}
