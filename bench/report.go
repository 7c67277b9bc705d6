package bench

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// Summary holds the figures of one run.
type Summary struct {
	Requests        int     `json:"requests" row:"requests|%d"`
	PromptTokens    int     `json:"prompt_tokens" row:"prompt tokens|%d"`
	ComputedTokens  int     `json:"computed_tokens" row:"tokens computed|%d"`    // prompt tokens computed, counted by the backend
	CachedTokens    int     `json:"cached_tokens" row:"tokens from cache|%d"`    // prompt tokens from the cache, as reported to the callers
	HitRate         float64 `json:"hit_rate" row:"hit rate|%.2f %%"`             // CachedTokens over PromptTokens
	IdealHitRate    float64 `json:"ideal_hit_rate" row:"ideal hit rate|%.2f %%"` // of an infinite cache, for the same order of requests
	TTFTp50         float64 `json:"ttft_ms_p50" row:"TTFT p50|%.1f ms"`
	TTFTp99         float64 `json:"ttft_ms_p99" row:"TTFT p99|%.1f ms"`
	ITLp50          float64 `json:"itl_ms_p50" row:"inter-token p50|%.1f ms"`
	ITLp99          float64 `json:"itl_ms_p99" row:"inter-token p99|%.1f ms"`
	OutputPerSecond float64 `json:"output_tokens_per_s" row:"output tokens/s|%.1f"`
	Wall            float64 `json:"wall_s" row:"wall time|%.1f s"`
	LeakedPages     int     `json:"leaked_pages" row:"leaked pages|%d"`
}

// Comparison is a load with the cache on and off.
type Comparison struct {
	On        Summary `json:"cache_on"`
	Off       Summary `json:"cache_off"`
	Digest    string  `json:"digest"`    // see [Run.Digest]; of the run with the cache on
	Identical bool    `json:"identical"` // all output tokens and all bits of all logits are equal
}

// Summarise computes the figures of a run. st is the node's Stats after Close. Errors
// are those of the radix cache that computes the ideal hit rate.
func Summarise(r *Run, st coppice.Stats) (Summary, error) {
	s := Summary{Requests: len(r.exchanges), ComputedTokens: st.Engine.GivenTokens - st.Engine.Drafted, LeakedPages: st.LeakedPages, Wall: r.wall.Seconds()}
	var ttft, gaps []time.Duration
	output := 0
	for i := range r.exchanges {
		x := &r.exchanges[i]
		s.PromptTokens += len(x.prompt)
		s.CachedTokens += x.cached
		output += len(x.output)
		ttft = append(ttft, x.ttft)
		gaps = append(gaps, x.gaps...)
	}
	ideal, err := idealHits(r)
	if err != nil {
		return s, err
	}
	if s.PromptTokens > 0 {
		s.HitRate = float64(s.CachedTokens) / float64(s.PromptTokens)
		s.IdealHitRate = float64(ideal) / float64(s.PromptTokens)
	}
	s.OutputPerSecond = float64(output) / s.Wall
	s.TTFTp50, s.TTFTp99 = Percentile(ttft, 50), Percentile(ttft, 99)
	s.ITLp50, s.ITLp99 = Percentile(gaps, 50), Percentile(gaps, 99)
	return s, nil
}

// idealHits replays the requests in order of submission on an ideal cache and returns the number
// of prompt tokens found. The cache is infinite, has pages of one token, and is instant: the
// prompt and output of each request are cached for all later requests. The last token of a prompt
// is never a hit, since it must be computed for the first logits.
func idealHits(r *Run) (int, error) {
	cache, err := radixcache.New(radixcache.Config{PageTokens: 1})
	if err != nil {
		return 0, err
	}
	hits := 0
	var next kv.PageID
	for i := range r.exchanges {
		x := &r.exchanges[i]
		if len(x.prompt) == 0 {
			continue
		}
		hits += cache.Match(radixcache.Key{Tokens: x.prompt[:len(x.prompt)-1]}).Tokens
		all := slices.Concat(x.prompt, x.output)
		pages := make([]kv.PageID, len(all))
		for j := range pages {
			pages[j], next = next, next+1
		}
		cache.Insert(radixcache.Key{Tokens: all}, pages, nil)
	}
	return hits, nil
}

// Percentile returns the p-th percentile by nearest rank, in milliseconds; 0 if d is
// empty. It sorts d.
func Percentile(d []time.Duration, p int) float64 {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return float64(d[nearestRank(len(d), p)]) / float64(time.Millisecond)
}

// nearestRank returns the index, among n ascending values, of the smallest value that
// at least p percent of the values do not exceed: of 10 values, index 4 for p = 50 and
// 9 for p = 99.
func nearestRank(n, p int) int { return max(0, (n*p+99)/100-1) }

// median returns the middle of v, which must not be empty; of an even number, the upper one. It sorts v.
func median[T cmp.Ordered](v []T) T {
	slices.Sort(v)
	return v[len(v)/2]
}

// Identical reports whether two runs of one load gave the same output tokens and logit
// bits for every request. If not, the error names the first difference. A digest of 0,
// which means none, counts as a difference.
func Identical(a, b *Run) (bool, error) {
	if len(a.exchanges) != len(b.exchanges) {
		return false, fmt.Errorf("bench: %d requests against %d", len(a.exchanges), len(b.exchanges))
	}
	as, bs := byPlace(a), byPlace(b)
	for i := range as {
		x, y := &as[i], &bs[i]
		switch {
		case x.conversation != y.conversation || x.turn != y.turn || !slices.Equal(x.prompt, y.prompt):
			return false, fmt.Errorf("bench: conversation %d turn %d was asked differently", x.conversation, x.turn)
		case !slices.Equal(x.output, y.output):
			return false, fmt.Errorf("bench: conversation %d turn %d was answered differently", x.conversation, x.turn)
		case x.logitDigest != y.logitDigest || x.logitDigest == 0:
			return false, fmt.Errorf("bench: conversation %d turn %d has other logit bits", x.conversation, x.turn)
		}
	}
	return true, nil
}

// Digest returns 16 hex digits, the XXH3 of the output tokens and of the digests of the logits,
// by conversation and turn. For one load and one model on the CPU it is the same in every run, on
// every machine.
func (r *Run) Digest() string {
	var data []byte
	for _, x := range byPlace(r) {
		for _, t := range x.output {
			data = binary.LittleEndian.AppendUint32(data, uint32(t))
		}
		data = binary.LittleEndian.AppendUint64(data, x.logitDigest)
	}
	return fmt.Sprintf("%016x", xxh3.Hash(data))
}

// byPlace returns the exchanges by conversation and turn: runs submit in different orders.
func byPlace(r *Run) []exchange {
	xs := slices.Clone(r.exchanges)
	slices.SortFunc(xs, func(a, b exchange) int {
		return cmp.Or(cmp.Compare(a.conversation, b.conversation), cmp.Compare(a.turn, b.turn))
	})
	return xs
}

// Rows returns the figures with and without the cache, side by side.
func (c *Comparison) Rows() (rows [][]string, legend string) {
	rows = [][]string{{"", "cache on", "cache off"}}
	return append(rows, rowsOf(&c.On, &c.Off)...),
		fmt.Sprintf("digest of output tokens and logit bits: %s\nidentical output tokens and logit bits: %v", c.Digest, c.Identical)
}
