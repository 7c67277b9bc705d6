package events

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/coppice-llm/coppice/events/eventlog"
	"github.com/coppice-llm/coppice/events/wire"
	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/kv"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// tierHash is an element of a rank's contents.
type tierHash struct {
	tier kv.Tier
	hash kv.BlockHash
}

// naive is a Sink that is plainly right: a set.
type naive struct {
	mu     sync.Mutex
	ranks  map[kv.Rank]map[tierHash]kv.LocalHash
	notify chan struct{} // of one place
}

func newNaive() *naive {
	return &naive{ranks: make(map[kv.Rank]map[tierHash]kv.LocalHash), notify: make(chan struct{}, 1)}
}

func (n *naive) change(r kv.Rank, f func(held map[tierHash]kv.LocalHash)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ranks[r] == nil {
		n.ranks[r] = make(map[tierHash]kv.LocalHash)
	}
	f(n.ranks[r])
	select {
	case n.notify <- struct{}{}:
	default:
	}
}

func store(held map[tierHash]kv.LocalHash, s Stored) error {
	known := !s.HasParent
	for tier := range kv.Tier(len(media)) {
		_, here := held[tierHash{tier, s.Parent}]
		known = known || here
	}
	if !known {
		return ErrUnknownParent
	}
	for _, b := range s.Blocks {
		if s.Named {
			for tier := range kv.Tier(kv.Tiers) {
				if local, ok := held[tierHash{tier, b.Hash}]; ok {
					held[tierHash{s.Tier, b.Hash}] = local
				}
			}
			continue
		}
		held[tierHash{s.Tier, b.Hash}] = b.Local
	}
	return nil
}

func (n *naive) Store(r kv.Rank, s Stored) (err error) {
	n.change(r, func(held map[tierHash]kv.LocalHash) { err = store(held, s) })
	return err
}

func (n *naive) Remove(r kv.Rank, tier kv.Tier, hashes []kv.BlockHash) {
	n.change(r, func(held map[tierHash]kv.LocalHash) {
		for _, h := range hashes {
			delete(held, tierHash{tier, h})
		}
	})
}

func (n *naive) Clear(r kv.Rank) { n.change(r, func(held map[tierHash]kv.LocalHash) { clear(held) }) }

func (n *naive) Replace(r kv.Rank, dump []Stored) (refused int) {
	n.change(r, func(held map[tierHash]kv.LocalHash) {
		clear(held)
		for _, s := range dump {
			if store(held, s) != nil {
				refused += len(s.Blocks)
			}
		}
	})
	return refused
}

func (n *naive) Forget(r kv.Rank) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.ranks, r)
}

func (n *naive) held(r kv.Rank) map[tierHash]kv.LocalHash {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.ranks[r])
}

const testBlock = 4

// tree makes events like a cache: parents are stored first, leaves removed first.
type tree struct {
	rng   *rand.Rand
	nodes []treeNode // index 0 is no node
	held  map[tierHash]kv.LocalHash
	ns    []kv.Namespace
}

type treeNode struct {
	block    kv.Block
	ns       kv.Namespace
	parent   int
	children int
	tiers    uint8
}

func newTree(seed uint64) *tree {
	return &tree{rng: rand.New(rand.NewPCG(seed, 1)), nodes: make([]treeNode, 1), held: make(map[tierHash]kv.LocalHash),
		ns: []kv.Namespace{{}, {}, {}, {LoRA: "sql"}, {Salt: "tenant"}, {LoRA: "sql", Salt: "b"}}}
}

func (t *tree) live(i int) bool { return i == 0 || t.nodes[i].tiers != 0 }

// grow stores a run of new blocks below a random one.
func (t *tree) grow() kv.Event {
	at := t.rng.IntN(len(t.nodes))
	for !t.live(at) {
		at = t.nodes[at].parent
	}
	if t.rng.IntN(6) == 0 {
		at = 0
	}
	ns := t.ns[t.rng.IntN(len(t.ns))]
	ev := kv.Event{Kind: kv.Stored}
	if at > 0 {
		ns = t.nodes[at].ns
		ev.Parent, ev.HasParent = t.nodes[at].block.Hash, true
	}
	ev.Namespace = ns
	hasher := kv.NewHasher(ns, testBlock)
	if ev.HasParent {
		hasher.Resume(ev.Parent)
	}
	for range 1 + t.rng.IntN(5) {
		tokens := make([]kv.Token, testBlock)
		for i := range tokens {
			tokens[i] = kv.Token(t.rng.IntN(200_000))
		}
		var media []uint64
		if t.rng.IntN(10) == 0 {
			media = []uint64{t.rng.Uint64()}
		}
		hash, local := hasher.NextMedia(tokens, media)
		b := kv.Block{Hash: hash, Local: local, Tokens: tokens, Media: media}
		ev.Blocks = append(ev.Blocks, b)
		t.nodes[at].children++
		t.nodes = append(t.nodes, treeNode{block: b, ns: ns, parent: at, tiers: 1})
		at = len(t.nodes) - 1
		t.held[tierHash{kv.TierDevice, hash}] = local
	}
	return ev
}

// step makes one random change that leaves the tree below size; it returns false if there
// was none.
func (t *tree) step() (kv.Event, bool) {
	if len(t.nodes) < 20 || t.rng.IntN(3) > 0 && len(t.held) < 300 {
		return t.grow(), true
	}
	i := 1 + t.rng.IntN(len(t.nodes)-1)
	n := &t.nodes[i]
	switch k := t.rng.IntN(200); {
	case k == 0:
		for i := range t.nodes {
			t.nodes[i].tiers, t.nodes[i].children = 0, 0
		}
		clear(t.held)
		return kv.Event{Kind: kv.Cleared}, true
	case n.tiers == 0:
		return kv.Event{}, false
	case k < 60 && n.tiers&(1<<kv.TierHost) == 0: // offload a copy
		n.tiers |= 1 << kv.TierHost
		t.held[tierHash{kv.TierHost, n.block.Hash}] = n.block.Local
		p := t.nodes[n.parent]
		return kv.Event{Kind: kv.Stored, Tier: kv.TierHost, Namespace: n.ns, Parent: p.block.Hash, HasParent: n.parent > 0, Blocks: []kv.Block{n.block}}, true
	case n.children > 0:
		return kv.Event{}, false
	}
	tier := kv.TierDevice
	if n.tiers&1 == 0 {
		tier = kv.TierHost
	}
	if n.tiers &^= 1 << tier; n.tiers == 0 {
		t.nodes[n.parent].children--
	}
	delete(t.held, tierHash{tier, n.block.Hash})
	return kv.Event{Kind: kv.Removed, Tier: tier, Hashes: []kv.BlockHash{n.block.Hash}}, true
}

func (t *tree) steps(n int) (evs []kv.Event) {
	for len(evs) < n {
		if ev, ok := t.step(); ok {
			evs = append(evs, ev)
		}
	}
	return evs
}

// tap is a Transport that collects the sent messages.
type tap struct {
	mu     sync.Mutex
	sent   []Message
	got    chan struct{} // of one place
	closed bool
}

func newTap() *tap { return &tap{got: make(chan struct{}, 1)} }

func (t *tap) Start(History) error { return nil }

func (t *tap) Send(m Message) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent = append(t.sent, m)
	select {
	case t.got <- struct{}{}:
	default:
	}
	return nil
}

func (t *tap) Close() error {
	t.closed = true
	return nil
}

// wait returns the messages from number from on, and waits for at least n of them.
func (t *tap) wait(from, n int) []Message {
	for {
		t.mu.Lock()
		sent := t.sent[min(from, len(t.sent)):]
		t.mu.Unlock()
		if len(sent) >= n {
			return sent
		}
		<-t.got
	}
}

// residency applies payloads to held, like a reader without recovery.
func residency(t *testing.T, held map[tierHash]kv.LocalHash, payloads ...[]byte) {
	t.Helper()
	var d wire.Decoder
	tr := newTranslator(testBlock, 1<<20)
	for _, p := range payloads {
		b, err := d.Decode(p)
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Events {
			switch e := &b.Events[i]; e.Kind {
			case wire.BlockStored:
				s, _, err := tr.stored(e)
				if err != nil {
					t.Fatal(err)
				}
				if err := store(held, s); err != nil {
					t.Fatal(err)
				}
			case wire.BlockRemoved:
				tier, hashes, _ := tr.removed(e)
				for _, h := range hashes {
					delete(held, tierHash{tier, h})
				}
			default:
				clear(held)
			}
		}
	}
}

func differ(a, b map[tierHash]kv.LocalHash) string {
	extra, wrong := 0, 0
	for k, v := range a {
		if w, ok := b[k]; !ok {
			extra++
		} else if v != w {
			wrong++
		}
	}
	if missing := len(b) - (len(a) - extra); extra+missing+wrong > 0 {
		return fmt.Sprintf("%d too many, %d missing, %d of other content", extra, missing, wrong)
	}
	return ""
}

// voice is a publisher with its log and its cache.
type voice struct {
	*Publisher
	log *eventlog.Log

	mu   sync.Mutex
	tree *tree
}

// step changes the tree.
func (v *voice) step(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.log.Append(v.tree.steps(n))
}

func (v *voice) publish(evs ...kv.Event) { v.log.Append(evs) }

// mustPublisher publishes the changes of tree; a nil tree has no dump.
func mustPublisher(t testing.TB, cfg PublisherConfig, lc eventlog.Config, tree *tree, transports ...Transport) *voice {
	t.Helper()
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = -1
	}
	v := &voice{tree: tree}
	var err error
	v.log, err = eventlog.New(lc, func(context.Context) ([]kv.Event, uint64, error) {
		v.mu.Lock()
		defer v.mu.Unlock()
		_, next := v.log.Kept()
		return tree.dump(), next, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if v.Publisher, err = NewPublisher(cfg, v.log, transports...); err != nil {
		t.Fatal(err)
	}
	return v
}

// dump returns a Stored event for each block, in the order of their creation.
func (t *tree) dump() (stored []kv.Event) {
	for i, n := range t.nodes {
		for tier := range kv.Tier(kv.Tiers) {
			if i > 0 && n.tiers&(1<<tier) != 0 {
				stored = append(stored, kv.Event{Kind: kv.Stored, Tier: tier, Namespace: n.ns, Parent: t.nodes[n.parent].block.Hash, HasParent: n.parent > 0, Blocks: []kv.Block{n.block}})
			}
		}
	}
	return stored
}

func mustSnapshot(t *testing.T, h History) Snapshot {
	t.Helper()
	s, err := h.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s
}
