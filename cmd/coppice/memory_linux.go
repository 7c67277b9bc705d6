package main

import (
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// memoryBytes returns the memory that this process may use, in bytes: that of the machine,
// or the limit of its control group if that is lower; 0 if unknown.
func memoryBytes() int64 {
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return 0
	}
	most := int64(min(uint64(info.Totalram)*uint64(info.Unit), math.MaxInt64))
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil && limit > 0 {
			most = min(most, limit)
		}
	}
	return most
}
