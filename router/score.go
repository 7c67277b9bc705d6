package router

import (
	"math"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// scorer computes the costs of the workers that one request may use. Its slices are memory that
// the next choice overwrites. Most are indexed by slot.
type scorer struct {
	cfg    *Config
	fleet  *fleet
	ledger *ledger

	// These describe the request.
	weights *Weights
	prompt  int            // tokens
	hashes  []kv.BlockHash // of its blocks
	output  float64        // tokens

	// These describe the workers.
	candidates   []int32   // slots, ordered by worker
	overlaps     []Overlap // by slot: cached blocks of the prompt, with the predicted ones
	promised     []int32   // by slot: the predicted part of overlaps
	depths       []int32   // by slot: blocks of the prompt that the worker's active requests hold
	costs        []float64 // by slot, of candidates only
	ties         []int32
	chances      []float64 // by index in candidates
	mostWaiting  int       // most waiting requests of any candidate
	leastPrefill int       // fewest prompt tokens to compute of any candidate
}

func newScorer(cfg *Config, f *fleet, l *ledger) scorer { return scorer{cfg: cfg, fleet: f, ledger: l} }

// reset gives the slices one element per slot and clears the results of the last choice.
func (s *scorer) reset(slots int) {
	if cap(s.costs) < slots {
		s.candidates, s.ties, s.chances = make([]int32, 0, slots), make([]int32, 0, slots), make([]float64, 0, slots)
		s.overlaps, s.promised, s.depths, s.costs = make([]Overlap, slots), make([]int32, slots), make([]int32, slots), make([]float64, slots)
	}
	s.overlaps, s.promised, s.depths, s.costs = s.overlaps[:slots], s.promised[:slots], s.depths[:slots], s.costs[:slots]
	clear(s.overlaps)
	clear(s.promised)
	clear(s.depths)
	s.candidates, s.mostWaiting, s.leastPrefill = s.candidates[:0], 0, math.MaxInt
}

// score finds the candidates for req and computes their costs. It first computes the extremes
// over all candidates (mostWaiting, leastPrefill), because Cost2025 and CostCredits are relative
// to them.
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
		if slot := s.fleet.slotOf(o.Worker); slot != noEntry {
			s.overlaps[slot] = *o
		}
	}
	s.ledger.tree.depths(s.hashes, s.depths)
	s.addPromised()
	s.candidates = s.fleet.candidates(req, s.candidates)
	for _, slot := range s.candidates {
		w := &s.fleet.workers[slot]
		if w.spec.HitTokens > 0 {
			s.clip(slot)
		}
		s.mostWaiting = max(s.mostWaiting, w.waiting())
		s.leastPrefill = min(s.leastPrefill, w.prefillTokens)
	}
	for _, slot := range s.candidates {
		s.costs[slot], _ = s.cost(slot)
	}
}

// addPromised extends the overlap of each worker by predicted blocks: those that active requests
// of the worker will soon have computed. It starts at the first block that the index does not
// have there, and stops at the first block that is not predicted either, because a prefix can
// only be used without gaps.
func (s *scorer) addPromised() {
	promises := &s.ledger.tree.promises
	if promises.Len() == 0 {
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
	}
}

// clip reduces the overlap of the worker in slot, which has HitTokens, to what it can reuse of the prompt. Blocks of
// the lowest tiers, which come last, go first.
func (s *scorer) clip(slot int32) {
	hit, bs, o := s.fleet.workers[slot].spec.HitTokens, s.cfg.BlockTokens, &s.overlaps[slot]
	reused := min(o.Blocks()*bs, s.prompt-1) / hit * hit / bs
	over := o.Blocks() - reused
	s.promised[slot] = max(0, s.promised[slot]-int32(over))
	for _, blocks := range [...]*int{&o.Object, &o.Shared, &o.Disk, &o.Host, &o.Device} {
		cut := min(over, *blocks)
		*blocks -= cut
		over -= cut
	}
}

// maxTerms is the largest number of terms of a cost.
const maxTerms = 4

// cost returns the cost of the candidate in slot (the lowest is best) and the cost's terms, in
// the order of termNames. The formulas stand at the constants of [Policy].
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
		// The cached blocks count as charged even where they exceed the prompt (its last
		// block is partial), so that the credits never exceed the charge.
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

// latency is the cost under CostLatency, in seconds: the time that this request and all others
// on the worker wait longer if the request goes there, weighted. The terms:
//
//	ttft    time to the request's first token: the prompts that the worker has yet to compute,
//	        the request's own prompt, what is left of the current step, and one decode step
//	        and Profile.Prompt for each step that all these prompts take
//	own     time of the request's output tokens, each one decode step with all active requests
//	others  delay of other requests: for each that decodes, the request's prompt; for each of
//	        their remaining steps, the request's row, KV and blocks
//	backlog the request's prompt, once for each request that waits for its first token there:
//	        as many will arrive and wait after it
//
// A decoding request is delayed only by the part of the prompt that runs in the steps it still
// needs (delay). On average two requests decode together for half of the expected output, hence
// output/2.
//
// If the blocks with the request exceed the worker's pool, it must wait for other requests to
// end. That wait is the tokens of the excess blocks as a share of all context, times the time of
// the request's output.
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
	// The current step began when the worker was last heard of. If that is longer ago than
	// a step takes, its beginning is unknown, and half a step is left on average.
	rest := current / 2
	if since := inSeconds(s.fleet.now - w.heard); since < current {
		rest = current - since
	}
	if w.requests == 0 {
		// An idle worker has no current step.
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

// uncached returns the number of prompt tokens that a worker with cached part o must compute.
func (s *scorer) uncached(o *Overlap) int { return max(0, s.prompt-o.Blocks()*s.cfg.BlockTokens) }

// missing returns the number of prompt tokens minus the cached ones of o, where each cached
// block counts with the weight of its tier. Example: 1,000 tokens, of which 32 blocks of 16 are
// in host memory at weight 0.8, give 1,000 − 410 = 590.
func (s *scorer) missing(o *Overlap) int {
	return max(0, s.prompt-int(math.Round(s.cfg.TierWeights.blocks(o)*float64(s.cfg.BlockTokens))))
}

// blocksWith returns the number of distinct blocks that the worker in slot would hold for its
// active requests and this one. Blocks of the prompt that active requests already hold (depths)
// are not counted again.
func (s *scorer) blocksWith(slot int32) int {
	return s.fleet.workers[slot].blocks() + len(s.hashes) - int(s.depths[slot])
}

// prefill returns the time to compute the last n tokens of the prompt on an otherwise idle
// worker with profile p, in seconds, including the time to fetch the blocks of o that are below
// the device.
func (s *scorer) prefill(p *Profile, o *Overlap, n int) float64 {
	return p.prefill(float64(n), float64(s.prompt-n)) + p.HostBlock*float64(o.Host) + p.DiskBlock*float64(o.Disk+o.Shared+o.Object)
}

// specFor returns the figures of the reservation to make if req goes to the worker in slot.
func (s *scorer) specFor(slot int32, req *Request) reservationSpec {
	o := &s.overlaps[slot]
	uncached := s.uncached(o)
	return reservationSpec{
		hashes: req.Hashes, promptTokens: s.prompt, untold: req.Untold, known: o.Blocks() - int(s.promised[slot]),
		uncached: uncached, predicted: seconds(s.prefill(&s.fleet.workers[slot].spec.Profile, o, uncached)),
	}
}

// due returns the time within which the worker in slot should show the first sign of a reply to
// req: the first token, or the whole answer if Reply is AtOnce. 0 means that nothing is due:
// Config.Stall is 0 or the form of the reply is unknown.
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
