// Package hostmem owns the bytes of a page pool in ordinary host memory, outside
// the Go heap so that the garbage collector neither scans nor moves them. It
// never decides which page holds what.
//
// A store is written by the one goroutine that runs a backend; different pages
// may be touched by different goroutines at once.
//
//	store, err := hostmem.New(pageBytes, pages)
//	defer store.Close()
//	copy(store.Page(3), bytes)
package hostmem
