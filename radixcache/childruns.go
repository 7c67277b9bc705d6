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

// widen raises a run's skip to the number of first tokens that its children share,
// after some children were removed, and recomputes the keys. It also shrinks the
// array when three quarters of it are unused. With a larger skip, fewer children
// have equal keys.
//
// Example: after removing 5 1 0 0 from 5 1 0 0, 5 5 1 0 and 5 5 3 9, skip rises
// from 1 to 2, and the keys change from 5 5 (which are equal) to 1 3.
func (s *slab) widen(r *run) {
	skip := s.shared(r.kids[0].id, r.kids[len(r.kids)-1].id)
	if skip = min(skip, s.cfg.PageTokens-1); skip > r.skip { // a single child shares a whole page with itself
		r.skip = skip
		for i := range r.kids {
			r.kids[i].key = s.keyOf(r.kids[i].id, skip)
		}
	}
	if cap(r.kids) > 8 && len(r.kids) <= cap(r.kids)/4 {
		r.kids = slices.Clone(r.kids)
	}
}

// widenRuns raises f.skip to the number of first tokens that all children share, and
// recomputes the keys of the runs. That reads one child per run, so widenRuns only
// counts most calls and does the work in every len(f.runs)-th: amortised, a change
// reads O(1) children.
func (s *slab) widenRuns(f *fork) {
	if f.keys == nil {
		return
	}
	if f.edge++; f.edge < len(f.runs) {
		return
	}
	f.edge = 0
	if skip := s.shared(f.lowest(), f.highest()); skip > f.skip {
		s.keyRuns(f, skip)
	}
}

// keyRuns sets f.skip and recomputes the keys of all runs for it.
func (s *slab) keyRuns(f *fork, skip int) {
	f.skip, f.keys = skip, f.keys[:0]
	for i := range f.runs {
		f.keys = append(f.keys, s.keyOf(f.runs[i].kids[0].id, skip))
	}
}

// splitRun splits run number at of f into two halves. The children of a half may
// share more tokens than those of the whole run, so both halves recompute their
// skip. Because runs are short, an insertion moves at most 127 pairs of 8 bytes,
// about 1 KiB.
func (s *slab) splitRun(f *fork, at int) {
	r := &f.runs[at]
	half := len(r.kids) / 2
	upper := run{skip: r.skip, kids: append(make([]kid, 0, maxRun+1), r.kids[half:]...)}
	r.kids = r.kids[:half]
	s.widen(r)
	s.widen(&upper)
	f.runs = slices.Insert(f.runs, at+1, upper)
	if f.keys == nil {
		s.keyRuns(f, s.shared(f.lowest(), f.highest()))
		return
	}
	f.keys = slices.Insert(f.keys, at+1, s.keyOf(upper.kids[0].id, f.skip))
}

// mergeRun merges run number at of f with the run before it, or else with the run
// after it, if the two have at most mergeRun children in sum. mergeRun is half of
// maxRun, so that many more children must come before a merged run is split again.
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

// dropRun removes run number at of f, after its children were removed or moved to
// another run. If one run is left, it also sets f.keys to nil.
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

// restem updates f.stem, the first tokens of all children, after a child was added
// or removed. The stem's length is f.skip, or with a single run that run's skip; it
// may have become smaller or larger.
func (s *slab) restem(f *fork) {
	n := f.runs[0].skip
	if f.keys != nil {
		n = f.skip
	}
	if n <= len(f.stem) {
		f.stem = f.stem[:n]
		return
	}
	f.stem = append(f.stem[:0], s.nodes[f.lowest()].tokens.Slice()[:n]...)
}
