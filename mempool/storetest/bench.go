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

// BenchIdentity returns an identity whose extents are 1 MiB in 16 pages.
func BenchIdentity() mempool.Identity {
	id := Identity()
	id.Layout = mempool.LayoutOf(16, 64<<10)
	return id
}

// Copies writes and reads the bytes of a Bench without the store, for comparison.
type Copies struct {
	Write, Read func(block int) // copies a block of an extent's size; blocks come in order
}

// Bench puts and then gets as many extents as extents says, at least 64, in order. It alternates
// with copies of as many bytes by plain, in as many goroutines as streams says. For puts and for
// gets it reports the store's MB/s and, as write-ratio and read-ratio, the median of the store's
// speed divided by that of plain.
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
	memory := make([][][]byte, 64) // pages of the 64 operations in flight: 64 MiB, more than the caches hold
	for i := range memory {
		memory[i] = r.content(&xs[i])
	}
	through := func(kind mempool.OpKind) time.Duration { return r.through(kind, xs, memory) }
	aside := func(copy func(block int)) time.Duration { return plainly(copy, streams, extents) }
	through(mempool.Put) // lets the store allocate its room before the measurement
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
		runtime.GC() // now, so that it does not run during the measurement
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

// through runs one operation of a kind on each of xs and returns the total time. memory has pages
// for each operation that may be open at a time.
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

// plainly calls copy for each block from 0 to blocks-1, in as many goroutines as streams says, and
// returns the total time.
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
