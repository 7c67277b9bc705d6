package radixcache

import (
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// manyLinks returns a tree with the given number of links, in which a removal has lowered the
// limit on links. The oldest link begins with token 0.
func manyLinks(t *testing.T, links int) (*Cache, func(...kv.Token) NodeID) {
	c, next := emptyCache(t, Config{PageTokens: 2}), kv.PageID(0)
	insert := func(tokens ...kv.Token) NodeID {
		pages := make([]kv.PageID, len(tokens)/2)
		for i := range pages {
			pages[i] = next
			next++
		}
		id, _ := c.Insert(Key{Tokens: tokens}, pages, nil)
		return id
	}
	insert(99, 99)
	c.Evict(1, nil)
	for i := range kv.Token(links) {
		insert(i, 1, 2, 3, 4, 5)
		insert(i, 1, 2, 3, 4, 5, 6, 7)
	}
	return c, insert
}

// TestPinKeepsPartialNode: a Pin whose split makes one link too many must not join the node
// with the partial page, because the caller pins that node next.
func TestPinKeepsPartialNode(t *testing.T) {
	joins := uint64(0)
	for links := range 24 {
		c, _ := manyLinks(t, links+1)
		m := c.Match(Key{Tokens: []kv.Token{0, 1, 2, 9}})
		if m.Tokens != 2 || m.Partial.Tokens != 1 {
			t.Fatalf("%d links: match %+v", links+1, m)
		}
		id := c.Pin(m)
		c.PinNode(m.Partial.Node)
		c.Unpin(m.Partial.Node)
		c.Unpin(id)
		joins += c.Stats().Joins
	}
	if joins == 0 {
		t.Error("nothing was joined")
	}
}

// TestInsertKeepsItsNode: an Insert that splits must not join the node that it returns,
// even if that node is one link too many.
func TestInsertKeepsItsNode(t *testing.T) {
	c, insert := manyLinks(t, 0)
	tokens := []kv.Token{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	for end := len(tokens); end > 0; end -= 2 {
		id := insert(tokens[:end]...)
		if n := &c.nodes[id]; n.space == nil || n.end() != end {
			t.Fatalf("node %d ends after %d tokens, want %d", id, n.end(), end)
		}
	}
	if c.Stats().LossyJoins == 0 {
		t.Error("nothing was joined")
	}
}

// TestPrivateSpaceWithQuotaMovesSlab: the first private space of a namespace with a quota takes two
// slots, and each may move the slab.
func TestPrivateSpaceWithQuotaMovesSlab(t *testing.T) {
	for filler := range 8 {
		c := emptyCache(t, Config{PageTokens: 1})
		for i := range filler {
			c.Insert(Key{Tokens: []kv.Token{kv.Token(i)}}, []kv.PageID{kv.PageID(i)}, nil)
		}
		salted := kv.Namespace{Salt: "s"}
		if err := c.SetQuota(salted, Quota{MinPages: 1}); err != nil {
			t.Fatal(err)
		}
		key := Key{Namespace: salted, Tokens: []kv.Token{90, 91}, PublicTokens: 1}
		c.Insert(Key{Tokens: key.Tokens[:1]}, []kv.PageID{90}, nil)
		c.nodes = slices.Clip(c.nodes)
		c.Insert(key, []kv.PageID{90, 91}, nil)
		if err := c.Check(); err != nil {
			t.Errorf("%d others: %v", filler, err)
		}
		if m := c.Match(key); m.Tokens != 2 {
			t.Errorf("%d others: %d tokens match, want 2", filler, m.Tokens)
		}
	}
}

// TestInsertOnlyChain: a conversation that only Insert publishes does not keep one node
// per turn.
func TestInsertOnlyChain(t *testing.T) {
	c := emptyCache(t, Config{PageTokens: 1})
	var tokens []kv.Token
	var pages []kv.PageID
	for i := range 100 {
		tokens, pages = append(tokens, kv.Token(i)), append(pages, kv.PageID(i))
		if id, _ := c.Insert(Key{Tokens: tokens}, pages, nil); c.nodes[id].end() != len(tokens) {
			t.Fatalf("turn %d: node %d ends after %d tokens", i, id, c.nodes[id].end())
		}
		if n := c.Stats().Nodes; n > 2 {
			t.Fatalf("turn %d: %d nodes", i, n)
		}
	}
}

// TestInsertRanks: a leaf that Insert finds again is ranked by its new count at once.
func TestInsertRanks(t *testing.T) {
	c := emptyCache(t, Config{PageTokens: 1, Policy: LFU})
	c.Insert(Key{Tokens: []kv.Token{1}}, []kv.PageID{1}, nil)
	c.Insert(Key{Tokens: []kv.Token{2}}, []kv.PageID{2}, nil)
	c.Insert(Key{Tokens: []kv.Token{1}}, []kv.PageID{1}, nil)
	c.Insert(Key{Tokens: []kv.Token{1}}, []kv.PageID{1}, nil)
	c.Insert(Key{Tokens: []kv.Token{2}}, []kv.PageID{2}, nil)
	if freed := c.Evict(1, nil); !slices.Equal(freed, []kv.PageID{2}) {
		t.Errorf("evicted %v, want page 2, which was reused once", freed)
	}
}
