package radixcache

// order is the order in which the unpinned leaves of some spaces are evicted:
// of all that have no quota of their own, or of one namespace that has. See
// [eviction].
type order struct {
	quota  *Quota   // nil without
	edge   NodeID   // both ends of the line: a slot of the slab for nothing else
	late   leafHeap // leaves by age that are not in the line
	ranked leafHeap // leaves by rank, unless the policy is LRU
	pages  int      // held by all its nodes, pinned or not
	spaces int      // that use it
	dead   bool     // flushed
}

// lineLink joins a node to its neighbours in the line.
type lineLink struct{ prev, next NodeID }
