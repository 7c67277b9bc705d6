//go:build amd64 || arm64

package wide

import "unsafe"

// prefetch is in assembly, as Go has no word for it.
//
//go:noescape
func prefetch(p unsafe.Pointer)
