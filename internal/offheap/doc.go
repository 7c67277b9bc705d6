// Package offheap owns memory outside the Go heap, which the garbage collector neither scans nor counts, for
// the pages of an engine's pool and for weights. It never decides what the memory holds.
//
// An Arena has no locks. Different goroutines may use different pages at the same time.
//
//	a, err := offheap.NewArena(pageBytes, pages)
//	defer a.Close()
//	copy(a.Page(3), bytes)
package offheap
