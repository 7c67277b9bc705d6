package bench

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// NamedTrace is a trace in a [PolicyTable].
type NamedTrace struct {
	Name  string
	Trace *Trace
	Scale int       // served tokens for each token of the trace; 0 means 1. See [MooncakeScale]
	Warm  *Trace    // replayed before, and not counted: policies that learn have learnt from it. Nil: none
	Live  []float64 // capacities, as shares of the live working set, instead of PolicyConfig.Shares

	pauses *agentsConfig // distributions of an agents' trace; nil: they are not known
}

// shares returns the capacities for the trace, as shares of its working set or of its live working set.
func (t *NamedTrace) shares(cfg *PolicyConfig) []float64 {
	if t.Live != nil {
		return t.Live
	}
	return cfg.Shares
}

// PolicyConfig sizes a [ComparePolicies]. The zero value works.
type PolicyConfig struct {
	PageTokens int       // tokens per page. Default radixcache's
	Policies   []string  // by name. Default: all of the cache's policies except priority
	Shares     []float64 // capacities, as shares of the working set in (0, 1]. Default 0.05, 0.1, 0.25, 0.5
}

func (c PolicyConfig) withDefaults() PolicyConfig {
	c.PageTokens = RadixConfig{PageTokens: c.PageTokens}.cache().PageTokens
	if c.Policies == nil {
		c.Policies = cachePolicies()
	}
	if c.Shares == nil {
		c.Shares = []float64{0.05, 0.1, 0.25, 0.5}
	}
	return c
}

// validate reports all faults at once, by field and value.
func (c PolicyConfig) validate(traces []NamedTrace) error {
	faults := bounds.Faults{Owner: "bench: "}
	faults.Add(RadixConfig{PageTokens: c.PageTokens}.cache().Validate())
	for _, name := range c.Policies {
		_, err := policyNamed(name)
		faults.Add(err)
	}
	for _, share := range c.Shares {
		faults.If(!(share > 0 && share <= 1), "Shares has %v, want shares of the working set above 0, at most 1", share)
	}
	faults.If(len(c.Policies)*len(c.Shares)*len(traces) == 0,
		"%d policies on %d traces at %d capacities: nothing to compare", len(c.Policies), len(traces), len(c.Shares))
	faults.Add(validateScales(traces))
	return faults.Err()
}

func validateScales(traces []NamedTrace) error {
	for _, t := range traces {
		if t.Scale < 0 {
			return fmt.Errorf("bench: trace %s: Scale is %d, want at least 1", t.Name, t.Scale)
		}
	}
	return nil
}

// Steps returns how often a [ComparePolicies] of the traces calls progress: for
// each trace once for its pages, and at each capacity for MIN, for the informed eviction of agents' traces, and for every
// policy.
func (c PolicyConfig) Steps(traces []NamedTrace) (n int) {
	c = c.withDefaults()
	for i := range traces {
		n += 1 + len(traces[i].shares(&c))*(1+len(c.Policies))
		if traces[i].pauses != nil {
			n += len(traces[i].Live)
		}
	}
	return n
}

// PolicyTable holds the tokens that eviction policies save, with the upper bound of
// clairvoyant eviction.
type PolicyTable struct {
	PageTokens int           `json:"page_tokens"`
	Policies   []string      `json:"policies"`
	Traces     []PolicyTrace `json:"traces"`
}

// PolicyTrace is one trace. All token counts are tokens of the trace, each of which
// stands for Scale served tokens.
type PolicyTrace struct {
	TraceSizes
	IdealTokens int              `json:"ideal_tokens"` // matched by a cache without limit
	Capacities  []PolicyCapacity `json:"capacities"`
}

// TraceSizes describes a trace in a table.
type TraceSizes struct {
	Name             string `json:"name"`
	Requests         int    `json:"requests"`
	Tokens           int    `json:"tokens"` // of all requests
	Scale            int    `json:"scale"`
	WorkingSetTokens int    `json:"working_set_tokens"` // of distinct whole pages
	// LiveSetTokens is the working set of the sessions that run, if capacities are shares of that: the whole
	// pages of their present contexts, on average over the requests.
	LiveSetTokens int `json:"live_set_tokens,omitempty"`
}

// sizes describes t, which is p in pages of pageTokens.
func (t NamedTrace) sizes(p *pageTrace, pageTokens int) TraceSizes {
	live := 0
	if t.Live != nil {
		live = p.livePages(t.Trace) * pageTokens
	}
	return TraceSizes{t.Name, t.Trace.Requests(), t.Trace.Tokens(), max(1, t.Scale), p.pages * pageTokens, live}
}

// String returns the sizes for a legend.
func (s *TraceSizes) String() string {
	scale := ""
	if s.Scale > 1 {
		scale = fmt.Sprintf(" (each stands for %d served ones)", s.Scale)
	}
	if s.LiveSetTokens > 0 {
		scale += fmt.Sprintf(", %d of them in the working set of the sessions that run", s.LiveSetTokens)
	}
	return fmt.Sprintf("%s: %d requests, %d tokens%s, %d of them in the working set", s.Name, s.Requests, s.Tokens, scale, s.WorkingSetTokens)
}

// capacity returns the tokens of this share of all pages, but at least of the longest request.
func (p *pageTrace) capacity(share float64, pageTokens int) int {
	return max(int(math.Round(share*float64(p.pages))), p.longest(), 1) * pageTokens
}

// PolicyCapacity is one size of the cache.
type PolicyCapacity struct {
	Share             float64 `json:"share"`           // of the working set, as in PolicyConfig.Shares
	CapacityTokens    int     `json:"capacity_tokens"` // whole pages, and at least the longest request
	ClairvoyantTokens int     `json:"clairvoyant_tokens"`
	ClairvoyantRate   float64 `json:"clairvoyant_hit_rate"`
	// InformedTokens are saved by an eviction that knows the distributions of an agents' trace, but not the draws; 0 for
	// other traces.
	InformedTokens int            `json:"informed_tokens,omitempty"`
	Policies       []PolicyResult `json:"policies"` // in the order of PolicyTable.Policies
}

// PolicyResult is one replay.
type PolicyResult struct {
	Policy      string  `json:"policy"`
	SavedTokens int     `json:"saved_tokens"` // matched, so not computed
	HitRate     float64 `json:"hit_rate"`     // SavedTokens over all tokens
	OfBest      float64 `json:"of_best"`      // SavedTokens over ClairvoyantTokens; 1 if both are 0
	// Recomputed is the number of tokens that were computed again because they had been evicted: those that a
	// cache without limit would have matched, less SavedTokens.
	Recomputed int `json:"recomputed_tokens"`
}

// ComparePolicies replays every trace under every policy at every capacity, as
// [PlayRadix] does, and computes the bound of clairvoyant eviction for each capacity. Capacities
// are shares of the working set: the distinct whole pages of the trace. The replays
// are independent and use all processors; progress, if not nil, is called after each,
// one call at a time. Bad sizes and the end of ctx are errors. The figures are the same
// in every run. It panics if a policy saves more than the bound, as then one of the two
// is wrong.
func ComparePolicies(ctx context.Context, traces []NamedTrace, cfg PolicyConfig, progress func()) (*PolicyTable, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(traces); err != nil {
		return nil, err
	}
	table := &PolicyTable{PageTokens: cfg.PageTokens, Policies: cfg.Policies, Traces: make([]PolicyTrace, len(traces))}
	paged, jobs := make([]*pageTrace, len(traces)), []job{}
	for i, t := range traces {
		jobs = append(jobs, func(context.Context) (err error) {
			paged[i], err = newPageTrace(t.Trace, cfg.PageTokens)
			return inTrace(t, err)
		})
	}
	if err := inParallel(ctx, progress, jobs); err != nil {
		return nil, err
	}
	jobs = nil
	for i, t := range traces {
		table.Traces[i] = describe(t, paged[i], cfg)
		for j := range table.Traces[i].Capacities {
			jobs = append(jobs, cfg.compareAt(t, paged[i], &table.Traces[i].Capacities[j])...)
		}
	}
	if err := inParallel(ctx, progress, jobs); err != nil {
		return nil, err
	}
	table.rate()
	return table, nil
}

// describe returns the part of the table for trace t, before anything is replayed. p is t in
// pages.
func describe(t NamedTrace, p *pageTrace, cfg PolicyConfig) PolicyTrace {
	out := PolicyTrace{TraceSizes: t.sizes(p, cfg.PageTokens), IdealTokens: p.ideal() * cfg.PageTokens}
	for _, share := range t.shares(&cfg) {
		whole := p.pages
		if out.LiveSetTokens > 0 {
			whole = out.LiveSetTokens / cfg.PageTokens
		}
		longest := p.longest()
		if t.Warm != nil {
			longest = max(longest, kv.FloorPages(t.Warm.longest, cfg.PageTokens))
		}
		pages := max(int(math.Round(share*float64(whole))), longest, 1)
		out.Capacities = append(out.Capacities, PolicyCapacity{
			Share: share, CapacityTokens: pages * cfg.PageTokens, Policies: make([]PolicyResult, len(cfg.Policies)),
		})
	}
	return out
}

// compareAt returns the jobs of one trace and capacity: clairvoyant eviction and every policy. The
// jobs fill in the fields of at.
func (c PolicyConfig) compareAt(t NamedTrace, p *pageTrace, at *PolicyCapacity) []job {
	jobs := []job{func(ctx context.Context) error {
		matched, err := p.clairvoyant(ctx, at.CapacityTokens/c.PageTokens)
		at.ClairvoyantTokens = matched * c.PageTokens
		return inTrace(t, err)
	}}
	if t.pauses != nil {
		jobs = append(jobs, func(ctx context.Context) error {
			matched, err := p.informed(ctx, t.Trace, t.pauses, at.CapacityTokens/c.PageTokens)
			at.InformedTokens = matched * c.PageTokens
			return inTrace(t, err)
		})
	}
	for k, name := range c.Policies {
		at.Policies[k].Policy = name
		jobs = append(jobs, func(ctx context.Context) error {
			policy, err := policyNamed(name)
			if err == nil {
				radix := RadixConfig{PageTokens: c.PageTokens, Policy: policy, CapacityTokens: at.CapacityTokens}
				at.Policies[k].SavedTokens, err = replayPolicy(ctx, t, radix)
			}
			return inTrace(t, err)
		})
	}
	return jobs
}

// rate fills in the rates, which follow from the counts.
func (table *PolicyTable) rate() {
	for i := range table.Traces {
		t := &table.Traces[i]
		all := float64(max(1, t.Tokens))
		for j := range t.Capacities {
			c := &t.Capacities[j]
			c.ClairvoyantRate = float64(c.ClairvoyantTokens) / all
			for k := range c.Policies {
				r := &c.Policies[k]
				if r.SavedTokens > c.ClairvoyantTokens {
					panic(fmt.Sprintf("bench: %s on %s with room for %d tokens saved %d, the best possible is %d", r.Policy, t.Name, c.CapacityTokens, r.SavedTokens, c.ClairvoyantTokens))
				}
				r.Recomputed = t.IdealTokens - r.SavedTokens
				r.HitRate, r.OfBest = float64(r.SavedTokens)/all, 1
				if c.ClairvoyantTokens > 0 {
					r.OfBest = float64(r.SavedTokens) / float64(c.ClairvoyantTokens)
				}
			}
		}
	}
}

// inTrace wraps an error with the name of the trace; nil stays nil.
func inTrace(t NamedTrace, err error) error {
	if err != nil {
		return fmt.Errorf("trace %s: %w", t.Name, err)
	}
	return nil
}

// inParallel runs jobs, GOMAXPROCS at a time, and calls progress, if it is not nil, after each, one call
// at a time. After the first failure it starts no more of them. It returns the first error of a job, or
// the end of ctx.
func inParallel(ctx context.Context, progress func(), jobs []job) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	var mu sync.Mutex // one call of progress at a time
	for _, run := range jobs {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := run(ctx); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			orNothing(progress)()
			return nil
		})
	}
	return group.Wait()
}

// job is a part of a comparison that is independent of the others.
type job func(context.Context) error

// cachePolicies returns the names of the cache's policies except priority: traces have
// no priorities, and without them that policy is LRU.
func cachePolicies() (names []string) {
	for _, p := range radixcache.Policies() {
		if p != radixcache.Priority {
			names = append(names, p.String())
		}
	}
	return names
}

// policyNamed returns the cache's policy with this name.
func policyNamed(name string) (p radixcache.Policy, err error) {
	if err := p.UnmarshalText([]byte(name)); err != nil {
		return p, fmt.Errorf("bench: Policies: %w", err)
	}
	return p, nil
}

// replayPolicy returns the number of tokens that a replay matches. Leaves are evicted
// from their ends (Trim), as a node's cache does.
func replayPolicy(ctx context.Context, t NamedTrace, cfg RadixConfig) (matched int, err error) {
	cfg.Trim = true
	if err := cfg.validate(t.Trace); err != nil {
		return 0, err
	}
	r, err := newReplayer(t.Trace, cfg)
	if err != nil {
		return 0, err
	}
	if t.Warm != nil {
		if err := r.warm(t.Warm); err != nil {
			return 0, err
		}
		r.turns, r.told = t.Trace.turns, t.Trace.told
	}
	p := &radixPlay{ctx: ctx, trace: t.Trace, cfg: cfg, progress: func() {}}
	if err := p.run(r, nil); err != nil {
		return 0, err
	}
	return r.matched, nil
}

// Rows returns a header and a row for each trace and capacity. The name of a trace is
// in its first row only.
func (table *PolicyTable) Rows() (_ [][]string, legend string) {
	head := []string{"trace", "room", "tokens", "best"}
	informed := slices.ContainsFunc(table.Traces, func(t PolicyTrace) bool { return t.LiveSetTokens > 0 })
	if informed {
		head = append(head, "informed")
	}
	rows := [][]string{append(head, table.Policies...)}
	for _, t := range table.Traces {
		name := t.Name
		for _, c := range t.Capacities {
			row := []string{
				name, fmt.Sprintf("%.3g %%", 100*c.Share), fmt.Sprint(c.CapacityTokens),
				fmt.Sprintf("%d (%.2f %%)", c.ClairvoyantTokens, 100*c.ClairvoyantRate),
			}
			again := func(saved int) string {
				if t.LiveSetTokens == 0 {
					return ""
				}
				return fmt.Sprintf(", %.3f", float64(t.IdealTokens-saved)/float64(max(1, c.Policies[0].Recomputed)))
			}
			if saved := c.InformedTokens; saved > 0 {
				row = append(row, fmt.Sprintf("%d (%.2f %%)%s", saved, 100*float64(saved)/float64(max(1, c.ClairvoyantTokens)), again(saved)))
			} else if informed {
				row = append(row, "")
			}
			for _, r := range c.Policies {
				row = append(row, fmt.Sprintf("%d (%.2f %%)%s", r.SavedTokens, 100*r.OfBest, again(r.SavedTokens)))
			}
			rows, name = append(rows, row), ""
		}
	}
	return rows, table.legend()
}

// legend explains the columns and gives the sizes of the traces.
func (table *PolicyTable) legend() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Pages of %d tokens. room: share of the working set that the cache may hold, and the same in tokens,\n", table.PageTokens)
	b.WriteString("at least the longest request. best: tokens that clairvoyant eviction saves, and their share of all\n")
	b.WriteString("tokens (the hit rate). Policies: tokens saved, and their share of the best.\n")
	if slices.ContainsFunc(table.Traces, func(t PolicyTrace) bool { return t.LiveSetTokens > 0 }) {
		b.WriteString("Of traces of agents, room is a share of the working set of the sessions that run, and after the comma\n")
		b.WriteString("are the tokens computed again because they had been evicted, over those of the first policy.\n")
		b.WriteString("informed: an eviction that knows the distributions from which a trace was drawn, but not the draws.\n")
	}
	for _, t := range table.Traces {
		fmt.Fprintf(&b, "\n%v; with room for all %d are saved.", &t.TraceSizes, t.IdealTokens)
	}
	return b.String()
}
