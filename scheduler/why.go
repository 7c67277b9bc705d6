package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// Cause is why a sample waits, or that it runs.
type Cause uint8

// The causes.
const (
	Runs           Cause = iota // it has a slot
	AwaitsResult                // preempted, and a row of it is in flight
	AwaitsPrefix                // request Behind computes or fetches Tokens of its prompt
	AwaitsSlot                  // all MaxRunning slots are taken
	AwaitsPages                 // NeedPages exceed FreePages less ExpectPages
	AwaitsPool                  // the pool was asked for pages, or can be
	AwaitsReserved              // all pages are kept for request Behind, which did not fit MaxBypass times
	AwaitsTenant                // its tenant runs as many samples as it may
	AwaitsLong                  // enough long prompts are being computed
	AwaitsTurn                  // others go first, or the step's budget is used up
	AwaitsTier                  // Tokens of its prompt are on their way from Tier
)

var causeNames = enum.New[Cause]("scheduler", "cause",
	"runs", "waits for its row in flight", "waits for a prefix that another request computes or fetches", "waits for a slot",
	"waits for pages", "waits for pages from the pool", "waits for a request that has waited too long", "waits for others of its tenant",
	"waits for other long prompts",
	"waits for its turn", "waits for a prefix on its way from a lower tier",
)

func (c Cause) String() string { return causeNames.Name(c) }

// Wait explains why one sample waits.
type Wait struct {
	Request RequestID
	Sample  int
	Cause   Cause

	CachedTokens int       // tokens of its prompt that are cached now
	Behind       RequestID // AwaitsPrefix, AwaitsReserved
	Tokens       int       // AwaitsPrefix: shared with Behind; AwaitsTier: not arrived yet
	Tier         kv.Tier   // AwaitsTier: the tier of the next part
	// NeedPages, FreePages and ExpectPages are set for AwaitsPages, AwaitsPool and
	// AwaitsTurn.
	NeedPages   int // pages of its own that the sample needs, besides cached ones
	FreePages   int // pages that are idle or evictable, without those of its own cached prefix
	ExpectPages int // part of FreePages that running requests are expected to need
	Bypassed    int // admissions of others since the sample first did not fit at its turn
}

func (w Wait) String() string {
	s := fmt.Sprintf("request %d", w.Request)
	if w.Sample > 0 {
		s += fmt.Sprintf(" (sample %d)", w.Sample)
	}
	s += " " + w.Cause.String()
	switch w.Cause {
	case AwaitsPrefix:
		s += fmt.Sprintf(": %d tokens of it, by request %d", w.Tokens, w.Behind)
	case AwaitsTier:
		s += fmt.Sprintf(": %d tokens of it, from %s", w.Tokens, w.Tier)
	case AwaitsPages, AwaitsPool:
		s += fmt.Sprintf(": needs %d; %d are free or can be evicted, and running requests are expected to need %d", w.NeedPages, w.FreePages, w.ExpectPages)
	case AwaitsReserved:
		s += fmt.Sprintf(": request %d", w.Behind)
	}
	return s
}

// Why explains, for each open sample of a request, why it waits; nil for an unknown
// request. It changes no decision. Cost: as much as admission's look at the samples, plus
// a pass over the running sequences.
func (s *Scheduler) Why(id RequestID) []Wait {
	g, ok := s.open[id]
	if !ok {
		return nil
	}
	s.running.reserved = -1 // the sum of the latest pass is out of date
	reserve := s.running.reserve(g.samples[0])
	v, all := s.view(), make([]Wait, len(g.samples))
	for i, q := range g.samples {
		v.explain(&all[i], q, reserve)
	}
	return all
}

// Waiting appends to dst what Why returns for all samples without a slot, sorted by request
// and sample. It passes over the running sequences once and not once per sample.
func (s *Scheduler) Waiting(dst []Wait) []Wait {
	all := slices.Clone(s.running.preempted)
	for q := s.queue.oldest; q != nil; q = q.wait.newer {
		all = append(all, q)
	}
	slices.SortFunc(all, comparePrecedence)
	running := slices.Clone(s.running.all)
	slices.SortFunc(running, comparePrecedence)
	base, reserve, v := len(dst), 0, s.view()
	dst = slices.Grow(dst, len(all))
	for _, q := range all {
		// all and running are sorted by precedence, so the reserve only grows from one q to
		// the next.
		for len(running) > 0 && !s.cfg.mayReplace(q, running[0]) {
			reserve += s.running.growth(running[0])
			running = running[1:]
		}
		dst = append(dst, Wait{})
		v.explain(&dst[len(dst)-1], q, reserve)
	}
	slices.SortFunc(dst[base:], func(a, b Wait) int {
		return cmp.Or(cmp.Compare(a.Request, b.Request), cmp.Compare(a.Sample, b.Sample))
	})
	return dst
}

// view holds the answers that all waiting samples share, so that Waiting finds them once.
type view struct {
	s        *Scheduler
	lastLong *sequence // see Config.lastLong
	blocked  *sequence // the sequence for which all pages are kept, or nil
	supply   supply    // without a match
}

// view finds the answers that all waiting samples share.
func (s *Scheduler) view() view {
	v := view{s: s, lastLong: s.cfg.lastLong(s.running.prefilling), supply: s.room.supply(&demand{})}
	if b := s.queue.blocked; b != nil && !s.queue.excluded(b) && s.queue.order.hasTurn(&s.queue, b) {
		v.blocked = b
	}
	return v
}

// explain fills in w, which is empty, for the sample q. reserve is the number of pages that
// q must leave over for running sequences. explain tests the causes in the order in which
// admission would meet them, so that the first that holds is the one that counts.
func (v *view) explain(w *Wait, q *sequence, reserve int) {
	s := v.s
	w.Request, w.Sample = q.req.ID, q.sample
	if q.wait.unfit {
		w.Bypassed = int(s.queue.admissions - q.wait.unfitAt)
	}
	switch q.place {
	case running:
		return
	case preempted:
		w.Cause = AwaitsResult
		return
	}
	var m radixcache.Match
	if s.cache != nil {
		m = s.queue.peek(q)
		w.CachedTokens = m.Tokens
	}
	switch {
	case q.place == following && q.wait.follow.leader.early(): // the fetch for a turn that was expected
		w.Cause, w.Tokens = AwaitsTier, q.wait.follow.until-w.CachedTokens
		return
	case q.place == following:
		w.Cause, w.Behind, w.Tokens = AwaitsPrefix, q.wait.follow.leader.req.ID, q.wait.follow.until
		return
	case q.place == fetching:
		w.Cause = AwaitsTier
		for _, p := range q.fetch.parts[q.fetch.next:] {
			if w.Tokens == 0 {
				w.Tier = p.From
			}
			w.Tokens += p.Tokens
		}
		return
	case q.group.tenant.AtLimit():
		w.Cause = AwaitsTenant
		return
	case v.lastLong != nil && s.cfg.isLong(w.CachedTokens, len(q.tokens)) && s.cfg.ranks(q, v.lastLong) <= 0:
		w.Cause = AwaitsLong
		return
	case !v.supply.slot:
		w.Cause = AwaitsSlot
		return
	case v.blocked != nil && v.blocked != q:
		w.Cause, w.Behind = AwaitsReserved, v.blocked.req.ID
		return
	}
	w.NeedPages, w.ExpectPages, w.FreePages = s.room.startPages(q, m.Tokens), reserve, v.supply.idle
	if s.cache != nil {
		w.FreePages += s.cache.EvictableBeside(m, false)
	}
	switch short := w.FreePages < w.NeedPages+reserve; {
	case short && v.supply.granting:
		w.Cause = AwaitsPool
	case short:
		w.Cause = AwaitsPages
	default:
		w.Cause = AwaitsTurn
	}
}
