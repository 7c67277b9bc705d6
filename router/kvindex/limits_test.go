package kvindex

import (
	"testing"
	"unsafe"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

func TestLimits(t *testing.T) {
	full := func(x *Index, h kv.Rank, locals []kv.LocalHash, from int, want error) {
		t.Helper()
		before := x.Stats()
		if _, err := x.Store(h, tail(locals, from)); err != want {
			t.Fatalf("%v: %v, want %v", h, err, want)
		}
		if after := x.Stats(); want != nil && after != before {
			t.Fatalf("refused, but %+v, before %+v", after, before)
		}
		if err := x.Check(); err != nil {
			t.Fatal(err)
		}
	}
	x, _ := New(Config{Blocks: 10, HolderBlocks: 6, Holders: 3})
	full(x, w(0), seq(1, 7), 0, ErrFull)
	full(x, w(0), seq(1, 6), 0, nil)
	full(x, w(0), seq(1, 6), 0, nil) // a repetition takes no room
	full(x, w(0), seq(1, 7), 6, ErrFull)
	full(x, w(1), seq(1, 6), 0, nil)       // still 6 distinct blocks
	full(x, w(2), seq(10, 14), 0, ErrFull) // would be 11
	full(x, w(2), seq(10, 13), 0, nil)
	full(x, w(3), seq(1, 1), 0, ErrFull)
	x.Forget(w(2))
	full(x, w(3), seq(1, 1), 0, nil)
}

// TestHostile: hashes that lie, collide on purpose, or come in floods are refused, and
// the index stays consistent after each.
func TestHostile(t *testing.T) {
	x, _ := New(Config{HolderBlocks: 20000})
	store := func(h kv.Rank, r Run, want error) {
		t.Helper()
		if _, err := x.Store(h, r); err != want {
			t.Fatalf("%v, want %v", err, want)
		}
		if err := x.Check(); err != nil {
			t.Fatal(err)
		}
	}
	good := tail(seq(1, 8), 0)
	store(w(0), good, nil)

	// A first block may have any hash, because its local hash is its name. If that is the name
	// of a deep block, it is refused, and so are the blocks after it.
	thief := []kv.LocalHash{kv.LocalHash(good.Hashes[5]), 6, 7}
	store(w(1), tail(thief, 0), ErrCollision)
	// Conversely, the first block stored keeps the name.
	deep := chain(seq(50, 60))
	store(w(1), tail([]kv.LocalHash{kv.LocalHash(deep[9])}, 0), nil)
	store(w(2), tail(seq(50, 60), 0), ErrCollision)
	if got := found(t, x.Find(chain(seq(50, 60)), nil)); !equal(got, overlaps{w(2): 9}) {
		t.Errorf("before the collision: %v", got)
	}
	// A cycle: the child of a block has the name of the first block.
	cycle := Run{Parent: good.Hashes[7], HasParent: true, Hashes: good.Hashes[:1], Locals: good.Locals[:1]}
	store(w(0), cycle, ErrForeignHash)
	cycle.Hashes = []kv.BlockHash{good.Hashes[7]}
	store(w(0), cycle, ErrSequence)
	store(w(0), Run{Hashes: good.Hashes, Locals: good.Locals[:3]}, ErrSequence)
	lie := tail(seq(1, 9), 0)
	lie.Hashes[3]++
	store(w(0), lie, ErrForeignHash)
	lie = tail(seq(1, 9), 0)
	lie.Hashes[8]++
	store(w(3), lie, ErrForeignHash)

	store(w(4), tail(seq(1, 1<<16), 0), ErrFull) // a huge batch
	for i := range 200 {                         // a flood
		store(w(5), tail(seq(1000*i, 1000*i+99), 0), nil)
	}
	store(w(5), tail(seq(-5, -5), 0), ErrFull)
	store(w(6), tail(seq(1, 8), 0), nil) // other workers are unaffected
	if x.Held(w(5)) != 20000 {
		t.Errorf("held after the flood: %d", x.Held(w(5)))
	}
	if x.Held(w(1)) != 1 || x.Held(w(3)) != 0 || x.Held(w(4)) != 0 {
		t.Errorf("held by who lied: %d, %d, %d", x.Held(w(1)), x.Held(w(3)), x.Held(w(4)))
	}
}

// TestChurn: removed blocks leave nothing behind, not even in the tables.
func TestChurn(t *testing.T) {
	x, _ := New(Config{})
	for round := range 50 {
		for i := range 40 {
			locals := append(seq(1, 30), seq(10000*round+100*i, 10000*round+100*i+30)...)
			if _, err := x.Store(w(i%4), tail(locals, 0)); err != nil {
				t.Fatal(err)
			}
			if i >= 20 {
				continue
			}
			x.Remove(w(i%4), chain(locals)[30:])
		}
		for i := range 4 {
			x.Clear(w(i))
		}
		if err := x.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if st := x.Stats(); st.Nodes != 0 || st.Blocks != 0 || x.blocks.n != 0 || int(x.nodes.next) > 200 {
		t.Errorf("left: %+v, %d blocks by hash, %d nodes at most", st, x.blocks.n, x.nodes.next)
	}
}

func TestAllocations(t *testing.T) {
	if invariants.Enabled {
		t.Skip("each write walks everything")
	}
	x, _ := New(Config{})
	s, _ := NewSharded(ShardedConfig{})
	hashes := chain(seq(1, 300))
	for i := range 8 {
		r := tail(append(seq(1, 100+20*i), seq(1000*i, 1000*i+50)...), 0)
		if _, err := x.Store(w(i), r); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Store(w(i), r); err != nil {
			t.Fatal(err)
		}
	}
	dst := make([]Overlap, 0, 8)
	again, orphan := tail(seq(1, 100), 0), tail(seq(1, 300), 290)
	var tokens TokensWithHashes
	prompt := make([]kv.Token, 1000)
	tokens.Reset(prompt, kv.Namespace{})
	tokens.Hashes(16)
	for name, do := range map[string]func(){
		"Find":          func() { dst = x.Find(hashes, dst[:0]) },
		"Sharded.Find":  func() { dst = s.Find(hashes, dst[:0]) },
		"Store again":   func() { x.Store(w(3), again) },
		"Store orphan":  func() { x.Store(w(3), orphan) },
		"Remove absent": func() { x.Remove(w(3), orphan.Hashes) },
		"Tokens":        func() { tokens.Reset(prompt, kv.Namespace{}); tokens.Run(16, 3) },
	} {
		if n := testing.AllocsPerRun(100, do); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}

// TestNodeBytes bounds what a node takes: each block that begins a branch of its own is one.
func TestNodeBytes(t *testing.T) {
	if n := unsafe.Sizeof(node{}); n != 96 {
		t.Errorf("a node has %d bytes", n)
	}
}

// FuzzHostile lets a few holders store anything, over an alphabet so small that cycles,
// collisions and false parents arise by chance.
func FuzzHostile(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03stores and removes of nothing in particular"))
	f.Add([]byte{0, 0, 3, 1, 1, 2, 2, 3, 3, 1, 1, 2, 9, 9, 1, 1, 2, 1, 1, 1, 1, 4, 0, 0, 1, 2, 3})
	f.Fuzz(func(t *testing.T, data []byte) {
		x, _ := New(Config{Blocks: 40, HolderBlocks: 15, Holders: 3})
		x.runBlocks, x.manyKids = 3, 2
		names := [4]*Names{NewNames(9), NewNames(9), NewNames(9), NewNames(9)}
		next := func() (b byte) {
			if len(data) > 0 {
				b, data = data[0], data[1:]
			}
			return b
		}
		for len(data) > 0 {
			op := next()
			h := kv.Rank{Worker: kv.WorkerID(op >> 4 & 3)}
			r := Run{Parent: kv.BlockHash(next() % 8), HasParent: op&8 != 0}
			for range next() % 6 {
				b := next()
				r.Locals = append(r.Locals, kv.LocalHash(b%8))
				r.Hashes = append(r.Hashes, kv.BlockHash(b>>4%8))
			}
			switch op % 8 {
			case 0, 1: // unchanged
				x.Store(h, r)
			case 2, 3: // under its own hashes
				own, gone, err := names[h.Worker].Store(r)
				if err == nil {
					x.Remove(h, gone)
					x.Store(h, own)
				}
			case 4: // a valid chain after an arbitrary parent
				last := r.Parent
				for i, local := range r.Locals {
					if last = kv.Chain(last, local); i == 0 && !r.HasParent {
						last = kv.BlockHash(local)
					}
					r.Hashes[i] = last
				}
				x.Store(h, r)
			case 5:
				x.Remove(h, names[h.Worker].Remove(r.Hashes, r.Hashes))
			case 6:
				x.Clear(h)
				names[h.Worker] = NewNames(9)
			case 7:
				x.Forget(h)
			}
			if err := x.Check(); err != nil {
				t.Fatal(err)
			}
			if st := x.Stats(); st.Blocks > 40 || st.HolderBlocks > 45 || len(x.Holders()) > 3 {
				t.Fatalf("%+v", st)
			}
			for _, o := range x.Find(chain(r.Locals), nil) {
				if int(o.Blocks) > len(r.Locals) || int(o.Blocks) > x.Held(o.Holder) {
					t.Fatalf("%+v of %v", o, r.Locals)
				}
			}
		}
	})
}
