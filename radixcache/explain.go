package radixcache

import (
	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// Why says why a match went no further.
type Why uint8

// The reasons.
const (
	WhyWhole      Why = iota // all whole pages of the key are held
	WhyUnaligned             // what comes next shares only a part of a page
	WhyNever                 // what comes next was never held, or so long ago that it is forgotten
	WhyEvicted               // what comes next was held
	WhyElsewhere             // this namespace does not hold it, but others hold more
	WhyDistrusted            // what comes next is distrusted
)

var whyNames = enum.New[Why]("radixcache", "why", "whole", "unaligned", "never stored", "evicted", "other namespace", "distrusted")

func (w Why) String() string { return whyNames.Name(w) }

// Explanation is the answer of [Cache.Explain].
type Explanation struct {
	Tokens        int // matched, in whole pages: all in the device's tier, there is no other yet
	PartialTokens int // that the next page shares with some page
	Why           Why

	// With WhyEvicted: why, under which policy, and how many accesses ago; and
	// how long it had not been used by then, in accesses too.
	Reason Reason
	Policy Policy
	Ago    uint64
	Unused uint64

	// With WhyElsewhere: the namespace that holds most of the key, and how much.
	Namespace       kv.Namespace
	NamespaceTokens int
}

// Explain says how far a key matches and why it stops there. It reads only.
// What went together with the last of a medium is not remembered. Cost: a match
// in each namespace.
func (c *Cache) Explain(key Key) Explanation {
	m := c.Match(key)
	e := Explanation{Tokens: m.Tokens, PartialTokens: m.Partial.Tokens, Policy: c.Config().Policy}
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
	for sk, sp := range c.alive {
		if sk.anchor != Root || sk.ns == key.Namespace {
			continue
		}
		other := route{tokens: r.tokens, ns: &sp.ns}
		cur, _ := c.follow(cursor{node: sp.root}, &other, len(other.tokens), false)
		if cur.tokens > max(e.Tokens, e.NamespaceTokens) || cur.tokens == e.NamespaceTokens && cur.tokens > e.Tokens && before(sk.ns, e.Namespace) {
			e.Why, e.Namespace, e.NamespaceTokens = WhyElsewhere, sk.ns, cur.tokens
		}
	}
	if e.Why == WhyElsewhere {
		return e
	}
	e.Why = WhyNever
	if m.Partial.Tokens > 0 {
		e.Why = WhyUnaligned
	}
	return e
}

// ghostOf finds what used to continue a match. Below one node there may be
// several namespaces.
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
