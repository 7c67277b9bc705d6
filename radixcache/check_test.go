package radixcache

import (
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// planted is a tree with nodes of all kinds, and names for them.
type planted struct {
	*Cache
	stem, five, nine, tail NodeID   // tokens 1 2 3 4; below it 5 6 7 8, 9 9 and 0
	link, linked           NodeID   // of a namespace on its own: 31 to 34, then 35 to 38
	public, private        NodeID   // 21 22; 23 24 of one tenant
	privateRoot            NodeID   // the root of private's space
	held, below            NodeID   // 41 42 with a handle, 43 44
	media                  NodeID   // 51, a medium of two tokens, 52
	quota                  NodeID   // 61 62 of a namespace with a quota
	dead                   NodeID   // 71 to 74, flushed, with a handle
	wide                   NodeID   // the root of the public namespace: a fork
	late                   []NodeID // leaves that are not in the line
}

var tenant, limited = kv.Namespace{Salt: "x"}, kv.Namespace{LoRA: "limited"}

func plant(t *testing.T, policy Policy) *planted {
	c := newCache(t, Config{PageTokens: 2, BlockTokens: 4, Events: true, Policy: policy, TTL: time.Hour, PinnedTokens: 8})
	p := &planted{Cache: c}
	next := kv.PageID(0)
	insert := func(key Key) NodeID {
		m := c.Match(key)
		pages := c.AppendPages(m, nil)
		for len(pages) < kv.CeilPages(len(key.Tokens), 2) {
			pages = append(pages, next)
			next++
		}
		id, _ := c.Insert(key, pages, nil)
		return id
	}
	insert(keyOf(71, 72, 73, 74))
	p.dead = c.Pin(c.Match(keyOf(71, 72, 73, 74)))
	c.Flush()
	p.five = insert(keyOf(1, 2, 3, 4, 5, 6, 7, 8))
	p.nine = insert(keyOf(1, 2, 3, 4, 9, 9))
	p.stem = c.Match(keyOf(1, 2, 3, 4)).Node
	insert(keyOf(1, 2, 3, 4, 0))
	p.tail = c.Match(keyOf(1, 2, 3, 4, 0)).Partial.Node
	p.private = insert(Key{Namespace: tenant, Tokens: toks(21, 22, 23, 24), PublicTokens: 2})
	p.privateRoot = c.nodes[p.private].parent
	p.public = c.nodes[p.privateRoot].parent
	p.link = insert(Key{Namespace: tenant, Tokens: countUp(31, 4)})
	p.linked = insert(Key{Namespace: tenant, Tokens: countUp(31, 8)})
	p.below = insert(keyOf(41, 42, 43, 44))
	p.held = c.Pin(c.Match(keyOf(41, 42)))
	p.media = insert(Key{Tokens: toks(51, 7, 7, 52), Media: []kv.Media{{At: 1, Tokens: 2, Hash: 99}}})
	if err := c.SetQuota(limited, Quota{MinPages: 1, MaxPages: 9}); err != nil {
		t.Fatal(err)
	}
	p.quota = insert(Key{Namespace: limited, Tokens: toks(61, 62)})
	insert(keyOf(7)) // a tail, which the next frees
	insert(keyOf(7, 7))
	if err := c.PinPrefix(keyOf(1, 2, 3, 4), 0); err != nil {
		t.Fatal(err)
	}
	c.Expire(time.Second, nil)
	// The line drops a pinned leaf when that comes to the front.
	p.late = []NodeID{p.five, p.nine, p.tail, p.private}
	for _, id := range p.late {
		c.PinNode(id)
	}
	c.oldest(c.common)
	for _, id := range p.late {
		c.Unpin(id)
	}
	p.late = p.late[1:] // the first is the oldest of all, and goes to the front
	p.wide = c.nodes[p.stem].parent
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	if len(c.common.late.Items) != 3 || c.nodes[p.wide].fork == nil || len(c.links.loose) == 0 || len(c.free) == 0 {
		t.Fatalf("late %v, fork %v, loose %v, free %v: something is missing", c.common.late.Items, c.nodes[p.wide].fork, c.links.loose, c.free)
	}
	return p
}

// setTokens and setPages replace a node's tokens or pages without updating anything else.
func (p *planted) setTokens(id NodeID, tokens ...kv.Token) { p.nodes[id].tokens = wide.VecOf(tokens) }
func (p *planted) setPages(id NodeID, pages ...kv.PageID)  { p.nodes[id].pages = wide.PackedOf(pages) }

func (p *planted) space(id NodeID) *space { return p.nodes[id].space }

var plantedFaults = map[string]func(*planted){
	// Nodes.
	"edge token":            func(p *planted) { p.setTokens(p.five, 77, 6, 7, 8) },
	"hash":                  func(p *planted) { (*p.nodes[p.stem].hashes)[0]++ },
	"hash missing":          func(p *planted) { p.nodes[p.five].hashes = nil },
	"hash too many":         func(p *planted) { p.nodes[p.nine].hashes = &[]kv.BlockHash{1} },
	"hash list empty":       func(p *planted) { p.nodes[p.nine].hashes = &[]kv.BlockHash{} },
	"hashes without events": func(p *planted) { p.cfg.Events = false },
	"hash of a private":     func(p *planted) { (*p.nodes[p.private].hashes)[0]++ },
	"hash of the dead":      func(p *planted) { (*p.nodes[p.dead].hashes)[0]++ },
	"hash of media":         func(p *planted) { p.Cache.media.entries[0].key.hash++ },
	"page twice":            func(p *planted) { p.setPages(p.quota, p.nodes[p.stem].pages.At(0)) },
	"page twice, once dead": func(p *planted) { p.setPages(p.quota, p.nodes[p.dead].pages.At(0)) },
	"no page":               func(p *planted) { p.setPages(p.quota, kv.NoPage) },
	"page missing":          func(p *planted) { p.setPages(p.five, 2) },
	"edge empty":            func(p *planted) { p.setTokens(p.nine); p.setPages(p.nine) },
	"edge not whole pages":  func(p *planted) { p.setTokens(p.five, 5, 6, 7) },
	"tail with children":    func(p *planted) { n := &p.nodes[p.tail]; n.few[0], n.count = kid{9, p.nine}, 1 },
	"inner not whole":       func(p *planted) { p.setTokens(p.stem, 1); p.setPages(p.stem, 0) },
	"start":                 func(p *planted) { p.nodes[p.five].start += 2 },
	"parent":                func(p *planted) { p.nodes[p.five].parent = p.held },
	"space":                 func(p *planted) { p.nodes[p.five].space = p.space(p.link) },
	"stamp above clock":     func(p *planted) { p.nodes[p.stem].stamp = 99 },
	"root's stamp":          func(p *planted) { p.nodes[p.privateRoot].stamp = 99 },
	"a node as root":        func(p *planted) { p.nodes[p.quota].flags |= isRoot },

	"tokens without a node": func(p *planted) { p.memory.Of(make([]kv.Token, wide.ArenaWords)) },

	// Pins.
	"pins":                   func(p *planted) { p.nodes[p.held].pins++ },
	"pins of the stem":       func(p *planted) { p.nodes[p.stem].pins = 0 },
	"held":                   func(p *planted) { p.nodes[p.held].held = 0 },
	"held negative":          func(p *planted) { p.nodes[p.nine].held = -1 },
	"pins of a root":         func(p *planted) { p.nodes[p.wide].pins++ },
	"pins of a private root": func(p *planted) { p.nodes[p.privateRoot].pins++ },
	"handle on a root":       func(p *planted) { p.nodes[p.wide].held = 1 },
	"pins of an anchor":      func(p *planted) { p.PinNode(p.private); p.nodes[p.public].pins-- },

	// Children.
	"children order": func(p *planted) {
		k := &p.nodes[p.stem].few
		k[0], k[1] = k[1], k[0]
	},
	"child lost":        func(p *planted) { n := &p.nodes[p.stem]; n.few[2], n.count = kid{}, 2 },
	"child twice":       func(p *planted) { k := &p.nodes[p.stem].few; k[1] = k[0] },
	"child unknown":     func(p *planted) { p.nodes[p.stem].few[1].id = 99 },
	"child free":        func(p *planted) { p.nodes[p.stem].few[1].id = p.free[0] },
	"child root":        func(p *planted) { p.nodes[p.stem].few[1].id = Root },
	"child key":         func(p *planted) { p.nodes[p.stem].few[1].key++ },
	"child kept":        func(p *planted) { p.nodes[p.link].few[1] = kid{1, p.nine} },
	"children too many": func(p *planted) { p.nodes[p.stem].count++ },
	"few's skip":        func(p *planted) { p.nodes[p.stem].skip++ },
	"few's skip of one": func(p *planted) { p.nodes[p.link].skip = 1 },
	"few and a fork":    func(p *planted) { p.nodes[p.wide].few[0], p.nodes[p.wide].count = kid{9, p.nine}, 1 },
	"fork of one": func(p *planted) {
		n := &p.nodes[p.link]
		n.fork = &fork{runs: []run{{kids: []kid{n.few[0]}}}}
		n.few, n.count = [fewKids]kid{}, 0
	},
	"fork of none":        func(p *planted) { p.nodes[p.nine].fork = &fork{} },
	"run's child lost":    func(p *planted) { r := &p.nodes[p.wide].fork.runs[0]; r.kids = r.kids[1:] },
	"run's key":           func(p *planted) { p.nodes[p.wide].fork.runs[0].kids[1].key++ },
	"run's order":         func(p *planted) { k := p.nodes[p.wide].fork.runs[0].kids; k[0], k[1] = k[1], k[0] },
	"run's skip":          func(p *planted) { p.nodes[p.wide].fork.runs[0].skip++ },
	"run's skip negative": func(p *planted) { p.nodes[p.wide].fork.runs[0].skip = -1 },
	"keys of one run":     func(p *planted) { p.nodes[p.wide].fork.keys = []uint32{0} },
	"small runs unmerged": func(p *planted) {
		f := p.nodes[p.wide].fork
		k := f.runs[0].kids
		f.runs, f.keys = []run{{kids: k[:1]}, {kids: k[1:]}}, []uint32{k[0].key, k[1].key}
	},
	"siblings share a page": func(p *planted) { p.setTokens(p.nine, 5, 6) },
	"not in the index":      func(p *planted) { p.unindex(p.nodes[p.wide].fork, p.stem) },
	"index of another": func(p *planted) {
		f := p.nodes[p.wide].fork
		f.index.slots[f.index.slotOf(hashFirst(toks(1, 2), 2), p.stem)].id = p.held
	},
	"index hash": func(p *planted) {
		f := p.nodes[p.wide].fork
		f.index.slots[f.index.slotOf(hashFirst(toks(1, 2), 2), p.stem)].hash++
	},
	"index count": func(p *planted) { p.nodes[p.wide].fork.index.used++ },

	// Slots and sums.
	"free and in use":        func(p *planted) { p.free = append(p.free, p.five) },
	"free twice":             func(p *planted) { p.free = append(p.free, p.free[0]) },
	"free unknown":           func(p *planted) { p.free[0] = 99 },
	"free lost":              func(p *planted) { p.free = nil },
	"free root":              func(p *planted) { p.free = append(p.free, Root) },
	"edge free":              func(p *planted) { p.free = append(p.free, p.common.edge) },
	"evictable":              func(p *planted) { p.evictable.tokens++ },
	"protected":              func(p *planted) { p.protected.pages-- },
	"nodes":                  func(p *planted) { p.counts.Nodes++ },
	"leaves":                 func(p *planted) { p.counts.Leaves-- },
	"tails":                  func(p *planted) { p.counts.Tails-- },
	"links":                  func(p *planted) { p.links.count++ },
	"open namespaces":        func(p *planted) { p.open++ },
	"pages of an order":      func(p *planted) { p.tenants[0].pages++ },
	"namespaces of an order": func(p *planted) { p.common.spaces-- },

	// Spaces.
	"namespace lost":                 func(p *planted) { delete(p.alive, spaceKey{tenant, Root}) },
	"namespace nil":                  func(p *planted) { p.alive[spaceKey{tenant, Root}] = nil },
	"namespace too many":             func(p *planted) { p.alive[spaceKey{kv.Namespace{LoRA: "new"}, Root}] = p.space(p.link) },
	"namespace empty":                func(p *planted) { p.openSpace(kv.Namespace{LoRA: "new"}, Root) },
	"namespace seed":                 func(p *planted) { p.space(p.link).ns.LoRA = "y" },
	"namespace's root":               func(p *planted) { p.space(p.link).root = p.link },
	"namespace entered last":         func(p *planted) { p.latest = p.space(p.dead) },
	"root's edge":                    func(p *planted) { p.setTokens(p.wide, 1, 2) },
	"root's flags":                   func(p *planted) { p.nodes[p.wide].flags |= inLine },
	"root's start":                   func(p *planted) { p.nodes[p.privateRoot].start += 2 },
	"anchor uncounted":               func(p *planted) { delete(p.anchors, p.public) },
	"anchor counted twice":           func(p *planted) { p.anchors[p.public]++ },
	"anchor without a space":         func(p *planted) { p.anchors[p.five] = 1 },
	"anchor of a free node":          func(p *planted) { p.anchors[p.free[0]] = 1 },
	"anchor without a flag":          func(p *planted) { p.nodes[p.public].flags &^= isAnchor },
	"space at another anchor":        func(p *planted) { p.space(p.private).anchor = p.stem },
	"private space without a salt":   func(p *planted) { p.rename(p.private, kv.Namespace{}) },
	"private space of another model": func(p *planted) { p.rename(p.private, kv.Namespace{Model: "m", Salt: "x"}) },
	"flushed but found": func(p *planted) {
		p.alive[spaceKey{kv.Namespace{LoRA: "old"}, Root}] = p.space(p.dead)
		p.space(p.dead).ns.LoRA = "old"
	},
	"alive but marked":    func(p *planted) { p.space(p.link).dead = true },
	"dead order alive":    func(p *planted) { p.Cache.dead[0].dead = false },
	"dead order lost":     func(p *planted) { p.Cache.dead = nil },
	"tenant's order lost": func(p *planted) { p.tenants = nil },
	"tenant's quota":      func(p *planted) { p.tenants[0].quota = &Quota{MinPages: 1} },
	"tenant in common":    func(p *planted) { p.space(p.quota).order = p.common },
	"common with a quota": func(p *planted) { p.common.quota = &Quota{} },
	"tenant's edge":       func(p *planted) { p.tenants[0].edge = p.common.edge },

	// The order of eviction.
	"line order":          func(p *planted) { id := p.line[p.common.edge].prev; p.lineRemove(id); p.lineInsert(p.common.edge, id) },
	"line forward":        func(p *planted) { p.line[p.line[p.common.edge].next].next = p.media },
	"line back":           func(p *planted) { p.line[p.media].prev = p.common.edge },
	"line's end":          func(p *planted) { p.line[p.common.edge].prev = p.five },
	"line of a free node": func(p *planted) { p.lineInsert(p.line[p.common.edge].prev, p.free[0]) },
	"line of a root":      func(p *planted) { p.lineInsert(p.line[p.common.edge].prev, p.wide) },
	"line of another":     func(p *planted) { p.lineRemove(p.quota); p.lineInsert(p.line[p.common.edge].prev, p.quota) },
	"line too short":      func(p *planted) { p.line = p.line[:len(p.line)-1] },
	"line flag":           func(p *planted) { p.nodes[p.media].flags &^= inLine },
	"line flag too many":  func(p *planted) { p.nodes[p.nine].flags |= inLine },
	"in no line":          func(p *planted) { p.lineRemove(p.media) },
	"late short":          func(p *planted) { p.common.late.take(p.places[byAge], p.nine) },
	"late order":          func(p *planted) { swap(&p.common.late, p.places[byAge], 0, 2) },
	"late place":          func(p *planted) { p.places[byAge][p.nine]++ },
	"late key":            func(p *planted) { p.common.late.Items[0].key-- },
	"late stamp":          func(p *planted) { p.common.late.Items[2].stamp++ },
	"late unknown":        func(p *planted) { p.common.late.Items[0].id = 99 },
	"late and in line": func(p *planted) {
		p.common.late.put(p.places[byAge], heapKey{p.nodes[p.media].stamp, p.nodes[p.media].stamp, p.media})
	},
	"late of a pinned": func(p *planted) {
		p.common.late.put(p.places[byAge], heapKey{p.nodes[p.held].stamp, p.nodes[p.held].stamp, p.held})
	},
	"late of another": func(p *planted) {
		p.lineRemove(p.quota)
		p.common.late.put(p.places[byAge], heapKey{p.nodes[p.quota].stamp, p.nodes[p.quota].stamp, p.quota})
	},
	"late of a free node": func(p *planted) { p.places[byAge][p.free[0]] = 0 },
	"places too short":    func(p *planted) { p.places[byAge] = p.places[byAge][1:] },

	// Links.
	"link not queued":    func(p *planted) { p.links.loose = nil; p.nodes[p.link].flags &^= queued },
	"link flag":          func(p *planted) { p.nodes[p.link].flags &^= queued },
	"link flag too many": func(p *planted) { p.nodes[p.nine].flags |= queued },
	"link queued twice":  func(p *planted) { p.links.stiff = append(p.links.stiff, linkID{p.link, p.nodes[p.link].gen}) },
	"link never there":   func(p *planted) { p.links.loose = append(p.links.loose, linkID{p.link, p.nodes[p.link].gen + 1}) },
	"link unknown":       func(p *planted) { p.links.loose = append(p.links.loose, linkID{99, 0}) },
	"links that stay":    func(p *planted) { p.cfg.WholeLeaves = true },

	// Media.
	"medium's uses":      func(p *planted) { p.Cache.media.entries[0].uses++ },
	"medium's name":      func(p *planted) { p.Cache.media.ids[mediaKey{99, 7}] = 1 },
	"medium's name lost": func(p *planted) { clear(p.Cache.media.ids) },
	"medium free":        func(p *planted) { p.Cache.media.free = append(p.Cache.media.free, 0) },
	"medium unknown":     func(p *planted) { p.setTokens(p.quota, MediaToken+2, 62) },
	"medium begins late": func(p *planted) {
		p.setTokens(p.quota, MediaToken+1, 62)
		p.Cache.media.entries[0].uses++
	},
	"medium unused": func(p *planted) {
		p.Cache.media.entries = append(p.Cache.media.entries, mediaEntry{})
		p.Cache.media.ids[mediaKey{1, 1}] = 1
	},

	// Prefixes.
	"prefix sum":      func(p *planted) { p.Cache.prefixes.tokens-- },
	"prefix budget":   func(p *planted) { p.cfg.PinnedTokens = 3 },
	"prefix tokens":   func(p *planted) { p.Cache.prefixes.pins[0].tokens, p.Cache.prefixes.tokens = 2, 2 },
	"prefix not held": func(p *planted) { p.unpinPath(p.stem) },
	"prefix unknown":  func(p *planted) { p.Cache.prefixes.pins[0].node = 99 },
	"prefix root":     func(p *planted) { p.Cache.prefixes.pins[0].node = Root },
	"prefix twice": func(p *planted) {
		p.Cache.prefixes.pins = append(p.Cache.prefixes.pins, p.Cache.prefixes.pins[0])
		p.Cache.prefixes.tokens *= 2
	},
	"prefix flushed": func(p *planted) { p.Cache.prefixes.pins[0].node = p.dead },
}

// rankedFaults exist only under a policy with ranks.
var rankedFaults = map[string]func(*planted){
	"rank lost":  func(p *planted) { p.common.ranked.take(p.places[byRank], p.nine) },
	"rank key":   func(p *planted) { p.nodes[p.nine].hits++ },
	"rank place": func(p *planted) { p.places[byRank][p.nine] = 0; p.places[byRank][p.five] = 0 },
	"rank of pinned": func(p *planted) {
		p.common.ranked.put(p.places[byRank], heapKey{p.rank(&p.nodes[p.held]), p.nodes[p.held].stamp, p.held})
	},
	"rank order":      func(p *planted) { swap(&p.common.ranked, p.places[byRank], 0, len(p.common.ranked.Items)-1) },
	"no ranks":        func(p *planted) { p.places[byRank] = nil },
	"line not in use": func(p *planted) { p.cfg.TTL = 0 },
}

// TestCheckFindsPlantedBugs corrupts one thing at a time.
func TestCheckFindsPlantedBugs(t *testing.T) {
	try := func(policy Policy, faults map[string]func(*planted)) {
		for name, corrupt := range faults {
			t.Run(policy.String()+"/"+name, func(t *testing.T) {
				p := plant(t, policy)
				corrupt(p)
				defer func() {
					if r := recover(); r != nil {
						t.Errorf("Check panicked: %v", r)
					}
				}()
				if p.Check() == nil {
					t.Error("Check found nothing")
				}
			})
		}
	}
	try(LRU, plantedFaults)
	try(LFU, plantedFaults)
	try(LFU, rankedFaults)
}

// TestCheckFindsPlantedBugsInWideForks corrupts one thing at a time in a fork with many runs.
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
				c.Insert(keyOf(7, i, 0, 0), []kv.PageID{kv.PageID(i)}, nil)
			}
			f := c.nodes[c.alive[spaceKey{}].root].fork
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

// rename gives a node's space another namespace, in full.
func (p *planted) rename(id NodeID, ns kv.Namespace) {
	sp := p.space(id)
	delete(p.alive, spaceKey{sp.ns, sp.anchor})
	sp.ns = ns
	p.alive[spaceKey{ns, sp.anchor}] = sp
	p.cfg.Events = false
	for i := range p.nodes {
		p.nodes[i].hashes = nil
	}
}

func swap(h *leafHeap, at places, i, j int) {
	h.Items[i], h.Items[j] = h.Items[j], h.Items[i]
	at.Place(h.Items[i], i)
	at.Place(h.Items[j], j)
}
