// Package radixcache owns the prefix tree: which token sequences have KV
// entries, and in which pages. It never owns memory: pages are ids that a
// caller hands in and gets back. Each id in the tree was handed in exactly
// once and comes back exactly once.
//
// A [Key] is a namespace and a token sequence; namespaces share nodes only in
// the part that a key declares to be public. Nodes hold runs of whole pages, so
// the tree forks at page boundaries only. Below a page the tree helps in two
// ways: a [Match] names the page that shares most of the first page that it
// could not match ([Partial], to be copied), and the last, partly filled page of
// a sequence stays in the tree as a tail leaf.
//
// For example, with pages of 2 tokens, inserting 1 2 3 4 5 and then 1 2 7 8
// leaves this tree:
//
//	[0,2) 1 2        one page, which both sequences share
//	    [2,4) 3 4    a run of one page
//	        [4,5) 5  a tail leaf: one page, half full
//	    [2,4) 7 8    a run of one page
//
// A match for 1 2 3 9 then finds two tokens in one whole page, and a Partial of
// one token: it names the page of 3 4, from which the KV of token 3 can be copied.
//
// Pinned nodes (SGLang: lock_ref) protect the path to their root; everything
// else can be evicted, in the order of a [Policy], starting at the ends of
// leaves. Recency is a counter of accesses and no clock time, so equal calls
// give equal trees on every machine.
//
// One goroutine owns a [Cache]; there is no lock inside. Match, Resume,
// AppendPages and Explain change nothing, but share scratch memory with the
// other methods. Under the build tag invariants each write ends with [Cache.Check].
//
//	m := cache.Match(radixcache.Key{Tokens: tokens[:len(tokens)-1]}) // one token must be computed
//	pages := cache.AppendPages(m, nil)
//	handle := cache.Pin(m)                 // protects the matched pages from Evict
//	release(cache.Evict(need, nil))        // frees pages for the tokens that did not match
//	pages = append(pages, fresh...)        // the KV of these tokens is computed into fresh
//	handle, freed := cache.Extend(handle, radixcache.Key{Tokens: tokens[:n]}, pages, nil)
//	release(freed)                         // duplicates; pages now names the tree's
//	cache.Unpin(handle)                    // when the request ends
package radixcache
