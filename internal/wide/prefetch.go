package wide

import "unsafe"

// Prefetch asks for the cache line at p, so that a read of it some hundred
// instructions later need not wait. It reads nothing itself: p may be anything.
func Prefetch[T any](p *T) { prefetch(unsafe.Pointer(p)) }
