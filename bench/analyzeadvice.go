package bench

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// Advice holds the settings that follow from an analysis, with reasons. The weights
// are those of package router, and of Dynamo's router by the same names.
type Advice struct {
	Score   float64 `json:"score_weight"`   // weight of the overlap in the policy 2025; 2 by default
	Usage   float64 `json:"usage_weight"`   // 1 by default
	Waiting float64 `json:"waiting_weight"` // 1 by default
	Prefill float64 `json:"prefill_weight"` // in the policy 2026; 1 by default
	Device  float64 `json:"device_credit"`  // in the policy credits; 1 by default

	BlockTokens    int `json:"block_tokens"`
	Routers        int `json:"routers"`                          // or buckets behind one router
	ExpectedOutput int `json:"expected_output_tokens,omitempty"` // median output; 0 if the trace records none

	Reasons []string `json:"reasons"` // one sentence for each decision
}

// Thresholds of the advice. If the hit rate or CoreShare is below worthShare, the weights of the
// overlap shrink in proportion. The reason for worthShare: with half of a prompt cached, a router
// that follows the cache saves half a prompt of prefill, which is about the cost of waiting for
// another such request. The thresholds are judgement, not measurement.
const (
	worthShare   = 0.5
	leastFactor  = 0.1  // the overlap weights never shrink below a tenth
	diverse      = 1000 // at this many reused contexts or more, the score weight is multiplied by diverseBonus
	diverseBonus = 1.25
	// sameHits is the loss in hit rate, as a share of all prompt tokens, that a larger
	// block is allowed.
	sameHits = 0.01
)

// advise derives the advice from the other fields of the analysis, which must be set.
func (a *Analysis) advise(cfg AnalyzeConfig) Advice {
	d := Advice{Score: 2, Usage: 1, Waiting: 1, Prefill: 1, Device: 1, Routers: 1}
	say := func(format string, args ...any) { d.Reasons = append(d.Reasons, fmt.Sprintf(format, args...)) }

	factor := min(1, min(a.Tree.HitRate, a.Tree.CoreShare)/worthShare)
	factor = max(leastFactor, math.Round(factor*20)/20)
	switch {
	case factor < 1 && a.Tree.HitRate <= a.Tree.CoreShare:
		say("overlap weights ×%.4g: at best %.1f %% of the prompt tokens are cached, so following them gains little over balance", factor, 100*a.Tree.HitRate)
	case factor < 1:
		say("overlap weights ×%.4g: repeated prefixes have %.0f tokens, %.1f %% of the mean prompt", factor, a.Tree.CoreDepth, 100*a.Tree.CoreShare)
	case a.Tree.CoreLeaves >= diverse:
		factor = diverseBonus
		say("score weight ×%.4g: %d contexts are repeated, too many for every worker to hold all, so their places matter", factor, a.Tree.CoreLeaves)
	default:
		say("overlap weights unchanged: %.1f %% of the prompt tokens can be cached, and repeated prefixes have %.1f %% of the mean prompt", 100*a.Tree.HitRate, 100*a.Tree.CoreShare)
	}
	d.Score, d.Prefill, d.Device = 2*factor, min(1, factor), min(1, factor)
	d.Usage = a.usage(cfg, say)
	d.BlockTokens = a.blockSize(say)
	if a.Buckets.StandOut {
		d.Routers = len(a.Buckets.Largest)
		say("%d routers or buckets, one for each kind of prompt (coppice route --buckets %d --stage prefix --prefix-blocks %d, of %d tokens each): below a stem of %d tokens, %d branches hold %.1f %% of the requests, each between %.1f and %.1f %%",
			d.Routers, d.Routers, 1+a.Buckets.StemTokens/a.Tree.BlockTokens, a.Tree.BlockTokens, a.Buckets.StemTokens, d.Routers, 100*a.Buckets.Share, 100*a.Buckets.Largest[d.Routers-1], 100*a.Buckets.Largest[0])
		if d.BlockTokens != a.Tree.BlockTokens {
			say("blocks of %d tokens give another number: analyse again with --block-tokens %d", d.BlockTokens, d.BlockTokens)
		}
	} else {
		say("one router: no small number of similar branches holds %.0f %% of the requests", 100*bucketShare)
	}
	if cfg.Workers > 0 && d.Routers > cfg.Workers {
		d.Routers = cfg.Workers
		say("no more routers or buckets than the %d workers", cfg.Workers)
	}
	if a.OSL != nil {
		d.ExpectedOutput = a.OSL.P50
		say("expect %d output tokens, the median, from a request without a limit", d.ExpectedOutput)
	}
	return d
}

// usage returns the weight of a worker's share of used blocks, and passes the reason to say. The
// larger the pool is relative to the working set, the less a full pool matters: if the whole
// working set fits, evictions hardly cost hits.
func (a *Analysis) usage(cfg AnalyzeConfig, say func(string, ...any)) float64 {
	set := a.Tree.Nodes * a.Tree.BlockTokens
	switch {
	case cfg.PoolTokens == 0:
		say("usage weight unchanged: give the pool size of a worker to judge it; the working set is %d tokens", set)
		return 1
	case cfg.PoolTokens >= set:
		say("usage weight 0.25: evictions are rare, each worker's %d tokens hold the whole working set of %d", cfg.PoolTokens, set)
		return 0.25
	case 2*cfg.PoolTokens >= set:
		say("usage weight 0.5: each worker's %d tokens hold half of the working set of %d or more", cfg.PoolTokens, set)
		return 0.5
	}
	say("usage weight unchanged: each worker's %d tokens hold %.1f %% of the working set of %d", cfg.PoolTokens, 100*float64(cfg.PoolTokens)/float64(set), set)
	return 1
}

// blockSize returns the largest block size whose hit rate is within sameHits of the best, and
// passes the reason to say. Larger blocks mean fewer hashes, KV events and index steps for each
// prompt.
func (a *Analysis) blockSize(say func(string, ...any)) int {
	best := a.Sizes[0]
	for _, p := range a.Sizes {
		if p.HitRate > best.HitRate {
			best = p
		}
	}
	chosen := a.Sizes[0]
	for _, p := range a.Sizes {
		if best.HitRate-p.HitRate <= sameHits {
			chosen = p
		}
	}
	say("blocks of %d tokens: %.2f %% hits, against %.2f %% with blocks of %d, with %d blocks to hash and index instead of %d",
		chosen.BlockTokens, 100*chosen.HitRate, 100*best.HitRate, best.BlockTokens, chosen.Blocks, best.Blocks)
	if a.GrainTokens > 1 {
		say("the trace has blocks of %d tokens: smaller ones can't be judged", a.GrainTokens)
	}
	return chosen.BlockTokens
}

// WriteTable writes the analysis for people.
func (a *Analysis) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d requests, %d prompt tokens\n\n", a.Form, a.Requests, a.PromptTokens)
	writeLengths(&b, "prompts (ISL)", &a.ISL)
	if a.OSL != nil {
		writeLengths(&b, "outputs (OSL)", a.OSL)
	}
	sizes := [][]string{{"block", "blocks", "distinct", "hit rate", "core nodes", "core depth", "of ISL", "deepest", "contexts", "width"}}
	for _, p := range a.Sizes {
		mark := ""
		if p.BlockTokens == a.Tree.BlockTokens {
			mark = "*"
		}
		sizes = append(sizes, []string{
			fmt.Sprint(mark, p.BlockTokens), fmt.Sprint(p.Blocks), fmt.Sprint(p.Nodes), fmt.Sprintf("%.2f %%", 100*p.HitRate), fmt.Sprint(p.CoreNodes),
			fmt.Sprintf("%.0f", p.CoreDepth), fmt.Sprintf("%.1f %%", 100*p.CoreShare), fmt.Sprint(p.CoreDepthMax), fmt.Sprint(p.CoreLeaves), fmt.Sprint(p.CoreWidth),
		})
	}
	err := writeRows(&b, sizes, `hit rate: tokens that a cache of everything has, of all prompt tokens. The core are the blocks that two
requests or more visit. core depth: how far prompts go in it, the mean in tokens, its share of the mean prompt,
and the deepest. contexts: ends of the core. width: the most core blocks at one depth. *: analysed below.`)
	if err != nil {
		return err
	}
	fmt.Fprintf(&b, "\nbelow a common stem of %d tokens, %d branches; the largest:", a.Buckets.StemTokens, a.Buckets.Branches)
	for _, share := range a.Buckets.Largest {
		fmt.Fprintf(&b, " %.1f %%", 100*share)
	}
	d := &a.Advice
	fmt.Fprintf(&b, "\n\nadvice: weights 2025: score %.3g, usage %.3g, waiting %.3g; 2026: prefill %.3g; credits: device %.3g\n        blocks of %d tokens, routers %d\n",
		d.Score, d.Usage, d.Waiting, d.Prefill, d.Device, d.BlockTokens, d.Routers)
	for _, reason := range d.Reasons {
		fmt.Fprintf(&b, "- %s\n", reason)
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// writeLengths writes the figures, and a histogram line for each power of two with
// requests. The longest bar has 50 marks.
func writeLengths(b *strings.Builder, name string, l *Lengths) {
	fmt.Fprintf(b, "%s in tokens: mean %.0f, p50 %d, p90 %d, p99 %d, max %d\n", name, l.Mean, l.P50, l.P90, l.P99, l.Max)
	most := 1
	for _, n := range l.Histogram {
		most = max(most, n)
	}
	for i, n := range l.Histogram {
		if n > 0 {
			fmt.Fprintf(b, "  %8d .. %-8d %8d %s\n", 1<<i>>1, 1<<i-1, n, strings.Repeat("#", (n*50+most-1)/most))
		}
	}
	b.WriteString("\n")
}
