package radixcache

import (
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// TestDropIsNoPressure: a policy learns nothing from a leaf that is parked. Under CostAware the age at which leaves make room
// for others stays what it was, although the parked leaf was just used.
func TestDropIsNoPressure(t *testing.T) {
	c := emptyCache(t, Config{PageTokens: 1, Policy: CostAware})
	insert := func(token kv.Token) { c.Insert(Key{Tokens: []kv.Token{token}}, []kv.PageID{kv.PageID(token)}, nil) }
	horizon := func() uint64 { return c.by.(*costAware).horizon }
	for token := range kv.Token(10) {
		insert(token)
	}
	c.Evict(1, nil)
	before := horizon()
	if before < 5 {
		t.Fatalf("leaves make room at the age of %d accesses: nothing is shown", before)
	}
	insert(20)
	if freed := c.Drop(Key{Tokens: []kv.Token{20}}, nil); len(freed) != 1 || horizon() != before {
		t.Errorf("after a park of %v leaves make room at the age of %d accesses, want %d as before", freed, horizon(), before)
	}
}

// TestDrop: Drop removes the end of a key that no other key continues and no pin holds, with its partly filled page, and nothing else.
func TestDrop(t *testing.T) {
	c, err := New(Config{PageTokens: 4})
	if err != nil {
		t.Fatal(err)
	}
	next := kv.PageID(0)
	key := func(tokens string) Key {
		k := Key{}
		for _, r := range tokens {
			k.Tokens = append(k.Tokens, kv.Token(r))
		}
		return k
	}
	insert := func(tokens string) NodeID {
		k := key(tokens)
		pages := make([]kv.PageID, kv.CeilPages(len(k.Tokens), 4))
		for i := range pages {
			pages[i] = next
			next++
		}
		id, _ := c.Insert(k, pages, nil)
		return id
	}
	insert("aaaabbbbcccc")
	insert("aaaabbbbddddee")
	insert("aaaaxxxx")
	for _, tc := range []struct {
		drop  string
		freed int
	}{
		{"aaaabbbb", 0},       // two keys continue it
		{"aaaabbbbdddd", 0},   // the page with ee continues it
		{"aaaabbbbddddef", 0}, // another page than that with ee
		{"aaaabbbbddddee", 2},
		{"aaaazzzz", 0},
		{"none", 0},
	} {
		freed := c.Drop(key(tc.drop), nil)
		if got := c.Match(key("aaaabbbbcccc")).Tokens; len(freed) != tc.freed || got != 12 {
			t.Errorf("Drop %s frees %d pages, want %d; %d tokens of another key are left", tc.drop, len(freed), tc.freed, got)
		}
	}
	pin := c.Keep(c.Match(key("aaaabbbb")))
	if freed := c.Drop(key("aaaabbbbcccc"), nil); len(freed) != 1 || c.Match(key("aaaabbbb")).Tokens != 8 {
		t.Errorf("below a pin: %v", freed)
	}
	c.Unpin(pin)
	if freed := c.Drop(key("aaaabbbb"), nil); len(freed) != 1 || c.Match(key("aaaaxxxx")).Tokens != 8 {
		t.Errorf("down to the fork: %v", freed)
	}
	if freed := c.Drop(key("aaaaxxxx"), nil); len(freed) != 2 || c.Stats().Pages != 0 || c.Stats().EvictedPages[ByParking] != 6 {
		t.Errorf("the last: %v, %+v", freed, c.Stats())
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
}
