//go:build !unix

package offheap

// Reserve falls back to the Go heap, whose large blocks are aligned for any type.
func Reserve(bytes int) ([]byte, error) { return make([]byte, bytes), nil }

// Release frees what Reserve returned.
func Release([]byte) error { return nil }
