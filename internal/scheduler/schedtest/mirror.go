package schedtest

import (
	"iter"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// mirror keeps an index from the cache's events alone, as a router does, and compares it with
// hashes of the tree's paths.
type mirror struct {
	watcher
	walk  func() iter.Seq[radixcache.NodeView] // nil: the tree can't be walked
	index map[kv.BlockHash]int                 // how many times each block is held
	total int

	// scratch of compare
	path   []kv.Token
	hashes []kv.BlockHash
	seen   map[kv.BlockHash]int
}

func newMirror(r *rig) *mirror {
	m := &mirror{watcher: watcher{r, "mirror"}, index: map[kv.BlockHash]int{}, seen: map[kv.BlockHash]int{}}
	if r.cache != nil {
		m.walk = r.cache.Walk
	}
	return m
}

// heard updates the index. A block may be stored several times, since two namespaces with
// one salt after different public prefixes may hold the same block; so the index counts.
func (m *mirror) heard(events []kv.Event) {
	if !m.r.cfg.Events || m.r.cfg.DisableCache {
		m.failf("%d events, but events are off", len(events))
	}
	for i := range events {
		ev := &events[i]
		if ev.Tier != kv.TierDevice {
			continue // events of lower tiers belong to another checker
		}
		switch ev.Kind {
		case kv.Stored:
			m.stored(ev)
		case kv.Removed:
			for _, h := range ev.Hashes {
				if m.index[h] == 0 {
					m.failf("block %x is removed, but was never stored or is removed already", uint64(h))
				}
				m.drop(h)
			}
		case kv.Cleared:
			clear(m.index)
			m.total = 0
		default:
			m.failf("an event of kind %v", ev.Kind)
		}
	}
}

func (m *mirror) stored(ev *kv.Event) {
	if ev.HasParent && m.index[ev.Parent] == 0 {
		m.failf("blocks are stored below %x, which is not stored", uint64(ev.Parent))
	}
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
		m.index[b.Hash]++
		m.total++
		parent, has = b.Hash, true
	}
}

func (m *mirror) drop(h kv.BlockHash) {
	if m.index[h]--; m.index[h] == 0 {
		delete(m.index, h)
	}
	m.total--
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
	if m.walk == nil || !m.r.cfg.Events {
		return
	}
	m.r.report.Compared++
	clear(m.seen)
	blocks := 0
	for v := range m.walk() {
		m.path = append(m.path[:v.Start], v.Tokens...)
		blocks += m.hash(&v)
	}
	if blocks != m.total {
		m.failf("the tree holds %d blocks, by the events %d", blocks, m.total)
	}
	missing := kv.BlockHash(0)
	found := true
	for h, n := range m.seen { // any order: the smallest one is reported
		if m.index[h] != n && (found || h < missing) {
			missing, found = h, false
		}
	}
	if !found {
		m.failf("the tree holds block %x %d times, by the events %d times", uint64(missing), m.seen[missing], m.index[missing])
	}
}

// hash counts in m.seen the blocks that end in the node v, and returns their number. The
// tokens on the path of v are in m.path. The hashes of the blocks above v are in m.hashes,
// since parents come before children.
func (m *mirror) hash(v *radixcache.NodeView) int {
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
	return last - first
}
