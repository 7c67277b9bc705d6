package radixcache

// order is the order in which the unpinned leaves of some spaces are evicted. All
// namespaces without a quota share one order. Each namespace with a quota has an order of
// its own, so that its next leaf is found without a search past the leaves of others. See
// [eviction].
type order struct {
	quota  *Quota   // the namespace's quota; nil for the common order
	edge   NodeID   // slot of the slab, no node, that marks both ends of the line
	late   leafHeap // leaves by age that entered with an old stamp and are not in the line
	ranked leafHeap // leaves by rank, unless the policy is LRU
	pages  int      // number of pages in the nodes of its spaces, pinned or not
	spaces int      // number of spaces that use it
	dead   bool     // whether its spaces were flushed
}

// lineLink has a node's neighbours in the line. The links are in a table of their own,
// because the two cache lines of a node are full.
type lineLink struct{ prev, next NodeID }
