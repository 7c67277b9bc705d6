package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteJSON writes the summary as one object.
func (s *RadixSummary) WriteJSON(w io.Writer) error {
	return writeJSON(w, s)
}

// WriteTable writes the summary for people.
func (s *RadixSummary) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(label, format string, args ...any) {
		fmt.Fprintf(t, "%s\t"+format+"\t\n", append([]any{label}, args...)...)
	}
	row("requests", "%d", s.Requests)
	row("tokens", "%d", s.Tokens)
	row("matched in whole pages", "%d", s.MatchedTokens)
	row("and in part of a page", "%d", s.PartialTokens)
	row("checksum of the matches", "%s", s.MatchedFNV)
	row("hit rate", "%.2f %%", 100*s.HitRate)
	row("ideal hit rate", "%.2f %%", 100*s.IdealHitRate)
	row("nodes at the end", "%d", s.Nodes)
	row("leaves", "%d", s.Leaves)
	row("tokens cached", "%d", s.CachedTokens)
	row("tokens evicted", "%d", s.EvictedTokens)
	row("memory per cached token", "%.2f bytes", s.BytesPerToken)
	row("match", "%.0f ns a request", s.MatchPerReq)
	row("reading the page ids", "%.0f ns a request", s.PagesPerReq)
	row("insert, with pins", "%.0f ns a request", s.InsertPerReq)
	if s.EvictCalls > 0 {
		row("evict", "%.0f ns a call, %d calls", s.EvictPerCall, s.EvictCalls)
	}
	if s.MatchedTokens > s.Requests { // with fewer, searching is all there is
		row("match", "%.3f ns a matched token", s.MatchPerToken)
		row("memcmp of the same tokens", "%.3f ns a token", s.MemcmpPerToken)
		row("match over memcmp", "%.2f", s.MatchOverMemcmp)
	}
	return t.Flush()
}
