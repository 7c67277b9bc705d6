package main

import (
	"bufio"
	"bytes"
	"cmp"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"go.uber.org/zap"
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

// memoryPlan divides the memory that a server may use, in bytes.
type memoryPlan struct {
	Limit    int64 // all: of the machine, of its control group, or --max-memory; 0: unknown
	Heap     int64 // limit of the memory that Go manages; 0: none
	Requests int64 // of Heap: for open requests
	Formats  int64 // of Heap: for compiled formats
	Texts    int64 // of Heap: for texts encoded before
	Stored   int64 // of Heap: for stored responses
	Tight    bool  // Requests is as small as --max-body permits, and may not fit
}

// Memory that a server needs besides its Go heap and what it has mapped: the program itself, and one
// part in otherShare of the limit, for stacks of threads and buffers of the kernel.
const programBytes, otherShare = 32 << 20, 16

// Sizes for requests and formats where the memory is unknown, and the least for formats: room for the
// tables of one format. leastTexts is room for some conversations, here and in stored responses.
const unknownRequests, mostFormats, leastFormats, leastTexts = 1 << 30, 256 << 20, 16 << 20, 4 << 20

// heapOf returns the part of limit that Go may manage next to mapped bytes outside of the Go heap. It is
// at least an eighth of limit: a mapped pool takes memory only when it fills.
func heapOf(limit, mapped int64) int64 {
	return max(limit-mapped-programBytes-limit/otherShare, limit/8)
}

// planMemory divides limit bytes. mapped are those outside the Go heap, live those on the heap before
// the first request, body the size of the longest request body. If heap is not 0, it is the limit of
// the Go heap that the environment sets. texts is the most for texts encoded before, stored for stored responses.
//
// Open requests get half of the free heap: the other half is for garbage, of which a request makes
// about as much as it keeps. A longest body can be read and decoded in any case.
func planMemory(limit, heap, mapped, live, body, texts, stored int64) memoryPlan {
	p := memoryPlan{Limit: limit, Heap: heap, Requests: unknownRequests, Formats: mostFormats, Texts: texts, Stored: stored}
	if p.Heap == 0 && limit > 0 {
		p.Heap = heapOf(limit, mapped)
	}
	if p.Heap > 0 {
		free := max(p.Heap-live, 0)
		p.Formats = min(max(free/8, leastFormats), mostFormats)
		p.Texts = min(max(free/32, leastTexts), texts)
		p.Stored = min(max(free/32, leastTexts), stored)
		p.Requests = (free - p.Formats - p.Texts - p.Stored) / 2
	}
	const bodies = 4 // a body takes three times its size while it is decoded, three quarters of Requests
	if least := bodies * body; p.Requests < least {
		p.Requests, p.Tight = least, true
	}
	return p
}

// textBytes returns Texts as a configuration has it: -1 for none.
func (p *memoryPlan) textBytes() int { return cmp.Or(int(p.Texts), -1) }

// heapByEnvironment returns GOMEMLIMIT in bytes; 0 if it is not set.
func heapByEnvironment() int64 {
	if os.Getenv("GOMEMLIMIT") == "" {
		return 0
	}
	if n := debug.SetMemoryLimit(-1); n < math.MaxInt64 { // a negative number reads it
		return n
	}
	return 0
}

// memoryFlags bound the memory of a server.
type memoryFlags struct {
	TextCache byteSize `name:"text-cache" default:"64MiB" placeholder:"SIZE" help:"Most memory for the tokens of earlier prompts: the next turn of a conversation encodes its new text alone. 0 switches it off. Where little memory is free, a 32nd of it."`
	MaxMemory byteSize `name:"max-memory" placeholder:"SIZE" help:"Memory that the server may use. Default: the limit of the control group, or else the machine's memory. It bounds the Go heap (GOMEMLIMIT replaces that bound) and what open requests keep; weights and KV are set by the model and --kv-tokens."`
}

// limit returns the memory that the server may use; 0 if unknown.
func (f *memoryFlags) limit() int64 {
	if f.MaxMemory > 0 {
		return int64(f.MaxMemory)
	}
	return memoryBytes()
}

// apply divides the memory of this process, with mapped bytes outside the Go heap, and sets the limit of
// the Go heap. body is the size of the longest request body, stored the most for stored responses.
func (f *memoryFlags) apply(mapped, body, stored int64, log *zap.Logger) memoryPlan {
	var live runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&live)
	set := heapByEnvironment()
	p := planMemory(f.limit(), set, mapped, int64(live.HeapAlloc), body, int64(f.TextCache), stored)
	if set == 0 && p.Heap > 0 {
		debug.SetMemoryLimit(p.Heap)
	}
	if p.Tight {
		log.Warn("little memory is left for requests: lower --kv-tokens or --max-body, or raise the limit", zap.Int64("limit", p.Limit), zap.Int64("mapped", mapped))
	}
	log.Debug("memory", zap.Int64("limit", p.Limit), zap.Int64("mapped", mapped), zap.Int64("heap", p.Heap), zap.Int64("requests", p.Requests), zap.Int64("formats", p.Formats), zap.Int64("texts", p.Texts), zap.Int64("stored", p.Stored))
	return p
}
