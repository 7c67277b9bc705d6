package radixcache

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// Reason says why something left the tree.
type Reason uint8

// The reasons.
const (
	ByCapacity    Reason = iota // Evict made room
	ByQuota                     // its namespace had more than its Quota
	ByAge                       // Expire, after Config.TTL
	ByFlush                     // Flush; counted when the pages come out
	BySuperseding               // a tail leaf that a longer child made redundant
	reasonCount
)

var reasonNames = [reasonCount]string{"capacity", "quota", "age", "flush", "superseded"}

func (r Reason) String() string {
	if r < reasonCount {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// AgeBuckets is the number of entries in [Stats.EvictedAges].
const AgeBuckets = 32

// Stats is a snapshot of a [Cache].
type Stats struct {
	// What is held now. Tokens and Pages are the sums of evictable and protected.
	Nodes           int // runs and tail leaves
	Leaves          int // of Nodes: with nothing below them
	Tails           int // of Leaves: with a partly filled page
	Tokens          int
	Pages           int
	EvictableTokens int
	ProtectedTokens int // in nodes with pins on them or below
	EvictablePages  int
	ProtectedPages  int
	Namespaces      int // private ones behind different public prefixes count apart

	// What has happened since New.
	Lookups       uint64 // requests: Pins of a match, and Inserts without a handle
	LookupTokens  uint64 // of their keys
	Hits          uint64 // Lookups that found a page or more
	HitTokens     uint64 // found, in whole pages
	Inserts       uint64 // Extends too
	Splits        uint64
	Joins         uint64
	LossyJoins    uint64 // of Joins: of halves that the policy would have told apart
	ReturnedPages uint64 // by Insert and Extend: duplicates and superseded tails

	EvictedTokens [reasonCount]uint64 // by Reason
	EvictedPages  [reasonCount]uint64
	EvictedAges   [AgeBuckets]uint64 // pages by age, in accesses since their last use: entry i counts ages in [2^(i-1), 2^i), the last one all above
}

// Stats is O(1).
func (c *Cache) Stats() Stats {
	s := c.counts
	s.EvictableTokens, s.EvictablePages = c.evictable.tokens, c.evictable.pages
	s.ProtectedTokens, s.ProtectedPages = c.protected.tokens, c.protected.pages
	s.Tokens = s.EvictableTokens + s.ProtectedTokens
	s.Pages = s.EvictablePages + s.ProtectedPages
	s.Namespaces = c.openSpaces
	return s
}

// EvictablePages is Stats().EvictablePages, for those who ask at each step.
func (c *Cache) EvictablePages() int { return c.evictable.pages }

// Evicted sums up the pages that left for a reason that is not the caller's:
// all but [BySuperseding].
func (s Stats) Evicted() (tokens, pages uint64) {
	for r := range BySuperseding {
		tokens += s.EvictedTokens[r]
		pages += s.EvictedPages[r]
	}
	return tokens, pages
}

// String is a table of five lines.
func (s Stats) String() string {
	var why strings.Builder
	for r := range reasonCount {
		if n := s.EvictedPages[r]; n > 0 {
			fmt.Fprintf(&why, ", %d %v", n, r)
		}
	}
	return fmt.Sprintf(`tokens %d = %d evictable + %d protected
pages  %d = %d evictable + %d protected
nodes  %d in %d namespaces, %d leaves, %d of them tails
hits   %d of %d requests, %d of %d tokens
so far %d inserts (%d pages returned), %d splits, %d joins; pages removed by reason: %s
`,
		s.Tokens, s.EvictableTokens, s.ProtectedTokens,
		s.Pages, s.EvictablePages, s.ProtectedPages,
		s.Nodes, s.Namespaces, s.Leaves, s.Tails,
		s.Hits, s.Lookups, s.HitTokens, s.LookupTokens,
		s.Inserts, s.ReturnedPages, s.Splits, s.Joins, strings.TrimPrefix(why.String(), ", "))
}

// Usage is what one namespace holds, and what was found in it.
type Usage struct {
	EvictableTokens, ProtectedTokens int
	EvictablePages, ProtectedPages   int
	HitTokens                        uint64 // of reuses that ended in it, in whole pages, since the namespace last began to hold something
}

// Usage is that of a namespace on its own: not what it has behind public
// prefixes, for which see [Cache.PrivateUsage]. O(1).
func (c *Cache) Usage(ns kv.Namespace) Usage { return c.spaces[spaceKey{ns, Root}].usage() }

// PrivateUsage is that of all spaces of a namespace, behind public prefixes and
// on its own. Cost: the number of spaces in the tree.
func (c *Cache) PrivateUsage(ns kv.Namespace) Usage {
	var sum Usage
	for key, sp := range c.spaces { // any order: only adds
		if key.ns != ns {
			continue
		}
		u := sp.usage()
		sum.EvictableTokens += u.EvictableTokens
		sum.ProtectedTokens += u.ProtectedTokens
		sum.EvictablePages += u.EvictablePages
		sum.ProtectedPages += u.ProtectedPages
		sum.HitTokens += u.HitTokens
	}
	return sum
}

func (sp *space) usage() Usage {
	if sp == nil {
		return Usage{}
	}
	return Usage{sp.evictable.tokens, sp.protected.tokens, sp.evictable.pages, sp.protected.pages, sp.hits}
}

// lookedUp counts a request.
func (c *Cache) lookedUp(asked, found int) {
	c.counts.Lookups++
	c.counts.LookupTokens += uint64(asked)
	c.counts.HitTokens += uint64(found)
	c.counts.Hits += uint64(count(found > 0))
}

// noteRemoval counts what a leaf is about to lose, from its end, and remembers
// it for Explain.
func (c *Cache) noteRemoval(id NodeID, reason Reason, tokens, pages int) {
	c.counts.EvictedTokens[reason] += uint64(tokens)
	c.counts.EvictedPages[reason] += uint64(pages)
	n := &c.nodes[id]
	age := bits.Len64(c.clock - n.stamp)
	c.counts.EvictedAges[min(age, AgeBuckets-1)] += uint64(pages)
	c.remember(id, reason, n.tokens.Len()-tokens)
}
