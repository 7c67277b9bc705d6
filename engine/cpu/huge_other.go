//go:build !linux

package cpu

// adviseHuge does nothing where there is no such advice.
func adviseHuge([]byte) {}
