package mocker

import (
	"fmt"
	"sort"

	"github.com/coppice-llm/coppice/kv"
)

// slot numbers the blocks of a cache.
type slot int32

const none slot = -1

// block is one of the device's blocks: active while sequences hold it, inactive
// while it only has a name, free otherwise.
type block struct {
	hash       kv.BlockHash // if named
	parent     slot         // named: the block before it, none at the start of a sequence
	kids       int32        // named blocks of which this is the parent
	refs       int32        // sequences that hold it
	prev, next slot         // in the line if inactive; next also chains the free ones
	named      bool         // full, and found by its hash; else it belongs to one sequence
}

// cache owns the blocks of a worker (upstream's KvManager). Every operation costs
// O(1) for each block. A sequence holds its blocks from the first to the last, so
// who is inactive has only inactive blocks hanging on it.
type cache struct {
	capacity         int
	blocks           []block // as many as were ever needed, up to capacity
	free             slot
	table            table
	first, last      slot // of the line of inactive blocks: the longest unused first
	active, inactive int
	evicted          uint64
}

func newCache(capacity int) cache {
	return cache{capacity: capacity, table: newTable(), free: none, first: none, last: none}
}

// match is how many leading blocks are there, and how many of them are active. The
// hashes are a sequence's, so that both are prefixes: what is there hangs on what is
// there, and what is active on what is active. Cost: O(log n) looks.
func (c *cache) match(hashes []kv.BlockHash) (blocks, active int) {
	blocks = sort.Search(len(hashes), func(i int) bool {
		return c.table.find(c.blocks, hashes[i]) == none
	})
	active = sort.Search(blocks, func(i int) bool {
		return c.blocks[c.table.find(c.blocks, hashes[i])].refs == 0
	})
	return blocks, active
}

// use takes the named blocks, which must be there, and so many unnamed ones, and
// appends them to dst. False if there is no room: then nothing has changed. What is
// evicted for it goes to the log.
func (c *cache) use(named []kv.BlockHash, unnamed int, dst []slot, log *log) ([]slot, bool) {
	from := len(dst)
	idle := 0
	for _, h := range named {
		s := c.table.find(c.blocks, h)
		if s == none {
			panic(fmt.Sprintf("mocker: use of block %#x, which is not there", h))
		}
		dst = append(dst, s)
		if c.blocks[s].refs == 0 {
			idle++
		}
	}
	if c.active+idle+unnamed > c.capacity {
		return dst[:from], false
	}
	// These first: what is evicted below must not be one of them.
	for _, s := range dst[from:] {
		c.hold(s)
	}
	for range unnamed {
		dst = append(dst, c.take(log))
	}
	return dst, true
}

// hold counts one more sequence at a named block.
func (c *cache) hold(s slot) {
	b := &c.blocks[s]
	if b.refs == 0 {
		c.unline(s)
		c.active++
	}
	b.refs++
}

// take makes an unnamed block active. There is room.
func (c *cache) take(log *log) slot {
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

// evict frees the block that is longest unused.
func (c *cache) evict(log *log) {
	s := c.first
	if s == none {
		panic(fmt.Sprintf("mocker: eviction with all %d blocks active", c.active))
	}
	b := &c.blocks[s]
	if b.kids != 0 || b.refs != 0 {
		panic(fmt.Sprintf("mocker: eviction of block %#x, %d blocks hang on it, %d hold it", b.hash, b.kids, b.refs))
	}
	c.unline(s)
	c.table.cut(c.blocks, s)
	if b.parent != none {
		c.blocks[b.parent].kids--
	}
	log.removed(b.hash)
	c.release(s)
	c.evicted++
}

// name gives a block that is now full its name (upstream's Promote). If another
// has it already, the sequence goes on with that one and its own is free; fresh
// tells that nobody had it. parent is the block before it, of the same sequence.
func (c *cache) name(s, parent slot, hash kv.BlockHash) (_ slot, fresh bool) {
	if b := &c.blocks[s]; b.named || b.refs != 1 {
		panic(fmt.Sprintf("mocker: block %d to be named %#x is named %v, %d hold it", s, hash, b.named, b.refs))
	}
	if same := c.table.find(c.blocks, hash); same != none {
		if got := c.blocks[same].parent; got != parent {
			panic(fmt.Sprintf("mocker: block %#x stands behind block %d and behind %d", hash, got, parent))
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

// drop lets go what a sequence holds (upstream's Deref and Destroy), the last block
// first: so none comes into the line before those that hang on it.
func (c *cache) drop(slots []slot) {
	for i := len(slots) - 1; i >= 0; i-- {
		s := slots[i]
		b := &c.blocks[s]
		if b.refs <= 0 {
			panic(fmt.Sprintf("mocker: block %d let go, %d hold it", s, b.refs))
		}
		if b.refs--; b.refs > 0 {
			continue
		}
		c.active--
		if b.named {
			c.line(s)
		} else {
			c.release(s)
		}
	}
}

// release puts a block among the free ones.
func (c *cache) release(s slot) {
	c.blocks[s] = block{next: c.free, prev: none, parent: none}
	c.free = s
}

// line puts a block at the end of the line: it was used last.
func (c *cache) line(s slot) {
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

func (c *cache) unline(s slot) {
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
