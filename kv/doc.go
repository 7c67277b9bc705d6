// Package kv owns the ground vocabulary of Coppice: tokens, pages, block
// hashes, tiers, namespaces and cache events. It never owns memory, never
// decides anything and imports nothing of ours.
//
// Two words that are easily confused: a page is a place for KV entries (memory,
// [PageID]); a block is a run of tokens with its prefix (content, [BlockHash]).
// Allocators and engines use pages, events and indexes use blocks.
//
// Everything here is a plain value or a pure function and may be used from any
// goroutine, except [Hasher], which belongs to one owner.
//
//	h := kv.NewHasher(kv.Namespace{}, 16)
//	for len(tokens) >= 16 {
//		hash, local := h.Next(tokens[:16])
//		tokens = tokens[16:]
//	}
package kv
