package radixcache

import (
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// planted is a tree with a fork, a chain, tails, pins, a free slot and two
// namespaces.
func planted(t *testing.T) *Cache {
	c := newCache(t, Config{PageTokens: 2, BlockTokens: 4, Events: true})
	other := kv.Namespace{Salt: "x"}
	c.Insert(kv.Namespace{}, toks(1, 2, 3, 4, 5, 6, 7, 8), []kv.PageID{0, 1, 2, 3}, nil) // node 2
	c.Insert(kv.Namespace{}, toks(1, 2, 3, 4, 9, 9), []kv.PageID{0, 1, 4}, nil)          // nodes 3 above 2, 4
	c.Insert(kv.Namespace{}, toks(1, 2, 3, 4, 0), []kv.PageID{0, 1, 5}, nil)             // node 5, a tail
	c.Insert(other, toks(1, 2, 3, 4), []kv.PageID{6, 7}, nil)                            // node 7
	id, _ := c.Insert(other, toks(9, 9), []kv.PageID{8}, nil)                            // node 8
	c.Insert(other, toks(9, 9, 3, 3), []kv.PageID{8, 9}, nil)                            // node 9
	c.PinNode(id)
	c.Unpin(c.Pin(c.Match(kv.Namespace{}, toks(1, 2, 3, 4, 5, 6, 7, 8), nil)))
	c.Insert(kv.Namespace{}, toks(7), []kv.PageID{10}, nil)    // node 10, a tail
	c.Insert(kv.Namespace{}, toks(7, 7), []kv.PageID{11}, nil) // node 11; 10 is free now
	c.PinNode(4)
	for _, id := range []NodeID{5, 7, 9} { // with 4 and 8 they are the oldest
		c.PinNode(id)
	}
	if id := c.victim(); id != 2 {
		t.Fatalf("next to evict is node %d, want 2", id)
	}
	for _, id := range []NodeID{5, 7, 9} { // 4 and 8 stay parked
		c.Unpin(id)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCheckFindsPlantedBugs corrupts one field at a time.
func TestCheckFindsPlantedBugs(t *testing.T) {
	public, salted := kv.Namespace{}, kv.Namespace{Salt: "x"}
	for name, corrupt := range map[string]func(*Cache){
		"edge token":            func(c *Cache) { c.nodes[2].tokens[0] = 77 },
		"hash":                  func(c *Cache) { c.nodes[3].hashes[0]++ },
		"hash missing":          func(c *Cache) { c.nodes[2].hashes = nil },
		"hash too many":         func(c *Cache) { c.nodes[4].hashes = []kv.BlockHash{1} },
		"hashes without events": func(c *Cache) { c.cfg.Events = false },
		"page twice":            func(c *Cache) { c.nodes[2].pages[0] = 0 },
		"no page":               func(c *Cache) { c.nodes[2].pages[0] = kv.NoPage },
		"page missing":          func(c *Cache) { c.nodes[2].pages = c.nodes[2].pages[:1] },
		"edge empty":            func(c *Cache) { c.nodes[4].tokens, c.nodes[4].pages = nil, nil },
		"edge not whole pages": func(c *Cache) {
			c.nodes[2].tokens = c.nodes[2].tokens[:3]
		},
		"tail with children": func(c *Cache) { c.nodes[5].only = 4 },
		"inner not whole":    func(c *Cache) { c.nodes[3].tokens, c.nodes[3].pages = toks(1), []kv.PageID{0} },
		"start":              func(c *Cache) { c.nodes[2].start += 2 },
		"parent":             func(c *Cache) { c.nodes[2].parent = 7 },
		"space":              func(c *Cache) { c.nodes[2].space = c.nodes[7].space },
		"stamp above clock":  func(c *Cache) { c.nodes[3].stamp = 99 },
		"stamp above parent": func(c *Cache) { c.nodes[3].stamp = 0 },
		"pins":               func(c *Cache) { c.nodes[8].pins++ },
		"pins of the leaf":   func(c *Cache) { c.nodes[4].pins = 0 },
		"held":               func(c *Cache) { c.nodes[8].held = 0 },
		"held negative":      func(c *Cache) { c.nodes[9].held, c.nodes[9].pins = -1, -1 },
		"children order": func(c *Cache) {
			k := c.nodes[3].fork.runs[0].kids
			k[0], k[1] = k[1], k[0]
		},
		"child lost":          func(c *Cache) { r := &c.nodes[3].fork.runs[0]; r.kids = r.kids[1:] },
		"only child lost":     func(c *Cache) { c.nodes[8].only = Root },
		"child twice":         func(c *Cache) { k := c.nodes[3].fork.runs[0].kids; k[1] = k[0] },
		"child unknown":       func(c *Cache) { c.nodes[3].fork.runs[0].kids[1].id = 99 },
		"only child unknown":  func(c *Cache) { c.nodes[8].only = 99 },
		"child root":          func(c *Cache) { c.nodes[3].fork.runs[0].kids[1].id = Root },
		"child key":           func(c *Cache) { c.nodes[3].fork.runs[0].kids[1].key++ },
		"run's skip":          func(c *Cache) { c.nodes[3].fork.runs[0].skip++ },
		"run's skip negative": func(c *Cache) { c.nodes[3].fork.runs[0].skip = -1 },
		"fork and only child": func(c *Cache) { c.nodes[3].only = 4 },
		"fork of one":         func(c *Cache) { c.nodes[8].fork, c.nodes[8].only = &fork{runs: []run{{kids: []kid{{3, 9}}}}}, Root },
		"fork of none":        func(c *Cache) { c.nodes[9].fork = &fork{} },
		"keys of one run":     func(c *Cache) { c.nodes[3].fork.keys = []uint32{0} },
		"small runs unmerged": func(c *Cache) {
			f := c.nodes[3].fork
			k := f.runs[0].kids
			f.runs, f.keys = []run{{kids: k[:1]}, {kids: k[1:]}}, []uint32{k[0].key, k[1].key}
		},
		"siblings share a page": func(c *Cache) { c.nodes[4].tokens[0], c.nodes[4].tokens[1] = 5, 6 },
		"free and in use":       func(c *Cache) { c.free = append(c.free, 2) },
		"free twice":            func(c *Cache) { c.free = append(c.free, c.free[0]) },
		"free lost":             func(c *Cache) { c.free = nil },
		"evictable":             func(c *Cache) { c.evictable.tokens++ },
		"protected":             func(c *Cache) { c.protected.pages-- },
		"nodes":                 func(c *Cache) { c.counts.Nodes++ },
		"leaves":                func(c *Cache) { c.counts.Leaves-- },
		"tails":                 func(c *Cache) { c.counts.Tails-- },
		"heap short":            func(c *Cache) { c.heapRemove(c.heap[0].id) },
		"heap order":            func(c *Cache) { swapHeap(c, 0, len(c.heap)-1) },
		"heap index":            func(c *Cache) { c.nodes[c.heap[0].id].queue = 1 },
		"heap stamp":            func(c *Cache) { c.heap[0].stamp++ },
		"heap start":            func(c *Cache) { c.heap[0].start++ },
		"heap of pinned":        func(c *Cache) { c.heapPush(8) },
		"heap unknown":          func(c *Cache) { c.heap[0].id = 99 },
		"heap of a recent node": func(c *Cache) { c.leaveOrder(11); c.heapPush(11) },
		"parked without pins":   func(c *Cache) { c.heapRemove(c.heap[0].id); c.nodes[7].queue = parked },
		"parked a recent node":  func(c *Cache) { c.leaveOrder(3); c.nodes[3].queue = parked },
		"in no order":           func(c *Cache) { c.leaveOrder(11) },
		"state unknown":         func(c *Cache) { c.nodes[8].queue = nowhere - 1 },
		"line order":            func(c *Cache) { c.lineRemove(11); c.lineInsert(Root, 11) },
		"line order in a path":  func(c *Cache) { c.lineRemove(3); c.lineInsert(c.line[2].prev, 3) },
		"line forward":          func(c *Cache) { c.line[c.line[Root].next].next = 11 },
		"line back":             func(c *Cache) { c.line[11].prev = Root },
		"line's end":            func(c *Cache) { c.line[Root].prev = 5 },
		"line goes round":       func(c *Cache) { c.line[11].next = c.line[Root].next },
		"line of a free node":   func(c *Cache) { c.linePush(10) },
		"line of a root":        func(c *Cache) { c.linePush(1) },
		"line too short":        func(c *Cache) { c.line = c.line[:len(c.line)-1] },
		"namespace lost":        func(c *Cache) { delete(c.spaces, salted) },
		"namespace nil":         func(c *Cache) { c.spaces[salted] = nil },
		"namespaces swapped":    func(c *Cache) { c.spaces[salted], c.spaces[public] = c.spaces[public], c.spaces[salted] },
		"namespace empty":       func(c *Cache) { c.openSpace(kv.Namespace{LoRA: "new"}) },
		"namespace root edge":   func(c *Cache) { c.nodes[1].tokens = toks(1, 2) },
		"namespace root's pins": func(c *Cache) { c.nodes[1].pins = 1 },
		"namespace seed":        func(c *Cache) { c.nodes[1].space.ns.LoRA = "y" },
	} {
		t.Run(name, func(t *testing.T) {
			c := planted(t)
			corrupt(c)
			if c.Check() == nil {
				t.Error("Check found nothing")
			}
		})
	}
}

// TestCheckFindsPlantedBugsInWideForks is that for children in many runs.
func TestCheckFindsPlantedBugsInWideForks(t *testing.T) {
	for name, corrupt := range map[string]func(*fork){
		"key":           func(f *fork) { f.keys[1]++ },
		"keys lost":     func(f *fork) { f.keys = nil },
		"keys short":    func(f *fork) { f.keys = f.keys[1:] },
		"skip":          func(f *fork) { f.skip++ },
		"skip negative": func(f *fork) { f.skip = -1 },
		"run empty":     func(f *fork) { f.runs[1].kids = nil },
		"run lost":      func(f *fork) { f.runs, f.keys = f.runs[1:], f.keys[1:] },
		"run too long": func(f *fork) {
			f.runs[0].kids = append(f.runs[0].kids, f.runs[1].kids...)
			f.runs, f.keys = slices.Delete(f.runs, 1, 2), slices.Delete(f.keys, 1, 2)
		},
		"runs swapped": func(f *fork) {
			f.runs[0], f.runs[1], f.keys[0], f.keys[1] = f.runs[1], f.runs[0], f.keys[1], f.keys[0]
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCache(t, Config{PageTokens: 4})
			for i := range kv.Token(600) {
				c.Insert(kv.Namespace{}, toks(7, i, 0, 0), []kv.PageID{kv.PageID(i)}, nil)
			}
			f := c.nodes[c.spaces[kv.Namespace{}].root].fork
			if err := c.Check(); err != nil || len(f.runs) < 4 {
				t.Fatalf("%d runs, %v", len(f.runs), err)
			}
			corrupt(f)
			if c.Check() == nil {
				t.Error("Check found nothing")
			}
		})
	}
}

func swapHeap(c *Cache, i, j int) {
	a, b := c.heap[i], c.heap[j]
	c.heapSet(i, b)
	c.heapSet(j, a)
}
