package radixcache

import "github.com/coppice-llm/coppice/internal/enum"

// Why is the reason why a match ended where it did.
type Why uint8

// The reasons.
const (
	WhyWhole      Why = iota // the tree holds all whole pages of the key
	WhyUnaligned             // some page of the tree shares only a part of the next page
	WhyNever                 // the tree never held the next page, or its removal was forgotten
	WhyEvicted               // the tree held the next page, and removed it
	WhyDistrusted            // the tree holds the next page, but distrusts it
	WhyFlushed               // the tree has not held the next page since the latest Flush; it may have before
)

var whyNames = enum.New[Why]("radixcache", "why", "whole", "unaligned", "never stored", "evicted", "distrusted", "flushed")

// String returns the reason in words, such as "never stored".
func (w Why) String() string { return whyNames.Name(w) }

// Explanation is the result of [Cache.Explain].
type Explanation struct {
	Tokens        int // number of tokens matched, in whole pages
	PartialTokens int // number of tokens that the next page shares with some page of the tree
	Why           Why // reason why the match goes no further

	// Set with WhyEvicted: the reason of the removal, the number of accesses since the
	// removal (Ago), and the number of accesses from the page's last use to the removal
	// (Unused). Policy is the cache's policy, set always.
	Reason Reason
	Policy Policy
	Ago    uint64
	Unused uint64
}

// Explain returns how many tokens of a key match, and why not more. It changes nothing,
// and does not depend on what other namespaces hold, except in a public prefix: the result
// may be shown to the key's tenant. It remembers 4,096 removals at most: a later removal may overwrite an
// earlier one with the same hash. It ignores the part of a key from the first medium on
// that is not in the tree. Cost: that of Match.
func (c *Cache) Explain(key Key) Explanation {
	m := c.Match(key)
	e := Explanation{Tokens: m.Tokens, PartialTokens: m.Partial.Tokens, Policy: c.cfg.Policy}
	whole := c.floorTokens(len(key.Tokens))
	if m.Tokens == whole {
		e.Why = WhyWhole
		return e
	}
	if m.Distrusted {
		e.Why = WhyDistrusted
		return e
	}
	r := route{ns: &key.Namespace}
	r.tokens, r.public = c.read(&key)
	if g := c.ghostOf(m, &r); g != nil {
		e.Why, e.Reason, e.Ago, e.Unused = WhyEvicted, g.reason, c.clock-g.clock, g.clock-g.stamp
		return e
	}
	switch {
	case m.Partial.Tokens > 0:
		e.Why = WhyUnaligned
	case c.epoch > 0: // what the tree held before is not remembered
		e.Why = WhyFlushed
	default:
		e.Why = WhyNever
	}
	return e
}

// ghostOf returns the remembered removal of the page that would continue match m of the
// key in r, or nil if there is none. It compares all fields that identify the page, because
// different pages may have the same slot, and because several namespaces may continue
// after one node.
func (c *Cache) ghostOf(m Match, r *route) *ghost {
	if c.ghosts.table == nil || m.Tokens >= len(r.tokens) {
		return nil
	}
	want := ghost{ns: *r.ns, parent: m.Node, gen: m.gen, start: int32(m.Tokens)}
	if m.Tokens < r.public {
		want.ns = r.outer()
	}
	want.page = hashPage(r.tokens[m.Tokens:], c.cfg.PageTokens)
	g := &c.ghosts.table[want.slot()]
	want.reason, want.clock, want.stamp = g.reason, g.clock, g.stamp
	if *g != want || g.clock == 0 && g.stamp == 0 {
		return nil
	}
	return g
}
