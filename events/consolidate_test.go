package events

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// rename gives an event the hashes that another engine would.
func rename(ev kv.Event, salt kv.BlockHash) kv.Event {
	out := ev
	out.Parent ^= salt
	out.Blocks, out.Hashes = nil, nil
	for _, b := range ev.Blocks {
		b.Hash ^= salt
		b.Local = 0 // nobody is to believe it
		out.Blocks = append(out.Blocks, b)
	}
	for _, h := range ev.Hashes {
		out.Hashes = append(out.Hashes, h^salt)
	}
	return out
}

// The conformance list of Dynamo's consolidator, item by item.
func TestConsolidator(t *testing.T) {
	const engine, lower = Origin(0), Origin(1)
	c := NewConsolidator(testBlock, 100, false)
	ab := chain(nil, 1, 2)
	host := rename(ab, 77)
	host.Tier = kv.TierHost
	apply := func(from Origin, ev kv.Event) string {
		var out string
		for _, e := range c.Apply(nil, from, &ev) {
			out += fmt.Sprintf("%v %v %d;", e.Kind, e.Tier, len(e.Blocks)+len(e.Hashes))
			for i, b := range e.Blocks {
				if len(ab.Blocks) == len(e.Blocks) && b.Tokens[0] == ab.Blocks[i].Tokens[0] && (b.Hash != ab.Blocks[i].Hash || b.Local != ab.Blocks[i].Local) {
					t.Errorf("block %d has another hash", i)
				}
			}
		}
		return out
	}
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	expect("a first store", apply(lower, host), "stored device 2;")
	expect("the same of another origin", apply(engine, ab), "")
	expect("the same again", apply(engine, ab), "")
	expect("one of two lets go", apply(lower, kv.Event{Kind: kv.Removed, Tier: kv.TierHost, Hashes: []kv.BlockHash{host.Blocks[1].Hash}}), "")
	expect("the last lets go", apply(engine, removed(ab.Blocks[1])), "removed device 1;")
	expect("nobody has it", apply(engine, removed(ab.Blocks[1])), "")
	expect("the same tokens elsewhere", apply(engine, chain(&ab.Blocks[0], 1)), "stored device 1;")
	expect("a known block and a new one", apply(lower, rename(chain(nil, 1, 5), 77)), "stored device 1;")
	expect("an orphan", apply(lower, rename(chain(&kv.Block{Hash: 1234}, 1), 77)), "")
	expect("a clear takes its own", apply(lower, kv.Event{Kind: kv.Cleared}), "removed device 1;")
	expect("a clear takes all", apply(engine, kv.Event{Kind: kv.Cleared}), "cleared device 0;")
	if m := c.Metrics(); m.Blocks != 0 || m.OrphanBlocks != 1 || m.UnknownRemoves != 1 || m.RefusedBlocks != 0 {
		t.Errorf("%+v", m)
	}
	full := NewConsolidator(testBlock, 3, false)
	if n := len(full.Apply(nil, 0, &kv.Event{Kind: kv.Stored, Blocks: chain(nil, 1, 2, 3, 4).Blocks})[0].Blocks); n != 3 || full.Metrics().RefusedBlocks != 1 {
		t.Errorf("%d blocks of 3", n)
	}
	if out := full.Apply(nil, maxOrigins, &kv.Event{Kind: kv.Cleared}); out != nil {
		t.Errorf("%v", out)
	}
}

// However two origins come and go, the outcome is the union of what they hold.
func TestConsolidatorIsUnion(t *testing.T) {
	for _, tiers := range []bool{false, true} {
		for seed := range uint64(10) {
			rng := rand.New(rand.NewPCG(seed, 3))
			c := NewConsolidator(testBlock, 1<<20, tiers)
			// Both play the same script of a cache, at their own pace.
			script := newTree(seed).steps(400)
			var held [2]map[tierHash]kv.LocalHash
			var at [2]int
			held[0], held[1] = map[tierHash]kv.LocalHash{}, map[tierHash]kv.LocalHash{}
			got := map[tierHash]kv.LocalHash{}
			play := func(held map[tierHash]kv.LocalHash, ev kv.Event) {
				switch ev.Kind {
				case kv.Stored:
					s := Stored{Tier: ev.Tier, Parent: ev.Parent, HasParent: ev.HasParent}
					for _, b := range ev.Blocks {
						s.Blocks = append(s.Blocks, Block{b.Hash, b.Local})
					}
					if err := store(held, s); err != nil {
						t.Fatalf("tiers %v, seed %d: %v", tiers, seed, err)
					}
				case kv.Removed:
					for _, h := range ev.Hashes {
						if _, ok := held[tierHash{ev.Tier, h}]; !ok {
							t.Fatalf("tiers %v, seed %d: removed what is not there", tiers, seed)
						}
						delete(held, tierHash{ev.Tier, h})
					}
				default:
					clear(held)
				}
			}
			for at[0] < len(script) || at[1] < len(script) {
				o := rng.IntN(2)
				if at[o] == len(script) {
					continue
				}
				ev := script[at[o]]
				at[o]++
				play(held[o], ev)
				sent := ev
				if o == 1 {
					sent = rename(ev, 99)
				}
				for _, e := range c.Apply(nil, Origin(o), &sent) {
					play(got, e)
				}
				want := map[tierHash]kv.LocalHash{}
				for _, h := range held {
					for k, v := range h {
						if !tiers {
							k.tier = kv.TierDevice
						}
						want[k] = v
					}
				}
				if d := differ(got, want); d != "" {
					t.Fatalf("tiers %v, seed %d: %s", tiers, seed, d)
				}
			}
		}
	}
}

// An engine that begins anew without saying so, or hashes what we do not, has a block by
// two names: it is gone with the last of them. A name that is given to another block leaves
// the first one.
func TestConsolidatorNames(t *testing.T) {
	for _, tiers := range []bool{false, true} {
		a := chain(nil, 1)
		b := rename(a, 55)
		other := chain(nil, 2)
		other.Blocks[0].Hash = a.Blocks[0].Hash
		c := NewConsolidator(testBlock, 10, tiers)
		do := func(ev kv.Event, want string) {
			t.Helper()
			got := ""
			for _, e := range c.Apply(nil, 3, &ev) {
				got += fmt.Sprintf("%v %d;", e.Kind, len(e.Blocks)+len(e.Hashes))
			}
			if got != want {
				t.Errorf("tiers %v: %q, want %q", tiers, got, want)
			}
		}
		both := func() {
			do(a, "stored 1;")
			do(b, "")
		}
		both()
		do(removed(a.Blocks[0]), "")
		do(removed(a.Blocks[0]), "")
		do(removed(b.Blocks[0]), "removed 1;")
		do(removed(b.Blocks[0]), "")
		both()
		do(removed(b.Blocks[0]), "")
		do(kv.Event{Kind: kv.Cleared}, "cleared 0;")
		both()
		do(kv.Event{Kind: kv.Cleared}, "cleared 0;")
		do(a, "stored 1;")
		do(other, "removed 1;stored 1;")
		do(kv.Event{Kind: kv.Cleared}, "cleared 0;")
		if m := c.Metrics(); m.Blocks != 0 || m.UnknownRemoves != 2 || m.RefusedBlocks != 0 {
			t.Errorf("tiers %v: %+v", tiers, m)
		}
	}
}
