package radixcache

import (
	"fmt"
	"strings"

	"github.com/coppice-llm/coppice/internal/enum"
)

// Reason says why something left the tree.
type Reason uint8

// The reasons.
const (
	ByCapacity    Reason = iota // Evict made room
	ByQuota                     // its namespace had more than its Quota
	ByAge                       // Expire, after Config.TTL
	ByFlush                     // Flush; counted when the pages come out
	ByDistrust                  // Purge, after Distrust
	BySuperseding               // a tail leaf that a longer child made redundant
	reasonCount
)

var reasonNames = enum.New[Reason]("radixcache", "reason", "capacity", "quota", "age", "flush", "distrust", "superseded")

func (r Reason) String() string { return reasonNames.Name(r) }

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
