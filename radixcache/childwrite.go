package radixcache

import "slices"

// link adds node id to its parent's children. No child may have the same first page.
func (s *slab) link(parent, id NodeID) {
	n := &s.nodes[parent]
	if n.fork == nil {
		s.linkFew(parent, id)
		return
	}
	at, _ := s.find(parent, s.firstPage(id))
	f := n.fork
	r := &f.runs[at.r]
	s.insertKid(r, at.i, id)
	s.index(f, id)
	if f.keys != nil {
		s.linkEdge(f, at)
	}
	if len(r.kids) > maxRun {
		s.splitRun(f, at.r)
	}
	s.restem(f)
}

// linkFew is link for a parent that keeps its children in n.few. When the fourth
// child comes, which does not fit there, linkFew moves all of them into a new fork.
func (s *slab) linkFew(parent, id NodeID) {
	n := &s.nodes[parent]
	if n.count == 0 {
		n.few[0], n.count, n.skip = kid{s.keyOf(id, 0), id}, 1, 0
		return
	}
	at, _ := s.find(parent, s.firstPage(id))
	var room [fewKids + 1]kid
	r := run{skip: int(n.skip), kids: append(room[:0], n.few[:n.count]...)}
	if n.count == 1 { // so far, skip is 0
		r.skip = s.shared(r.kids[0].id, id)
		r.narrow(r.skip, s.keyOf(r.kids[0].id, r.skip))
	}
	s.insertKid(&r, at.i, id)
	if len(r.kids) > fewKids {
		r.kids = append(make([]kid, 0, 2*len(r.kids)), r.kids...)
		n.fork, n.few, n.count, n.skip = &fork{runs: []run{r}}, [fewKids]kid{}, 0, 0
		for _, k := range r.kids {
			s.index(n.fork, k.id)
		}
		s.restem(n.fork)
		return
	}
	n.setFew(&r)
}

// setFew stores the children of r, at most fewKids, and its skip in the node itself.
func (n *node) setFew(r *run) {
	n.few = [fewKids]kid{}
	n.count, n.skip = uint8(copy(n.few[:], r.kids)), uint16(r.skip)
}

// insertKid inserts child id at index at of r, which has other children. It lowers
// r.skip if the new child shares fewer tokens with the others. Only a new first or
// last child can: a child that sorts between two others shares with them what the
// two have in common.
func (s *slab) insertKid(r *run, at int, id NodeID) {
	r.kids = slices.Insert(r.kids, at, kid{id: id})
	if first, last := at == 0, at == len(r.kids)-1; first || last {
		other := r.kids[0].id // any other child will do: they are equal up to the old skip
		if first {
			other = r.kids[1].id
		}
		if skip := s.shared(r.kids[0].id, r.kids[len(r.kids)-1].id); skip < r.skip {
			r.narrow(skip, s.keyOf(other, skip))
		}
	}
	r.kids[at].key = s.keyOf(id, r.skip)
}

// linkEdge updates f.skip and f.keys after a child was inserted at a place. Only a
// new first or last child of the fork can lower f.skip or change a key.
func (s *slab) linkEdge(f *fork, at place) {
	if lastRun := at.r == len(f.runs)-1 && at.i == len(f.runs[at.r].kids)-1; at != (place{}) && !lastRun {
		return // other children sort after the first child of their run, so no key changes
	}
	if skip := s.shared(f.lowest(), f.highest()); skip < f.skip {
		key := s.keyOf(f.runs[1].kids[0].id, skip) // any child but the new one will do
		for i := range f.keys {
			f.keys[i] = key
		}
		f.skip = skip
	}
	f.keys[0] = s.keyOf(f.lowest(), f.skip)
}

// unlink removes node id from its parent's children. When two children are left in a
// fork of one run, unlink moves them into the parent's few. It does not do so with
// three, although they would fit: otherwise a fourth child that is added and removed
// repeatedly would build and drop a fork each time.
func (s *slab) unlink(parent, id NodeID) {
	n := &s.nodes[parent]
	at := s.placeOf(parent, id)
	if n.fork == nil {
		kids := n.few
		r := run{skip: int(n.skip), kids: slices.Delete(kids[:n.count], at.i, at.i+1)}
		s.settleFew(n, &r)
		return
	}
	f := n.fork
	s.unindex(f, id)
	r := &f.runs[at.r]
	edge := at.i == 0 || at.i == len(r.kids)-1
	r.kids = slices.Delete(r.kids, at.i, at.i+1)
	switch {
	case len(r.kids) == 0:
		s.dropRun(f, at.r)
	case len(f.runs) == 1 && len(r.kids) < fewKids:
		n.fork = nil
		s.settleFew(n, r)
		return
	default:
		if edge {
			s.widen(r)
		}
		if at.i == 0 && f.keys != nil {
			f.keys[at.r] = s.keyOf(r.kids[0].id, f.skip)
		}
		s.mergeRun(f, at.r)
	}
	s.widenRuns(f)
	s.restem(f)
}

// settleFew stores the children of r in the node itself, after one was removed, and
// recomputes skip and keys. For a single child skip is 0, so its key is its first
// token.
func (s *slab) settleFew(n *node, r *run) {
	switch len(r.kids) {
	case 0:
		r.skip = 0
	case 1:
		r.skip = 0
		r.kids[0].key = s.keyOf(r.kids[0].id, 0)
	default:
		s.widen(r)
	}
	n.setFew(r)
}

// relink replaces child by node id, which has the same first page, below a parent.
// Splits and joins call it. The order and the keys of the children do not change.
func (s *slab) relink(parent, child, id NodeID) {
	n, at := &s.nodes[parent], s.placeOf(parent, child)
	if n.fork == nil {
		n.few[at.i].id = id
		return
	}
	n.fork.runs[at.r].kids[at.i].id = id
	x := &n.fork.index
	x.slots[x.slotOf(hashFirst(s.firstPage(child), s.cfg.PageTokens), child)].id = id
}
