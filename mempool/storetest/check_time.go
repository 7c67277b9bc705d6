package storetest

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
)

// stuck waits until a call hangs in a planted Slow fault.
func (r *rig) stuck() {
	r.Helper()
	select {
	case <-r.opts.Inject.Stuck():
	case <-time.After(r.patience):
		r.Fatal("no call became slow")
	}
}

// hang cancels an operation, as late, while a call of it hangs.
func (r *rig) hang(op mempool.Op) {
	r.Helper()
	id := r.submit(op)
	r.stuck()
	r.store.Cancel(id, mempool.ErrDeadline)
	r.expect(r.wait(id), mempool.ErrDeadline)
}

// checkWhole checks that an extent is not visible to any operation while it is being written.
func checkWhole(r *rig) {
	in := r.opts.Inject
	x := r.chain("a", 0, 16)[0]
	in.Plant(blockio.Write, blockio.Slow, 1, false)
	id := r.beginPut(&x)
	r.stuck()
	if r.has(&x) {
		r.Error("an extent that is being written can be found")
	}
	r.expect(r.tryGet(&x), mempool.ErrMiss)
	if m := r.store.Metrics(); m.Extents != 0 {
		r.Errorf("an extent that is being written is counted:\n%v", m)
	}
	if len(r.store.Contents(nil)) != 0 {
		r.Error("an extent that is being written is listed")
	}
	in.Clear()
	if d := r.wait(id); d.Err != nil {
		r.Fatal(d.Err)
	}
	r.get(x)
	r.balance(1)
}

// checkDeadline checks that an operation that is canceled as late ends so, that its pages belong to
// the caller again at once, and that it leaves no trace in the store.
func checkDeadline(r *rig) {
	in := r.opts.Inject
	xs := r.chain("a", 0, 48)
	r.put(xs[0])
	id := r.beginPut(&xs[1])
	r.store.Cancel(id, mempool.ErrDeadline)
	if d := r.wait(id); d.Err == nil {
		r.drop(&xs[1]) // it had ended before
	} else {
		r.expect(d, mempool.ErrDeadline)
	}
	r.balance(1)

	// Every write must hang, not only the next: a worker may still write for the previous put.
	in.Plant(blockio.Write, blockio.Slow, 1, true)
	pages, mine := r.content(&xs[1]), xs[1].Clone()
	r.hang(mempool.Op{Kind: mempool.Put, Extent: mine, Pages: pages})
	for _, p := range pages {
		clear(p) // the caller owns the pages again
	}
	in.Clear()
	for i := range mine.Tokens { // and the extent; the race detector sees a store that still reads it
		mine.Tokens[i] = 0
	}
	r.expect(r.tryPut(&xs[2]), mempool.ErrOrphan)
	if r.has(&xs[1]) {
		r.Error("a put that ended after its deadline is in the store")
	}
	r.put(xs[1:]...)
	r.get(xs...)

	in.Plant(blockio.Read, blockio.Slow, 1, true)
	pages = r.memory(&xs[1])
	r.hang(mempool.Op{Kind: mempool.Get, Extent: xs[1], Pages: pages})
	in.Clear()
	r.get(xs...) // with few workers, these run after the abandoned read has ended
	for _, p := range pages {
		for _, b := range p {
			if b != 0 {
				r.Fatal("the store wrote to pages that it had returned to the caller")
			}
		}
	}
	r.balance(3)
}

// checkNoAnswer checks, for each kind of call before an operation takes effect, that operations whose
// calls never return end when they are canceled, however many they are, that the store answers
// questions meanwhile, and that it works as before when the calls return.
func checkNoAnswer(r *rig) {
	before := r.chain("before", 0, 48)
	r.put(before...)
	for _, p := range []blockio.Point{blockio.Read, blockio.Write, blockio.Create, blockio.Lookup, blockio.Close} {
		if !slices.Contains(r.h.Faults, p) {
			continue
		}
		r.opts.Inject.Plant(p, blockio.Slow, 1, true)
		var ids []mempool.OpID
		for n := range 2 * r.opts.Workers {
			x := r.chain(p.String(), 100*n, 16)[0]
			ids = append(ids, r.beginPut(&x),
				r.submit(mempool.Op{Kind: mempool.Get, Extent: before[1], Pages: r.memory(&before[1])}),
				r.submit(mempool.Op{Kind: mempool.Probe, Extent: before[0], Then: []mempool.Key{before[1].Key}}))
		}
		if p != blockio.Create { // a store that has room creates nothing
			r.stuck()
		}
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			r.store.Metrics()
			r.store.Info()
			r.store.Contents(nil)
		}()
		select {
		case <-asked:
		case <-time.After(r.patience):
			r.Fatalf("a question to a store that %s does not end", p)
		}
		for _, id := range ids {
			r.store.Cancel(id, mempool.ErrDeadline)
		}
		for _, id := range ids {
			if d := r.wait(id); d.Err != nil {
				r.expect(d, mempool.ErrDeadline)
			}
		}
		r.opts.Inject.Clear()
		r.get(before...)
		again := r.chain("again "+p.String(), 0, 16)
		r.put(again...)
		r.get(again...)
	}
}

// checkGivenUp checks that a read which fails after its operation has ended leaves the extent
// to the next read: only that one can report it as gone.
func checkGivenUp(r *rig) {
	r.close()
	r.opts.Workers = 1 // then the next operation begins after the abandoned read
	r.open()
	xs := r.chain("a", 0, 48)
	r.put(xs...)
	r.opts.Inject.Plant(blockio.Read, blockio.SlowError, 1, false)
	r.hang(mempool.Op{Kind: mempool.Get, Extent: xs[1], Pages: r.memory(&xs[1])})
	r.opts.Inject.Clear()
	r.put(r.chain("b", 0, 16)...) // the abandoned read has ended
	if !r.has(&xs[1]) {
		r.Error("an extent is gone, and no operation has reported it")
	}
}

// checkCancel cancels operations that wait and operations that run.
func checkCancel(r *rig) {
	in := r.opts.Inject
	xs := r.chain("a", 0, 64)
	r.put(xs[0])
	in.Plant(blockio.Write, blockio.Slow, 1, true)
	var ids []mempool.OpID
	for i := range xs[1:] {
		ids = append(ids, r.beginPut(&xs[1+i]))
	}
	for range 20 { // more operations than workers
		ids = append(ids, r.beginPut(&r.chain("b", int(r.last), 16)[0]))
	}
	r.stuck()
	for _, id := range ids {
		r.store.Cancel(id, mempool.ErrCanceled)
	}
	for _, id := range ids {
		r.expect(r.wait(id), mempool.ErrCanceled)
		r.store.Cancel(id, mempool.ErrCanceled) // a second time, after the end
	}
	in.Clear()
	r.put(xs[1:]...)
	r.get(xs...)
	r.balance(4)
}

// checkBusy checks that MaxOps operations may be open, and that the next one is refused.
func checkBusy(r *rig) {
	in := r.opts.Inject
	in.Plant(blockio.Write, blockio.Slow, 1, true)
	most := r.store.Info().MaxOps
	ids := r.beginPuts(most)
	x := r.chain("b", 0, 16)[0]
	if err := r.store.Submit(mempool.Op{ID: 5000, Kind: mempool.Put, Extent: x, Pages: r.content(&x)}); !errors.Is(err, mempool.ErrBusy) {
		r.Errorf("operation %d: %v", most+1, err)
	}
	in.Clear()
	fit := 0
	for _, id := range ids {
		if d := r.wait(id); d.Err == nil {
			fit++
		} else {
			r.expect(d, mempool.ErrFull)
		}
	}
	r.balance(fit)
}

// checkClose checks that Close ends waiting and running operations, and that later ones are
// refused.
func checkClose(r *rig) {
	in := r.opts.Inject
	in.Plant(blockio.Write, blockio.Slow, 1, true)
	ids := r.beginPuts(12)
	r.stuck()
	closed := make(chan error, 1)
	var closing sync.WaitGroup
	closing.Go(func() { closed <- r.store.Close() })
	defer closing.Wait() // in case the check fails before Close returns
	defer in.Clear()
	last := r.wait(ids[len(ids)-1]) // it was waiting, so Close ends it although others are stuck
	r.expect(last, mempool.ErrClosed)
	in.Clear()
	if err := <-closed; err != nil {
		r.Error(err)
	}
	for _, id := range ids {
		if d := r.wait(id); d.Err != nil {
			r.expect(d, mempool.ErrClosed)
		}
	}
	x := r.chain("b", 0, 16)[0]
	if err := r.store.Submit(mempool.Op{ID: 5000, Kind: mempool.Put, Extent: x, Pages: r.content(&x)}); !errors.Is(err, mempool.ErrClosed) {
		r.Error(err)
	}
}
