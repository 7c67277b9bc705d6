package radixcache

import "slices"

// index adds a child to its fork's hash index. Tail leaves are left out: they
// have no whole page, and the index finds whole first pages.
func (s *slab) index(f *fork, id NodeID) {
	if tokens := s.nodes[id].tokens.Slice(); len(tokens) >= s.cfg.PageTokens {
		f.index.put(hashFirst(tokens, s.cfg.PageTokens), id)
	}
}

// unindex takes a child out of its fork's hash index. It reads the child's
// tokens, so call it before they are freed.
func (s *slab) unindex(f *fork, id NodeID) {
	if tokens := s.nodes[id].tokens.Slice(); len(tokens) >= s.cfg.PageTokens {
		f.index.take(hashFirst(tokens, s.cfg.PageTokens), id)
	}
}

// widen raises a run's skip to the tokens that its children share, after some of
// them were removed, and shrinks the array when three quarters of it are unused.
// A larger skip makes keys that tell more children apart.
//
// Example: after removing 5 1 0 0 from 5 1 0 0, 5 5 1 0 and 5 5 3 9, skip rises
// from 1 to 2, and the keys change from 5 5 (which tell nothing) to 1 3.
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

// widenRuns raises the skip of the runs' keys, as widen does within a run. It
// reads one child per run, so it does the work only once per len(f.runs) calls:
// amortised, O(1) children per change.
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

// keyRuns recomputes the keys of all runs for a new skip.
func (s *slab) keyRuns(f *fork, skip int) {
	f.skip, f.keys = skip, f.keys[:0]
	for i := range f.runs {
		f.keys = append(f.keys, s.keyOf(f.runs[i].kids[0].id, skip))
	}
}

// splitRun cuts a run into two halves. Each half may share more tokens than the
// whole did, so both recompute their skip. Runs bound the cost of an insertion: it
// moves at most 127 pairs of 8 bytes, about 1 KiB.
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

// mergeRun joins a run with its lower or else its higher neighbour if both
// together have at most mergeRun children. That is half of maxRun, so that a run
// that was just merged is far from the size at which it splits.
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

// dropRun removes a run whose children were removed or moved. With one run left
// there are no keys to choose a run by.
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

// restem updates the fork's stem, the tokens that all children share, after a
// child was added or removed: skip may have fallen or risen.
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
