//go:build linux || darwin

package main

import (
	"syscall"
	"time"
)

// processorTime returns the time that processors have spent in this process; 0 if it is unknown.
func processorTime() time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
