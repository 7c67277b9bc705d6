package bench

// Rows returns the figures, one a row.
func (s *RadixSummary) Rows() (rows [][]string, legend string) {
	var t table
	t.row("requests", "%d", s.Requests)
	t.row("tokens", "%d", s.Tokens)
	t.row("matched in whole pages", "%d", s.MatchedTokens)
	t.row("and in part of a page", "%d", s.PartialTokens)
	t.row("checksum of the matches", "%s", s.MatchedFNV)
	t.row("hit rate", "%.2f %%", 100*s.HitRate)
	t.row("ideal hit rate", "%.2f %%", 100*s.IdealHitRate)
	t.row("nodes at the end", "%d", s.Nodes)
	t.row("leaves", "%d", s.Leaves)
	t.row("tokens cached", "%d", s.CachedTokens)
	t.row("tokens evicted", "%d", s.EvictedTokens)
	t.row("memory per cached token", "%.2f bytes", s.BytesPerToken)
	t.row("match", "%.0f ns a request", s.MatchPerReq)
	t.row("reading the page ids", "%.0f ns a request", s.PagesPerReq)
	t.row("insert, with pins", "%.0f ns a request", s.InsertPerReq)
	if s.EvictCalls > 0 {
		t.row("evict", "%.0f ns a call, %d calls", s.EvictPerCall, s.EvictCalls)
	}
	if s.MatchedTokens > s.Requests { // with fewer, Match only searches and compares next to nothing
		t.row("match", "%.3f ns a matched token", s.MatchPerToken)
		t.row("memcmp of the same tokens", "%.3f ns a token", s.MemcmpPerToken)
		t.row("match over memcmp", "%.2f", s.MatchOverMemcmp)
	}
	return t, ""
}
