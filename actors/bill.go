package actors

import "github.com/coppice-llm/coppice/kv"

// Bill is what one request took, all its samples together, in whatever order they ran
// and ended: those that were given up or failed with what was computed for them. The
// prompt counts once.
type Bill struct {
	PromptTokens int // 0: no sample was begun
	CachedTokens int // of the prompt, found by the sample that found least
	// CachedByTier says of CachedTokens in which tier they were when the request came.
	CachedByTier   [kv.Tiers]int
	ComputedTokens int // of the prompt, for all samples; with OutputTokens what the tenant's account is charged
	OutputTokens   int
}

// Add puts a sample's ending on the bill.
func (b *Bill) Add(e *Ending) {
	b.OutputTokens += e.OutputTokens
	b.ComputedTokens += e.ComputedTokens
	if e.CachedTokens+e.ComputedTokens == 0 {
		return // not begun
	}
	if b.PromptTokens == 0 || e.CachedTokens < b.CachedTokens {
		b.CachedTokens, b.CachedByTier = e.CachedTokens, e.CachedByTier
	}
	b.PromptTokens = e.PromptTokens
}
