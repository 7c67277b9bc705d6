//go:build !unix

package hostmem

// reserve falls back to the Go heap, whose large blocks are aligned for any type.
func reserve(bytes int) ([]byte, error) { return make([]byte, bytes), nil }

func release([]byte) error { return nil }
