package main

import (
	"math"
	"os"
	"syscall"
)

// readMemory returns the memory of this machine and of this process's control group.
func readMemory() memory {
	m := memoryOf(os.DirFS("/"))
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err == nil {
		m.Total = int64(min(uint64(info.Totalram)*uint64(info.Unit), math.MaxInt64))
	}
	return m
}
