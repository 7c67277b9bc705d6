package radixcache

import (
	"fmt"
	"strings"

	"github.com/coppice-llm/coppice/internal/enum"
)

// Reason is the reason why pages left the tree.
type Reason uint8

// The reasons.
const (
	ByCapacity    Reason = iota // Evict made room
	ByQuota                     // the namespace held more than its Quota.MaxPages
	ByAge                       // Expire, as it was unused for Config.TTL
	ByFlush                     // Flush; counted when Evict removes the pages
	ByDistrust                  // Purge of marked nodes
	BySuperseding               // a new, longer child made a tail leaf redundant
	ByParking                   // Drop
	reasonCount
)

var reasonNames = enum.New[Reason]("radixcache", "reason", "capacity", "quota", "age", "flush", "distrust", "superseded", "parked")

// String returns the reason's name in statistics, such as "capacity".
func (r Reason) String() string { return reasonNames.Name(r) }

// AgeBuckets is the number of entries in [Stats.EvictedAges].
const AgeBuckets = 32

// Stats is a copy of a [Cache]'s gauges and counters.
type Stats struct {
	// Gauges: what the cache holds now, flushed trees included. Tokens and Pages are
	// the sums of evictable and protected. Protected tokens and pages are those of
	// nodes with a pin on the node or below it.
	Nodes           int // number of runs and tail leaves
	Leaves          int // the part of Nodes with nothing below
	Tails           int // the part of Leaves with a partly filled page
	Tokens          int
	Pages           int
	EvictableTokens int
	ProtectedTokens int
	EvictablePages  int
	ProtectedPages  int
	Namespaces      int // a namespace counts again for each public prefix with its tokens after it

	// Counters: what has happened since New. HitTokens/LookupTokens is the hit rate.
	Lookups       uint64 // Pins of a match, and Inserts: one per request
	LookupTokens  uint64 // tokens of their keys
	Hits          uint64 // Lookups that found a page or more
	HitTokens     uint64 // tokens found, in whole pages
	Inserts       uint64 // calls of Insert and Extend
	Splits        uint64
	Joins         uint64
	LossyJoins    uint64 // Joins of halves that the policy would have evicted at different times
	ReturnedPages uint64 // pages returned by Insert and Extend: duplicates and superseded tails

	// Tokens and pages removed, by Reason.
	EvictedTokens [reasonCount]uint64
	EvictedPages  [reasonCount]uint64
	// Pages removed, by the number of accesses since their last use: entry i counts
	// numbers in [2^(i-1), 2^i), entry 0 the number 0, and the last entry also all
	// larger numbers. If most pages are removed soon after their last use, the cache
	// is too small for its load.
	EvictedAges [AgeBuckets]uint64
}

// Evicted returns the tokens and pages removed for all reasons but [BySuperseding]: for
// that reason a longer child holds the tokens.
func (s Stats) Evicted() (tokens, pages uint64) {
	for r := range BySuperseding {
		tokens += s.EvictedTokens[r]
		pages += s.EvictedPages[r]
	}
	return tokens, pages
}

// String returns a table of five lines.
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
