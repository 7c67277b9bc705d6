package server

import "sync/atomic"

// account counts the finished requests of one tenant, since the start.
type account struct {
	requests, promptTokens, cachedTokens, outputTokens, servedTokens atomic.Int64
}

// tenantFigures is the answer of GET /v1/cache/stats to a key without admin rights. The names are
// those of the node's figures.
type tenantFigures struct {
	Running      int     `json:"running"`
	Waiting      int     `json:"waiting"`
	Requests     int64   `json:"requests"`
	PromptTokens int64   `json:"prompt_tokens"`
	CachedTokens int64   `json:"cached_tokens"`
	HitRate      float64 `json:"hit_rate"`
	OutputTokens int64   `json:"output_tokens"`
	ServedTokens int64   `json:"served_tokens"`
	ShareLeft    int64   `json:"share_left"`
}

// add counts a finished request by its bill.
func (a *account) add(b *bill) {
	a.requests.Add(1)
	a.promptTokens.Add(int64(b.promptTokens))
	a.cachedTokens.Add(int64(b.cachedTokens))
	a.outputTokens.Add(int64(b.outputTokens))
	a.servedTokens.Add(int64(b.servedTokens))
}

// figures returns the counts. Running, Waiting and ShareLeft stay 0.
func (a *account) figures() tenantFigures {
	f := tenantFigures{
		Requests: a.requests.Load(), PromptTokens: a.promptTokens.Load(), CachedTokens: a.cachedTokens.Load(),
		OutputTokens: a.outputTokens.Load(), ServedTokens: a.servedTokens.Load(),
	}
	f.HitRate = float64(f.CachedTokens) / float64(max(f.PromptTokens, 1))
	return f
}

// account returns the account of a tenant. Only tenants with keys have one that counts.
func (m *metrics) account(tenant string) *account {
	if a := m.accounts[tenant]; a != nil {
		return a
	}
	return new(account)
}
