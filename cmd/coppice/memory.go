package main

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// memory describes the memory of the machine and of this process's control group, in bytes. 0
// means unknown, for a limit also none.
type memory struct {
	Total     int64 // of the machine
	Available int64 // of the machine: free, or held by caches that the kernel can drop

	Limit int64  // the lowest limit of the control group and the groups above it
	Used  int64  // by the group with that limit, without file caches that the kernel can drop
	Group string // that group's directory
}

// memoryBytes returns the memory that this process may use, in bytes: that of the machine,
// or the limit of its control group if that is lower; 0 if unknown.
func memoryBytes() int64 { return readMemory().most() }

// most returns the memory that this process may use if no other process uses any; 0 if unknown.
func (m memory) most() int64 {
	if m.Limit > 0 && (m.Total == 0 || m.Limit < m.Total) {
		return m.Limit
	}
	return m.Total
}

// free returns the memory that this process can still get; 0 if unknown.
func (m memory) free() int64 {
	free := m.Available
	if m.Limit > 0 && (free == 0 || m.Limit-m.Used < free) {
		free = max(m.Limit-m.Used, 1)
	}
	return free
}

// memoryOf reads the available memory and the control group's limit from the files of a Linux
// system.
func memoryOf(root fs.FS) memory {
	m := memory{Available: numberAfter(root, "proc/meminfo", "MemAvailable:") << 10}
	for _, g := range memoryGroups(root) {
		limit := number(root, path.Join(g.dir, g.limit))
		if limit <= 0 || limit >= math.MaxInt64&^0xFFFF || m.Limit > 0 && limit >= m.Limit {
			continue // v1 writes the largest multiple of a page where there is no limit; pages have up to 64 KiB
		}
		m.Limit, m.Group = limit, "/"+g.dir
		m.Used = max(number(root, path.Join(g.dir, g.used))-numberAfter(root, path.Join(g.dir, "memory.stat"), g.cache), 0)
	}
	return m
}

// memoryGroup is the directory of a control group, with the names that its version has for the
// limit, the use and the droppable file caches.
type memoryGroup struct{ dir, limit, used, cache string }

// memoryGroups returns the control groups that bound the memory of this process, from its own up to
// the root, of version 1 and 2. Directories may be missing: in a container the path of the group can
// be that of the host.
func memoryGroups(root fs.FS) []memoryGroup {
	v1 := memoryGroup{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
	v2 := memoryGroup{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"}
	var groups []memoryGroup
	up := func(g memoryGroup, at string) {
		base := g.dir
		for at = path.Clean("/" + at); ; at = path.Dir(at) {
			g.dir = path.Join(base, at)
			groups = append(groups, g)
			if at == "/" {
				return
			}
		}
	}
	data, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		up(v1, "/")
		up(v2, "/")
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3) // number:controllers:path
		switch {
		case len(fields) < 3:
		case fields[1] == "":
			up(v2, fields[2])
		case strings.Contains(","+fields[1]+",", ",memory,"):
			up(v1, fields[2])
		}
	}
	return groups
}

// number returns the number in a file; 0 if there is none.
func number(root fs.FS, file string) int64 {
	data, _ := fs.ReadFile(root, file)
	n, err := strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// numberAfter returns the number that follows a word at the beginning of a line of a file; 0 if
// there is none.
func numberAfter(root fs.FS, file, word string) int64 {
	data, _ := fs.ReadFile(root, file)
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == word {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			return n
		}
	}
	return 0
}
