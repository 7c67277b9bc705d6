package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// Metrics are counters since New, as a plain value.
type Metrics struct {
	Requests         uint64 // accepted
	Steps            uint64
	Rows             uint64
	PromptTokens     uint64 // of admitted requests
	CachedTokens     uint64 // of those, found in the cache at first admission
	RecomputedTokens uint64 // run again after preemptions
	VoidTokens       uint64 // run for samples that had ended by then
	OutputTokens     uint64
	MaskedRows       uint64 // rows that may sample some tokens only
	MasksSet         uint64 // masks that went to the backend for them; rows share those that are the same
	Preemptions      uint64
	Followers        uint64    // waits for a prefix that was being computed, or fetched by another request
	Fetches          uint64    // waits for a prefix from a lower tier
	Bypasses         uint64    // admissions past one that did not fit, each by each
	Expired          uint64    // samples ended by a deadline or queue timeout
	Displaced        uint64    // requests ended in a full queue by others of higher priority
	Endings          [5]uint64 // by Reason

	// Gauges.
	Waiting, Running                             int
	IdlePages, HeldPages, CachedPages, PoolPages int
	LeakedPages                                  int // granted, and without an owner; always 0
	Tiers                                        [kv.Tiers]TierMetrics
	Cache                                        radixcache.Stats
}

// TierMetrics count what a tier below the device holds and has done; all 0 where there is
// no such tier, and for the device.
type TierMetrics struct {
	HeldBytes             int64  // of its quota
	Extents               int    // in it
	HitTokens             uint64 // of prompts at first admission, fetched from it
	Reads, Writes         uint64 // that ended well, those between lower tiers too
	ReadBytes, WriteBytes uint64 // of them
	ReadNanos             uint64 // that they took
	Errors                uint64 // moves from it or to it that failed; not those canceled
	Lost                  uint64 // extents that were to be written to it and found no room
}

// Metrics counts what is open now beside the running totals. It walks the
// running sequences.
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
		owned += len(q.own())
	}
	if s.cache != nil {
		m.Cache = s.cache.Stats()
		owned += m.Cache.Pages
	}
	m.MaskedRows, m.MasksSet = s.plans.masks.rows, s.plans.masks.sets
	m.LeakedPages = l.GrantedPages() - owned
	return m
}

// TenantUsage is what one tenant has open, and what it was served.
type TenantUsage struct {
	Tenant           string
	Waiting, Running int
	// ServedTokens are the un-cached prompt tokens, from first admission on, and the
	// output tokens since the account was opened. An account without open requests
	// is closed at once, but under DLPM when neither debt nor credit is left.
	ServedTokens uint64
	// Deficit is, under DLPM, how many tokens of its share are left in the current
	// round; negative if the tenant is ahead by so many.
	Deficit int64
}

// Tenants are the accounts, by name.
func (s *Scheduler) Tenants() []TenantUsage {
	var all []TenantUsage
	for _, t := range s.accounts.known {
		all = append(all, TenantUsage{t.name, t.waiting, t.running, t.served, s.accounts.left(t)})
	}
	slices.SortFunc(all, func(a, b TenantUsage) int { return cmp.Compare(a.Tenant, b.Tenant) })
	return all
}

// HitRate is the share of prompt tokens that came from the cache.
func (m Metrics) HitRate() float64 {
	if m.PromptTokens == 0 {
		return 0
	}
	return float64(m.CachedTokens) / float64(m.PromptTokens)
}

// String is a few lines for a terminal.
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
