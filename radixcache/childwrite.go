package radixcache

import "slices"

// link puts id among its parent's children, none of which has its first page.
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

// linkFew is link while the node names its children itself, or begins a fork.
func (s *slab) linkFew(parent, id NodeID) {
	n := &s.nodes[parent]
	if n.count == 0 {
		n.few[0], n.count, n.skip = kid{s.keyOf(id, 0), id}, 1, 0
		return
	}
	at, _ := s.find(parent, s.firstPage(id))
	var room [fewKids + 1]kid
	r := run{skip: int(n.skip), kids: append(room[:0], n.few[:n.count]...)}
	if n.count == 1 { // a lone child has skip 0
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

// setFew makes a node name the children of a short run itself.
func (n *node) setFew(r *run) {
	n.few = [fewKids]kid{}
	n.count, n.skip = uint8(copy(n.few[:], r.kids)), uint16(r.skip)
}

// insertKid puts a child into a run that has others.
func (s *slab) insertKid(r *run, at int, id NodeID) {
	r.kids = slices.Insert(r.kids, at, kid{id: id})
	if first, last := at == 0, at == len(r.kids)-1; first || last {
		other := r.kids[0].id // of those that were there
		if first {
			other = r.kids[1].id
		}
		if skip := s.shared(r.kids[0].id, r.kids[len(r.kids)-1].id); skip < r.skip {
			r.narrow(skip, s.keyOf(other, skip))
		}
	}
	r.kids[at].key = s.keyOf(id, r.skip)
}

// linkEdge keeps the keys of the runs right after a child came in at a place.
func (s *slab) linkEdge(f *fork, at place) {
	if lastRun := at.r == len(f.runs)-1 && at.i == len(f.runs[at.r].kids)-1; at != (place{}) && !lastRun {
		return // a run's first child only changes in the first run, all else sorts into the run before
	}
	if skip := s.shared(f.first(), f.last()); skip < f.skip {
		key := s.keyOf(f.runs[1].kids[0].id, skip) // one that was there
		for i := range f.keys {
			f.keys[i] = key
		}
		f.skip = skip
	}
	f.keys[0] = s.keyOf(f.first(), f.skip)
}

// unlink takes id out of its parent's children.
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
	case len(f.runs) == 1 && len(r.kids) < fewKids: // not at once, or one child that comes and goes would cost a fork each time
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

// settleFew makes a node name the children that are left itself.
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

// relink puts id in the place of a child with the same first page.
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
