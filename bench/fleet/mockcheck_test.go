package fleet

import "fmt"

// check walks all blocks and sequences and returns the first broken invariant, with its values; nil if
// all hold.
func (w *mocker) check() error {
	refs := make([]int32, len(w.cache.blocks))
	for _, s := range w.running {
		if err := w.checkSequence(s); err != nil {
			return err
		}
		for i, at := range s.slots {
			refs[at]++
			b := &w.cache.blocks[at]
			switch {
			case b.named != (i < s.named):
				return fmt.Errorf("request %d: block %d of %d, named %v, but %d are", s.req.ID, i, len(s.slots), b.named, s.named)
			case b.named && b.hash != s.hashes[i]:
				return fmt.Errorf("request %d: block %d is %#x, want %#x", s.req.ID, i, b.hash, s.hashes[i])
			case b.named && i > 0 && b.parent != s.slots[i-1], b.named && i == 0 && b.parent != 0:
				return fmt.Errorf("request %d: block %d comes after block %d", s.req.ID, i, b.parent)
			}
		}
	}
	for _, s := range w.waiting {
		if len(s.slots) != 0 || s.chunk != 0 || s.decoding {
			return fmt.Errorf("request %d waits and has %d blocks, chunk %d, decoding %v", s.req.ID, len(s.slots), s.chunk, s.decoding)
		}
	}
	if w.busy != (len(w.running)+len(w.waiting) > 0) && !w.busy {
		return fmt.Errorf("idle with %+v", w.Usage())
	}
	return w.cache.check(refs)
}

// checkSequence verifies the counts of running sequence s.
func (w *mocker) checkSequence(s *sequence) error {
	switch room := len(s.slots) * w.blockTokens; {
	case s.computed > s.tokens || s.computed > room:
		return fmt.Errorf("request %d: %d tokens computed of %d, in blocks for %d", s.req.ID, s.computed, s.tokens, room)
	case s.output() < 0 || s.output() >= s.req.OutputTokens:
		return fmt.Errorf("request %d runs with %d of %d tokens output", s.req.ID, s.output(), s.req.OutputTokens)
	case s.named < s.computed/w.blockTokens:
		return fmt.Errorf("request %d: %d tokens computed, %d blocks named", s.req.ID, s.computed, s.named)
	}
	return nil
}

// check verifies the blocks. refs is, by block, the number of sequences that hold the block.
func (c *mockCache) check(refs []int32) error {
	active, inactive, named := 0, 0, 0
	kids := make([]int32, len(c.blocks))
	free := make([]bool, len(c.blocks))
	for _, s := range c.free {
		if free[s] || s == 0 {
			return fmt.Errorf("block %d is twice in the free list", s)
		}
		free[s] = true
	}
	for i := 1; i < len(c.blocks); i++ {
		if free[i] {
			if refs[i] != 0 {
				return fmt.Errorf("block %d is free and has %d holders", i, refs[i])
			}
			continue
		}
		b := &c.blocks[i]
		switch {
		case b.refs != refs[i] || b.refs != 1 && !b.named:
			return fmt.Errorf("block %d counts %d holders, has %d, named %v", i, b.refs, refs[i], b.named)
		case b.named && c.named[b.hash] != slot(i):
			return fmt.Errorf("block %d is not found by its name %#x", i, b.hash)
		case b.refs > 0:
			active++
		default:
			inactive++
		}
		if !b.named {
			continue
		}
		named++
		kids[b.parent]++
		if p := &c.blocks[b.parent]; b.parent != 0 && (!p.named || free[b.parent] || b.refs > 0 && p.refs < 1) {
			return fmt.Errorf("block %d is a child of block %d, named %v with %d holders", i, b.parent, p.named, p.refs)
		}
	}
	for i := range c.blocks {
		if c.blocks[i].kids != kids[i] && !free[i] {
			return fmt.Errorf("block %d counts %d children, has %d", i, c.blocks[i].kids, kids[i])
		}
	}
	if active != c.active || inactive != c.inactive || active+inactive > c.capacity || named != len(c.named) {
		return fmt.Errorf("%d active and %d inactive blocks of %d, %d named; counted %d, %d and %d",
			c.active, c.inactive, c.capacity, len(c.named), active, inactive, named)
	}
	return c.checkRing(kids)
}

// checkRing walks the LRU ring, in which each block must come after its children. kids is the number
// of children by block; checkRing changes it.
func (c *mockCache) checkRing(kids []int32) error {
	n, prev := 0, slot(0)
	for s := c.blocks[0].next; s != 0; s = c.blocks[s].next {
		b := &c.blocks[s]
		if n++; n > c.inactive || b.prev != prev || b.refs != 0 || !b.named {
			return fmt.Errorf("place %d of the LRU ring is block %d, with %d holders after block %d", n, s, b.refs, b.prev)
		}
		if kids[s] != 0 {
			return fmt.Errorf("block %d is in the LRU ring before %d of its children", s, kids[s])
		}
		kids[b.parent]--
		prev = s
	}
	if n != c.inactive || c.blocks[0].prev != prev {
		return fmt.Errorf("%d blocks in the LRU ring, want %d; last %d, want %d", n, c.inactive, c.blocks[0].prev, prev)
	}
	return nil
}
