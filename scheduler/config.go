package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/radixcache"
)

// Config sets limits and policy. The zero value works: WithDefaults derives the rest from
// the backend's Info.
type Config struct {
	// Policy orders the waiting requests. Default FCFS.
	Policy Policy
	// MaxQueued bounds the waiting samples; Add refuses requests beyond it (SGLang:
	// max_queued_requests). Default 1024.
	MaxQueued int `default:"1024" min:"1" max:"1<<30"`
	// MaxRunning bounds the admitted samples (vLLM: max_num_seqs). Default and maximum:
	// the smaller of the backend's slots and rows.
	MaxRunning int
	// MaxSamples bounds Request.Samples. Default 64.
	MaxSamples int `default:"64" min:"1" max:"1<<30"`
	// StepTokens is the budget of a step (vLLM: max_num_batched_tokens). Each decoding
	// sample takes 1 of it first; prompts share the rest. A prompt token with c tokens
	// before it costs 1 + c/AttentionTokens, so StepTokens bounds the inter-token latency
	// that prompts of any length can cause.
	//
	// Default: the largest of 256, twice MaxRunning, and the number of prompt tokens that
	// the device computes in the time that it takes to read the weights; at most the
	// backend's MaxTokens. With twice MaxRunning, half of a step is left for prompts when
	// all sequences decode. With fewer tokens than the time of reading the weights pays
	// for, most of a step would be that reading.
	StepTokens int
	// ITLTarget is how long a step may take while sequences decode. Prompts then get as
	// many tokens of the budget as fit, predicted from the backend's Cost and the measured
	// times of earlier steps, and at least 16. Without decoding sequences prompts get
	// whole steps. Default 0: only StepTokens bounds a step.
	ITLTarget time.Duration `min:"0s"`
	// PromptFloor is the part of StepTokens that is kept for prompts while there are any,
	// however many sequences decode. If the budget that is left is too small for all
	// decoding sequences, they take turns. Default a quarter of StepTokens: where decoding
	// could use all of the budget, a sequence gets a token in three steps of four, and a
	// prompt of n tokens takes 4n/StepTokens steps instead of n. Negative keeps nothing.
	PromptFloor int
	// ChunkTokens is the most that one prompt takes of a step's budget while others decode
	// (SGLang: chunked_prefill_size, which bounds the whole step). Long prompts, which need
	// more than four whole steps, share one chunk of this size, two prompts at a time, so
	// that they do not make every step a full one. Default a quarter of StepTokens, but at
	// least 128.
	ChunkTokens int
	// AttentionTokens is the context length at which a prompt token costs twice as much as
	// the first one, see StepTokens. Default: from the backend's Cost. Negative counts
	// every token as 1.
	AttentionTokens int `min:"-1<<30" max:"1<<30"`
	// MaxPrefilling bounds the prompts that share the budget at a time. Under the policy
	// Priority, prompts of lower priority do not count for one of higher priority. Default
	// 8.
	MaxPrefilling int `default:"8" min:"1" max:"1<<30"`
	// DefaultMaxTokens is the output limit of requests that set none. Default 256.
	DefaultMaxTokens int `default:"256" min:"1" max:"1<<30"`
	// ShareTokens decides whether a waiting request waits for a prompt that is being
	// computed, instead of computing the same tokens again. It waits if the two share at
	// least this many tokens beyond those that the cache holds. Default 32. Samples of one
	// request always wait.
	ShareTokens int `default:"32" min:"1" max:"1<<30"`
	// MaxInflight is the number of plans that may be in flight. With 2 the next step is
	// planned while one runs, so that the device never waits for planning; a stop is then
	// noticed one step late, and a new request waits one step more. Default 1, or 2 where
	// launching takes more than a tenth of the shortest step by the backend's Cost; at
	// most the backend's MaxInflight.
	MaxInflight int

	// Speculate says how many guesses at its next tokens (drafts) a sequence verifies in a step.
	// Tokens are the same with every value. Default SpeculateAuto; it is off for a backend that
	// verifies none (Info.MaxDrafts).
	Speculate Speculate

	// MaxBypass bounds how often others overtake a request that did not fit at its turn:
	// after this many admissions of others, all pages that come free are kept for it from
	// its next turn on. Default 64.
	MaxBypass int `default:"64" min:"1" max:"1<<30"`
	// OldestEvery bounds starvation under every policy except FCFS and DLPM: each
	// OldestEvery-th admission goes to the oldest request. Default 16.
	OldestEvery int `default:"16" min:"1" max:"1<<30"`
	// Displace lets a request into a full queue at the cost of waiting requests of lower
	// priority, under any policy: see AddOrDisplace. Default off.
	Displace bool
	// PreemptThreshold is, under Priority, by how much the priority of a waiting request
	// must exceed that of a running one to preempt it. Default 1.
	PreemptThreshold int `default:"1" min:"1" max:"1<<30"`
	// Aging is, under LPM and DLPM, how many tokens of work count as much as one cached
	// token. While the device computes that many tokens, a waiting request moves ahead of
	// newer ones as if one more of its own tokens had been cached. With 128, a request that
	// has waited for 12,800 tokens of work ranks as if 100 more of its tokens were cached.
	// Default 128: in bench/results/serving.md it keeps nearly all the hits that LPM gains,
	// and the slowest requests wait no longer than under FCFS.
	Aging int `default:"128" min:"1" max:"1<<30"`
	// Quantum is, under DLPM, how far the order by cached prefixes may drive tenants
	// apart, in tokens served: see DLPM. A round is half a quantum. It should be at least
	// twice the tokens that a usual request computes; with a smaller one, a tenant that
	// sends one request at a time misses turns. Default 4096.
	Quantum int `default:"4096" min:"1" max:"1<<30"`
	// MaxDebtors and DebtAge bound the memory of tenants without open requests, under
	// DLPM: the number of accounts, of which those nearest to zero are forgotten first,
	// and the age of a debt.
	//
	// Default 4096 accounts: at some 200 bytes each, with a name, they take less than a
	// megabyte. Default 10 minutes: a debt is at most a prompt plus the outputs of all
	// samples that ran at a time. With 256 outputs of 1,000 tokens that is 256,000 tokens,
	// which a device that computes 430 tokens a second has computed for others within 10
	// minutes. A negative DebtAge forgets debts at once.
	MaxDebtors int           `default:"4096" min:"1" max:"1<<30"`
	DebtAge    time.Duration `default:"10m"`
	// Seed seeds the order of the policy Random.
	Seed uint64
	// Tenant limits each tenant that is not in Tenants.
	Tenant TenantConfig
	// Tenants lists the exceptions, by Request.Tenant.
	Tenants map[string]TenantConfig

	// Vocabulary has the bytes of each token. Requests with Stops need it.
	Vocabulary *grammar.Vocabulary

	// Tiers configures the tiers of KV below the device, and when KV moves. Layout, and
	// Bytes and SlotBytes of each tier, must agree with its store. Nil: no lower tiers.
	Tiers *tiering.Config

	// DisableCache computes every prompt in full and stores nothing.
	DisableCache bool
	// PinnedTokens is the number of tokens that PinPrefix may keep in the cache at a time.
	// Pinned pages never make room, so a request must fit into the rest of the pool.
	// Default 0: none.
	PinnedTokens int
	// Eviction is the order in which the cache evicts prefixes that no request uses.
	// Default radixcache.LRU.
	Eviction radixcache.Policy
	// SLRUHits is, under radixcache.SLRU, the number of reuses that protects a prefix:
	// prefixes with fewer reuses are evicted first. Default 1.
	SLRUHits int
	// CacheTTL is how long an unused prefix stays in the cache; older ones are removed
	// with the next step. Default 0: no limit.
	CacheTTL time.Duration
	// Quotas bound the tokens that a namespace keeps in the cache, rounded down to whole
	// pages. Tokens that running requests use count, but stay. 0 is no bound.
	Quotas map[kv.Namespace]int
	// MinQuotas are the tokens that a namespace keeps in the cache while other namespaces
	// have any that can be evicted, rounded down to whole pages. They are evicted if a
	// request could not run otherwise.
	MinQuotas map[kv.Namespace]int
	// Curve makes the estimate of HitRates, such as missratio.New(missratio.DefaultSamples). It
	// belongs to the scheduler from then on. Default: none.
	Curve radixcache.Curve
	// BlockTokens is the block size of cache events. Default 16, or a page if that is
	// larger.
	BlockTokens int
	// Events turns on the journal of cache events, and the hashing that it needs.
	Events bool

	// LeaseLowPages, LeaseBulkPages and LeaseHighPages size the lease: with fewer idle
	// pages than Low it asks the pool for Bulk more, and it returns idle pages above High.
	// Asking in bulk keeps messages to the pool rare. Defaults: 1/16, 1/8 and 1/2 of the
	// pool.
	LeaseLowPages, LeaseBulkPages, LeaseHighPages int

	// SharePages is the number of pages that this scheduler can rely on where several
	// schedulers lease from one pool; no request may need more. Default 0: the whole pool
	// is its own.
	SharePages int
}

// tenantConfig returns the limits of one tenant. Its Weight is at least 1.
func (c *Config) tenantConfig(name string) TenantConfig {
	t, special := c.Tenants[name]
	if !special {
		t = c.Tenant
	}
	t.Weight = max(t.Weight, 1)
	return t
}

// WithDefaults returns a copy with defaults in place of zero values, for a backend
// described by info.
func (c Config) WithDefaults(info engine.Info) Config {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = max(value, 1)
		}
	}
	c = bounds.Fill(c)
	switch {
	case info.MaxDrafts == 0:
		c.Speculate = SpeculateOff
	case c.Speculate == SpeculateDefault:
		c.Speculate = SpeculateAuto
	}
	set(&c.MaxRunning, min(info.MaxSlots, info.MaxRows))
	set(&c.StepTokens, min(max(256, 2*c.MaxRunning, stepTokens(info)), info.MaxTokens))
	if c.PromptFloor == 0 {
		c.PromptFloor = c.StepTokens / 4
	}
	if c.PromptFloor == 0 { // decode rows get all of a step that is smaller than 4 tokens
		c.PromptFloor = -1
	}
	if c.AttentionTokens == 0 {
		c.AttentionTokens = info.Cost.BalanceTokens()
	}
	if c.AttentionTokens == 0 { // the backend does not know
		c.AttentionTokens = -1
	}
	set(&c.ChunkTokens, min(max(c.StepTokens/4, 128), c.StepTokens))
	set(&c.MaxInflight, inflight(info))
	set(&c.BlockTokens, max(16, info.PageTokens))
	set(&c.LeaseLowPages, info.NumPages/16)
	set(&c.LeaseBulkPages, info.NumPages/8)
	set(&c.LeaseHighPages, max(info.NumPages/2, c.LeaseLowPages))
	return c
}

// stepTokens returns how many prompt tokens the backend computes in the fixed time of a
// step, which is mostly the reading of the weights; 0 if the backend gives no costs. For
// example, 6 ms for a step and 20 µs for a token give 300 tokens.
func stepTokens(info engine.Info) int {
	if !info.Cost.Known() {
		return 0
	}
	return int(math.Round(min(info.Cost.Step/info.Cost.Token, float64(info.MaxTokens))))
}

// inflight returns the default of MaxInflight. It is 2 only if the device would otherwise
// wait for the host for more than a tenth of its shortest step. Otherwise 1 is better: a
// plan that is made later takes account of more arrivals and stops.
func inflight(info engine.Info) int {
	if info.Cost.Host > 0.1*(info.Cost.Step+info.Cost.Row) {
		return min(2, info.MaxInflight)
	}
	return 1
}

// Validate returns an error that joins all faults of c for a backend described by info,
// each with its field and value; nil if there are none. It expects defaults to be filled
// in.
func (c Config) Validate(info engine.Info) error {
	errs := []error{bounds.Check("scheduler", c)}
	within := func(field string, v, lo, hi int) {
		if v < lo || v > hi {
			errs = append(errs, fmt.Errorf("scheduler: %s is %d, want %d to %d", field, v, lo, hi))
		}
	}
	if !policyNames.Has(c.Policy) {
		errs = append(errs, fmt.Errorf("scheduler: Policy is %v, want %s", c.Policy, policyNames.Names()))
	}
	if !c.Speculate.valid() {
		errs = append(errs, fmt.Errorf("scheduler: Speculate is %v, want auto, off or 1 to %d", c.Speculate, mostSpeculate))
	}
	within("MaxRunning", c.MaxRunning, 1, min(info.MaxSlots, info.MaxRows))
	within("StepTokens", c.StepTokens, 1, info.MaxTokens)
	within("PromptFloor", c.PromptFloor, -1<<30, max(c.StepTokens-1, 0))
	within("ChunkTokens", c.ChunkTokens, 1, c.StepTokens)
	within("MaxInflight", c.MaxInflight, 1, min(info.MaxInflight, 100))
	if n := info.MaxMasks; n > 0 {
		within("MaxRunning times MaxInflight", c.MaxRunning*c.MaxInflight, 1, n)
	}
	if c.Vocabulary != nil && c.Vocabulary.Size() != info.Vocab {
		errs = append(errs, fmt.Errorf("scheduler: Vocabulary has %d tokens, the backend %d", c.Vocabulary.Size(), info.Vocab))
	}
	errs = append(errs, c.Tenant.validate("Tenant"))
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		errs = append(errs, c.Tenants[name].validate(fmt.Sprintf("Tenants[%q]", name)))
	}
	if c.Tiers != nil {
		errs = append(errs, c.validateTiers(info))
	}
	within("PinnedTokens", c.PinnedTokens, 0, info.NumPages*info.PageTokens-1)
	within("SharePages", c.SharePages, 0, info.NumPages)
	if c.SharePages > 0 {
		within("PinnedTokens", c.PinnedTokens, 0, c.SharePages*info.PageTokens-1)
	}
	within("LeaseLowPages", c.LeaseLowPages, 1, info.NumPages)
	within("LeaseBulkPages", c.LeaseBulkPages, 1, info.NumPages)
	within("LeaseHighPages", c.LeaseHighPages, c.LeaseLowPages, info.NumPages)
	for _, ns := range c.quotaNames() {
		least, most := c.MinQuotas[ns], c.Quotas[ns]
		if most != 0 && most < info.PageTokens {
			errs = append(errs, fmt.Errorf("scheduler: Quotas[%+v] is %d, want 0 (none) or at least a page, %d", ns, most, info.PageTokens))
		}
		if least < 0 || most != 0 && least > most {
			errs = append(errs, fmt.Errorf("scheduler: MinQuotas[%+v] is %d, want 0 or more, and no more than the quota, %d", ns, least, most))
		}
	}
	if err := c.cache(info).Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// validateTiers reports the faults of Tiers by itself and its conflicts with other fields.
func (c Config) validateTiers(info engine.Info) error {
	t := c.Tiers.WithDefaults()
	errs := []error{t.Validate()}
	if c.DisableCache {
		errs = append(errs, errors.New("scheduler: Tiers are set, and DisableCache too"))
	}
	if l := t.Layout; l.PageTokens != info.PageTokens || info.PageBytes > 0 && l.PageBytes != info.PageBytes {
		errs = append(errs, fmt.Errorf("scheduler: Tiers.Layout has pages of %d tokens and %d bytes, the backend of %d and %d", l.PageTokens, l.PageBytes, info.PageTokens, info.PageBytes))
	}
	return errors.Join(errs...)
}

// cache returns the configuration of the prefix tree for a backend described by info.
func (c Config) cache(info engine.Info) radixcache.Config {
	return radixcache.Config{
		PageTokens: info.PageTokens, BlockTokens: c.BlockTokens, Events: c.Events, PinnedTokens: c.PinnedTokens, Curve: c.Curve,
		Policy: c.Eviction, SLRUHits: c.SLRUHits, TTL: c.CacheTTL,
	}
}

// newCache makes the prefix tree and sets its quotas, converted from tokens to whole
// pages.
func (c Config) newCache(info engine.Info) (*radixcache.Cache, error) {
	cache, err := radixcache.New(c.cache(info))
	if err != nil {
		return nil, err
	}
	for _, ns := range c.quotaNames() {
		if err := cache.SetQuota(ns, radixcache.Quota{MinPages: c.MinQuotas[ns] / info.PageTokens, MaxPages: c.Quotas[ns] / info.PageTokens}); err != nil {
			return nil, err
		}
	}
	return cache, nil
}

// quotaNames lists the namespaces that have a quota, sorted, so that no decision depends
// on the order of a map.
func (c Config) quotaNames() []kv.Namespace {
	all := maps.Clone(c.MinQuotas)
	if all == nil {
		all = map[kv.Namespace]int{}
	}
	maps.Copy(all, c.Quotas)
	return slices.SortedFunc(maps.Keys(all), func(a, b kv.Namespace) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.LoRA, b.LoRA), cmp.Compare(a.Salt, b.Salt))
	})
}
