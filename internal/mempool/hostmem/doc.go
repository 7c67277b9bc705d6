// Package hostmem owns memory of the host outside the Go heap, so that the garbage
// collector neither scans nor moves it: as an [Arena], the pages of an engine's pool, and
// as a [Store], the tier of extents below the device. It never decides what is kept where.
//
// An Arena is written by the one goroutine that runs a backend; different pages may be
// touched by different goroutines at once.
//
//	arena, err := hostmem.NewArena(pageBytes, pages)
//	defer arena.Close()
//	copy(arena.Page(3), bytes)
//
//	store, err := hostmem.Open(hostmem.Config{Identity: id, Bytes: 4 << 30})
//	err = store.Submit(mempool.Op{ID: 1, Kind: mempool.Put, Extent: x, Pages: pages})
package hostmem
