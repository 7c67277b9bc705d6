// Package mempool owns page ids and the names of KV below the device: which pages of the
// pool are free, the owner of each other page, and the names and contract of
// stores. Stores keep extents of pages in host memory (mempool/internal/hostmem), on disk
// (mempool/internal/diskmem) and in a shared directory (mempool/internal/dirmem). It never
// owns the contents of a page and moves no bytes.
//
// A [Pool] belongs to the pool actor and grants pages in bulk. A [Lease] belongs to a
// scheduler and hands them out one by one, so that planning a step waits for no
// message. Conservation is checked at every hand-over:
//
//	pool:   free + leased       = capacity
//	lease:  idle + held + cached = granted   (= the pool's leased)
//
// Idle pages wait in the lease, held pages belong to a running request, cached
// pages to the radix tree. Both types are single-owner and not safe for
// concurrent use.
//
//	pool, _ := mempool.NewPool(1024)
//	lease := mempool.NewLease(1024)
//	pages, _ := pool.Grant(64, nil)
//	lease.Add(pages)
//	held, ok := lease.Hold(3, nil)
//
// # Extents
//
// Below the device KV moves in extents: one page, or as many consecutive pages as have
// 1 MiB ([LayoutOf]). An [Extent] begins at a multiple of the extent's tokens. Example:
// pages of 16 tokens and 512 KiB make extents of 2 pages; a sequence of 75 tokens has
// extents [0, 32) and [32, 64); its last 11 tokens fill no page and are in none.
//
//   - Its [Key] is the SHA-256 of the parent's key, the namespace, its tokens and media. It
//     does not depend on the blocks of events and indexes, whether a page is smaller than a
//     block or larger.
//   - The last extent of a sequence, the tail, may have fewer pages. It has no children: when
//     the sequence grows, a longer extent with another key replaces it. Tokens after the
//     last whole page, fewer than a page, are in no extent; they are computed again.
//   - If two sequences differ inside an extent, each has a whole extent of its own there, and
//     both extents have the shared pages: a split of the tree changes no extent. If the
//     extent of one sequence is absent, that sequence uses the first pages of the other's
//     ([Index.Part], Op.Extent of a Get).
//
// A [Store] keeps extents of one [Identity]: model, numerics, KV type, order of the axes
// in a page, and its sizes. Records (mempool/internal/record) contain all of that, with checksums, and a
// load compares it. No record is trusted for its hash alone. A checksum finds damage; only a
// Sealer keeps processes without a secret from reading or making records.
package mempool
