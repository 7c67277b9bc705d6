package scheduler

import (
	"fmt"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// Explanation reports how much of a prompt is cached, why not more, and what a request with
// that prompt would compute.
//
//	tokens: [ whole pages on the device | copied or fetched | computed ]
//	        0                           Device.Tokens       ^          PromptTokens
type Explanation struct {
	PromptTokens int
	// Cached is the number of the prompt's first tokens that are cached, by tier. The device
	// counts in whole pages; a lower tier counts only tokens after those of the device, and
	// each token counts for the fastest tier that has it.
	Cached [kv.Tiers]int
	// CopiedTokens is the number of tokens after the device's whole pages that the request
	// would copy from a cached page that continues differently. 0 if it would fetch.
	CopiedTokens int
	// FetchedTokens is the number of tokens in lower tiers that the request would fetch.
	// Fetching the others is expected to take longer than computing them.
	FetchedTokens int
	// ComputedTokens is the number of tokens that the request would compute: all others.
	ComputedTokens int
	// Device is the reason why no more whole pages are on the device.
	Device radixcache.Explanation
	// Full reports that the request computes its whole prompt, since it asks for
	// log-probabilities of the prompt or, with Pooling, for the mean of its states.
	Full    bool
	Pooling Pooling
}

// Explain reports how much of the prompt of req is cached, and why not more. It reads the
// fields Prompt, Namespace, PublicTokens, Media, PromptLogprobs and Pooling of req. The answer holds
// for a request that enters an idle scheduler now, with pages to spare: KV that running
// requests have not published yet is left out, and of a shared tier, extents that another
// process wrote and that this one has not looked up. Explain changes nothing, and makes no KV more recent. Its
// result does not depend on KV of other namespaces, except for a public prefix. Errors:
// ErrNoCache, and those of Add for a prompt that can't be served.
//
// Cost: that of radixcache's Match, and with tiers a hash of the prompt.
func (s *Scheduler) Explain(now time.Duration, req *Request) (Explanation, error) {
	if s.cache == nil {
		return Explanation{}, ErrNoCache
	}
	if _, err := s.cfg.checkRequest(&s.info, req); err != nil {
		return Explanation{}, err
	}
	n := len(req.Prompt)
	e := Explanation{PromptTokens: n, Full: req.PromptLogprobs || req.Pooling == MeanTokens, Pooling: req.Pooling}
	key := radixcache.Key{Namespace: req.Namespace, Tokens: req.Prompt[:n-1], PublicTokens: min(req.PublicTokens, n), Media: req.Media}
	e.Device = s.cache.Explain(key)
	e.Cached[kv.TierDevice] = e.Device.Tokens
	if s.tiers != nil && e.Device.Why != radixcache.WhyDistrusted {
		s.tiers.explain(now, &e, &key)
	}
	if e.Full {
		e.FetchedTokens, e.ComputedTokens = 0, n
		return e, nil
	}
	if e.FetchedTokens == 0 {
		e.CopiedTokens = e.Device.PartialTokens
	}
	e.ComputedTokens = n - e.Device.Tokens - e.CopiedTokens - e.FetchedTokens
	return e, nil
}

// explain adds to e the tokens of key that lower tiers have after those of the device.
func (t *tiers) explain(now time.Duration, e *Explanation, key *radixcache.Key) {
	have := e.Device.Tokens
	xs := t.layout.AppendExtents(nil, key.Namespace, key.Tokens, key.Media)
	xs = xs[min(have/t.layout.ExtentTokens(), len(xs)):]
	if len(xs) == 0 {
		return
	}
	runs, worth := t.book.Lookup(now, xs, have, nil)
	for _, r := range runs {
		e.Cached[r.From] += max(r.Start+r.Tokens-max(r.Start, have), 0)
	}
	e.FetchedTokens = max(xs[0].Start+worth-have, 0)
}

// String returns three sentences: what is cached, why the device has no more, and what a
// request would run.
func (e Explanation) String() string {
	return strings.Join([]string{e.cached(), e.why(), e.run()}, " ")
}

// tierPlaces are the tiers as a sentence names them.
var tierPlaces = [kv.Tiers]string{"on the device", "in host memory", "on disk", "in the shared directory", "in the object store"}

func (e *Explanation) cached() string {
	total, parts := 0, []string(nil)
	for tier, n := range e.Cached {
		if total += n; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, tierPlaces[tier]))
		}
	}
	if total == 0 {
		return fmt.Sprintf("None of the %d prompt tokens is cached.", e.PromptTokens)
	}
	return fmt.Sprintf("%d of %d prompt tokens are cached: %s.", total, e.PromptTokens, strings.Join(parts, ", "))
}

func (e *Explanation) why() string {
	d := &e.Device
	next := fmt.Sprintf("The match on the device ends at token %d: the next page ", d.Tokens)
	switch d.Why {
	case radixcache.WhyWhole:
		return "The device has all whole pages of the prompt."
	case radixcache.WhyUnaligned:
		return next + fmt.Sprintf("equals a cached page only in its first %s.", number(d.PartialTokens, "token"))
	case radixcache.WhyNever:
		return next + "was never stored, or so long ago that its removal is forgotten."
	case radixcache.WhyFlushed:
		return next + "was not stored since the latest flush of the cache."
	case radixcache.WhyDistrusted:
		return next + "is cached, but its content may be wrong, so it is not used."
	case radixcache.WhyEvicted:
		return next + fmt.Sprintf("was removed %s, %s of the cache ago, after %s without use.", e.removal(), number(d.Ago, "access"), number(d.Unused, "access"))
	}
	return next + "is missing: " + d.Why.String() + "."
}

// removal returns the reason for which the next page was removed.
func (e *Explanation) removal() string {
	switch e.Device.Reason {
	case radixcache.ByCapacity:
		return fmt.Sprintf("to make room (policy %v)", e.Device.Policy)
	case radixcache.ByQuota:
		return "because its namespace held more than its quota"
	case radixcache.ByAge:
		return "because it was unused for longer than the time limit of the cache"
	case radixcache.ByParking:
		return "because its session was parked"
	case radixcache.ByDistrust:
		return "because its content may have been wrong"
	}
	return fmt.Sprintf("(%v)", e.Device.Reason)
}

func (e *Explanation) run() string {
	if e.Full && e.Pooling == MeanTokens {
		return fmt.Sprintf("The request asks for the mean of its tokens' states, so it would compute all %d tokens.", e.PromptTokens)
	}
	if e.Full {
		return fmt.Sprintf("The request asks for log-probabilities of its prompt, so it would compute all %d tokens.", e.PromptTokens)
	}
	var b strings.Builder
	const would = "A request would "
	b.WriteString(would)
	if e.FetchedTokens > 0 {
		fmt.Fprintf(&b, "fetch %s from lower tiers, ", number(e.FetchedTokens, "token"))
	}
	if e.CopiedTokens > 0 {
		fmt.Fprintf(&b, "copy %s of a cached page, ", number(e.CopiedTokens, "token"))
	}
	if b.Len() > len(would) {
		b.WriteString("and ")
	}
	fmt.Fprintf(&b, "compute %d of its %d tokens", e.ComputedTokens, e.PromptTokens)
	if e.ComputedTokens == 1 {
		b.WriteString(" (the last one always is)")
	}
	below := -e.FetchedTokens
	for _, n := range e.Cached[kv.TierHost:] {
		below += n
	}
	if below > 0 {
		fmt.Fprintf(&b, "; fetching the other %d from lower tiers would take longer than computing them", below)
	}
	b.WriteString(".")
	return b.String()
}

// number returns n with a noun, such as "1 access" or "2 accesses".
func number[N int | uint64](n N, noun string) string {
	plural := noun + "s"
	if strings.HasSuffix(noun, "s") {
		plural = noun + "es"
	}
	if n == 1 {
		plural = noun
	}
	return fmt.Sprintf("%d %s", n, plural)
}
