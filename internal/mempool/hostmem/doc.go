// Package hostmem owns host memory outside the Go heap, which the garbage collector neither scans
// nor counts: as an [Arena], the pages of an engine's pool, and as a [Store], the tier of extents
// below the device. It never decides which extents to keep, or in which tier.
//
// An Arena has no locks. Different goroutines may use different pages at the same time.
//
//	arena, err := hostmem.NewArena(pageBytes, pages)
//	defer arena.Close()
//	copy(arena.Page(3), bytes)
//
//	store, err := hostmem.Open(hostmem.Config{Identity: id, Bytes: 4 << 30})
//	err = store.Submit(mempool.Op{ID: 1, Kind: mempool.Put, Extent: x, Pages: pages})
package hostmem
