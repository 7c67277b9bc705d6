package storetest

import (
	"errors"
	"slices"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

func checkRoundTrip(r *rig) {
	xs := r.chain("a", 0, 16*3+8) // three full extents and a tail
	other := r.chain("b", 0, 32)  // the same tokens in another namespace
	media := r.layout.AppendExtents(nil, kv.Namespace{}, make([]kv.Token, 32), []kv.Media{{At: 14, Tokens: 6, Hash: 3}})
	r.put(xs...)
	r.put(other...)
	r.put(media...)
	for _, chain := range [][]mempool.Extent{xs, other, media} {
		r.get(chain...)
		for i := range chain {
			if !r.has(&chain[i]) {
				r.Errorf("extent %d is not in the store", i)
			}
		}
	}
	if d := r.tryPut(&xs[1]); d.Err != nil || d.Bytes != 0 {
		r.Errorf("a second put: %+v", d)
	}
	r.flush()
	r.balance(8)
	for _, chain := range [][]mempool.Extent{xs, other, media} {
		r.remove(chain...)
		for i := range chain {
			r.expect(r.tryGet(&chain[i]), mempool.ErrMiss)
		}
	}
	r.balance(0)
	r.put(xs...)
	r.get(xs...)
}

// checkPart reads the first 1 to 4 pages of an extent. The sum is that of the whole extent.
func checkPart(r *rig) {
	x := r.chain("a", 0, 16)[0]
	r.put(x)
	for pages := 1; pages <= 4; pages++ {
		part := x
		part.Tokens = x.Tokens[:4*pages]
		got := r.memory(&part)
		d := r.do(mempool.Op{Kind: mempool.Get, Extent: part, Pages: got})
		if d.Err != nil || d.Sum != r.sum(&x) {
			r.Fatalf("%d pages: %+v", pages, d)
		}
		same(r, got, r.content(&x)[:pages])
	}
}

// checkProbe checks that one Probe counts how many extents of a sequence the store has without a
// gap.
func checkProbe(r *rig) {
	xs := r.chain("a", 0, 16*4+8)
	var then []mempool.Key
	for i := range xs[1:] {
		then = append(then, xs[i+1].Key)
	}
	probe := func(want int) {
		r.Helper()
		d := r.do(mempool.Op{Kind: mempool.Probe, Extent: xs[0], Then: then})
		if d.Found != want || (d.Err == nil) != (want > 0) {
			r.Errorf("%d extents are found, want %d: %v", d.Found, want, d.Err)
		}
	}
	probe(0)
	for i := range xs {
		r.put(xs[i])
		probe(i + 1)
	}
	for i := len(xs) - 1; i >= 0; i-- {
		r.remove(xs[i])
		probe(i)
	}
	r.expect(r.do(mempool.Op{Kind: mempool.Probe, Extent: xs[0], Then: then}), mempool.ErrMiss)
}

// checkIdentity checks that a Get compares the whole extent, not only its key: one with other
// tokens, namespace, media or position misses.
func checkIdentity(r *rig) {
	x := r.chain("a", 0, 16)[0]
	r.put(x)
	for _, change := range []func(*mempool.Extent){
		func(y *mempool.Extent) { y.Tokens = slices.Clone(y.Tokens); y.Tokens[15]++ },
		func(y *mempool.Extent) { y.Namespace.Salt = "b" },
		func(y *mempool.Extent) { y.Namespace.LoRA = "b" },
		func(y *mempool.Extent) { y.Media = []kv.Media{{At: 1, Tokens: 1, Hash: 1}} },
		func(y *mempool.Extent) { y.Start = 16; y.Parent = y.Key },
	} {
		y := x
		change(&y)
		r.expect(r.do(mempool.Op{Kind: mempool.Get, Extent: y, Pages: r.memory(&y)}), mempool.ErrMiss)
	}
	r.get(x)
}

func checkOrder(r *rig) {
	xs := r.chain("a", 0, 64)
	r.expect(r.tryPut(&xs[1]), mempool.ErrOrphan)
	r.balance(0)
	// Each parent's put is submitted before its child's, without waiting for its end.
	var ids []mempool.OpID
	for i := range xs {
		ids = append(ids, r.beginPut(&xs[i]))
	}
	for _, id := range ids {
		if d := r.wait(id); d.Err != nil {
			r.Error(d.Err)
		}
	}
	r.get(xs...)
	for i := range xs[:3] {
		r.expect(r.drop(&xs[i]), mempool.ErrChildren)
	}
	r.get(xs...)
	r.balance(4)
	tail := r.chain("t", 0, 8)[0]
	r.put(tail)
	below := mempool.Extent{Namespace: tail.Namespace, Parent: tail.Key, Start: 16, Tokens: xs[1].Tokens}
	if err := r.store.Submit(mempool.Op{ID: 1000, Kind: mempool.Put, Extent: below, Pages: r.content(&below)}); !errors.Is(err, mempool.ErrInvalid) {
		r.Errorf("an extent with a wrong key: %v", err)
	}
	r.remove(xs...)
	r.balance(1)
}

func checkRefused(r *rig) {
	x := r.chain("a", 0, 16)[0]
	for what, op := range map[string]mempool.Op{
		"a page too few":      {Kind: mempool.Put, Extent: x, Pages: r.content(&x)[:3]},
		"a page too long":     {Kind: mempool.Put, Extent: x, Pages: [][]byte{make([]byte, 1021), make([]byte, 1020), make([]byte, 1020), make([]byte, 1020)}},
		"no tokens":           {Kind: mempool.Get, Extent: mempool.Extent{Key: x.Key}},
		"part of a page":      {Kind: mempool.Get, Extent: mempool.Extent{Key: x.Key, Tokens: x.Tokens[:3]}, Pages: r.memory(&x)[:1]},
		"no extent to drop":   {Kind: mempool.Drop},
		"an unknown kind":     {Kind: 99, Extent: x},
		"a key of other text": {Kind: mempool.Put, Extent: mempool.Extent{Key: x.Key, Tokens: make([]kv.Token, 16)}, Pages: r.content(&x)},
	} {
		op.ID = 99
		if err := r.store.Submit(op); !errors.Is(err, mempool.ErrInvalid) {
			r.Errorf("%s: %v", what, err)
		}
	}
	r.expect(r.tryGet(&x), mempool.ErrMiss)
	r.expect(r.drop(&x), mempool.ErrMiss)
	if r.has(&x) {
		r.Error("found an extent that was never put")
	}
	r.store.Cancel(12345, mempool.ErrCanceled)
	r.balance(0)
}

// checkCapacity checks that a full store refuses puts, and has room again after a drop.
func checkCapacity(r *rig) {
	var in []mempool.Extent
	for i := 0; ; i++ {
		x := r.chain("a", 100*i, 16)[0]
		d := r.tryPut(&x)
		if d.Err != nil {
			r.expect(d, mempool.ErrFull)
			break
		}
		if in = append(in, x); len(in) > 2*r.opts.Extents {
			r.Fatalf("a store of %d extents took %d", r.opts.Extents, len(in))
		}
	}
	if len(in) < r.opts.Extents {
		r.Errorf("the store holds %d extents, want %d", len(in), r.opts.Extents)
	}
	r.balance(len(in))
	r.get(in...)
	for i := range in[:3] {
		r.remove(in[i])
		x := r.chain("b", 100*i, 16)[0]
		r.put(x)
		r.get(x)
	}
	r.balance(len(in))
}

// checkSum checks that a put is refused if its pages do not have the caller's checksum.
func checkSum(r *rig) {
	x := r.chain("a", 0, 16)[0]
	r.expect(r.do(mempool.Op{Kind: mempool.Put, Extent: x, Pages: r.content(&x), Sum: r.sum(&x) + 1}), mempool.ErrCorrupt)
	r.balance(0)
	if d := r.do(mempool.Op{Kind: mempool.Put, Extent: x, Pages: r.content(&x), Sum: r.sum(&x)}); d.Err != nil || d.Sum != r.sum(&x) || d.Bytes != 4*1020 {
		r.Errorf("%+v", d)
	}
	r.get(x)
}
