package events

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// storedOf returns a Stored with the block names of another engine.
func storedOf(ev kv.Event, salt kv.BlockHash) Stored {
	s := Stored{Tier: ev.Tier, Parent: ev.Parent ^ salt, HasParent: ev.HasParent}
	for _, b := range ev.Blocks {
		s.Blocks = append(s.Blocks, Block{b.Hash ^ salt, b.Local})
	}
	return s
}

// TestConsolidateIsUnion: whatever two origins store, remove, clear and replace, the
// result is the union of their contents, by chained hashes.
func TestConsolidateIsUnion(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		// Both origins play the same script of a cache, each at its own pace.
		script, into := newTree(seed).steps(400), newNaive()
		sinks, salts := Consolidate(into, 2), [2]kv.BlockHash{0, 99}
		held := [2]map[tierHash]kv.LocalHash{{}, {}}
		var told [2][]Stored // since an origin was empty
		var at [2]int
		for at[0] < len(script) || at[1] < len(script) {
			o := rng.IntN(2)
			if at[o] == len(script) {
				continue
			}
			ev := script[at[o]]
			at[o]++
			switch ev.Kind {
			case kv.Stored:
				_ = store(held[o], storedOf(ev, 0))
				told[o] = append(told[o], storedOf(ev, salts[o]))
				if err := sinks[o].Store(rank1, storedOf(ev, salts[o])); err != nil {
					t.Fatal(err)
				}
			case kv.Removed:
				delete(held[o], tierHash{ev.Tier, ev.Hashes[0]})
				sinks[o].Remove(rank1, ev.Tier, []kv.BlockHash{ev.Hashes[0] ^ salts[o], 12345})
			default:
				clear(held[o])
				told[o] = nil
				sinks[o].Clear(rank1)
			}
			if rng.IntN(50) == 0 { // all that was ever told, and then all that is gone again
				if n := sinks[o].Replace(rank1, told[o]); n > 0 {
					t.Fatalf("%d blocks are refused", n)
				}
				for _, s := range told[o] {
					for _, b := range s.Blocks {
						if _, still := held[o][tierHash{s.Tier, b.Hash ^ salts[o]}]; !still {
							sinks[o].Remove(rank1, s.Tier, []kv.BlockHash{b.Hash})
						}
					}
				}
			}
			want := map[tierHash]kv.LocalHash{}
			for _, h := range held {
				for k, v := range h {
					want[k] = v
				}
			}
			if d := differ(into.held(rank1), want); d != "" {
				t.Fatalf("seed %d: %s", seed, d)
			}
		}
		sinks[1].Forget(rank1)
		if d := differ(into.held(rank1), held[0]); d != "" {
			t.Fatalf("seed %d: one origin is gone: %s", seed, d)
		}
		if sinks[0].Forget(rank1); into.held(rank1) != nil {
			t.Error("a rank without origins is known")
		}
	}
}

// TestConsolidateNames: after an engine restarts without notice, one block has two names.
// It is removed with its last name. A name that moves to another block leaves the first
// one.
func TestConsolidateNames(t *testing.T) {
	into := newNaive()
	sink := Consolidate(into, 1)[0]
	expect := func(what string, want int) {
		t.Helper()
		if n := len(into.held(rank1)); n != want {
			t.Errorf("%s: %d blocks, want %d", what, n, want)
		}
	}
	a := chain(nil, 1)
	other := chain(nil, 2)
	other.Blocks[0].Hash = a.Blocks[0].Hash
	_ = sink.Store(rank1, storedOf(a, 0))
	_ = sink.Store(rank1, storedOf(a, 55))
	expect("two names", 1)
	sink.Remove(rank1, 0, []kv.BlockHash{a.Blocks[0].Hash, a.Blocks[0].Hash})
	expect("one of two is gone", 1)
	sink.Remove(rank1, 0, []kv.BlockHash{a.Blocks[0].Hash ^ 55})
	expect("both are gone", 0)
	_ = sink.Store(rank1, storedOf(a, 0))
	_ = sink.Store(rank1, storedOf(other, 0))
	expect("another block by the name", 1)
	if held := into.held(rank1); held[tierHash{hash: kv.BlockHash(other.Blocks[0].Local)}] == 0 {
		t.Errorf("%v", held)
	}
	if err := sink.Store(rank1, storedOf(chain(&kv.Block{Hash: 77}, 3), 0)); err != ErrUnknownParent {
		t.Errorf("an orphan: %v", err)
	}
}

// meanwhile is a Sink that calls f when a rank is cleared.
type meanwhile struct {
	*naive
	f func()
}

func (m *meanwhile) Clear(r kv.Rank) {
	m.naive.Clear(r)
	m.f()
}

// TestConsolidateForgetsOne: an origin that stores a block while another one forgets the rank can
// still remove the block.
func TestConsolidateForgetsOne(t *testing.T) {
	into := &meanwhile{naive: newNaive()}
	sinks := Consolidate(into, 2)
	var stores sync.WaitGroup
	a := chain(nil, 1)
	into.f = func() {
		stores.Go(func() { _ = sinks[1].Store(rank1, storedOf(a, 0)) })
		for range 100 { // the other one comes as far as it can
			runtime.Gosched()
		}
	}
	sinks[0].Forget(rank1)
	stores.Wait()
	sinks[1].Remove(rank1, kv.TierDevice, []kv.BlockHash{a.Blocks[0].Hash})
	if n := len(into.held(rank1)); n > 0 {
		t.Errorf("%d blocks are left", n)
	}
}
