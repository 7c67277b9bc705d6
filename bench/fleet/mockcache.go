package fleet

import (
	"fmt"
	"slices"
	"sort"

	"github.com/coppice-llm/coppice/kv"
)

// slot is the index of a block in a mockCache; 0 means none.
type slot int32

// mockBlock is a block of a mocker's device. It is active while a sequence holds it. A block that no
// sequence holds is inactive if it has a name, else free.
type mockBlock struct {
	hash       kv.BlockHash // if named
	parent     slot         // if named: the block before it; 0 for the first of a sequence
	kids       int32        // number of named blocks with this parent
	refs       int32        // number of sequences that hold the block
	prev, next slot         // neighbours in the LRU ring, if inactive
	named      bool         // full and findable by its hash; otherwise it belongs to one sequence
}

// mockCache owns the blocks of a mocker (upstream's KvManager). Every operation costs O(1) for each
// block. A sequence holds all blocks from the beginning of its prompt, so all descendants of an
// inactive block are inactive too.
type mockCache struct {
	capacity int
	// blocks grows with use. blocks[0] is none of the device's: it is the head of the ring of inactive
	// blocks, before the least recently used one and after the most recently used one.
	blocks           []mockBlock
	free             []slot
	named            map[kv.BlockHash]slot
	active, inactive int
	events           eventLog // of the pass in progress
}

func newMockCache(capacity int) mockCache {
	return mockCache{capacity: capacity, blocks: make([]mockBlock, 1), named: map[kv.BlockHash]slot{}}
}

// match returns how many leading blocks with these hashes exist, and how many of those are
// active. Both can be found by binary search, in O(log n) lookups: the parent of an existing
// block exists, and the parent of an active block is active.
func (c *mockCache) match(hashes []kv.BlockHash) (blocks, active int) {
	blocks = sort.Search(len(hashes), func(i int) bool { return c.named[hashes[i]] == 0 })
	active = sort.Search(blocks, func(i int) bool { return c.blocks[c.named[hashes[i]]].refs == 0 })
	return blocks, active
}

// use holds the blocks with the hashes named, which must exist, for a sequence. It also takes as
// many new blocks without a name as unnamed says, and evicts blocks if it has to. It appends all of
// them to dst. It returns false, and changes nothing, if there is no room.
func (c *mockCache) use(named []kv.BlockHash, unnamed int, dst []slot) ([]slot, bool) {
	from, idle := len(dst), 0
	for _, h := range named {
		s := c.named[h]
		dst = append(dst, s)
		if c.blocks[s].refs == 0 {
			idle++
		}
	}
	if c.active+idle+unnamed > c.capacity {
		return dst[:from], false
	}
	// Hold the named blocks first, so that none of them is evicted.
	for _, s := range dst[from:] {
		c.hold(s)
	}
	for range unnamed {
		dst = append(dst, c.newBlock())
	}
	return dst, true
}

// hold adds a reference to the named block in s.
func (c *mockCache) hold(s slot) {
	b := &c.blocks[s]
	if b.refs == 0 {
		c.unlink(b)
		c.active++
	}
	b.refs++
}

// newBlock returns a new active block without a name. If all blocks are in use, it evicts one; there
// must be an inactive one then.
func (c *mockCache) newBlock() slot {
	if c.active+c.inactive == c.capacity {
		c.evict()
	}
	c.active++
	if last := len(c.free) - 1; last >= 0 {
		s := c.free[last]
		c.free = c.free[:last]
		c.blocks[s] = mockBlock{refs: 1}
		return s
	}
	c.blocks = append(c.blocks, mockBlock{refs: 1})
	return slot(len(c.blocks) - 1)
}

// evict frees the least recently used inactive block.
func (c *mockCache) evict() {
	s := c.blocks[0].next
	b := &c.blocks[s]
	if s == 0 || b.kids != 0 || b.refs != 0 {
		panic(fmt.Sprintf("fleet: a mocker evicts block %d with %d children and %d holders, of %d inactive", s, b.kids, b.refs, c.inactive))
	}
	c.unlink(b)
	delete(c.named, b.hash)
	c.blocks[b.parent].kids--
	c.events.removed(b.hash)
	c.free = append(c.free, s)
}

// name gives block s, which is full now, its two hashes (upstream's Promote). parent is the block
// before s in the same sequence, or 0. If another block has the name already, the sequence continues
// with that block and s is freed. It returns the block with the name.
func (c *mockCache) name(s, parent slot, hash kv.BlockHash, local kv.LocalHash) slot {
	b := &c.blocks[s]
	if b.named || b.refs != 1 {
		panic(fmt.Sprintf("fleet: a mocker's block %d can't be named %#x: named %v, %d holders", s, hash, b.named, b.refs))
	}
	if same := c.named[hash]; same != 0 {
		if got := c.blocks[same].parent; got != parent {
			panic(fmt.Sprintf("fleet: a mocker's block %#x comes after block %d and after block %d", hash, got, parent))
		}
		c.hold(same)
		c.active--
		c.free = append(c.free, s)
		return same
	}
	b.hash, b.parent, b.named = hash, parent, true
	c.named[hash] = s
	c.blocks[parent].kids++
	c.events.stored(c.blocks[parent].hash, parent != 0, kv.Block{Hash: hash, Local: local})
	return s
}

// drop releases the blocks of a sequence (upstream's Deref and Destroy). It begins with the last
// block, so that a block enters the LRU ring after its descendants.
func (c *mockCache) drop(slots []slot) {
	for _, s := range slices.Backward(slots) {
		b := &c.blocks[s]
		if b.refs <= 0 {
			panic(fmt.Sprintf("fleet: a mocker's block %d released with %d holders", s, b.refs))
		}
		if b.refs--; b.refs > 0 {
			continue
		}
		c.active--
		if !b.named {
			c.free = append(c.free, s)
			continue
		}
		b.prev, b.next = c.blocks[0].prev, 0
		c.blocks[b.prev].next, c.blocks[0].prev = s, s
		c.inactive++
	}
}

// unlink removes block b from the LRU ring.
func (c *mockCache) unlink(b *mockBlock) {
	c.blocks[b.prev].next, c.blocks[b.next].prev = b.next, b.prev
	c.inactive--
}

// eventLog collects events, in order and without numbers.
type eventLog []kv.Event

// stored records a new block, after the block parent if hasParent. If parent is the block recorded
// last, both blocks share an event.
func (l *eventLog) stored(parent kv.BlockHash, hasParent bool, b kv.Block) {
	if n := len(*l); n > 0 && hasParent && (*l)[n-1].Kind == kv.Stored {
		if last := &(*l)[n-1]; last.Blocks[len(last.Blocks)-1].Hash == parent {
			last.Blocks = append(last.Blocks, b)
			return
		}
	}
	*l = append(*l, kv.Event{Kind: kv.Stored, Parent: parent, HasParent: hasParent, Blocks: []kv.Block{b}})
}

// removed records the eviction of a block. Consecutive evictions share an event.
func (l *eventLog) removed(hash kv.BlockHash) {
	if n := len(*l); n > 0 && (*l)[n-1].Kind == kv.Removed {
		(*l)[n-1].Hashes = append((*l)[n-1].Hashes, hash)
		return
	}
	*l = append(*l, kv.Event{Kind: kv.Removed, Hashes: []kv.BlockHash{hash}})
}
