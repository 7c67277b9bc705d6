package main

import "syscall"

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
