package router

import (
	"math"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// scorer is a request as the cost functions see it.
type scorer struct {
	policy      Policy
	weights     *Weights
	tiers       *TierWeights
	blockTokens int
	prompt      int            // tokens
	blocks      int            // of the prompt, as far as there are hashes
	hashes      []kv.BlockHash // of those that may be shared
	output      float64
	decodeOnly  bool
	context     float64 // tokens of it in its midst
	beside      float64 // tokens that a request in its midst has yet to output, and so do most
	behind      float64 // blocks of those that it has output then
	prefix      uint64  // hash of the first blocks
	hashed      bool

	best         int // blocks that any worker has, candidate or not
	mostWaiting  int // of any candidate
	leastPrefill int // tokens, of any candidate
}

// score finds the candidates and their costs.
func (r *Router) score(req *Request) scorer {
	s := scorer{
		policy: r.cfg.Policy, weights: &r.cfg.Weights, tiers: &r.cfg.TierWeights, blockTokens: r.cfg.BlockTokens, prompt: req.PromptTokens,
		blocks: len(req.Hashes), hashes: req.Hashes, output: float64(r.cfg.ExpectedOutput), decodeOnly: req.Phase == DecodeOnly,
	}
	if req.Weights != nil {
		s.weights = req.Weights
	}
	if req.ExpectedOutput > 0 {
		s.output = float64(req.ExpectedOutput)
	}
	s.context, s.beside, s.behind = float64(s.prompt)+s.output/2, s.output/2, s.output/2/float64(s.blockTokens)
	if n := min(len(req.Hashes), r.cfg.PrefixBlocks); n > 0 {
		s.prefix, s.hashed = uint64(req.Hashes[n-1]), true
	}
	if req.Unshared {
		s.blocks, s.hashes = kv.FloorPages(req.PromptTokens, r.cfg.BlockTokens), nil
	}
	r.gather(req, &s)
	x := &r.scratch
	if s.policy == CostLatency {
		r.latency(&s, x.candidates, nil)
		return s
	}
	for _, slot := range x.candidates {
		x.costs[slot], _ = r.cost(&s, slot)
	}
	return s
}

// gather fills the scratch but for the costs.
func (r *Router) gather(req *Request, s *scorer) {
	x := &r.scratch
	x.reset(len(r.workers))
	var last Overlap
	slot := int32(noEntry)
	for i := range req.Overlaps {
		o := &req.Overlaps[i]
		if last.Worker = o.Worker; *o != last {
			last = *o
			x.shares = append(x.shares, share{Overlap: last, kind: none})
			s.best = max(s.best, last.Blocks())
		}
		// An index names workers in the order in which they came to it.
		if slot++; !r.seated(slot, o.Worker) {
			slot = r.slotOf(o.Worker)
		}
		if slot != noEntry {
			x.shareOf[slot] = int32(len(x.shares) - 1)
		}
	}
	if p := &r.tree.promises; p.blocks.n > 0 {
		x.foresee(p, s)
	}
	r.gatherCandidates(req)
	if s.policy == Cost2025 || s.policy == CostCredits {
		s.leastPrefill = math.MaxInt
		for _, slot := range x.candidates {
			w := &r.workers[slot]
			s.mostWaiting = max(s.mostWaiting, w.waiting())
			s.leastPrefill = min(s.leastPrefill, w.prefillTokens)
		}
	}
}

// gatherCandidates finds those who may be chosen.
func (r *Router) gatherCandidates(req *Request) {
	x := &r.scratch
	r.marks++
	for _, w := range req.Avoid {
		if slot := r.slotOf(w); slot != noEntry {
			r.workers[slot].mark = r.marks
		}
	}
	m := r.serving(req)
	switch {
	case req.Pinned != nil:
		if slot := r.slotOf(*req.Pinned); slot != noEntry && r.eligible(slot, req) {
			x.fit = append(x.fit, slot)
		}
	case len(req.Avoid) == 0 && m.healthy == len(m.order):
		x.candidates = m.order
		return
	default:
		for _, slot := range m.order {
			if r.eligible(slot, req) && !r.workers[slot].stalled {
				x.fit = append(x.fit, slot)
			}
		}
		if len(x.fit) > 0 || r.stalled == 0 {
			break
		}
		for _, slot := range m.order {
			if r.eligible(slot, req) {
				x.fit = append(x.fit, slot)
			}
		}
	}
	x.candidates = x.fit
}

// depth is how many blocks of the prompt a worker's active requests hold. Most choices
// need it of nobody.
func (r *Router) depth(s *scorer, slot int32) int {
	x := &r.scratch
	if !x.deep {
		clear(x.depths)
		r.tree.depths(s.hashes, x.depths)
		x.deep = true
	}
	return int(x.depths[slot])
}

// cost is that of a candidate, the lowest being the best, and what it is made of,
// see Policy.terms.
func (r *Router) cost(s *scorer, slot int32) (cost float64, terms [maxTerms]float64) {
	w, o, k := &r.workers[slot], r.scratch.overlap(slot), s.weights
	switch s.policy {
	case Cost2025:
		terms[0] = s.tiers.blocks(o) * float64(s.blockTokens) / float64(s.prompt)
		if w.spec.TotalBlocks > 0 {
			terms[1] = float64(w.usedBlocks()) / float64(w.spec.TotalBlocks)
		}
		if s.mostWaiting > 0 {
			terms[2] = float64(w.waiting()) / float64(s.mostWaiting)
		}
		cost = k.Usage*terms[1] + k.Waiting*terms[2] - k.Score*terms[0]
	case Cost2026:
		if !s.decodeOnly {
			terms[0] = float64(w.prefillTokens+s.missing(o)) / float64(s.blockTokens)
		}
		terms[1], terms[2] = float64(r.blocksWith(s, slot)), float64(w.tree)
		cost = k.Prefill*terms[0] + terms[1]
	case CostCredits:
		cost = s.credits(w, o, float64(r.blocksWith(s, slot)), &terms)
	case CostLatency:
		r.latency(s, []int32{slot}, &terms)
		cost = r.scratch.costs[slot]
	case CostRoundRobin:
		cost = float64(w.lastChosen)
		terms[0] = cost
	case CostLeastLoaded:
		cost = float64(w.requests)
		terms[0] = cost
	case CostPrefixHash:
		if s.hashed {
			cost = float64(mix(s.prefix, mix(uint64(w.id.Worker), uint64(w.id.DP))) >> 11)
		}
		terms[0] = cost
	}
	return cost, terms
}

// maxTerms is the most that a cost is made of.
const maxTerms = 4

// credits is CostCredits.
func (s *scorer) credits(w *worker, o *Overlap, blocks float64, terms *[maxTerms]float64) float64 {
	k, bs := s.weights, float64(s.blockTokens)
	excess := float64(w.prefillTokens-s.leastPrefill) / bs / max(1, float64(s.prompt)/bs)
	device := k.Device * float64(o.Device) / (1 + k.Decay*excess)
	terms[1] = device + k.Host*float64(o.Host) + k.Disk*float64(o.Disk+o.Shared+o.Object)
	terms[2] = blocks + k.Requests*float64(w.requests)
	if s.decodeOnly {
		return max(0, blocks-terms[1]) + k.Requests*float64(w.requests)
	}
	// What is cached counts as asked for though it be more than the prompt, so that
	// the credits are not more than the charge.
	terms[0] = float64(w.prefillTokens+max(s.prompt, o.Blocks()*s.blockTokens)) / bs
	return k.Scale*max(0, terms[0]-terms[1]) + terms[2]
}

// uncached are the prompt's tokens that a worker must compute.
func (s *scorer) uncached(o *Overlap) int { return max(0, s.prompt-o.Blocks()*s.blockTokens) }

// missing are the prompt's tokens less what is cached, each block of that counted by its
// tier.
func (s *scorer) missing(o *Overlap) int {
	return max(0, s.prompt-int(math.Round(s.tiers.blocks(o)*float64(s.blockTokens))))
}

// blocksWith are the distinct blocks of a worker's active requests and this one.
func (r *Router) blocksWith(s *scorer, slot int32) int {
	return r.workers[slot].blocks() + s.blocks - r.depth(s, slot)
}

// prefill is how long n tokens of the prompt take on a worker by themselves, in seconds,
// with what is fetched.
func (s *scorer) prefill(p *Profile, o *Overlap, n int) float64 {
	return p.prefill(float64(n), float64(s.prompt-n)) + p.HostBlock*float64(o.Host) + p.DiskBlock*float64(o.Disk+o.Shared+o.Object)
}

// latency is CostLatency, in seconds: what all requests together will wait for if
// the worker is chosen.
//
//	ttft    what pends before it + its own prompt + the rest of the step under way + one decode step, and what any
//	        prompt adds to it, for each of the steps that pending prompts take, and of its own
//	own     its output tokens, each a decode step of all that are active with it
//	others  its prompt for each that decodes, and its row, KV and blocks for each of their steps beside it
//	backlog its prompt for each that waits for its first token there: as many will come and wait behind it
//
// A row is delayed by no more of the prompt than has room in the steps that it has
// yet to be in. Blocks beyond the pool wait for others to end: their share of all
// context, of the time that a request lives.
//
// It sets the costs of slots and, if it is there, terms to those of the last one: a loop
// in one piece takes a fifth less time than a function of one worker.
func (r *Router) latency(s *scorer, slots []int32, terms *[maxTerms]float64) {
	x, gauges, kinds := &r.scratch, r.gauges, r.kinds
	shares, shareOf, costs := x.shares, x.shareOf, x.costs
	now, blocks, context, output, beside, weights := r.now, s.blocks, s.context, s.output, s.beside, s.weights
	var ttft, own, others, backlog float64
	for _, slot := range slots {
		g, h := &gauges[slot], &shares[shareOf[slot]]
		k := &kinds[g.kind]
		if h.kind != g.kind {
			s.lay(h, k, g.kind)
		}
		rows := float64(g.rows)
		step, row := k.decode(rows+1, g.context+context), h.row // with it, and what it adds to one
		if k.Block > 0 {
			with := r.blocksWith(s, slot)
			step += k.Block * (float64(with) + s.behind)
			row += k.Block * (float64(with-r.workers[slot].blocks()) + s.behind)
		}
		ttft = inSeconds(g.pending(now)) + h.prompt
		if !s.decodeOnly {
			ttft += g.underWay(now) + (h.steps+g.pendingSteps)*(g.step+k.Prompt)
		}
		if blocks > int(g.room) {
			ttft += r.beyond(s, slot) * output * step
		}
		own, others, backlog = output*step, float64(g.running)*h.delay+rows*beside*row, float64(g.rows-g.running)*h.prompt
		costs[slot] = weights.TTFT*ttft + weights.ITL*(own+others) + weights.Backlog*backlog
	}
	if terms != nil {
		*terms = [maxTerms]float64{ttft, own, others, backlog}
	}
}

// beyond is the share of a worker's context that its pool has no room for.
func (r *Router) beyond(s *scorer, slot int32) float64 {
	over := max(0, r.blocksWith(s, slot)-r.workers[slot].spec.TotalBlocks)
	return min(1, float64(over)*float64(s.blockTokens)/max(1, r.gauges[slot].context))
}

// lay works out what an overlap comes to for workers of a kind.
func (s *scorer) lay(h *share, k *kind, at int32) {
	h.kind, h.prompt, h.delay = at, 0, 0
	missing := s.missing(&h.Overlap)
	h.steps = k.steps(float64(missing))
	if !s.decodeOnly {
		h.prompt = s.prefill(&k.Profile, &h.Overlap, missing)
		h.delay = min(h.prompt+k.Prompt*h.steps, s.beside*k.chunk*k.Token+s.beside*k.Prompt)
	}
	h.row = k.Row + k.KV*s.context
}

// inSeconds is d.Seconds(), without its divisions where there are no whole ones.
func inSeconds(d time.Duration) float64 {
	if d < time.Second {
		return float64(d) / 1e9
	}
	return d.Seconds()
}

// seconds is a duration, at most a century.
func seconds(s float64) time.Duration {
	return time.Duration(min(s, 3e9) * float64(time.Second))
}
