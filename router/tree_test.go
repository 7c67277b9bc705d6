package router

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// naiveTree is the oracle: a set of prefixes per slot. A block is the text of all hashes
// up to it.
type naiveTree map[int32]map[string]int

func prefixes(hashes []kv.BlockHash) []string {
	var all []string
	text := ""
	for _, h := range hashes {
		text += string(rune(h)) + ","
		all = append(all, text)
	}
	return all
}

func (n naiveTree) add(slot int32, hashes []kv.BlockHash, by int) (changed int) {
	if n[slot] == nil {
		n[slot] = map[string]int{}
	}
	before := len(n[slot])
	for _, p := range prefixes(hashes) {
		if n[slot][p] += by; n[slot][p] == 0 {
			delete(n[slot], p)
		}
	}
	return len(n[slot]) - before
}

func (n naiveTree) depth(slot int32, hashes []kv.BlockHash) int32 {
	depth := int32(0)
	for _, p := range prefixes(hashes) {
		if n[slot][p] == 0 {
			break
		}
		depth++
	}
	return depth
}

// playTree runs a script of bytes: each byte adds a request of one of 70 slots, with a
// prefix of an earlier one and hashes of its own, or removes a request.
func playTree(t *testing.T, script []byte) {
	t.Helper()
	const slotCount = 70 // two words of bits
	r := newRouter(t, Config{MaxWorkers: slotCount}, make([]WorkerSpec, slotCount)...)
	naive := naiveTree{}
	type active struct {
		slot, end int32
		hashes    []kv.BlockHash
	}
	var all []active
	var known [][]kv.BlockHash
	take := func() int {
		if len(script) == 0 {
			return 0
		}
		b := script[0]
		script = script[1:]
		return int(b)
	}
	for len(script) > 0 {
		if op := take(); op%3 == 0 && len(all) > 0 {
			i := take() % len(all)
			a := all[i]
			if got, want := r.tree.remove(a.slot, a.end), -naive.add(a.slot, a.hashes, -1); got != want {
				t.Fatalf("removing %v of slot %d took %d blocks, want %d", a.hashes, a.slot, got, want)
			}
			all = slices.Delete(all, i, i+1)
		} else {
			var hashes []kv.BlockHash
			if len(known) > 0 {
				base := known[take()%len(known)]
				hashes = slices.Clone(base[:take()%(len(base)+1)])
			}
			for range take() % 5 {
				hashes = append(hashes, kv.BlockHash(1+take()%4)) // equal hashes at many places, in one request too
			}
			known = append(known, hashes)
			slot := int32(take()%7) * 11
			depths := make([]int32, slotCount)
			r.tree.depths(hashes, depths)
			for s, got := range depths {
				if want := naive.depth(int32(s), hashes); got != want {
					t.Fatalf("slot %d holds %d of %v, want %d", s, got, hashes, want)
				}
			}
			end, added := r.tree.insert(slot, hashes)
			if want := naive.add(slot, hashes, 1); added != want {
				t.Fatalf("adding %v to slot %d gave %d blocks, want %d", hashes, slot, added, want)
			}
			if got := r.tree.prefix(end); !slices.Equal(got, hashes) {
				t.Fatalf("the path to the end of %v is %v", hashes, got)
			}
			all = append(all, active{slot, end, hashes})
		}
		// Check reads the reservations, so make them.
		r.slab, r.ages = r.slab[:0], emptyList(byAge)
		for i, a := range all {
			r.slab = append(r.slab, reservation{id: 1, slot: a.slot, end: a.end})
			r.ages.push(r.slab, int32(i))
		}
		hashed, err := r.checkTree()
		if err != nil {
			t.Fatal(err)
		}
		for s, n := range hashed {
			if n != len(naive[int32(s)]) {
				t.Fatalf("slot %d has %d blocks, want %d", s, n, len(naive[int32(s)]))
			}
		}
	}
	for _, a := range all {
		r.tree.remove(a.slot, a.end)
	}
	if left := len(r.tree.nodes) - len(r.tree.free); left != 1 || r.tree.refs.Len() != 0 || r.tree.children.Len() != 0 {
		t.Fatalf("%d nodes, %d refs and %d children are left", left, r.tree.refs.Len(), r.tree.children.Len())
	}
}

func TestTreeHasWhatSetsOfPrefixesHave(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		script := make([]byte, 900)
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		playTree(t, script)
	}
}

func FuzzTree(f *testing.F) {
	f.Add([]byte{1, 0, 0, 4, 1, 2, 3, 4, 1, 1, 0, 2, 2, 1, 1, 2, 0, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 2000 {
			script = script[:2000]
		}
		playTree(t, script)
	})
}

func TestTableHasWhatAMapHas(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	table, want := newTable(9), map[key]int32{}
	for range 200000 {
		k := key{rng.Uint64N(300), uint32(rng.Uint32N(3))}
		got, ok := want[k]
		if !ok {
			got = noEntry
		}
		if table.get(k) != got {
			t.Fatalf("%v is %d, want %d", k, table.get(k), got)
		}
		switch rng.IntN(4) {
		case 0:
			if table.delete(k) != got {
				t.Fatalf("deleting %v, which is %d", k, got)
			}
			delete(want, k)
		case 1:
			table.put(k, int32(rng.IntN(5)))
			want[k] = table.get(k)
		case 2:
			if ok && got > 0 {
				if table.add(k, -got) != 0 {
					t.Fatalf("adding -%d to %v", got, k)
				}
				delete(want, k)
			}
		case 3:
			if want[k] += 2; table.add(k, 2) != want[k] {
				t.Fatalf("adding 2 to %v", k)
			}
		}
		if table.Len() != len(want) {
			t.Fatalf("%d entries, want %d", table.Len(), len(want))
		}
	}
}
