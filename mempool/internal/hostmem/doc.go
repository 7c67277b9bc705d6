// Package hostmem owns the tier of extents in host memory, outside the Go heap. It never decides which extents to keep, or
// in which tier.
//
//	store, err := hostmem.Open(hostmem.Config{Identity: id, Bytes: 4 << 30})
//	err = store.Submit(mempool.Op{ID: 1, Kind: mempool.Put, Extent: x, Pages: pages})
package hostmem
