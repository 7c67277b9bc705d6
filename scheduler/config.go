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
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/radixcache"
)

// Config sets limits and policy. The zero value serves.
type Config struct {
	// Policy orders the waiting requests. Default FCFS.
	Policy Policy
	// MaxQueued bounds the waiting samples; Add refuses beyond it. Default 1024.
	MaxQueued int
	// MaxRunning bounds the admitted samples. Default and maximum: the backend's
	// slots and rows.
	MaxRunning int
	// MaxSamples bounds Request.Samples. Default 64.
	MaxSamples int
	// StepTokens is the budget of a step. Each decoding sample takes 1 of it first;
	// prompts share the rest, a token behind c others counting as
	// 1 + c/AttentionTokens. So it bounds the inter-token latency that prompts of
	// any length can cause. Default twice MaxRunning, but at least 256, and at most
	// the backend's MaxTokens: so when all sequences decode, half of the step is left
	// for prompts; and not less than the device computes while it reads the weights.
	StepTokens int
	// ITLTarget is how long a step may take while sequences decode: prompts then get what
	// fits, by the backend's Cost and the times of the steps before, of what StepTokens
	// leaves them, and a few tokens at least. A prompt alone gets all. Default 0: only
	// StepTokens bounds a step.
	ITLTarget time.Duration
	// PromptFloor is what of StepTokens is kept for prompts while there are any,
	// however many sequences decode: these take turns then. Default a quarter of
	// StepTokens: with all of the budget decoding, a sequence gets its token in three
	// steps of four, and a prompt of n tokens takes 4n/StepTokens steps, not n.
	// Negative keeps nothing.
	PromptFloor int
	// ChunkTokens is what one prompt takes of that budget at most while others
	// decode; long prompts, which would take four whole steps or more, take so
	// much together, and two of them are computed at a time. So they do not make
	// every step a full one. Default a quarter of StepTokens, but at least 128.
	ChunkTokens int
	// AttentionTokens: see StepTokens. Default what the backend's Cost says;
	// negative counts every token as 1.
	AttentionTokens int
	// MaxPrefilling bounds the prompts that are computed in turns under one
	// budget; under the policy Priority those of lower priority do not count for one
	// of higher. Default 8.
	MaxPrefilling int
	// DefaultMaxTokens is the output limit of requests that set none. Default 256.
	DefaultMaxTokens int
	// ShareTokens: a waiting request whose prompt shares at least so many more
	// tokens with a prompt that is being computed than with the cache waits for
	// them instead of computing them too. Default 32; samples of one request
	// always wait.
	ShareTokens int
	// MaxInflight is how many plans may be out at a time: with 2 the next step is
	// planned while one runs, so that the device never waits for the planning; a
	// stop is then seen one step late, and a new request waits for one step more.
	// Default 1, or 2 where launching takes more than a tenth of a step by the backend's
	// Cost; at most the backend's MaxInflight.
	MaxInflight int

	// MaxBypass bounds how many requests are admitted before one that did not fit
	// when it was its turn; at its next turn after that all room that comes free is
	// kept for it. Default 64.
	MaxBypass int
	// OldestEvery bounds starvation under every policy but FCFS and DLPM: each
	// OldestEvery-th admission goes to the request that came first. Default 16.
	OldestEvery int
	// Displace lets a request into a full queue at the cost of waiting ones of lower
	// priority, whatever the policy: see AddOrDisplace. Default off.
	Displace bool
	// PreemptThreshold is, under Priority, by how much the priority of a waiting
	// request must be above that of a running one to take its place. Default 1.
	PreemptThreshold int
	// Aging, under LPM and DLPM: while the device computes so many tokens, a
	// waiting request gains on new ones as if one more token of it were cached.
	// Default 128: in bench/results/serving.md it keeps nearly all the hits that LPM
	// gains, and the slowest requests wait no longer than under FCFS.
	Aging int
	// Quantum is, under DLPM, how far the order by cached prefixes may drive tenants
	// apart, in tokens served: see there. A round is half of it. So it should be at
	// least twice what a usual request computes, or a tenant that sends one at a time
	// has its turns passed by. Default 4096.
	Quantum int
	// MaxDebtors and DebtAge bound what is remembered, under DLPM, of tenants that have
	// nothing open: how many accounts, those first forgotten that are nearly even, and
	// for how long a debt. Defaults 4096, of some 200 bytes each with a name, so below
	// a megabyte; and 10 minutes: a debt is at most a prompt and the outputs of all
	// that ran at a time, 256,000 tokens with 256 outputs of 1,000, which a device has
	// computed for others within 10 minutes at 430 tokens a second. Negative forgets
	// debts at once.
	MaxDebtors int
	DebtAge    time.Duration
	// Seed of the policy Random.
	Seed uint64
	// Tenant is what each tenant may have, but those in Tenants.
	Tenant TenantConfig
	// Tenants are the exceptions, by Request.Tenant.
	Tenants map[string]TenantConfig

	// Vocabulary says which bytes each token stands for. Requests with Stops need it.
	Vocabulary *grammar.Vocabulary

	// Tiers are the tiers of KV below the device, and when it moves. Layout, and Bytes and
	// SlotBytes of each tier, are as its store says. Nil: there is none.
	Tiers *tiering.Config

	// DisableCache computes every prompt whole and stores nothing.
	DisableCache bool
	// PinnedTokens is how many tokens PinPrefix may keep in the cache at a time. A
	// request must fit the pool beside them. Default 0: none.
	PinnedTokens int
	// Eviction is the order in which the cache lets go of what no request uses. Default
	// radixcache.LRU.
	Eviction radixcache.Policy
	// SLRUHits is, under radixcache.SLRU, how many reuses keep a prefix beyond those that
	// have fewer. Default 1.
	SLRUHits int
	// CacheTTL is how long what no request uses stays in the cache: what is older goes
	// with the next step. Default 0: for ever.
	CacheTTL time.Duration
	// Quotas bound how many tokens a namespace keeps in the cache, by namespace, rounded
	// down to whole pages. What running requests use counts, but stays. 0 is no bound.
	Quotas map[kv.Namespace]int
	// MinQuotas are how many tokens a namespace keeps in the cache while others have any that
	// can be evicted, by namespace, rounded down to whole pages. They are evicted where a
	// request could not run otherwise.
	MinQuotas map[kv.Namespace]int
	// CurveSamples turns the curve of HitRates on: how many blocks it tracks, in some
	// 130 bytes each; radixcache.DefaultCurveSamples serves most. Default 0: off.
	CurveSamples int
	// BlockTokens is the block size of cache events. Default 16, or a page if
	// that is larger.
	BlockTokens int
	// Events turns the journal of cache events, and the hashing for it, on.
	Events bool

	// LeaseLowPages, LeaseBulkPages and LeaseHighPages steer the lease: with
	// fewer idle pages than Low it asks the pool for Bulk more; idle pages above
	// High go back. Defaults 1/16, 1/8 and 1/2 of the pool.
	LeaseLowPages, LeaseBulkPages, LeaseHighPages int

	// SharePages is what this scheduler can count on where several lease from one pool; no
	// request may need more. Default 0: the pool is its own.
	SharePages int
}

// tenantConfig is that of one tenant.
func (c *Config) tenantConfig(name string) TenantConfig {
	t, special := c.Tenants[name]
	if !special {
		t = c.Tenant
	}
	t.Weight = max(t.Weight, 1)
	return t
}

// WithDefaults fills what is zero, for a backend described by info.
func (c Config) WithDefaults(info engine.Info) Config {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = max(value, 1)
		}
	}
	set(&c.MaxQueued, 1024)
	set(&c.MaxRunning, min(info.MaxSlots, info.MaxRows))
	set(&c.StepTokens, min(max(256, 2*c.MaxRunning, stepTokens(info)), info.MaxTokens))
	if c.PromptFloor == 0 {
		c.PromptFloor = c.StepTokens / 4
	}
	if c.PromptFloor == 0 { // of steps so small all goes to decoding sequences
		c.PromptFloor = -1
	}
	set(&c.DefaultMaxTokens, 256)
	set(&c.ShareTokens, 32)
	set(&c.MaxSamples, 64)
	if c.AttentionTokens == 0 {
		c.AttentionTokens = info.Cost.BalanceTokens()
	}
	if c.AttentionTokens == 0 { // the backend does not know
		c.AttentionTokens = -1
	}
	set(&c.ChunkTokens, min(max(c.StepTokens/4, 128), c.StepTokens))
	set(&c.MaxPrefilling, 8)
	set(&c.MaxInflight, inflight(info))
	set(&c.MaxBypass, 64)
	set(&c.OldestEvery, 16)
	set(&c.PreemptThreshold, 1)
	set(&c.Aging, 128)
	set(&c.Quantum, 4096)
	set(&c.MaxDebtors, 4096)
	if c.DebtAge == 0 {
		c.DebtAge = 10 * time.Minute
	}
	set(&c.BlockTokens, max(16, info.PageTokens))
	set(&c.LeaseLowPages, info.NumPages/16)
	set(&c.LeaseBulkPages, info.NumPages/8)
	set(&c.LeaseHighPages, max(info.NumPages/2, c.LeaseLowPages))
	return c
}

// stepTokens is how many tokens of prompts the backend computes in the time that a step
// takes at any rate: with fewer, reading the weights is most of a step.
func stepTokens(info engine.Info) int {
	if !info.Cost.Known() {
		return 0
	}
	return int(math.Round(min(info.Cost.Step/info.Cost.Token, float64(info.MaxTokens))))
}

// inflight is 2 where the device would wait for more than a tenth of the shortest step
// otherwise; else plans that are made late, and know more, are worth more.
func inflight(info engine.Info) int {
	if info.Cost.Host > 0.1*(info.Cost.Step+info.Cost.Row) {
		return min(2, info.MaxInflight)
	}
	return 1
}

// Validate reports all faults at once, by field and value. It expects defaults
// to be filled in.
func (c Config) Validate(info engine.Info) error {
	var errs []error
	within := func(field string, v, lo, hi int) {
		if v < lo || v > hi {
			errs = append(errs, fmt.Errorf("scheduler: %s is %d, want %d to %d", field, v, lo, hi))
		}
	}
	const many = 1 << 30
	if !policyNames.Has(c.Policy) {
		errs = append(errs, fmt.Errorf("scheduler: Policy is %v, want %s", c.Policy, policyNames.Names()))
	}
	within("MaxQueued", c.MaxQueued, 1, many)
	within("MaxRunning", c.MaxRunning, 1, min(info.MaxSlots, info.MaxRows))
	within("StepTokens", c.StepTokens, 1, info.MaxTokens)
	within("ITLTarget", int(min(c.ITLTarget, many)), 0, many)
	within("DefaultMaxTokens", c.DefaultMaxTokens, 1, many)
	within("ShareTokens", c.ShareTokens, 1, many)
	within("MaxSamples", c.MaxSamples, 1, many)
	within("PromptFloor", c.PromptFloor, -many, max(c.StepTokens-1, 0))
	within("ChunkTokens", c.ChunkTokens, 1, c.StepTokens)
	within("AttentionTokens", c.AttentionTokens, -many, many)
	within("MaxPrefilling", c.MaxPrefilling, 1, many)
	within("MaxInflight", c.MaxInflight, 1, min(info.MaxInflight, 100))
	if n := info.MaxMasks; n > 0 {
		within("MaxRunning times MaxInflight", c.MaxRunning*c.MaxInflight, 1, n)
	}
	within("MaxBypass", c.MaxBypass, 1, many)
	within("OldestEvery", c.OldestEvery, 1, many)
	within("PreemptThreshold", c.PreemptThreshold, 1, many)
	within("Aging", c.Aging, 1, many)
	within("Quantum", c.Quantum, 1, many)
	within("MaxDebtors", c.MaxDebtors, 1, many)
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

// validateTiers reports what of Tiers does not fit the rest.
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

func (c Config) cache(info engine.Info) radixcache.Config {
	return radixcache.Config{
		PageTokens: info.PageTokens, BlockTokens: c.BlockTokens, Events: c.Events, PinnedTokens: c.PinnedTokens, CurveSamples: c.CurveSamples,
		Policy: c.Eviction, SLRUHits: c.SLRUHits, TTL: c.CacheTTL,
	}
}

// newCache makes the cache with its quotas.
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

// quotaNames are the namespaces that have a quota, in order.
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
