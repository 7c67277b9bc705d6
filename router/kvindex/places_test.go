package kvindex

import (
	"math/rand/v2"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// TestPlaces plays the table next to a map: full, emptied, full again. All blocks are in nodes of the
// index, because the table looks at their hashes there.
func TestPlaces(t *testing.T) {
	x, err := New(Config{Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var nodes []nodeID
	for i := range 200 {
		id := x.nodes.add()
		n := x.node(id)
		n.start = uint32(rng.IntN(5000))
		for range 1 + rng.IntN(100) {
			n.hashes = append(n.hashes, kv.BlockHash(rng.Uint64()>>(i%3*20))) // some hashes with few bits
		}
		nodes = append(nodes, id)
	}
	in := map[kv.BlockHash]nodeID{}
	for round := range 200_000 {
		id := nodes[rng.IntN(len(nodes))]
		n := x.node(id)
		i := rng.IntN(len(n.hashes))
		hash, depth := n.hashes[i], n.start+uint32(i)
		at, off, ok := x.place(hash)
		if want, there := in[hash]; ok != there || ok && (at != want || x.node(at).hashes[off-1] != hash) {
			t.Fatalf("round %d: %x is in node %d: %v, want %d: %v", round, hash, at, ok, want, there)
		}
		grow := round/20_000%2 == 0
		switch {
		case !ok && (grow || rng.IntN(4) == 0):
			x.blocks.put(hash, depth, id)
			in[hash] = id
		case ok && at == id && off == i+1 && (!grow || rng.IntN(4) == 0):
			x.blocks.delete(hash, depth, id)
			delete(in, hash)
		}
		if x.blocks.n != len(in) {
			t.Fatalf("%d entries, want %d", x.blocks.n, len(in))
		}
	}
	for hash, id := range in {
		at, off, _ := x.place(hash)
		x.blocks.delete(hash, x.node(at).start+uint32(off-1), id)
	}
	for i := range x.blocks.segments {
		if s := &x.blocks.segments[i]; s.used != 0 || len(s.entries) > leastPlaces {
			t.Errorf("segment %d keeps %d entries and room for %d", i, s.used, len(s.entries))
		}
	}
}

// TestBlockBytes bounds the memory of a block in long runs: 8 bytes of hash, 10 to 15 of entry, and the
// unused end of each run.
func TestBlockBytes(t *testing.T) {
	const prompts, blocks, part = 40, 6250, 512
	x, _ := New(Config{})
	hashes := make([]kv.BlockHash, blocks)
	for i := range prompts {
		for b := range hashes {
			hashes[b] = kv.BlockHash(kv.Chain(kv.BlockHash(i), kv.LocalHash(b)))
		}
		for from := 0; from < blocks; from += part {
			run := Run{Hashes: hashes[from:min(from+part, blocks)]}
			if from > 0 {
				run.Parent, run.HasParent = hashes[from-1], true
			}
			if _, err := x.Store(w(i%4), run); err != nil {
				t.Fatal(err)
			}
		}
	}
	places, room := 0, 0
	for i := range x.blocks.segments {
		places += len(x.blocks.segments[i].entries)
	}
	for id := x.node(root).child; id != root; id = x.following(id) {
		room += cap(x.node(id).hashes)
	}
	if n := prompts * blocks; places > n*188/100 || room > n*103/100 {
		t.Errorf("%d places and room for %d hashes, for %d blocks", places, room, n)
	}
}
