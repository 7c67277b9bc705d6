//go:build !amd64 && !arm64

package wide

import "unsafe"

func prefetch(unsafe.Pointer) {}
