package kvindex

import (
	"math/rand/v2"
	"testing"
)

// TestTable plays both kinds of table next to a map: full, emptied, full again.
func TestTable(t *testing.T) {
	for _, fromIsKey := range []bool{false, true} {
		table := newTable(3, fromIsKey)
		type key struct {
			key  uint64
			from uint32
		}
		want := map[key]entry{}
		rng := rand.New(rand.NewPCG(1, 2))
		for round := range 60000 {
			k := key{key: rng.Uint64N(6000)}
			from := uint32(rng.IntN(3))
			if fromIsKey {
				k.from = from
			}
			old, there := want[k]
			if got := table.get(k.key, from); (got != nil) != there || there && *got != old {
				t.Fatalf("%v: %v, want %v %v", k, got, old, there)
			}
			grow := round/10000%2 == 0
			switch {
			case there && (!grow || rng.IntN(4) == 0):
				table.cut(k.key, from)
				delete(want, k)
			case grow || rng.IntN(4) == 0:
				e := entry{k.key, from, nodeID(1 + round)}
				if table.put(e.key, e.from, e.to) == there {
					t.Fatalf("put %v, which was there: %v", e, there)
				}
				if !there {
					want[k] = e
				}
			}
			if table.len() != len(want) {
				t.Fatalf("%d entries, want %d", table.len(), len(want))
			}
		}
	}
}
