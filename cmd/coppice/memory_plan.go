package main

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"

	"go.uber.org/zap"
)

// memoryPlan divides the memory that a server may use, in bytes.
type memoryPlan struct {
	Limit    int64 // all: of the machine, of its control group, or --max-memory; 0: unknown
	Heap     int64 // limit of the memory that Go manages; 0: none
	Requests int64 // of Heap: for open requests
	Formats  int64 // of Heap: for compiled formats
	Tight    bool  // Requests is as small as --max-body permits, and may not fit
}

// Memory that a server needs besides its Go heap and what it has mapped: the program itself, and one
// part in otherShare of the limit, for stacks of threads and buffers of the kernel.
const programBytes, otherShare = 32 << 20, 16

// Sizes for requests and formats where the memory is unknown, and the least for formats: room for the
// tables of one format.
const unknownRequests, mostFormats, leastFormats = 1 << 30, 256 << 20, 16 << 20

// heapOf returns the part of limit that Go may manage next to mapped bytes outside of the Go heap. It is
// at least an eighth of limit: a mapped pool takes memory only when it fills.
func heapOf(limit, mapped int64) int64 {
	return max(limit-mapped-programBytes-limit/otherShare, limit/8)
}

// planMemory divides limit bytes. mapped are those outside the Go heap, live those on the heap before
// the first request, body the size of the longest request body. If heap is not 0, it is the limit of
// the Go heap that the environment sets.
//
// Open requests get half of the free heap: the other half is for garbage, of which a request makes
// about as much as it keeps. A longest body can be read and decoded in any case.
func planMemory(limit, heap, mapped, live, body int64) memoryPlan {
	p := memoryPlan{Limit: limit, Heap: heap, Requests: unknownRequests, Formats: mostFormats}
	if p.Heap == 0 && limit > 0 {
		p.Heap = heapOf(limit, mapped)
	}
	if p.Heap > 0 {
		free := max(p.Heap-live, 0)
		p.Formats = min(max(free/8, leastFormats), mostFormats)
		p.Requests = (free - p.Formats) / 2
	}
	const bodies = 4 // a body takes three times its size while it is decoded, three quarters of Requests
	if least := bodies * body; p.Requests < least {
		p.Requests, p.Tight = least, true
	}
	return p
}

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
// the Go heap. body is the size of the longest request body.
func (f *memoryFlags) apply(mapped, body int64, log *zap.Logger) memoryPlan {
	var live runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&live)
	given := heapByEnvironment()
	p := planMemory(f.limit(), given, mapped, int64(live.HeapAlloc), body)
	if given == 0 && p.Heap > 0 {
		debug.SetMemoryLimit(p.Heap)
	}
	if p.Tight {
		log.Warn("little memory is left for requests: lower --kv-tokens or --max-body, or raise the limit", zap.Int64("limit", p.Limit), zap.Int64("mapped", mapped))
	}
	log.Debug("memory", zap.Int64("limit", p.Limit), zap.Int64("mapped", mapped), zap.Int64("heap", p.Heap), zap.Int64("requests", p.Requests), zap.Int64("formats", p.Formats))
	return p
}
