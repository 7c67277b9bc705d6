package scheduler

import (
	"fmt"
	"strings"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// Metrics are counters since New and gauges, as a plain value.
type Metrics struct {
	Requests         uint64 // accepted by Add
	Steps            uint64
	Rows             uint64
	PromptTokens     uint64 // of admitted requests
	CachedTokens     uint64 // of PromptTokens, those found in the cache at first admission
	PrefillTokens    uint64 // run in chunks of prompts, including RecomputedTokens
	RecomputedTokens uint64 // run again after preemptions
	VoidTokens       uint64 // run for samples that had ended by the time
	OutputTokens     uint64
	Drafts           DraftCounts
	MaskedRows       uint64 // rows that may sample only some tokens
	MasksSet         uint64 // masks sent to the backend for them; rows with equal masks share one
	Preemptions      uint64
	Followers        uint64    // waits for a prefix that was being computed, or fetched by another request
	Fetches          uint64    // waits for a prefix from a lower tier
	Bypasses         uint64    // sum, over admissions, of the sequences skipped because they did not fit
	Expired          uint64    // samples ended by a deadline or queue timeout
	ToolTurns        uint64    // turns of sessions whose answers call tools: see AwaitTools
	Displaced        uint64    // requests ended in a full queue for others of higher priority
	Endings          [5]uint64 // by Reason

	// Gauges.
	Waiting, Running                             int
	Prefilling, PrefillLeft                      int // running samples whose prompt is not computed yet, and the tokens that they lack
	IdlePages, HeldPages, CachedPages, PoolPages int
	LeakedPages                                  int // granted, but without an owner; always 0
	Tiers                                        [kv.Tiers]TierMetrics
	Cache                                        radixcache.Stats
}

// TierMetrics counts what a tier below the device holds and has done. All fields are 0 for
// the device, and for tiers that are not configured.
type TierMetrics struct {
	HeldBytes             int64  // of its quota
	Extents               int    // in the tier
	HitTokens             uint64 // prompt tokens at first admission, fetched from the tier
	Reads, Writes         uint64 // that succeeded, including those between lower tiers
	ReadBytes, WriteBytes uint64 // of Reads and Writes
	ReadNanos             uint64 // duration of Reads, summed
	Errors                uint64 // moves from or to the tier that failed, without canceled ones
	Lost                  uint64 // extents that should have been written to it and found no room
}

// Metrics returns the counters and the gauges of now. Cost: a pass over the running
// sequences.
func (s *Scheduler) Metrics() Metrics {
	m := s.metrics
	m.Waiting, m.Running = s.queue.size+len(s.running.preempted), len(s.running.all)
	l := s.room.lease
	m.IdlePages, m.HeldPages, m.CachedPages, m.PoolPages = l.IdlePages(), l.HeldPages(), l.CachedPages(), l.Capacity()
	owned := l.IdlePages()
	m.Followers = s.queue.follows
	if s.fetches != nil {
		owned += s.tiers.held
		m.Tiers, m.Fetches = s.fetches.metrics(), s.fetches.begun
	}
	for _, q := range s.running.all {
		owned += len(q.table.own())
		if q.prefilling() {
			m.Prefilling++
			m.PrefillLeft += q.target - q.computed
		}
	}
	if s.cache != nil {
		m.Cache = s.cache.Stats()
		owned += m.Cache.Pages
	}
	m.MaskedRows, m.MasksSet = s.plans.masks.Counts()
	m.LeakedPages = l.GrantedPages() - owned
	return m
}

// TenantUsage counts the open samples of one tenant and the tokens it was served.
type TenantUsage struct {
	Tenant           string
	Waiting, Running int
	// ServedTokens are the uncached prompt tokens, from first admission on, and the output
	// tokens since the account was opened. The account of a tenant without open requests
	// is closed at once; under DLPM when neither debt nor credit is left.
	ServedTokens uint64
	// Deficit is, under DLPM, the number of tokens left of the tenant's share of the
	// current round; negative if the tenant is ahead by that number.
	Deficit int64
}

// Tenants returns the accounts, sorted by name.
func (s *Scheduler) Tenants() []TenantUsage {
	var all []TenantUsage
	for _, t := range s.accounts.All() {
		all = append(all, TenantUsage{t.Name, t.Waiting, t.Running, t.Served, s.accounts.Left(t)})
	}
	return all
}

// HitRate returns the part of prompt tokens that came from the cache, in [0, 1]; 0 if there
// were no prompt tokens.
func (m Metrics) HitRate() float64 {
	if m.PromptTokens == 0 {
		return 0
	}
	return float64(m.CachedTokens) / float64(m.PromptTokens)
}

// String formats the figures in six lines for a terminal.
func (m Metrics) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "requests: %d accepted, %d waiting, %d running\n", m.Requests, m.Waiting, m.Running)
	fmt.Fprintf(&b, "endings:  %d stop, %d length, %d abort (%d out of time), %d error\n",
		m.Endings[Stop], m.Endings[Length], m.Endings[Abort], m.Expired, m.Endings[Failed])
	fmt.Fprintf(&b, "steps:    %d, %d rows, %d preemptions, %d tokens recomputed, %d void\n", m.Steps, m.Rows, m.Preemptions, m.RecomputedTokens, m.VoidTokens)
	fmt.Fprintf(&b, "queue:    %d waits for a prefix in flight, %d bypasses of one that did not fit", m.Followers, m.Bypasses)
	if m.Displaced > 0 {
		fmt.Fprintf(&b, ", %d displaced", m.Displaced)
	}
	b.WriteByte('\n')
	fmt.Fprintf(&b, "tokens:   %d prompt, %d cached (%.1f %%), %d output\n", m.PromptTokens, m.CachedTokens, 100*m.HitRate(), m.OutputTokens)
	fmt.Fprintf(&b, "pages:    %d idle, %d held, %d cached of %d, %d leaked\n", m.IdlePages, m.HeldPages, m.CachedPages, m.PoolPages, m.LeakedPages)
	return b.String()
}
