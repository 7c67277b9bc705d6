package mocker

import (
	"fmt"
	"sort"

	"github.com/coppice-llm/coppice/kv"
)

// slot is the index of a block in a cache.
type slot int32

const none slot = -1

// block is one of the device's blocks. It is active while a sequence holds it. A block that no
// sequence holds is inactive if it has a name, else free.
type block struct {
	hash       kv.BlockHash // if named
	parent     slot         // if named: the block before it; none for the first of a sequence
	kids       int32        // number of named blocks with this parent
	refs       int32        // number of sequences that hold the block
	prev, next slot         // neighbours in the LRU list, if inactive; next also links the free blocks
	named      bool         // full and findable by its hash; otherwise it belongs to one sequence
}

// cache owns the blocks of a worker (upstream's KvManager). Every operation costs O(1) for each
// block. A sequence holds all blocks from the beginning of its prompt, so all descendants of an
// inactive block are inactive too.
type cache struct {
	capacity         int
	blocks           []block // grows with use, up to capacity
	free             slot    // head of the list of free blocks
	table            table
	first, last      slot // ends of the LRU list of inactive blocks, the least recently used first
	active, inactive int
	evicted          uint64
}

func newCache(capacity int) cache {
	return cache{capacity: capacity, table: newTable(), free: none, first: none, last: none}
}

// match returns how many leading blocks with these hashes exist, and how many of those are
// active. Both can be found by binary search, in O(log n) lookups: the parent of an existing
// block exists, and the parent of an active block is active.
func (c *cache) match(hashes []kv.BlockHash) (blocks, active int) {
	blocks = sort.Search(len(hashes), func(i int) bool {
		return c.table.find(c.blocks, hashes[i]) == none
	})
	active = sort.Search(blocks, func(i int) bool {
		return c.blocks[c.table.find(c.blocks, hashes[i])].refs == 0
	})
	return blocks, active
}

// use holds the blocks with the hashes named, which must exist, for a sequence. It also takes as
// many new blocks without a name as unnamed says. It appends all of them to dst. It returns
// false, and changes nothing, if there is no room. Evictions are recorded in log.
func (c *cache) use(named []kv.BlockHash, unnamed int, dst []slot, log *log) ([]slot, bool) {
	from := len(dst)
	idle := 0
	for _, h := range named {
		s := c.table.find(c.blocks, h)
		if s == none {
			panic(fmt.Sprintf("mocker: use of block %#x, which does not exist", h))
		}
		dst = append(dst, s)
		if c.blocks[s].refs == 0 {
			idle++
		}
	}
	if c.active+idle+unnamed > c.capacity {
		return dst[:from], false
	}
	// Hold the named blocks first, so that newBlock cannot evict them.
	for _, s := range dst[from:] {
		c.hold(s)
	}
	for range unnamed {
		dst = append(dst, c.newBlock(log))
	}
	return dst, true
}

// hold adds a reference to the named block in s.
func (c *cache) hold(s slot) {
	b := &c.blocks[s]
	if b.refs == 0 {
		c.removeLRU(s)
		c.active++
	}
	b.refs++
}

// newBlock returns a new active block without a name. If no block is free, it evicts one; there
// must be an inactive one then.
func (c *cache) newBlock(log *log) slot {
	if c.active+c.inactive == c.capacity {
		c.evict(log)
	}
	s := c.free
	if s != none {
		c.free = c.blocks[s].next
	} else {
		s = slot(len(c.blocks))
		c.blocks = append(c.blocks, block{})
	}
	c.blocks[s] = block{parent: none, refs: 1, prev: none, next: none}
	c.active++
	return s
}

// evict frees the least recently used inactive block, and records that in log.
func (c *cache) evict(log *log) {
	s := c.first
	if s == none {
		panic(fmt.Sprintf("mocker: eviction with all %d blocks active", c.active))
	}
	b := &c.blocks[s]
	if b.kids != 0 || b.refs != 0 {
		panic(fmt.Sprintf("mocker: eviction of block %#x, %d children, %d holders", b.hash, b.kids, b.refs))
	}
	c.removeLRU(s)
	c.table.cut(c.blocks, s)
	if b.parent != none {
		c.blocks[b.parent].kids--
	}
	log.removed(b.hash)
	c.release(s)
	c.evicted++
}

// name gives block s, which is full now, its hash as name (upstream's Promote). parent is the
// block before s in the same sequence, or none. If another block has the name already, the
// sequence continues with that block and s is freed; fresh is false then. It returns the block
// with the name.
func (c *cache) name(s, parent slot, hash kv.BlockHash) (_ slot, fresh bool) {
	if b := &c.blocks[s]; b.named || b.refs != 1 {
		panic(fmt.Sprintf("mocker: block %d can't be named %#x: named %v, %d holders", s, hash, b.named, b.refs))
	}
	if same := c.table.find(c.blocks, hash); same != none {
		if got := c.blocks[same].parent; got != parent {
			panic(fmt.Sprintf("mocker: block %#x comes after block %d and after block %d", hash, got, parent))
		}
		c.hold(same)
		c.active--
		c.release(s)
		return same, false
	}
	b := &c.blocks[s]
	b.hash, b.parent, b.named = hash, parent, true
	if parent != none {
		c.blocks[parent].kids++
	}
	c.table.put(c.blocks, s)
	return s, true
}

// drop releases the blocks of a sequence (upstream's Deref and Destroy). It begins with the last
// block, so that a block enters the LRU list after its descendants.
func (c *cache) drop(slots []slot) {
	for i := len(slots) - 1; i >= 0; i-- {
		s := slots[i]
		b := &c.blocks[s]
		if b.refs <= 0 {
			panic(fmt.Sprintf("mocker: block %d released with %d holders", s, b.refs))
		}
		if b.refs--; b.refs > 0 {
			continue
		}
		c.active--
		if b.named {
			c.pushLRU(s)
		} else {
			c.release(s)
		}
	}
}

// release adds block s to the free list.
func (c *cache) release(s slot) {
	c.blocks[s] = block{next: c.free, prev: none, parent: none}
	c.free = s
}

// pushLRU appends block s to the LRU list, as the most recently used.
func (c *cache) pushLRU(s slot) {
	b := &c.blocks[s]
	b.prev, b.next = c.last, none
	if c.last == none {
		c.first = s
	} else {
		c.blocks[c.last].next = s
	}
	c.last = s
	c.inactive++
}

// removeLRU removes block s from the LRU list.
func (c *cache) removeLRU(s slot) {
	b := &c.blocks[s]
	if b.prev == none {
		c.first = b.next
	} else {
		c.blocks[b.prev].next = b.next
	}
	if b.next == none {
		c.last = b.prev
	} else {
		c.blocks[b.next].prev = b.prev
	}
	b.prev, b.next = none, none
	c.inactive--
}
