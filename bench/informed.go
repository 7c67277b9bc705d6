package bench

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
)

// informed returns the number of pages that an eviction matches which knows the distributions of an agents' trace, and of
// each session what the cache is told (told.calls, told.ends), the number of its turns, and which sub-agents run. It does not
// know what the distributions will draw. It is no policy for a server, whose sessions have no known distributions; it shows
// about how much of the distance to clairvoyant eviction takes knowledge of the draws.
//
// It evicts what is worth least per page. A session's next turn uses its whole present context with the chance that the
// history is not replaced first. So each page of the context is worth
//
//	max over e of (S(age) - S(e)) / (integral of S from age to e),
//
// where S is the share of such sessions that have not come back after a time: the best rate of uses that keeping the page
// for some time promises. A page that several sessions have is worth the sum. Pages that no session has go first. That is greedy, and
// so no strict bound; but with many sessions none of which fills the cache, keeping what promises the highest rate is as good
// as any choice without knowledge of the draws.
func (p *pageTrace) informed(ctx context.Context, t *Trace, cfg *agentsConfig, limit int) (matched int, err error) {
	c := &informedCache{
		p: p, t: t, cfg: cfg, room: limit, cached: make([]bool, p.pages), owners: make([]int32, p.pages), used: make([]int32, p.pages),
		worth: make([]float64, p.pages), sessions: map[uint32]*informedSession{}, rates: map[informedState]*informedRates{},
	}
	for i := range p.ends {
		if i%64 == 0 && ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		matched += c.step(i)
	}
	return matched, nil
}

// informedCache is the state of an informed eviction.
type informedCache struct {
	p        *pageTrace
	t        *Trace
	cfg      *agentsConfig
	room     int       // free pages
	cached   []bool    // by page
	owners   []int32   // by page: sessions whose present context has it
	used     []int32   // by page: 1 + the latest request with it
	worth    []float64 // by page, at the latest eviction that had to choose
	free     []int32   // cached pages that had no owner when they came here
	sessions map[uint32]*informedSession
	live     []*informedSession // those that may come back, by first request
	rates    map[informedState]*informedRates
}

// informedSession is a session whose present context are the pages of visits [begin, end).
type informedSession struct {
	begin, end int
	kept       int     // pages, from the root, that are cached; found at an eviction
	at         float64 // seconds: its last request
	turns      int
	rates      *informedRates
	lasts      float64            // chance that the history is not replaced before the next turn
	waits      []*informedSession // sub-agents that it waits for
	over       bool
}

// step replays a request, and returns the number of matched pages.
func (c *informedCache) step(i int) (matched int) {
	turn, now := &c.t.turns[i], int32(i+1)
	path := c.p.visits[c.p.begin(i):c.p.ends[i]]
	for matched < len(path) && c.cached[path[matched]] {
		matched++
	}
	lack := 0
	for _, page := range path {
		c.used[page] = now
		if !c.cached[page] {
			lack++
		}
	}
	if turn.Session != 0 {
		c.turn(i)
	}
	c.evict(lack-c.room, turn.At.Seconds(), now)
	c.room -= lack
	for _, page := range path {
		c.cached[page] = true
	}
	c.disown(path) // of no session, or of one that is over
	return matched
}

// disown lists the cached pages of a path that no session has.
func (c *informedCache) disown(path []int32) {
	for _, page := range path {
		if c.cached[page] && c.owners[page] == 0 {
			c.free = append(c.free, page)
		}
	}
}

// turn gives a session its present context, that of request i.
func (c *informedCache) turn(i int) {
	turn := &c.t.turns[i]
	begin, end := c.p.begin(i), c.p.ends[i]
	for _, page := range c.p.visits[begin:end] {
		c.owners[page]++
	}
	s := c.sessions[turn.Session]
	if s == nil {
		s = &informedSession{}
		c.sessions[turn.Session] = s
		c.live = append(c.live, s)
		if parent := c.sessions[turn.Parent]; parent != nil {
			parent.waits = append(parent.waits, s)
		}
	} else {
		c.leave(s)
	}
	for _, sub := range s.waits {
		c.finish(sub)
	}
	s.waits = nil
	s.begin, s.end, s.at = begin, end, turn.At.Seconds()
	s.turns++
	state := informedState{sub: turn.Parent != 0, turns: s.turns}
	if c.cfg.Told.calls {
		state.calls, state.answers = turn.Calls > 0, turn.Calls == 0
	}
	s.rates = c.ratesOf(state)
	s.lasts = 1
	if left := float64(agentLongest - len(c.t.requests[i])); left < agentResultMost {
		s.lasts = max(0, math.Log(max(left, 1)/agentResultLeast)/math.Log(agentResultMost/agentResultLeast))
	}
	if c.cfg.Told.ends && turn.Last {
		c.finish(s)
	}
}

// leave takes its pages from a session.
func (c *informedCache) leave(s *informedSession) {
	path := c.p.visits[s.begin:s.end]
	for _, page := range path {
		c.owners[page]--
	}
	c.disown(path)
}

// finish ends a session.
func (c *informedCache) finish(s *informedSession) {
	if !s.over {
		s.over = true
		c.leave(s)
	}
}

// evict frees this many pages, but none that request now has.
func (c *informedCache) evict(pages int, seconds float64, now int32) {
	drop := func(page int32) {
		c.cached[page] = false
		c.room++
		pages--
	}
	for pages > 0 && len(c.free) > 0 {
		page := c.free[len(c.free)-1]
		c.free = c.free[:len(c.free)-1]
		if c.cached[page] && c.owners[page] == 0 && c.used[page] != now {
			drop(page)
		}
	}
	if pages <= 0 {
		return
	}
	for tails := c.tails(seconds, now); pages > 0; {
		if len(tails) == 0 {
			panic(fmt.Sprintf("bench: nothing left to evict, %d pages short", pages))
		}
		s, worth := tails[0], c.worth[c.last(tails[0])]
		if page := c.last(s); c.cached[page] {
			drop(page)
		}
		if c.shorten(s, now); s.kept > 0 && c.worth[c.last(s)] == worth {
			continue
		}
		tails = tails[1:]
		if s.kept > 0 {
			at := sort.Search(len(tails), func(i int) bool { return c.worth[c.last(tails[i])] >= c.worth[c.last(s)] })
			tails = slices.Insert(tails, at, s)
		}
	}
}

// tails returns the sessions with pages that can be evicted, those first whose last page is worth least. The worth of
// pages falls along a context, as all owners of a page own those before it.
func (c *informedCache) tails(seconds float64, now int32) (tails []*informedSession) {
	clear(c.worth)
	c.live = slices.DeleteFunc(c.live, func(s *informedSession) bool { return s.over })
	for _, s := range c.live {
		rate := agentWaitRate
		if len(s.waits) == 0 {
			rate = s.rates.at(seconds-s.at) * s.lasts
		}
		for _, page := range c.p.visits[s.begin:s.end] {
			c.worth[page] += rate
		}
	}
	for _, s := range c.live {
		s.kept = s.end - s.begin
		if c.shorten(s, now); s.kept > 0 {
			tails = append(tails, s)
		}
	}
	slices.SortStableFunc(tails, func(a, b *informedSession) int {
		return int(math.Copysign(1, c.worth[c.last(a)]-c.worth[c.last(b)]))
	})
	return tails
}

// last returns the last page that is kept of a session.
func (c *informedCache) last(s *informedSession) int32 { return c.p.visits[s.begin+s.kept-1] }

// shorten makes kept what is still cached, and 0 if request now has that.
func (c *informedCache) shorten(s *informedSession, now int32) {
	for s.kept > 0 && !c.cached[c.last(s)] {
		s.kept--
	}
	if s.kept > 0 && c.used[c.last(s)] == now {
		s.kept = 0
	}
}

// agentWaitRate is the rate per second at which a session comes back that waits for sub-agents: they take a minute.
const agentWaitRate = 1.0 / 60

// informedState holds the facts about a session whose turn has ended.
type informedState struct {
	sub     bool // it is a sub-agent
	turns   int
	calls   bool // the answer calls tools
	answers bool // the answer calls none; neither: it is not known
}

// informedRates holds the best rate of returns of the sessions in a state, by age.
type informedRates [informedAges]float64

// The ages for which rates are computed: 0, and from informedFirst seconds on in steps of 4 %, to some days.
const (
	informedAges  = 400
	informedFirst = 0.1
	informedStep  = 1.04
)

// at returns the rate at an age in seconds.
func (r *informedRates) at(age float64) float64 {
	if age <= informedFirst {
		return r[0]
	}
	return r[min(1+int(math.Log(age/informedFirst)/math.Log(informedStep)), informedAges-2)]
}

// ratesOf computes the rates of a state.
func (c *informedCache) ratesOf(state informedState) *informedRates {
	if r := c.rates[state]; r != nil {
		return r
	}
	over := endChance(state.sub, state.turns)
	user := (1 - over) * agentUserShare
	if state.sub {
		user = 0
	}
	tool := 1 - over - user
	switch {
	case state.calls:
		over, user, tool = 0, 0, 1
	case state.answers:
		over, user, tool = over/(over+user), user/(over+user), 0
	}
	var age, spent, back [informedAges]float64
	idle := func(age float64) float64 {
		return over + user*c.cfg.waits(age-agentServe, agentUserPause, 1) + tool*c.cfg.waits(age-agentServe, agentToolPause, 0.8)
	}
	for j := 1; j < informedAges; j++ {
		age[j] = informedFirst * math.Pow(informedStep, float64(j-1))
		spent[j] = spent[j-1] + (age[j]-age[j-1])*(idle(age[j-1])+idle(age[j]))/2
		back[j] = 1 - idle(age[j])
	}
	r := &informedRates{}
	for j := range r {
		for e := j + 1; e < informedAges && spent[e] > spent[j]; e++ {
			r[j] = max(r[j], (back[e]-back[j])/(spent[e]-spent[j]))
		}
	}
	c.rates[state] = r
	return r
}

// waits returns the share of pauses that are longer than these seconds; see agentsSim.lognormal.
func (c *agentsConfig) waits(seconds, median, sigma float64) float64 {
	switch {
	case seconds <= 0:
		return 1
	case c.Random:
		return math.Exp(-seconds / (median * math.Exp(sigma*sigma/2)))
	case c.Regular:
		sigma /= 8
	}
	return above(math.Log(seconds/median) / sigma)
}

// endChance returns the chance that a session with this many turns has no more.
func endChance(sub bool, turns int) float64 {
	if sub {
		return 1 - math.Exp(-1.0/agentSubTurns)
	}
	if turns >= agentTurnsMost {
		return 1
	}
	longer := above(math.Log(float64(turns+1)/agentTurns) / agentSpread)
	if turns == 1 {
		return 1 - longer
	}
	return 1 - longer/above(math.Log(float64(turns)/agentTurns)/agentSpread)
}

// above returns the share of a standard normal distribution above x.
func above(x float64) float64 { return math.Erfc(x/math.Sqrt2) / 2 }
