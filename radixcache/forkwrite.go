package radixcache

import (
	"slices"

	"github.com/coppice-llm/coppice/internal/wide"
)

// link puts id among its parent's children, none of which has its first page.
func (c *Cache) link(parent, id NodeID) {
	n := &c.nodes[parent]
	if n.fork == nil {
		c.linkFew(parent, id)
		return
	}
	at, _ := c.find(parent, c.firstPage(id))
	f := n.fork
	r := &f.runs[at.r]
	c.insertKid(r, at.i, id)
	c.index(f, id)
	if f.keys != nil {
		c.linkEdge(f, at)
	}
	if len(r.kids) > maxRun {
		c.splitRun(f, at.r)
	}
	c.restem(f)
}

// linkFew is link while the node names its children itself, or begins a fork.
func (c *Cache) linkFew(parent, id NodeID) {
	n := &c.nodes[parent]
	if n.count == 0 {
		n.few[0], n.count, n.skip = kid{c.keyOf(id, 0), id}, 1, 0
		return
	}
	at, _ := c.find(parent, c.firstPage(id))
	var room [fewKids + 1]kid
	r := run{skip: int(n.skip), kids: append(room[:0], n.few[:n.count]...)}
	if n.count == 1 { // a lone child has skip 0
		r.skip = c.shared(r.kids[0].id, id)
		r.narrow(r.skip, c.keyOf(r.kids[0].id, r.skip))
	}
	c.insertKid(&r, at.i, id)
	if len(r.kids) > fewKids {
		r.kids = append(make([]kid, 0, 2*len(r.kids)), r.kids...)
		n.fork, n.few, n.count, n.skip = &fork{runs: []run{r}}, [fewKids]kid{}, 0, 0
		for _, k := range r.kids {
			c.index(n.fork, k.id)
		}
		c.restem(n.fork)
		return
	}
	n.setFew(&r)
}

// setFew makes a node name the children of a short run itself.
func (n *node) setFew(r *run) {
	n.few = [fewKids]kid{}
	n.count, n.skip = uint8(copy(n.few[:], r.kids)), uint16(r.skip)
}

// insertKid puts a child into a run that has others.
func (c *Cache) insertKid(r *run, at int, id NodeID) {
	r.kids = slices.Insert(r.kids, at, kid{id: id})
	if first, last := at == 0, at == len(r.kids)-1; first || last {
		other := r.kids[0].id // of those that were there
		if first {
			other = r.kids[1].id
		}
		if skip := c.shared(r.kids[0].id, r.kids[len(r.kids)-1].id); skip < r.skip {
			r.narrow(skip, c.keyOf(other, skip))
		}
	}
	r.kids[at].key = c.keyOf(id, r.skip)
}

// linkEdge keeps the keys of the runs right after a child came in at a place.
func (c *Cache) linkEdge(f *fork, at place) {
	if lastRun := at.r == len(f.runs)-1 && at.i == len(f.runs[at.r].kids)-1; at != (place{}) && !lastRun {
		return // a run's first child only changes in the first run, all else sorts into the run before
	}
	if skip := c.shared(f.first(), f.last()); skip < f.skip {
		key := c.keyOf(f.runs[1].kids[0].id, skip) // one that was there
		for i := range f.keys {
			f.keys[i] = key
		}
		f.skip = skip
	}
	f.keys[0] = c.keyOf(f.first(), f.skip)
}

// unlink takes id out of its parent's children.
func (c *Cache) unlink(parent, id NodeID) {
	n := &c.nodes[parent]
	at := c.placeOf(parent, id)
	if n.fork == nil {
		kids := n.few
		r := run{skip: int(n.skip), kids: slices.Delete(kids[:n.count], at.i, at.i+1)}
		c.settleFew(n, &r)
		return
	}
	f := n.fork
	c.unindex(f, id)
	r := &f.runs[at.r]
	edge := at.i == 0 || at.i == len(r.kids)-1
	r.kids = slices.Delete(r.kids, at.i, at.i+1)
	switch {
	case len(r.kids) == 0:
		c.dropRun(f, at.r)
	case len(f.runs) == 1 && len(r.kids) < fewKids: // not at once, or one child that comes and goes would cost a fork each time
		n.fork = nil
		c.settleFew(n, r)
		return
	default:
		if edge {
			c.widen(r)
		}
		if at.i == 0 && f.keys != nil {
			f.keys[at.r] = c.keyOf(r.kids[0].id, f.skip)
		}
		c.mergeRun(f, at.r)
	}
	c.widenRuns(f)
	c.restem(f)
}

// settleFew makes a node name the children that are left itself.
func (c *Cache) settleFew(n *node, r *run) {
	switch len(r.kids) {
	case 0:
		r.skip = 0
	case 1:
		r.skip = 0
		r.kids[0].key = c.keyOf(r.kids[0].id, 0)
	default:
		c.widen(r)
	}
	n.setFew(r)
}

// relink puts id in the place of a child with the same first page.
func (c *Cache) relink(parent, child, id NodeID) {
	n, at := &c.nodes[parent], c.placeOf(parent, child)
	if n.fork == nil {
		n.few[at.i].id = id
		return
	}
	n.fork.runs[at.r].kids[at.i].id = id
	x := &n.fork.index
	x.slots[x.slotOf(hashFirst(c.firstPage(child), c.cfg.PageTokens), child)].id = id
}

// shared is how many tokens of their first pages two children share.
func (c *Cache) shared(a, b NodeID) int {
	return wide.CommonPrefix(c.firstPage(a), c.firstPage(b))
}

// narrow lowers skip to where all present children have the token key.
func (r *run) narrow(skip int, key uint32) {
	for i := range r.kids {
		r.kids[i].key = key
	}
	r.skip = skip
}

// widen raises skip to what the children share now that others are gone.
func (c *Cache) widen(r *run) {
	skip := c.shared(r.kids[0].id, r.kids[len(r.kids)-1].id)
	if skip = min(skip, c.cfg.PageTokens-1); skip > r.skip { // a lone child's key is of its first page too
		r.skip = skip
		for i := range r.kids {
			r.kids[i].key = c.keyOf(r.kids[i].id, skip)
		}
	}
	if cap(r.kids) > 8 && len(r.kids) <= cap(r.kids)/4 {
		r.kids = slices.Clone(r.kids)
	}
}

// widenRuns is widen for the keys of the runs. It reads as many nodes as there
// are runs, so it waits until as many changes have come together.
func (c *Cache) widenRuns(f *fork) {
	if f.keys == nil {
		return
	}
	if f.edge++; f.edge < len(f.runs) {
		return
	}
	f.edge = 0
	if skip := c.shared(f.first(), f.last()); skip > f.skip {
		c.keyRuns(f, skip)
	}
}

// keyRuns writes the keys of the runs anew.
func (c *Cache) keyRuns(f *fork, skip int) {
	f.skip, f.keys = skip, f.keys[:0]
	for i := range f.runs {
		f.keys = append(f.keys, c.keyOf(f.runs[i].kids[0].id, skip))
	}
}

// splitRun makes two of a run.
func (c *Cache) splitRun(f *fork, at int) {
	r := &f.runs[at]
	half := len(r.kids) / 2
	upper := run{skip: r.skip, kids: append(make([]kid, 0, maxRun+1), r.kids[half:]...)}
	r.kids = r.kids[:half]
	c.widen(r)
	c.widen(&upper)
	f.runs = slices.Insert(f.runs, at+1, upper)
	if f.keys == nil {
		c.keyRuns(f, c.shared(f.first(), f.last()))
		return
	}
	f.keys = slices.Insert(f.keys, at+1, c.keyOf(upper.kids[0].id, f.skip))
}

// mergeRun makes one of a run and a neighbour if both are small.
func (c *Cache) mergeRun(f *fork, at int) {
	if at > 0 && len(f.runs[at-1].kids)+len(f.runs[at].kids) <= mergeRun {
		at--
	} else if at+1 == len(f.runs) || len(f.runs[at].kids)+len(f.runs[at+1].kids) > mergeRun {
		return
	}
	low, high := &f.runs[at], &f.runs[at+1]
	skip := min(low.skip, high.skip, c.shared(low.kids[0].id, high.kids[len(high.kids)-1].id))
	for _, r := range []*run{low, high} {
		if skip < r.skip {
			r.narrow(skip, c.keyOf(r.kids[0].id, skip))
		}
	}
	low.kids = append(low.kids, high.kids...)
	c.dropRun(f, at+1)
}

// dropRun takes out a run whose children are gone or elsewhere.
func (c *Cache) dropRun(f *fork, at int) {
	f.runs = slices.Delete(f.runs, at, at+1)
	f.keys = slices.Delete(f.keys, at, at+1)
	if len(f.runs) == 1 {
		f.keys = nil
	}
	if cap(f.runs) > 8 && len(f.runs) <= cap(f.runs)/4 {
		f.runs, f.keys = slices.Clone(f.runs), slices.Clone(f.keys)
	}
}

func (f *fork) first() NodeID { return f.runs[0].kids[0].id }

func (f *fork) last() NodeID {
	kids := f.runs[len(f.runs)-1].kids
	return kids[len(kids)-1].id
}
