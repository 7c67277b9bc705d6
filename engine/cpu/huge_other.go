//go:build !linux

package cpu

// adviseHuge does nothing: this system has no madvise for huge pages.
func adviseHuge([]byte) {}
