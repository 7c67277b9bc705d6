package mocker

import "fmt"

// Check walks all blocks and sequences and returns the first broken invariant, with its
// values; nil if all hold. Under -tags invariants it runs after each pass.
func (w *Worker) Check() error {
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
				return fmt.Errorf("mocker: request %d: block %d of %d, named %v, but %d are", s.req.ID, i, len(s.slots), b.named, s.named)
			case b.named && b.hash != s.hashes[i]:
				return fmt.Errorf("mocker: request %d: block %d is %#x, want %#x", s.req.ID, i, b.hash, s.hashes[i])
			case b.named && i > 0 && b.parent != s.slots[i-1], b.named && i == 0 && b.parent != none:
				return fmt.Errorf("mocker: request %d: block %d comes after block %d", s.req.ID, i, b.parent)
			}
		}
	}
	for _, s := range w.waiting {
		if len(s.slots) != 0 || s.chunk != 0 || s.decoding {
			return fmt.Errorf("mocker: request %d waits and has %d blocks, chunk %d, decoding %v", s.req.ID, len(s.slots), s.chunk, s.decoding)
		}
	}
	if w.busy != (len(w.running)+len(w.waiting) > 0) && !w.busy {
		return fmt.Errorf("mocker: idle with %+v", w.Usage())
	}
	return w.cache.check(refs)
}

// checkSequence verifies the counts of running sequence s.
func (w *Worker) checkSequence(s *sequence) error {
	switch room := len(s.slots) * w.cfg.BlockTokens; {
	case s.computed > s.tokens || s.computed > room:
		return fmt.Errorf("mocker: request %d: %d tokens computed of %d, in blocks for %d", s.req.ID, s.computed, s.tokens, room)
	case s.output() < 0 || s.output() >= s.req.OutputTokens:
		return fmt.Errorf("mocker: request %d runs with %d of %d tokens output", s.req.ID, s.output(), s.req.OutputTokens)
	case s.gone:
		return fmt.Errorf("mocker: request %d runs and is preempted", s.req.ID)
	case s.named < s.computed/w.cfg.BlockTokens:
		return fmt.Errorf("mocker: request %d: %d tokens computed, %d blocks named", s.req.ID, s.computed, s.named)
	}
	return nil
}

// check verifies the blocks. refs is, by block, the number of sequences that hold the block.
func (c *cache) check(refs []int32) error {
	active, inactive, free, named := 0, 0, 0, 0
	kids := make([]int32, len(c.blocks))
	for i := range c.blocks {
		b := &c.blocks[i]
		switch {
		case b.refs != refs[i]:
			return fmt.Errorf("mocker: block %d counts %d holders, has %d", i, b.refs, refs[i])
		case b.refs > 1 && !b.named:
			return fmt.Errorf("mocker: block %d without a name has %d holders", i, b.refs)
		case b.named && c.table.find(c.blocks, b.hash) != slot(i):
			return fmt.Errorf("mocker: block %d is not found by its name %#x", i, b.hash)
		}
		switch {
		case b.refs > 0:
			active++
		case b.named:
			inactive++
		default:
			free++
		}
		if !b.named {
			continue
		}
		named++
		if b.parent == none {
			continue
		}
		kids[b.parent]++
		if p := &c.blocks[b.parent]; !p.named || b.refs > 0 && p.refs < 1 {
			return fmt.Errorf("mocker: block %d is a child of block %d, named %v with %d holders", i, b.parent, p.named, p.refs)
		}
	}
	for i := range c.blocks {
		if c.blocks[i].kids != kids[i] {
			return fmt.Errorf("mocker: block %d counts %d children, has %d", i, c.blocks[i].kids, kids[i])
		}
	}
	if active != c.active || inactive != c.inactive || active+inactive > c.capacity || named != c.table.used {
		return fmt.Errorf("mocker: %d active and %d inactive blocks of %d, %d named; counted %d, %d and %d",
			c.active, c.inactive, c.capacity, c.table.used, active, inactive, named)
	}
	return c.checkLine(free, kids)
}

// checkLine walks the LRU list, in which each block must come after its children, and the free
// list, which must have as many blocks as free says. kids is the number of children by block;
// checkLine changes it.
func (c *cache) checkLine(free int, kids []int32) error {
	n, prev := 0, none
	for s := c.first; s != none; s = c.blocks[s].next {
		b := &c.blocks[s]
		if n++; n > c.inactive || b.prev != prev || b.refs != 0 || !b.named {
			return fmt.Errorf("mocker: place %d of the LRU list is block %d, with %d holders after block %d", n, s, b.refs, b.prev)
		}
		if kids[s] != 0 {
			return fmt.Errorf("mocker: block %d is in the LRU list before %d of its children", s, kids[s])
		}
		if b.parent != none {
			kids[b.parent]--
		}
		prev = s
	}
	if n != c.inactive || c.last != prev {
		return fmt.Errorf("mocker: %d blocks in the LRU list, want %d; last %d, want %d", n, c.inactive, c.last, prev)
	}
	for s := c.free; s != none; s = c.blocks[s].next {
		if free--; free < 0 || c.blocks[s].named || c.blocks[s].refs != 0 {
			return fmt.Errorf("mocker: block %d is not free", s)
		}
	}
	if free != 0 {
		return fmt.Errorf("mocker: %d free blocks are not found", free)
	}
	return nil
}
