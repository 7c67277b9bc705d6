// Package radixcache owns the prefix tree: which token sequences have KV
// entries, and in which pages. It never owns memory: pages are ids that a
// caller hands in and gets back, and each id in the tree was handed in exactly
// once and comes back exactly once.
//
// A [Key] is a namespace and a token sequence; namespaces share nodes only in
// what a key declares to be public. Nodes hold runs of whole pages, so the tree
// forks at page boundaries only. Below a page the tree helps in two ways: a
// [Match] names the page that shares most of the first page it could not match
// ([Partial], to be copied), and the last, partly filled page of a sequence
// stays in the tree as a tail leaf.
//
// Pinned nodes protect the path to their root; all else can be evicted, in the
// order of a [Policy], from the ends of leaves on. Recency is a counter of
// accesses, so equal calls give equal trees on every machine.
//
// One goroutine owns a [Cache]; there is no lock inside. Match, Resume,
// AppendPages and Explain change nothing, but share scratch with the rest. Under
// the build tag invariants each write ends with [Cache.Check].
//
//	m := cache.Match(radixcache.Key{Tokens: tokens[:len(tokens)-1]}) // one token must be computed
//	pages := cache.AppendPages(m, nil)
//	handle := cache.Pin(m)                 // before anything can evict it
//	release(cache.Evict(need, nil))        // room for the rest
//	pages = append(pages, fresh...)        // into which it is computed, by chunks
//	handle, freed := cache.Extend(handle, radixcache.Key{Tokens: tokens[:n]}, pages, nil)
//	release(freed)                         // duplicates; pages now names the tree's
//	cache.Unpin(handle)                    // when the request ends
package radixcache
