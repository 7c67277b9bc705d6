package intake

import "github.com/coppice-llm/coppice/kv"

// PoolPages returns the number of pages of a backend's pool: pages, or if that is 0 as many as hold
// the given number of tokens.
func PoolPages(pages, tokens, pageTokens int) int {
	if pages == 0 && tokens > 0 && pageTokens > 0 {
		return kv.CeilPages(tokens, pageTokens)
	}
	return pages
}
