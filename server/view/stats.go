package view

import (
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/figures"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

// Stats are the figures of a node. The tags of their fields, which package internal/figures
// describes, define the page, GET /v1/cache/stats and GET /metrics. StatsOf fills a field from
// the field of coppice.Stats, or of a struct in it, with the same name.
type Stats struct {
	Pool    Pool     `json:"pool"`
	Totals  Totals   `json:"totals"`
	Tree    Tree     `json:"tree"`
	Tiers   []Tier   `json:"-" api:"tiers" by:"tier"` // tiers below the device
	Tenants []Tenant `json:"tenants" by:"tenant"`     // tenants with open requests, or with a debt under dlpm
}

// Pool divides the pages of KV memory by state. Idle, held, evictable and protected pages add up
// to Pages.
type Pool struct {
	PageTokens     int     `json:"page_tokens" metric:"kv_page_tokens" help:"Tokens of a page."`
	PageBytes      int     `json:"page_bytes" metric:"kv_page_bytes" help:"Bytes of a page."`
	Pages          int     `json:"pages" api:"pool_pages" metric:"kv_pool_pages" labels:"tier=device" help:"Pages of the pool."`
	IdlePages      int     `json:"idle_pages" metric:"kv_pages" labels:"tier=device,state=idle" help:"Pages of the pool by state: idle, held by running requests, cached and evictable, cached and in use (protected)."`
	HeldPages      int     `json:"held_pages" metric:"kv_pages" labels:"tier=device,state=held"`
	EvictablePages int     `json:"evictable_pages" metric:"kv_pages" labels:"tier=device,state=evictable"`
	ProtectedPages int     `json:"protected_pages" metric:"kv_pages" labels:"tier=device,state=protected"`
	Usage          float64 `json:"usage" metric:"kv_cache_usage_perc" labels:"tier=device" alias:"vllm" help:"Share of the pool that running requests need, 0 to 1."`
	LeakedPages    int     `json:"leaked_pages" metric:"kv_leaked_pages" help:"Pages without an owner. Always 0."`
	Tiers          []Tier  `json:"tiers" api:"-" metric:"-" why:"Stats.Tiers has them without the device"` // fastest first
}

// Tier is one level of KV memory.
type Tier struct {
	Name      string `json:"tier" label:"true"` // kv.Tier: "device", ...
	Pages     int    `json:"pages" metric:"-" why:"coppice_tier_capacity_bytes"`
	UsedPages int    `json:"used_pages" metric:"-" why:"coppice_tier_held_bytes"` // held and cached
	HitTokens uint64 `json:"hit_tokens" metric:"cached_tokens_total" by:"cache_source" help:"Prompt tokens that were cached, by the tier where they were."`
	// The rest is for tiers below the device only.
	CapacityBytes int64   `json:"capacity_bytes,omitempty" metric:"tier_capacity_bytes" help:"Bytes that a tier below the device may hold."`
	HeldBytes     int64   `json:"held_bytes,omitempty" metric:"tier_held_bytes" help:"Bytes that a tier below the device holds."`
	Extents       int     `json:"extents,omitempty" metric:"tier_extents" help:"Extents of pages that a tier below the device holds."`
	Reads         uint64  `json:"reads,omitempty" metric:"tier_reads_total" help:"Extents read from a tier."`
	Writes        uint64  `json:"writes,omitempty" metric:"tier_writes_total" help:"Extents written to a tier."`
	ReadBytes     uint64  `json:"read_bytes,omitempty" metric:"tier_read_bytes_total" help:"Bytes read from a tier."`
	WriteBytes    uint64  `json:"write_bytes,omitempty" metric:"tier_write_bytes_total" help:"Bytes written to a tier."`
	ReadSeconds   float64 `json:"read_seconds,omitempty" metric:"tier_read_seconds_total" help:"Time that the reads from a tier took."`
	ReadMillis    Figure  `json:"read_ms,omitempty" metric:"-" why:"coppice_tier_read_seconds_total by coppice_tier_reads_total"` // mean time of a read
	Errors        uint64  `json:"errors,omitempty" metric:"tier_errors_total" help:"Moves from or to a tier that failed. Prompts that needed them were computed."`
	Lost          uint64  `json:"lost,omitempty" metric:"tier_lost_total" help:"Extents that found no room in a tier."`
	Late          int64   `json:"late,omitempty" metric:"tier_late_total" help:"Operations of a tier that did not end by their deadline."`
	Busy          int64   `json:"busy,omitempty" metric:"tier_busy_total" help:"Operations that a tier refused because too many were open."`
	Full          int64   `json:"full,omitempty" metric:"tier_full_total" help:"Writes for which a tier had no room."`
	Foreign       int64   `json:"foreign,omitempty" metric:"tier_foreign_total" help:"Reads from a tier that found a record of another model, type, version or key."`
	IOErrors      int64   `json:"io_errors,omitempty" metric:"tier_io_errors_total" help:"Operations of a tier that failed with an error of the operating system."`
	Failing       int     `json:"failing,omitempty" metric:"tier_failing" help:"1 while reads from a tier or writes to it fail, else 0."`
	Damaged       int64   `json:"damaged,omitempty" metric:"tier_damaged_total" help:"Records of a tier with wrong bytes. Their tokens were computed."`
}

// Totals count since the node opened; Running and Waiting are current.
type Totals struct {
	Requests            uint64            `json:"requests" metric:"requests_total" help:"Requests accepted."`
	Running             int               `json:"running" metric:"num_requests_running" alias:"vllm" help:"Samples that have a slot."`
	Waiting             int               `json:"waiting" metric:"num_requests_waiting" alias:"vllm" help:"Samples that wait for a slot."`
	Prefilling          int               `json:"prefilling" metric:"num_requests_prefilling" help:"Running samples whose prompt is not computed yet."`
	PrefillLeft         int               `json:"prefill_left_tokens" metric:"prefill_left_tokens" help:"Prompt tokens that running samples have still to compute."`
	PrefillTokens       uint64            `json:"prefill_tokens" metric:"prefill_tokens_total" help:"Prompt tokens computed in steps, including those computed again after preemptions."`
	Steps               uint64            `json:"steps" metric:"steps_total" help:"Steps of the device."`
	Rows                uint64            `json:"rows" metric:"step_rows_total" help:"Sequences in the steps of the device, added up."`
	StepSeconds         float64           `json:"step_seconds" metric:"step_seconds_total" help:"Time that the device took for steps."`
	GraphFailures       int               `json:"graph_failures" metric:"graph_failures_total" help:"Steps whose kernels were launched one by one, because the GPU's driver made no graph of them."`
	MemoryFailures      int               `json:"memory_failures" metric:"step_memory_failures_total" help:"Steps that failed with all their requests, because the device had too little memory."`
	PromptTokens        uint64            `json:"prompt_tokens" metric:"prompt_tokens_total" alias:"vllm" help:"Prompt tokens of admitted requests."`
	QueriedTokens       uint64            `json:"queried_tokens" metric:"prefix_cache_queries_total" alias:"vllm" help:"Prompt tokens looked up in the prefix cache."`
	CachedTokens        uint64            `json:"cached_tokens" metric:"prefix_cache_hits_total" alias:"vllm" help:"Prompt tokens found in the prefix cache."`
	DeviceTokens        uint64            `json:"cached_tokens_device" metric:"cached_tokens_total" labels:"cache_source=device" help:"Prompt tokens that were cached, by the tier where they were."`
	HitRate             float64           `json:"hit_rate" metric:"cache_hit_rate" help:"Share of prompt tokens found in the prefix cache since the start, 0 to 1."`
	OutputTokens        uint64            `json:"output_tokens" metric:"generation_tokens_total" alias:"vllm" help:"Output tokens."`
	DraftedRows         uint64            `json:"drafted_rows" metric:"spec_decode_num_drafts_total" alias:"vllm" help:"Rows of steps that verified guesses at the tokens after their own."`
	DraftTokens         map[string]uint64 `json:"draft_tokens" metric:"spec_decode_num_draft_tokens_total" by:"source" alias:"vllm" help:"Guesses at output tokens that steps verified, by their source."`
	AcceptedDraftTokens map[string]uint64 `json:"accepted_draft_tokens" metric:"spec_decode_num_accepted_tokens_total" by:"source" alias:"vllm" help:"Guesses at output tokens that were right, by their source. They are output tokens."`
	TextTokens          map[string]uint64 `json:"text_tokens" metric:"text_tokens_total" by:"source" help:"Tokens of texts given instead of tokens, by source: reused from a text encoded before, or encoded."`
	TextBytes           int               `json:"text_cache_bytes" metric:"text_cache_bytes" help:"Bytes of memory for texts encoded before and their tokens."`
	RecomputedTokens    uint64            `json:"recomputed_tokens" metric:"recomputed_tokens_total" help:"Tokens computed again after preemptions."`
	VoidTokens          uint64            `json:"void_tokens" metric:"void_tokens_total" help:"Tokens computed for samples that had ended meanwhile."`
	MaskedRows          uint64            `json:"masked_rows" metric:"masked_rows_total" help:"Rows of steps that may sample some tokens only, as a format or a grammar asks."`
	MasksSet            uint64            `json:"masks_set" metric:"masks_set_total" help:"Token masks sent to the backend. Rows with equal masks share one."`
	Preemptions         uint64            `json:"preemptions" metric:"num_preemptions_total" alias:"vllm" help:"Samples that lost their slot and pages to others."`
	Followers           uint64            `json:"followers" metric:"followers_total" help:"Waits for a prefix that another request was computing or fetching."`
	Fetches             uint64            `json:"fetches" metric:"fetches_total" help:"Waits for a prefix from a tier below the device."`
	Bypasses            uint64            `json:"bypasses" metric:"bypasses_total" help:"Admissions past a request that did not fit."`
	Displaced           uint64            `json:"displaced" metric:"requests_displaced_total" help:"Requests that one of higher priority displaced in a full queue."`
	ToolTurns           uint64            `json:"tool_turns" metric:"tool_turns_total" help:"Turns of sessions whose answers call tools, of which the eviction policy session was told."`
	Expired             uint64            `json:"expired" metric:"requests_expired_total" help:"Samples that a time limit ended."`
	EvictedPages        uint64            `json:"evicted_pages" api:"-" metric:"-" why:"the sum of Tree.EvictedPages"`

	Endings map[string]uint64 `json:"endings" metric:"request_success_total" by:"finished_reason" alias:"vllm" help:"Samples that ended, by reason."`
	Stops   uint64            `json:"stops" api:"-" metric:"-" why:"in endings"`
	Lengths uint64            `json:"lengths" api:"-" metric:"-" why:"in endings"`
	Aborts  uint64            `json:"aborts" api:"-" metric:"-" why:"in endings"`
	Errors  uint64            `json:"errors" api:"-" metric:"-" why:"in endings"`
}

// Tree describes the radix tree. Shown is a part of the tree: pinned nodes and the most reused
// nodes, each with all its ancestors. All other fields are about the whole tree.
type Tree struct {
	Nodes           int    `json:"nodes" metric:"cache_nodes" help:"Nodes of the radix tree."`
	Leaves          int    `json:"leaves" metric:"cache_leaves" help:"Leaves of the radix tree."`
	Tails           int    `json:"tails" metric:"cache_tails" help:"Leaves of the radix tree with a partly filled page."`
	Namespaces      int    `json:"namespaces" metric:"cache_namespaces" help:"Namespaces in the radix tree, such as tenants and cache salts."`
	Tokens          int    `json:"tokens" api:"tree_tokens" metric:"cache_tokens" labels:"tier=device" help:"Tokens in the radix tree."`
	Pages           int    `json:"pages" api:"tree_pages" metric:"cache_pages" labels:"tier=device" help:"Pages in the radix tree."`
	EvictableTokens int    `json:"evictable_tokens" metric:"cache_evictable_tokens" help:"Tokens in the radix tree that can be evicted."`
	ProtectedTokens int    `json:"protected_tokens" metric:"cache_protected_tokens" help:"Tokens in the radix tree that running requests or pins keep."`
	Lookups         uint64 `json:"lookups" metric:"cache_lookups_total" help:"Lookups in the radix tree."`
	LookupTokens    uint64 `json:"lookup_tokens" metric:"cache_lookup_tokens_total" help:"Tokens of the keys looked up in the radix tree."`
	Hits            uint64 `json:"hits" metric:"cache_hits_total" help:"Lookups in the radix tree that found a page or more."`
	HitTokens       uint64 `json:"hit_tokens" metric:"cache_hit_tokens_total" help:"Tokens that lookups in the radix tree found, in whole pages."`
	Inserts         uint64 `json:"inserts" metric:"cache_inserts_total" help:"Insertions into the radix tree."`
	Splits          uint64 `json:"splits" metric:"cache_splits_total" help:"Nodes of the radix tree that were split."`
	Joins           uint64 `json:"joins" metric:"cache_joins_total" help:"Nodes of the radix tree that were joined with their only child."`
	LossyJoins      uint64 `json:"lossy_joins" metric:"cache_lossy_joins_total" help:"Joins of nodes that the eviction policy would have treated differently."`
	ReturnedPages   uint64 `json:"returned_pages" metric:"cache_returned_pages_total" help:"Pages that insertions returned: duplicates, and partly filled ones that longer runs replaced."`

	EvictedTokens map[string]uint64 `json:"evicted_tokens" metric:"evicted_tokens_total" labels:"tier=device" by:"reason" help:"Tokens that left the prefix cache, by reason."`
	EvictedPages  map[string]uint64 `json:"evicted_pages" metric:"evicted_pages_total" labels:"tier=device" by:"reason" help:"Pages that left the prefix cache, by reason."`

	// Hidden is the number of nodes that are neither in Shown nor counted in the field More of a
	// node in Shown.
	Hidden int    `json:"hidden" api:"-" metric:"-" why:"of what the page shows"`
	Shown  []Node `json:"shown" api:"-" metric:"-" why:"a list"` // parents before children, siblings in order
}

// Tenant is the load and account of one tenant.
type Tenant struct {
	Tenant       string `json:"tenant,omitempty" api:"tenant" label:"true"`
	Running      int    `json:"running" metric:"tenant_requests_running" help:"Samples that have a slot, by tenant."`
	Waiting      int    `json:"waiting" metric:"tenant_requests_waiting" help:"Samples that wait for a slot, by tenant."`
	ServedTokens uint64 `json:"served_tokens" metric:"-" why:"coppice_tenant_served_tokens_total, which keeps tenants that have nothing open"` // computed for it: prompts less cached, and outputs
	// ShareLeft is, under dlpm, the tokens left of its share in this round, negative if
	// overdrawn.
	ShareLeft int64 `json:"share_left" metric:"-" why:"of an account that closes when its tenant is idle"`
}

// StatsOf returns the figures of a node with this Info and these Stats. Tree.Shown stays empty.
func StatsOf(info *engine.Info, s *coppice.Stats) Stats {
	m := &s.Scheduler
	var st Stats
	figures.Copy(&st.Totals, *m)
	figures.Copy(&st.Tree, m.Cache)
	st.Tree.EvictedTokens, st.Tree.EvictedPages = map[string]uint64{}, map[string]uint64{}
	for why, n := range m.Cache.EvictedTokens {
		st.Tree.EvictedTokens[radixcache.Reason(why).String()] = n
		st.Tree.EvictedPages[radixcache.Reason(why).String()] = m.Cache.EvictedPages[why]
	}
	st.Pool = Pool{
		PageTokens: info.PageTokens, PageBytes: info.PageBytes, Pages: m.PoolPages, IdlePages: m.PoolPages - m.HeldPages - m.CachedPages,
		HeldPages: m.HeldPages, EvictablePages: m.Cache.EvictablePages, ProtectedPages: m.CachedPages - m.Cache.EvictablePages, LeakedPages: s.LeakedPages,
	}
	st.Pool.Usage = float64(st.Pool.HeldPages+st.Pool.ProtectedPages) / float64(max(m.PoolPages, 1))
	t := &st.Totals
	t.StepSeconds, t.HitRate, t.QueriedTokens, t.DeviceTokens = seconds(s.Engine.Nanos), m.HitRate(), m.PromptTokens, m.CachedTokens
	t.GraphFailures, t.MemoryFailures = s.Engine.GraphFailures, s.Engine.MemoryFailures
	_, t.EvictedPages = m.Cache.Evicted()
	t.Stops, t.Lengths, t.Aborts, t.Errors = m.Endings[scheduler.Stop], m.Endings[scheduler.Length], m.Endings[scheduler.Abort], m.Endings[scheduler.Failed]
	t.Endings = map[string]uint64{"stop": t.Stops, "length": t.Lengths, "abort": t.Aborts, "error": t.Errors}
	t.TextTokens, t.TextBytes = map[string]uint64{"reused": s.Texts.Reused, "encoded": s.Texts.Encoded}, s.Texts.Bytes
	t.DraftedRows = m.Drafts.Rows
	t.DraftTokens, t.AcceptedDraftTokens = map[string]uint64{}, map[string]uint64{}
	for source := range scheduler.DraftSource(scheduler.DraftSources) {
		t.DraftTokens[source.String()], t.AcceptedDraftTokens[source.String()] = m.Drafts.Drafted[source], m.Drafts.Accepted[source]
	}
	st.Tiers = make([]Tier, len(s.Tiers))
	for i := range s.Tiers {
		tier := &st.Tiers[i]
		figures.Copy(tier, s.Tiers[i])
		tier.Name, tier.ReadSeconds = s.Tiers[i].Tier.String(), seconds(int64(s.Tiers[i].ReadNanos))
		tier.Pages, tier.UsedPages = int(tier.CapacityBytes)/info.PageBytes, int(tier.HeldBytes)/info.PageBytes
		if tier.Reads > 0 {
			tier.ReadMillis = rounded(1e3 * tier.ReadSeconds / float64(tier.Reads))
		}
		t.DeviceTokens -= tier.HitTokens
	}
	device := Tier{Name: kv.TierDevice.String(), Pages: m.PoolPages, UsedPages: m.HeldPages + m.CachedPages, HitTokens: t.DeviceTokens}
	st.Pool.Tiers = append([]Tier{device}, st.Tiers...)
	st.Tenants = make([]Tenant, len(s.Tenants))
	for i := range s.Tenants {
		figures.Copy(&st.Tenants[i], s.Tenants[i])
		st.Tenants[i].ShareLeft = s.Tenants[i].Deficit
	}
	return st
}

func seconds(nanos int64) float64 { return time.Duration(nanos).Seconds() }
