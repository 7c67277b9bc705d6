package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// Cause is why a sample does not run, or that it does.
type Cause uint8

// The causes.
const (
	Runs           Cause = iota // it has a slot
	AwaitsResult                // preempted; a row of it is still out
	AwaitsPrefix                // Behind computes or fetches Tokens of its prompt
	AwaitsSlot                  // all MaxRunning slots are taken
	AwaitsPages                 // NeedPages are more than what is free, less what running requests are expected to need
	AwaitsPool                  // the pool was asked for pages, or can be
	AwaitsReserved              // Behind did not fit so often that all room is kept for it
	AwaitsTenant                // its tenant runs as many as it may
	AwaitsLong                  // as many long prompts are being computed as may be at a time
	AwaitsTurn                  // others come first, or the step's budget is used up
	AwaitsTier                  // Tokens of its prompt are on their way from Tier
)

var causeNames = enum.New[Cause]("scheduler", "cause",
	"runs", "waits for a row of it that is still out", "waits for a prefix that another request computes or fetches", "waits for a slot",
	"waits for pages", "waits for pages from the pool", "waits behind one that has waited too long", "waits for others of its tenant",
	"waits for other long prompts",
	"waits for its turn", "waits for a prefix on its way from a lower tier",
)

func (c Cause) String() string { return causeNames.Name(c) }

// Wait says of one sample why it waits.
type Wait struct {
	Request RequestID
	Sample  int
	Cause   Cause

	CachedTokens int       // of its prompt, found now
	Behind       RequestID // AwaitsPrefix, AwaitsReserved
	Tokens       int       // AwaitsPrefix: shared with Behind; AwaitsTier: to come
	Tier         kv.Tier   // AwaitsTier: that of the next part
	// AwaitsPages, AwaitsPool, AwaitsTurn:
	NeedPages   int // what it needs of its own
	FreePages   int // idle and evictable, beside what it found itself
	ExpectPages int // the part of FreePages that running requests are expected to need
	Bypassed    int // admissions since it was found not to fit
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
		s += fmt.Sprintf(": needs %d, %d are free or can be evicted, %d of these are expected to be needed by running requests", w.NeedPages, w.FreePages, w.ExpectPages)
	case AwaitsReserved:
		s += fmt.Sprintf(": request %d", w.Behind)
	}
	return s
}

// Why says of each open sample of a request why it waits. It changes nothing that
// matters; cost: as admission's look at it, with one at all that run.
func (s *Scheduler) Why(id RequestID) []Wait {
	g, ok := s.open[id]
	if !ok {
		return nil
	}
	s.running.reserved = -1 // that of the latest pass is old
	reserve := s.running.reserve(g.samples[0])
	v, all := s.view(), make([]Wait, len(g.samples))
	for i, q := range g.samples {
		v.explain(&all[i], q, reserve)
	}
	return all
}

// Waiting appends what Why says of all samples that have no slot, by request and
// sample. It looks at those that run once, not once for each.
func (s *Scheduler) Waiting(dst []Wait) []Wait {
	all := slices.Clone(s.running.preempted)
	for q := s.queue.oldest; q != nil; q = q.newer {
		all = append(all, q)
	}
	slices.SortFunc(all, comparePrecedence)
	running := slices.Clone(s.running.all)
	slices.SortFunc(running, comparePrecedence)
	base, reserve, v := len(dst), 0, s.view()
	dst = slices.Grow(dst, len(all))
	for _, q := range all {
		for len(running) > 0 && !s.cfg.mayReplace(q, running[0]) { // so much more than for the one before
			reserve += s.classes.growth(running[0], s.info.PageTokens)
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

// view holds the answers that all waiting samples share, so that a look at many finds them once.
type view struct {
	s        *Scheduler
	lastLong *sequence // see Config.lastLong
	blocked  *sequence // for which all room is kept, or nil
	supply   supply    // of one that has found nothing
}

func (s *Scheduler) view() view {
	v := view{s: s, lastLong: s.cfg.lastLong(s.running.prefilling), supply: s.room.supply(&demand{})}
	if b := s.queue.blocked; b != nil && !s.queue.excluded(b) && s.queue.hasTurn(b) {
		v.blocked = b
	}
	return v
}

// explain fills in w, empty before, for q, for which reserve says so much.
func (v *view) explain(w *Wait, q *sequence, reserve int) {
	s := v.s
	w.Request, w.Sample = q.req.ID, q.sample
	if q.unfit {
		w.Bypassed = int(s.queue.admissions - q.unfitAt)
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
	case q.place == following:
		w.Cause, w.Behind, w.Tokens = AwaitsPrefix, q.leader.req.ID, q.until
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
	case q.tenant.atLimit():
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
