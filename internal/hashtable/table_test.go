package hashtable

import (
	"math/rand/v2"
	"testing"
)

// TestTable plays each kind of table next to a map: full, emptied, full again.
func TestTable(t *testing.T) {
	for i := range 4 {
		cfg := Config{Seed: 3, Paired: i&1 != 0, Keeps: i&2 != 0}
		table, most := New(cfg), 0
		type key struct {
			key  uint64
			from uint32
		}
		want := map[key]Entry{}
		rng := rand.New(rand.NewPCG(1, 2))
		for round := range 60000 {
			k := key{key: rng.Uint64N(6000)}
			from := uint32(rng.IntN(3))
			if cfg.Paired {
				k.from = from
			}
			old, there := want[k]
			if got := table.Get(k.key, from); (got != nil) != there || there && *got != old {
				t.Fatalf("%v: %v, want %v %v", k, got, old, there)
			}
			grow := round/10000%2 == 0
			switch {
			case there && (!grow || rng.IntN(4) == 0):
				table.Delete(k.key, from)
				delete(want, k)
			case grow || rng.IntN(4) == 0:
				e := Entry{k.key, from, uint32(1 + round)}
				if table.Put(e.Key, e.From, e.To) == there {
					t.Fatalf("put %v, which was there: %v", e, there)
				}
				if !there {
					want[k] = e
				}
			}
			if table.Len() != len(want) {
				t.Fatalf("%d entries, want %d", table.Len(), len(want))
			}
			most = max(most, room(&table))
		}
		for k, e := range want {
			table.Delete(k.key, e.From)
		}
		if left := room(&table); cfg.Keeps && left != most || !cfg.Keeps && left > 64*2*leastEntries || table.Len() != 0 {
			t.Errorf("%+v: room for %d entries is left of %d, %d entries", cfg, left, most, table.Len())
		}
	}
}

// room returns the number of places of a table.
func room(t *Table) (n int) {
	for _, s := range t.segments {
		n += len(s.entries)
	}
	return n
}
