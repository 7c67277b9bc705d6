package radixcache

import (
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// TestPinKeepsPartialNode: a Pin whose split makes one link too many must not
// join the node that holds the partial page, which the caller pins next.
func TestPinKeepsPartialNode(t *testing.T) {
	joins := uint64(0)
	for links := range kv.Token(24) {
		c, next := emptyCache(t, Config{PageTokens: 2}), kv.PageID(0)
		insert := func(tokens ...kv.Token) {
			pages := make([]kv.PageID, len(tokens)/2)
			for i := range pages {
				pages[i] = next
				next++
			}
			c.Insert(Key{Tokens: tokens}, pages, nil)
		}
		insert(99, 99)
		c.Evict(1, nil) // from now on links are joined early
		for i := range links + 1 {
			insert(i, 1, 2, 3, 4, 5)
			insert(i, 1, 2, 3, 4, 5, 6, 7) // behind a link now, the oldest is that of 0
		}
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
