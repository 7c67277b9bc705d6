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
	blockTokens int
	prompt      int // tokens
	blocks      int // of the prompt, as far as there are hashes
	output      float64
	decodeOnly  bool
	prefix      uint64 // hash of the first blocks
	hashed      bool

	mostWaiting  int // of any candidate
	leastPrefill int // tokens, of any candidate
}

// score finds the candidates and their costs.
func (r *Router) score(req *Request) scorer {
	s := scorer{
		policy: r.cfg.Policy, weights: &r.cfg.Weights, blockTokens: r.cfg.BlockTokens, prompt: req.PromptTokens,
		blocks: len(req.Hashes), output: float64(r.cfg.ExpectedOutput), decodeOnly: req.Phase == DecodeOnly,
	}
	if req.Weights != nil {
		s.weights = req.Weights
	}
	if req.ExpectedOutput > 0 {
		s.output = float64(req.ExpectedOutput)
	}
	if n := min(len(req.Hashes), r.cfg.PrefixBlocks); n > 0 {
		s.prefix, s.hashed = uint64(req.Hashes[n-1]), true
	}
	r.gather(req, &s)
	for _, slot := range r.scratch.candidates {
		r.scratch.costs[slot], _ = r.cost(&s, slot)
	}
	return s
}

// gather fills the scratch but for the costs.
func (r *Router) gather(req *Request, s *scorer) {
	x := &r.scratch
	x.reset(len(r.workers))
	for i := range req.Overlaps {
		if slot := r.slotOf(req.Overlaps[i].Worker); slot != noEntry {
			x.overlaps[slot] = req.Overlaps[i]
		}
	}
	for _, w := range req.Avoid {
		if slot := r.slotOf(w); slot != noEntry {
			x.avoid[slot] = true
		}
	}
	if req.Unshared {
		s.blocks = kv.FloorPages(req.PromptTokens, r.cfg.BlockTokens)
	} else {
		r.tree.depths(req.Hashes, x.depths)
	}
	s.leastPrefill = math.MaxInt
	for _, slot := range r.serving(req).order {
		if !r.eligible(slot, req) {
			continue
		}
		x.candidates = append(x.candidates, slot)
		w := &r.workers[slot]
		s.mostWaiting = max(s.mostWaiting, w.waiting())
		s.leastPrefill = min(s.leastPrefill, w.prefillTokens)
	}
}

// cost is that of a candidate, the lowest being the best, and what it is made of,
// see Policy.terms.
func (r *Router) cost(s *scorer, slot int32) (cost float64, terms [maxTerms]float64) {
	w, o, k := &r.workers[slot], &r.scratch.overlaps[slot], s.weights
	blocks := w.blocks() + s.blocks - int(r.scratch.depths[slot])
	switch s.policy {
	case Cost2025:
		terms[0] = float64(o.Blocks()*s.blockTokens) / float64(s.prompt)
		if w.spec.TotalBlocks > 0 {
			terms[1] = float64(w.usedBlocks()) / float64(w.spec.TotalBlocks)
		}
		if s.mostWaiting > 0 {
			terms[2] = float64(w.waiting()) / float64(s.mostWaiting)
		}
		cost = k.Usage*terms[1] + k.Waiting*terms[2] - k.Score*terms[0]
	case Cost2026:
		if !s.decodeOnly {
			terms[0] = float64(w.prefillTokens+s.uncached(o)) / float64(s.blockTokens)
		}
		terms[1], terms[2] = float64(blocks), float64(w.tree)
		cost = k.Prefill*terms[0] + terms[1]
	case CostCredits:
		cost = s.credits(w, o, float64(blocks), &terms)
	case CostLatency:
		cost = r.latency(s, w, o, blocks, &terms)
	case CostRoundRobin:
		cost = float64(w.lastChosen)
		terms[0] = cost
	case CostLeastLoaded:
		cost = float64(w.requests)
		terms[0] = cost
	case CostPrefixHash:
		if s.hashed {
			cost = float64(mix(s.prefix, mix(uint64(w.id.ID), uint64(w.id.Rank))) >> 11)
		}
		terms[0] = cost
	}
	return cost, terms
}

// maxTerms is the most that a cost is made of.
const maxTerms = 3

// credits is CostCredits.
func (s *scorer) credits(w *worker, o *Overlap, blocks float64, terms *[maxTerms]float64) float64 {
	k, bs := s.weights, float64(s.blockTokens)
	excess := float64(w.prefillTokens-s.leastPrefill) / bs / max(1, float64(s.prompt)/bs)
	device := k.Device * float64(o.Device) / (1 + k.Decay*excess)
	terms[1] = device + k.Host*float64(o.Host) + k.Disk*float64(o.Disk)
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

// prefill is how long the prompt takes on a worker by itself, in seconds.
func (s *scorer) prefill(w *worker, o *Overlap) float64 {
	n := s.uncached(o)
	p := &w.spec.Profile
	return p.prefill(float64(n), float64(s.prompt-n)) + p.HostBlock*float64(o.Host) + p.DiskBlock*float64(o.Disk)
}

// latency is CostLatency, in seconds: what all requests together will wait for if
// the worker is chosen.
//
//	ttft    what pends before it + its own prompt + the rest of the step under way + one decode step for each
//	        of the steps that pending prompts take, and of its own
//	own     its output tokens, each a decode step of all that are active with it
//	others  its prompt for each that decodes, and its row and KV for each of their steps beside it
//
// A row is delayed by no more of the prompt than has room in the steps that it has
// yet to be in. Blocks beyond the pool wait for others to end: their share of all
// context, of the time that a request lives.
func (r *Router) latency(s *scorer, w *worker, o *Overlap, blocks int, terms *[maxTerms]float64) float64 {
	p := &w.spec.Profile
	prompt, own := 0.0, float64(s.prompt)+s.output/2
	if !s.decodeOnly {
		prompt = s.prefill(w, o)
	}
	rows, context := float64(w.requests), float64(w.contextTokens)
	running := float64(w.requests - w.prefilling)
	all := p.decode(rows+1, context+own)
	terms[0] = w.pending(r.now, r).Seconds() + prompt
	if !s.decodeOnly {
		step := p.decode(running, context*running/max(rows, 1))
		steps := w.spec.steps(float64(s.uncached(o)))
		if w.prefilling > 0 {
			steps += w.spec.steps(float64(w.prefillTokens))
		}
		terms[0] += w.underWay(r.now, step) + steps*step
	}
	if over := blocks - w.spec.TotalBlocks; w.spec.TotalBlocks > 0 && over > 0 {
		share := min(1, float64(over)*float64(s.blockTokens)/max(1, context))
		terms[0] += share * s.output * all
	}
	terms[1] = s.output * all
	beside := s.output / 2 // what a request in its midst has yet to output, and so do most
	delay := min(prompt, beside*w.spec.chunk()*p.Token)
	terms[2] = running*delay + rows*beside*(p.Row+p.KV*own)
	return s.weights.TTFT*terms[0] + s.weights.ITL*(terms[1]+terms[2])
}

// underWay is how much longer the step takes that a worker is in, which takes step
// seconds: it began when the worker was heard of last, if that is not longer ago, and
// is in its midst otherwise.
func (w *worker) underWay(now time.Duration, step float64) float64 {
	if w.requests == 0 {
		return 0
	}
	if since := (now - w.heard).Seconds(); since < step {
		return step - since
	}
	return step / 2
}

// seconds is a duration, at most a century.
func seconds(s float64) time.Duration {
	return time.Duration(min(s, 3e9) * float64(time.Second))
}
