package schedtest

import (
	"maps"
	"slices"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// mirror keeps an index of each tier from the cache's events alone, as a router does, and compares
// the device's with hashes of the tree's paths. The tierLedger compares the others.
type mirror struct {
	watcher
	index [kv.Tiers]map[kv.BlockHash]int // how many times each block is held

	// scratch of compare
	path   []kv.Token
	hashes []kv.BlockHash
	seen   map[kv.BlockHash]int
}

func newMirror(r *rig) *mirror {
	m := &mirror{watcher: watcher{r, "mirror"}, seen: map[kv.BlockHash]int{}}
	for t := range m.index {
		m.index[t] = map[kv.BlockHash]int{}
	}
	return m
}

// heard updates the indexes. A block may be stored on the device several times, since two namespaces
// with one salt after different public prefixes may hold the same block; so an index counts.
func (m *mirror) heard(events []kv.Event) {
	if !m.r.cfg.Events || m.r.cfg.DisableCache {
		m.failf("%d events, but events are off", len(events))
	}
	for i := range events {
		ev := &events[i]
		index := m.index[ev.Tier]
		switch ev.Kind {
		case kv.Stored:
			if ev.HasParent && index[ev.Parent] == 0 {
				m.failf("blocks are stored in %v below %x, which is not stored", ev.Tier, uint64(ev.Parent))
			}
			if ev.Tier == kv.TierDevice {
				m.verify(ev)
			}
			for _, b := range ev.Blocks {
				if index[b.Hash]++; index[b.Hash] > 1 && ev.Tier != kv.TierDevice {
					m.failf("block %x is stored in %v twice", uint64(b.Hash), ev.Tier)
				}
			}
		case kv.Removed:
			for _, h := range ev.Hashes {
				if index[h] == 0 {
					m.failf("block %x is removed from %v, but was never stored or is removed already", uint64(h), ev.Tier)
				}
				if index[h]--; index[h] == 0 {
					delete(index, h)
				}
			}
		case kv.Cleared:
			for _, index := range m.index {
				clear(index)
			}
		default:
			m.failf("an event of kind %v", ev.Kind)
		}
	}
}

// verify computes the hashes of stored blocks.
func (m *mirror) verify(ev *kv.Event) {
	parent, has := ev.Parent, ev.HasParent
	seed := ev.Namespace.Seed()
	for i := range ev.Blocks {
		b := &ev.Blocks[i]
		local := kv.HashLocal(b.Tokens, seed)
		want := kv.BlockHash(local)
		if has {
			want = kv.Chain(parent, local)
		}
		if len(b.Tokens) != m.r.cfg.BlockTokens || b.Local != local && b.Local != 0 || b.Hash != want {
			m.failf("a block of %d tokens is stored as %x (local %x), want %x (%x)", len(b.Tokens), uint64(b.Hash), uint64(b.Local), uint64(want), uint64(local))
		}
		parent, has = b.Hash, true
	}
}

// settled compares only sometimes, since a comparison hashes the whole tree.
func (m *mirror) settled() {
	if m.r.plans%compareEvery != 0 {
		return
	}
	m.compare()
}

const compareEvery = 4

func (m *mirror) finished() { m.compare() }

func (m *mirror) compare() {
	if m.r.cache == nil || !m.r.cfg.Events {
		return
	}
	m.r.report.Compared++
	clear(m.seen)
	for v := range m.r.cache.Walk() {
		m.path = append(m.path[:v.Start], v.Tokens...)
		m.hash(&v)
	}
	m.equal(kv.TierDevice, m.seen)
}

// equal fails if a tier holds other blocks than the events say.
func (m *mirror) equal(t kv.Tier, held map[kv.BlockHash]int) {
	if index := m.index[t]; !maps.Equal(held, index) {
		for _, h := range slices.Sorted(maps.Keys(held)) {
			if held[h] != index[h] {
				m.failf("%v holds block %x %d times, by the events %d times", t, uint64(h), held[h], index[h])
			}
		}
		m.failf("%v holds %d blocks, by the events %d", t, len(held), len(index))
	}
}

// hash counts in m.seen the blocks that end in the node v. The tokens on the path of v are in
// m.path. The hashes of the blocks above v are in m.hashes, since parents come before children.
func (m *mirror) hash(v *radixcache.NodeView) {
	size := m.r.cfg.BlockTokens
	first, last := v.Start/size, (v.Start+len(v.Tokens))/size
	m.hashes = m.hashes[:first]
	seed := v.Namespace.Seed()
	for i := first; i < last; i++ {
		local := kv.HashLocal(m.path[i*size:(i+1)*size], seed)
		h := kv.BlockHash(local)
		if i > 0 {
			h = kv.Chain(m.hashes[i-1], local)
		}
		m.hashes = append(m.hashes, h)
		m.seen[h]++
	}
}
