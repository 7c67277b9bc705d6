package radixcache

import "slices"

// index puts a child of a fork into its index, unless it is a tail leaf.
func (s *slab) index(f *fork, id NodeID) {
	if tokens := s.nodes[id].tokens.Slice(); len(tokens) >= s.cfg.PageTokens {
		f.index.put(hashFirst(tokens, s.cfg.PageTokens), id)
	}
}

// unindex is the reverse of index.
func (s *slab) unindex(f *fork, id NodeID) {
	if tokens := s.nodes[id].tokens.Slice(); len(tokens) >= s.cfg.PageTokens {
		f.index.take(hashFirst(tokens, s.cfg.PageTokens), id)
	}
}

// widen raises skip to what the children share now that others are gone.
func (s *slab) widen(r *run) {
	skip := s.shared(r.kids[0].id, r.kids[len(r.kids)-1].id)
	if skip = min(skip, s.cfg.PageTokens-1); skip > r.skip { // a lone child's key is of its first page too
		r.skip = skip
		for i := range r.kids {
			r.kids[i].key = s.keyOf(r.kids[i].id, skip)
		}
	}
	if cap(r.kids) > 8 && len(r.kids) <= cap(r.kids)/4 {
		r.kids = slices.Clone(r.kids)
	}
}

// widenRuns is widen for the keys of the runs. It reads as many nodes as there
// are runs, so it waits until as many changes have come together.
func (s *slab) widenRuns(f *fork) {
	if f.keys == nil {
		return
	}
	if f.edge++; f.edge < len(f.runs) {
		return
	}
	f.edge = 0
	if skip := s.shared(f.first(), f.last()); skip > f.skip {
		s.keyRuns(f, skip)
	}
}

// keyRuns writes the keys of the runs anew.
func (s *slab) keyRuns(f *fork, skip int) {
	f.skip, f.keys = skip, f.keys[:0]
	for i := range f.runs {
		f.keys = append(f.keys, s.keyOf(f.runs[i].kids[0].id, skip))
	}
}

// splitRun makes two of a run.
func (s *slab) splitRun(f *fork, at int) {
	r := &f.runs[at]
	half := len(r.kids) / 2
	upper := run{skip: r.skip, kids: append(make([]kid, 0, maxRun+1), r.kids[half:]...)}
	r.kids = r.kids[:half]
	s.widen(r)
	s.widen(&upper)
	f.runs = slices.Insert(f.runs, at+1, upper)
	if f.keys == nil {
		s.keyRuns(f, s.shared(f.first(), f.last()))
		return
	}
	f.keys = slices.Insert(f.keys, at+1, s.keyOf(upper.kids[0].id, f.skip))
}

// mergeRun makes one of a run and a neighbour if both are small.
func (s *slab) mergeRun(f *fork, at int) {
	if at > 0 && len(f.runs[at-1].kids)+len(f.runs[at].kids) <= mergeRun {
		at--
	} else if at+1 == len(f.runs) || len(f.runs[at].kids)+len(f.runs[at+1].kids) > mergeRun {
		return
	}
	low, high := &f.runs[at], &f.runs[at+1]
	skip := min(low.skip, high.skip, s.shared(low.kids[0].id, high.kids[len(high.kids)-1].id))
	for _, r := range []*run{low, high} {
		if skip < r.skip {
			r.narrow(skip, s.keyOf(r.kids[0].id, skip))
		}
	}
	low.kids = append(low.kids, high.kids...)
	s.dropRun(f, at+1)
}

// dropRun takes out a run whose children are gone or elsewhere.
func (s *slab) dropRun(f *fork, at int) {
	f.runs = slices.Delete(f.runs, at, at+1)
	f.keys = slices.Delete(f.keys, at, at+1)
	if len(f.runs) == 1 {
		f.keys = nil
	}
	if cap(f.runs) > 8 && len(f.runs) <= cap(f.runs)/4 {
		f.runs, f.keys = slices.Clone(f.runs), slices.Clone(f.keys)
	}
}

// restem brings the stem up to date after a child came or went.
func (s *slab) restem(f *fork) {
	n := f.runs[0].skip
	if f.keys != nil {
		n = f.skip
	}
	if n <= len(f.stem) {
		f.stem = f.stem[:n]
		return
	}
	f.stem = append(f.stem[:0], s.nodes[f.first()].tokens.Slice()[:n]...)
}
