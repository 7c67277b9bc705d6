//go:build !linux

package wide

func advise([]uint32) {}
