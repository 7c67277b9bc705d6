// Package radixcache owns the prefix tree: which token sequences have KV
// entries, and in which pages. It never owns memory: pages are ids that a
// caller hands in and gets back, and each id in the tree was handed in exactly
// once and comes back exactly once.
//
// A key is a namespace and a token sequence; namespaces never share a node.
// Nodes hold runs of whole pages, so the tree forks at page boundaries only.
// Below a page the tree helps in two ways: a [Match] tells the page that shares
// most of the first page it could not match ([Partial], to be copied), and the
// last, partly filled page of a sequence stays in the tree as a tail leaf.
//
// Pinned nodes protect the path to their root; all else can be evicted, least
// recently used leaves first. Recency is a counter of accesses, so equal calls
// give equal trees on every machine.
//
// One goroutine owns a [Cache]; there is no lock inside. [Cache.Match] reads
// only, all else writes. Under the build tag invariants each write ends with
// [Cache.Check].
//
//	m := cache.Match(ns, prompt[:len(prompt)-1], nil) // one token must be computed
//	handle := cache.Pin(m)                            // before anything can evict it
//	pages := append(m.Pages, fresh...)                // compute the rest into fresh pages
//	node, freed := cache.Insert(ns, tokens, pages, nil)
//	release(freed)                                    // duplicates; pages now names the tree's
//	cache.PinNode(node)                               // while decoding goes on
//	cache.Unpin(handle)
package radixcache
