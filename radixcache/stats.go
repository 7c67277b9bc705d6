package radixcache

import "fmt"

// Stats is a snapshot of a [Cache].
type Stats struct {
	// What is held now. Tokens and Pages are the sums of evictable and protected.
	Nodes           int // runs and tail leaves
	Leaves          int // of Nodes: without children
	Tails           int // of Leaves: with a partly filled page
	Tokens          int
	Pages           int
	EvictableTokens int
	ProtectedTokens int // in nodes with pins on them or below
	EvictablePages  int
	ProtectedPages  int
	Namespaces      int

	// What has happened since New; Clear leaves these alone.
	Inserts         uint64
	Splits          uint64
	ReturnedPages   uint64 // by Insert: duplicates and superseded tails
	SupersededTails uint64 // tail leaves that a longer child made redundant
	EvictedNodes    uint64
	EvictedPages    uint64
	EvictedTokens   uint64
}

// Stats is O(1).
func (c *Cache) Stats() Stats {
	s := c.counts
	s.EvictableTokens, s.EvictablePages = c.evictable.tokens, c.evictable.pages
	s.ProtectedTokens, s.ProtectedPages = c.protected.tokens, c.protected.pages
	s.Tokens = s.EvictableTokens + s.ProtectedTokens
	s.Pages = s.EvictablePages + s.ProtectedPages
	s.Namespaces = len(c.spaces)
	return s
}

// String is a table of four lines.
func (s Stats) String() string {
	return fmt.Sprintf(`tokens %d = %d evictable + %d protected
pages  %d = %d evictable + %d protected
nodes  %d in %d namespaces, %d leaves, %d of them tails
so far %d inserts (%d pages returned, %d tails superseded), %d splits, evicted %d nodes, %d pages, %d tokens
`,
		s.Tokens, s.EvictableTokens, s.ProtectedTokens,
		s.Pages, s.EvictablePages, s.ProtectedPages,
		s.Nodes, s.Namespaces, s.Leaves, s.Tails,
		s.Inserts, s.ReturnedPages, s.SupersededTails, s.Splits,
		s.EvictedNodes, s.EvictedPages, s.EvictedTokens)
}
