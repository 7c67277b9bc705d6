package router

import (
	"math"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// scorer computes the costs of the workers that one request may go to. It is the scratch
// of one choice after the other.
type scorer struct {
	cfg    *Config
	fleet  *fleet
	ledger *ledger

	// The request.
	weights *Weights
	prompt  int            // tokens
	hashes  []kv.BlockHash // of its blocks
	output  float64        // tokens

	// What was found.
	candidates   []int32   // slots, in the order of workers
	overlaps     []Overlap // by slot, with what is promised
	promised     []int32   // by slot: blocks of it that the index does not have
	depths       []int32   // by slot: blocks that active requests of the worker hold
	costs        []float64 // by slot, of candidates
	ties         []int32
	chances      []float64 // by candidate
	best         int       // blocks that any worker has, candidate or not
	mostWaiting  int       // of any candidate
	leastPrefill int       // tokens, of any candidate
}

func newScorer(cfg *Config, f *fleet, l *ledger) scorer { return scorer{cfg: cfg, fleet: f, ledger: l} }

// reset makes room for so many slots, with nothing in it.
func (s *scorer) reset(slots int) {
	if cap(s.costs) < slots {
		s.candidates, s.ties, s.chances = make([]int32, 0, slots), make([]int32, 0, slots), make([]float64, 0, slots)
		s.overlaps, s.promised, s.depths, s.costs = make([]Overlap, slots), make([]int32, slots), make([]int32, slots), make([]float64, slots)
	}
	s.overlaps, s.promised, s.depths, s.costs = s.overlaps[:slots], s.promised[:slots], s.depths[:slots], s.costs[:slots]
	clear(s.overlaps)
	clear(s.promised)
	clear(s.depths)
	s.candidates, s.best, s.mostWaiting, s.leastPrefill = s.candidates[:0], 0, 0, math.MaxInt
}

// score finds the candidates and their costs.
func (s *scorer) score(req *Request) {
	s.reset(len(s.fleet.workers))
	s.prompt, s.hashes, s.weights, s.output = req.PromptTokens, req.Hashes, &s.cfg.Weights, float64(s.cfg.ExpectedOutput)
	if req.Weights != nil {
		s.weights = req.Weights
	}
	if req.ExpectedOutput > 0 {
		s.output = float64(req.ExpectedOutput)
	}
	for i := range req.Overlaps {
		o := &req.Overlaps[i]
		s.best = max(s.best, o.Blocks())
		if slot := s.fleet.slotOf(o.Worker); slot != noEntry {
			s.overlaps[slot] = *o
		}
	}
	s.ledger.tree.depths(s.hashes, s.depths)
	s.foresee()
	s.candidates = s.fleet.candidates(req, s.candidates)
	for _, slot := range s.candidates {
		w := &s.fleet.workers[slot]
		s.mostWaiting = max(s.mostWaiting, w.waiting())
		s.leastPrefill = min(s.leastPrefill, w.prefillTokens)
	}
	for _, slot := range s.candidates {
		s.costs[slot], _ = s.cost(slot)
	}
}

// foresee adds to the overlaps what is promised, from the first block on that the index
// does not have.
func (s *scorer) foresee() {
	promises := &s.ledger.tree.promises
	if promises.n == 0 {
		return
	}
	for _, slot := range s.fleet.all() {
		o := &s.overlaps[slot]
		known := o.Blocks()
		all := known
		for all < len(s.hashes) && promises.get(key{uint64(s.hashes[all]), uint32(slot)}) != noEntry {
			all++
		}
		o.Device += all - known
		s.promised[slot] = int32(all - known)
		s.best = max(s.best, all)
	}
}

// maxTerms is the most that a cost is made of.
const maxTerms = 4

// cost is that of a candidate, the lowest being the best, and what it is made of,
// see Policy.terms.
func (s *scorer) cost(slot int32) (cost float64, terms [maxTerms]float64) {
	w, o, k, bs := &s.fleet.workers[slot], &s.overlaps[slot], s.weights, float64(s.cfg.BlockTokens)
	switch s.cfg.Policy {
	case Cost2025:
		terms[0] = s.cfg.TierWeights.blocks(o) * bs / float64(s.prompt)
		if w.spec.TotalBlocks > 0 {
			terms[1] = float64(w.usedBlocks()) / float64(w.spec.TotalBlocks)
		}
		if s.mostWaiting > 0 {
			terms[2] = float64(w.waiting()) / float64(s.mostWaiting)
		}
		cost = k.Usage*terms[1] + k.Waiting*terms[2] - k.Score*terms[0]
	case Cost2026:
		terms[0] = float64(w.prefillTokens+s.missing(o)) / bs
		terms[1], terms[2] = float64(s.blocksWith(slot)), float64(w.tree)
		cost = k.Prefill*terms[0] + terms[1]
	case CostCredits:
		excess := float64(w.prefillTokens-s.leastPrefill) / bs / max(1, float64(s.prompt)/bs)
		device := k.Device * float64(o.Device) / (1 + k.Decay*excess)
		// What is cached counts as asked for though it be more than the prompt, so that
		// the credits are not more than the charge.
		terms[0] = float64(w.prefillTokens+max(s.prompt, o.Blocks()*s.cfg.BlockTokens)) / bs
		terms[1] = device + k.Host*float64(o.Host) + k.Disk*float64(o.Disk+o.Shared+o.Object)
		terms[2] = float64(s.blocksWith(slot)) + k.Requests*float64(w.requests)
		cost = k.Scale*max(0, terms[0]-terms[1]) + terms[2]
	case CostLatency:
		return s.latency(slot)
	case CostRoundRobin:
		cost = float64(w.lastChosen)
		terms[0] = cost
	case CostLeastLoaded:
		cost = float64(w.requests)
		terms[0] = cost
	case CostPrefixHash:
		if n := min(len(s.hashes), s.cfg.PrefixBlocks); n > 0 {
			cost = float64(mix(uint64(s.hashes[n-1]), mix(uint64(w.id.Worker), uint64(w.id.DP))) >> 11)
		}
		terms[0] = cost
	}
	return cost, terms
}

// latency is CostLatency, in seconds: what all requests together will wait for if
// the worker is chosen.
//
//	ttft    what pends before it + its own prompt + the rest of the current step + one decode step, and what any
//	        prompt adds to it, for each of the steps that pending prompts take, and of its own
//	own     its output tokens, each a decode step of all that are active with it
//	others  its prompt for each that decodes, and its row, KV and blocks for each of their steps beside it
//	backlog its prompt for each that waits for its first token there: as many will come and wait after it
//
// A row is delayed by no more of the prompt than has room in the steps that it has
// yet to be in. Blocks beyond the pool wait for others to end: their share of all
// context, of the time that a request lives.
func (s *scorer) latency(slot int32) (cost float64, terms [maxTerms]float64) {
	w, o := &s.fleet.workers[slot], &s.overlaps[slot]
	p, missing := &w.spec.Profile, s.missing(o)
	prompt, own := s.prefill(p, o, missing), float64(s.prompt)+s.output/2
	rows, running, context := float64(w.requests), float64(w.requests-w.prefilling), float64(w.contextTokens)
	blocks, after := s.blocksWith(slot), s.output/2/float64(s.cfg.BlockTokens)
	all := p.decode(rows+1, context+own) + p.Block*(float64(blocks)+after)
	step, current := w.step(), w.current()
	steps := w.spec.steps(float64(missing))
	delay := min(prompt+p.Prompt*steps, s.output/2*w.spec.chunk()*p.Token+s.output/2*p.Prompt)
	if w.prefilling > 0 {
		steps += w.spec.steps(float64(w.prefillTokens))
	}
	// The current step began when the worker was heard of last, if that is not longer ago.
	rest := current / 2
	if since := inSeconds(s.fleet.now - w.heard); since < current {
		rest = current - since
	}
	if w.requests == 0 {
		rest = 0
	}
	terms[0] = inSeconds(w.pending(s.fleet.now, s.ledger.slab)) + prompt
	terms[0] += rest + steps*(step+p.Prompt)
	if over := blocks - w.spec.TotalBlocks; w.spec.TotalBlocks > 0 && over > 0 {
		terms[0] += min(1, float64(over)*float64(s.cfg.BlockTokens)/max(1, context)) * s.output * all
	}
	terms[1] = s.output * all
	terms[2] = running*delay + rows*(s.output/2)*(p.Row+p.KV*own+p.Block*(float64(blocks-w.blocks())+after))
	terms[3] = float64(w.prefilling) * prompt
	return s.weights.TTFT*terms[0] + s.weights.ITL*(terms[1]+terms[2]) + s.weights.Backlog*terms[3], terms
}

// uncached are the prompt's tokens that a worker must compute.
func (s *scorer) uncached(o *Overlap) int { return max(0, s.prompt-o.Blocks()*s.cfg.BlockTokens) }

// missing are the prompt's tokens less what is cached, each block of that counted by its
// tier.
func (s *scorer) missing(o *Overlap) int {
	return max(0, s.prompt-int(math.Round(s.cfg.TierWeights.blocks(o)*float64(s.cfg.BlockTokens))))
}

// blocksWith are the distinct blocks of a worker's active requests and this one.
func (s *scorer) blocksWith(slot int32) int {
	return s.fleet.workers[slot].blocks() + len(s.hashes) - int(s.depths[slot])
}

// prefill is how long n tokens of the prompt take on a worker by themselves, in seconds,
// with what is fetched.
func (s *scorer) prefill(p *Profile, o *Overlap, n int) float64 {
	return p.prefill(float64(n), float64(s.prompt-n)) + p.HostBlock*float64(o.Host) + p.DiskBlock*float64(o.Disk+o.Shared+o.Object)
}

// asks is what is reserved for the request on a worker.
func (s *scorer) asks(slot int32, req *Request) asked {
	o := &s.overlaps[slot]
	uncached := s.uncached(o)
	return asked{
		hashes: req.Hashes, promptTokens: s.prompt, untold: req.Untold, known: o.Blocks() - int(s.promised[slot]),
		uncached: uncached, predicted: seconds(s.prefill(&s.fleet.workers[slot].spec.Profile, o, uncached)),
	}
}

// due is how long a worker may take to what it will owe first for a request, 0 for nothing.
func (s *scorer) due(req *Request, slot int32) time.Duration {
	if s.cfg.Stall <= 0 || req.Reply == Unknown {
		return 0
	}
	_, terms := s.latency(slot)
	predicted := terms[0] + s.fleet.workers[slot].step()
	if req.Reply == AtOnce {
		predicted += terms[1]
	}
	return s.cfg.term(predicted)
}
