package main

import (
	"math"
	"os"
	"syscall"
)

// clockSync reports whether the kernel considers its clock synchronised: "yes", "no" or "unknown".
func clockSync() string {
	const unsynchronised = 0x40 // STA_UNSYNC of adjtimex(2)
	var t syscall.Timex         // Modes is 0: read only
	if _, err := syscall.Adjtimex(&t); err != nil {
		return "unknown" // a sandbox may forbid the call
	}
	if t.Status&unsynchronised != 0 {
		return "no"
	}
	return "yes"
}

// readMemory returns the memory of this machine and of this process's control group.
func readMemory() memory {
	m := memoryOf(os.DirFS("/"))
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err == nil {
		m.Total = int64(min(uint64(info.Totalram)*uint64(info.Unit), math.MaxInt64))
	}
	return m
}
