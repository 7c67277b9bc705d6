package storetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
)

// checkFaults plants each fault at each kind of call, once and permanently. Whichever call fails,
// no wrong byte may be read, every operation ends, the accounts balance, and the store works
// again after the fault.
func checkFaults(r *rig) {
	r.close()
	for _, p := range r.h.Faults {
		faults, calls := []blockio.Fault{blockio.ShortRead, blockio.FlipBit, blockio.NoSpace, blockio.IOError, blockio.NoEntry}, []int{1, 4}
		if p > blockio.Write { // other calls move no bytes, and there are few of them
			faults, calls = faults[2:4], calls[:1]
		}
		if p == blockio.Lookup {
			faults = []blockio.Fault{blockio.NoFiles, blockio.Stale, blockio.IOError, blockio.Refused}
		}
		for _, f := range faults {
			for _, nth := range calls {
				for _, forever := range []bool{false, true} {
					r.sub(fmt.Sprintf("%s/%s/%d/forever=%v", p, f, nth, forever), func(s *rig) { s.faulty(p, f, nth, forever) })
				}
			}
		}
	}
	r.open()
}

func (r *rig) faulty(p blockio.Point, f blockio.Fault, nth int, forever bool) {
	r.Helper()
	in := r.opts.Inject
	before := r.chain("before", 0, 48)
	r.put(before...)
	in.Plant(p, f, nth, forever)
	xs := r.chain("a", 0, 64+8)
	var present []mempool.Extent
	for i := range xs {
		if d := r.tryPut(&xs[i]); d.Err == nil {
			present = append(present, xs[i])
		} else if i > len(present) && p != blockio.Lookup { // else the look at the parent fails
			r.expect(d, mempool.ErrOrphan)
		}
	}
	if p == blockio.Read || p == blockio.Lookup || p == blockio.Close || f == blockio.FlipBit { // these faults show only in reads, which may fail
		for _, x := range slices.Concat(before, present) {
			r.tryGet(&x)
		}
	} else {
		r.get(before...)
		r.get(present...)
	}
	r.do(mempool.Op{Kind: mempool.Flush})
	for _, x := range slices.Backward(present) {
		r.drop(&x)
	}
	in.Clear()
	// Each extent can either be read or is gone, and the store counts those that can be read.
	n := 0
	for _, x := range slices.Concat(before, xs) {
		if r.tryGet(&x).Err == nil {
			n++
		}
	}
	r.balance(n)
	again := r.chain("again", 0, 48)
	r.put(again...)
	r.get(again...)
	if r.h.Durable {
		r.reopen()
		for _, x := range slices.Concat(before, xs) {
			r.tryGet(&x)
		}
		r.get(again...)
	}
}

// checkReadOnce checks that a failed read is a miss at once: the store reports the extent and its
// descendants as gone, and does not read again.
func checkReadOnce(r *rig) {
	for _, f := range []blockio.Fault{blockio.ShortRead, blockio.FlipBit, blockio.IOError, blockio.NoEntry} {
		xs := r.chain(f.String(), 0, 64)
		r.put(xs...)
		in := r.opts.Inject
		in.Plant(blockio.Read, f, 1, false)
		d := r.tryGet(&xs[1])
		if d.Err == nil || in.Hits() != 1 {
			r.Errorf("%s: %v, %d hits", f, d.Err, in.Hits())
		}
		if !r.store.Info().Shared {
			if want := []mempool.Key{xs[3].Key, xs[2].Key, xs[1].Key}; !slices.Equal(d.Gone, want) {
				r.Errorf("%s: lost extents %v, want %v", f, d.Gone, want)
			}
		} else if !slices.Contains(d.Gone, xs[1].Key) {
			r.Errorf("%s: lost extents %v", f, d.Gone)
		}
		in.Clear()
		r.expect(r.tryGet(&xs[1]), mempool.ErrMiss)
		r.get(xs[0])
		r.put(xs...)
		r.get(xs...)
		r.remove(xs...)
	}
	r.balance(0)
}

// asked is a Get with its pages.
type asked struct {
	x     mempool.Extent
	pages [][]byte
}

// checkConcurrent uses the store from many goroutines, while one polls. They put, read and drop
// the same extents. One chain is put at the start and only read.
func checkConcurrent(r *rig) {
	r.put(r.chain("kept", 0, 48)...)
	gets, accepted := r.many()
	var ended []mempool.Done
	limit := time.NewTimer(r.patience)
	defer limit.Stop()
	for ended = r.store.Poll(nil); len(ended) < accepted; ended = r.store.Poll(ended) {
		select {
		case <-r.store.Ready():
		case <-limit.C:
			r.Fatalf("after %d of %d operations, the next one does not end", len(ended), accepted)
		}
	}
	once := map[mempool.OpID]bool{}
	for _, d := range ended {
		if once[d.ID] {
			r.Errorf("operation %d ended twice", d.ID)
		}
		once[d.ID] = true
		if a, ok := gets[d.ID]; ok && d.Err == nil {
			same(r, a.pages, r.content(&a.x))
		}
	}
	all := slices.Concat(r.chain("kept", 0, 48), r.chain("0", 0, 48), r.chain("1", 0, 48), r.chain("2", 0, 48))
	r.get(all[:3]...)
	n := 0
	for i := range all {
		if r.tryGet(&all[i]).Err == nil {
			n++
		}
	}
	r.balance(n)
}

// many submits operations of all kinds from several goroutines. It returns the Gets and the
// number of operations that the store accepted.
func (r *rig) many() (gets map[mempool.OpID]asked, accepted int) {
	const goroutines, each = 6, 40
	gets = map[mempool.OpID]asked{}
	var begun sync.WaitGroup
	var mu sync.Mutex
	for g := range goroutines {
		begun.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 5))
			for i := range each {
				op := mempool.Op{ID: mempool.OpID(1_000_000*(g+1) + i), Kind: mempool.OpKind(rng.IntN(5))}
				salt := fmt.Sprint(rng.IntN(3))
				if op.Kind == mempool.Get && i%2 == 0 {
					salt = "kept"
				}
				chain := r.chain(salt, 0, 48)
				op.Extent = chain[rng.IntN(len(chain))]
				switch op.Kind {
				case mempool.Put:
					op.Pages = r.content(&op.Extent)
				case mempool.Get:
					op.Pages = r.memory(&op.Extent)
					mu.Lock()
					gets[op.ID] = asked{op.Extent, op.Pages}
					mu.Unlock()
				}
				if err := r.store.Submit(op); err == nil {
					mu.Lock()
					accepted++
					mu.Unlock()
				} else if !errors.Is(err, mempool.ErrBusy) {
					r.Error(err)
				}
				if rng.IntN(8) == 0 {
					r.store.Cancel(op.ID, mempool.ErrCanceled)
				}
				r.store.Metrics()
			}
		})
	}
	begun.Wait()
	return gets, accepted
}

// checkRandom runs random operations one by one and compares each with a model: the set of
// extents in the store.
func checkRandom(r *rig) {
	rng := rand.New(rand.NewPCG(7, 7))
	in := map[mempool.Key]mempool.Extent{}
	for range 400 {
		chain := r.chain(fmt.Sprint(rng.IntN(4)), rng.IntN(2), 16*(1+rng.IntN(3))+4*rng.IntN(4))
		x := chain[rng.IntN(len(chain))]
		_, have := in[x.Key]
		_, parent := in[x.Parent]
		switch rng.IntN(4) {
		case 0, 1:
			d := r.tryPut(&x)
			if have || d.Err == nil && (parent || x.Parent.IsZero()) {
				in[x.Key] = x
			} else if !errors.Is(d.Err, mempool.ErrFull) && !errors.Is(d.Err, mempool.ErrOrphan) {
				r.Fatalf("put: %v", d.Err)
			}
		case 2:
			if d := r.tryGet(&x); have != (d.Err == nil) {
				r.Fatalf("get of a stored extent (%v): %v", have, d.Err)
			}
		case 3:
			d := r.drop(&x)
			children := false
			for _, y := range in {
				children = children || y.Parent == x.Key
			}
			if (d.Err == nil) != (have && !children) {
				r.Fatalf("drop of a stored extent (%v, children %v): %v", have, children, d.Err)
			}
			if d.Err == nil {
				delete(in, x.Key)
			}
		}
		r.balance(len(in))
	}
}

// checkReopen checks that a reopened store has the extents that were put, listed parents first,
// and not those that were dropped.
func checkReopen(r *rig) {
	xs := r.chain("a", 0, 64+12)
	ys := r.chain("b", 0, 32)
	r.put(xs...)
	r.put(ys...)
	r.remove(ys[1])
	for range 3 {
		r.reopen()
		if !r.store.Info().Shared {
			r.balance(6)
			seen := map[mempool.Key]bool{{}: true}
			for _, x := range r.store.Contents(nil) {
				if !seen[x.Parent] {
					r.Error("a child comes before its parent")
				}
				seen[x.Key] = true
			}
			if len(seen) != 7 {
				r.Errorf("%d extents are listed", len(seen)-1)
			}
		}
		r.get(xs...)
		r.get(ys[0])
		r.expect(r.tryGet(&ys[1]), mempool.ErrMiss)
	}
}

// checkReopenFewer reopens a store with half the capacity. It must keep extents that fit, none of
// them without its parent.
func checkReopenFewer(r *rig) {
	var all []mempool.Extent
	for i := range r.opts.Extents / 4 {
		xs := r.chain(fmt.Sprint(i), 0, 64)
		r.put(xs...)
		all = append(all, xs...)
	}
	r.opts.Extents /= 2
	r.reopen()
	r.flush()
	n := 0
	for i := range all {
		if r.tryGet(&all[i]).Err == nil {
			if n++; i%4 > 0 && !r.has(&all[i-1]) {
				r.Error("an extent is in the store without its parent")
			}
		}
	}
	if n == 0 || n > r.opts.Extents {
		r.Errorf("%d extents are left in a store of %d", n, r.opts.Extents)
	}
}

// checkOther checks that records of another model or version are not served, not removed, and
// listed in StoreInfo.Others.
func checkOther(r *rig) {
	mine := r.opts.Identity
	xs := r.chain("a", 0, 48)
	r.put(xs...)
	r.close()
	for i, change := range []func(*mempool.Identity){
		func(id *mempool.Identity) { id.ModelID += "2" },
		func(id *mempool.Identity) { id.NumericsID += "2" },
		func(id *mempool.Identity) { id.KVType++ },
		func(id *mempool.Identity) { id.Layout.PageBytes *= 2 },
		func(id *mempool.Identity) { id.PageLayout = "other" },
	} {
		r.opts.Identity = mine
		change(&r.opts.Identity)
		r.layout = r.opts.Identity.Layout
		r.open()
		ys := r.chain("a", 0, 48)
		r.expect(r.tryGet(&ys[0]), mempool.ErrMiss)
		r.put(ys...)
		r.get(ys...)
		others := r.store.Info().Others
		if fp := mine.Fingerprint().String(); len(others) != i+1 || !slices.Contains(others, fp) {
			r.Errorf("others are %v, want also %s", others, fp)
		}
		r.close()
	}
	r.opts.Identity, r.layout = mine, mine.Layout
	r.open()
	r.get(xs...)
}

// checkDamage flips bits of the files, truncates them and extends them. The store must open and
// work, and serve no wrong byte.
func checkDamage(r *rig) {
	rng := rand.New(rand.NewPCG(3, 9))
	xs := r.chain("a", 0, 64)
	for round := range 12 {
		r.put(xs...)
		r.close()
		damage(r, r.opts.Dir, rng, round)
		r.open()
		for i := range xs {
			r.tryGet(&xs[i])
		}
	}
	r.put(xs...)
	r.get(xs...)
}

func damage(t testing.TB, dir string, rng *rand.Rand, round int) {
	t.Helper()
	files := filesOf(t, dir)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		b := files[path]
		switch at := rng.IntN(len(b) + 1); {
		case rng.IntN(2) == 0:
			continue
		case round%3 == 0: // bits, in headers and pages
			for range min(4, len(b)) {
				b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
			}
		case round%3 == 1:
			b = b[:at]
		default:
			b = append(b, make([]byte, 1+rng.IntN(8192))...)
		}
		if err := os.WriteFile(path, b, blockio.FileMode); err != nil {
			t.Fatal(err)
		}
	}
}
