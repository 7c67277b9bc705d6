package storetest

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// BenchIdentity has extents of 1 MiB in 16 pages.
func BenchIdentity() mempool.Identity {
	id := Identity()
	id.Layout = mempool.LayoutOf(16, 64<<10)
	return id
}

// Copies is what a store is measured against: the same bytes in and out, without it.
type Copies struct {
	Write, Read func(block int) // of an extent's size; called for each block in order
}

// Bench puts and gets extents in order, alternating with plain copies of as many bytes in
// as many goroutines, and reports for each direction bytes a second and, as
// write-ratio and read-ratio, the median of store over copy.
func Bench(b *testing.B, s mempool.Store, streams, extents int, plain Copies) {
	b.Helper()
	l := s.Info().Identity.Layout
	r := &rig{TB: b, store: s, layout: l, ended: map[mempool.OpID]mempool.Done{}, patience: patience}
	var xs []mempool.Extent
	for i := range extents {
		tokens := make([]kv.Token, l.ExtentTokens())
		tokens[0] = kv.Token(i)
		xs = append(xs, l.AppendExtents(nil, kv.Namespace{}, tokens, nil)...)
	}
	memory := make([][][]byte, 64) // a window of operations in flight, each with pages of its own, beyond the caches
	for i := range memory {
		memory[i] = r.content(&xs[i])
	}
	through := func(kind mempool.OpKind) time.Duration { return r.through(kind, xs, memory) }
	aside := func(copy func(block int)) time.Duration { return plainly(copy, streams, extents) }
	through(mempool.Put) // room is reserved once
	aside(plain.Write)
	var ratios [2][]float64
	var spent [2]time.Duration
	n := 0
	for b.Loop() {
		for i := range xs {
			if d := r.drop(&xs[i]); d.Err != nil {
				b.Fatal(d.Err)
			}
		}
		clear(r.ended)
		runtime.GC() // not while it is measured
		for i, step := range []struct {
			kind  mempool.OpKind
			plain func(int)
		}{{mempool.Put, plain.Write}, {mempool.Get, plain.Read}} {
			took := through(step.kind)
			ratios[i] = append(ratios[i], float64(aside(step.plain))/float64(took))
			spent[i] += took
		}
		n++
	}
	for i, name := range []string{"write", "read"} {
		slices.Sort(ratios[i])
		b.ReportMetric(ratios[i][len(ratios[i])/2], name+"-ratio")
		b.ReportMetric(float64(n*extents*l.ExtentBytes())/spent[i].Seconds()/1e6, name+"-MB/s")
	}
	b.ReportMetric(0, "ns/op")
}

// through plays one operation on each extent, as many at once as there is memory for.
func (r *rig) through(kind mempool.OpKind, xs []mempool.Extent, memory [][][]byte) time.Duration {
	r.Helper()
	begun := time.Now()
	var ids []mempool.OpID
	for i := range xs {
		if i >= len(memory) {
			if d := r.wait(ids[i-len(memory)]); d.Err != nil {
				r.Fatal(d.Err)
			}
		}
		ids = append(ids, r.submit(mempool.Op{Kind: kind, Extent: xs[i], Pages: memory[i%len(memory)]}))
	}
	for _, id := range ids {
		if d := r.wait(id); d.Err != nil {
			r.Fatal(d.Err)
		}
	}
	return time.Since(begun)
}

// plainly copies the blocks in a number of goroutines.
func plainly(copy func(block int), streams, blocks int) time.Duration {
	begun := time.Now()
	var done sync.WaitGroup
	for g := range streams {
		done.Go(func() {
			for i := g; i < blocks; i += streams {
				copy(i)
			}
		})
	}
	done.Wait()
	return time.Since(begun)
}
