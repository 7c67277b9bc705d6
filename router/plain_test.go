package router

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// plain chooses as the formulas read: from the workers themselves, one after the other,
// with nothing kept from before and nothing left out. It is the oracle of Select, which
// must come to the same costs to the last bit, the same worker and the same draws.
type plain struct {
	r          *Router
	req        *Request
	weights    *Weights
	output     float64
	candidates []int32
	costs      []float64 // by candidate
	terms      [][maxTerms]float64
	overlaps   []Overlap // by slot
	depths     []int32   // by slot

	mostWaiting, leastPrefill int
}

// choice is what a Decision says, and what it leaves of chance.
type choice struct {
	worker  kv.Rank
	cost    uint64 // bits
	reason  Reason
	overlap Overlap
	chance  draw
}

func (c choice) String() string {
	return fmt.Sprintf("%v at %v by %v, overlap %+v, then %x", c.worker, math.Float64frombits(c.cost), c.reason, c.overlap, c.chance.state)
}

func plainly(r *Router, req *Request) *plain {
	p := &plain{r: r, req: req, weights: &r.cfg.Weights, output: float64(r.cfg.ExpectedOutput), leastPrefill: math.MaxInt}
	if req.Weights != nil {
		p.weights = req.Weights
	}
	if req.ExpectedOutput > 0 {
		p.output = float64(req.ExpectedOutput)
	}
	p.overlaps, p.depths = make([]Overlap, len(r.workers)), make([]int32, len(r.workers))
	for _, o := range req.Overlaps {
		if slot := r.slotOf(o.Worker); slot != noEntry {
			p.overlaps[slot] = o
		}
	}
	if !req.Unshared {
		r.tree.depths(req.Hashes, p.depths)
	}
	for _, slot := range r.models[anyModel].order {
		if w := &r.workers[slot]; p.fit(w) {
			p.candidates = append(p.candidates, slot)
			p.mostWaiting = max(p.mostWaiting, w.waiting())
			p.leastPrefill = min(p.leastPrefill, w.prefillTokens)
		}
	}
	for _, slot := range p.candidates {
		cost, terms := p.cost(slot)
		p.costs, p.terms = append(p.costs, cost), append(p.terms, terms)
	}
	return p
}

func (p *plain) fit(w *worker) bool {
	return w.health == Healthy && !slices.Contains(p.req.Avoid, w.id) && (p.req.Pinned == nil || *p.req.Pinned == w.id) &&
		(p.req.Model == 0 || slices.Contains(w.spec.Models, p.req.Model)) && (p.req.Pool == 0 || p.req.Pool == w.spec.Pool)
}

func (p *plain) uncached(slot int32) int {
	return max(0, p.req.PromptTokens-int(math.Round(p.weighed(slot)*float64(p.r.cfg.BlockTokens))))
}

func (p *plain) weighed(slot int32) (blocks float64) {
	o := &p.overlaps[slot]
	for t, n := range []int{o.Device, o.Host, o.Disk, o.Shared, o.Object} {
		blocks += p.r.cfg.TierWeights[t] * float64(n)
	}
	return blocks
}

func (p *plain) cost(slot int32) (cost float64, terms [maxTerms]float64) {
	r, w, k := p.r, &p.r.workers[slot], p.weights
	o := &p.overlaps[slot]
	bs, isl, decodeOnly := r.cfg.BlockTokens, p.req.PromptTokens, p.req.Phase == DecodeOnly
	own := len(p.req.Hashes)
	if p.req.Unshared {
		own = kv.FloorPages(isl, bs)
	}
	blocks := float64(w.blocks() + own - int(p.depths[slot]))
	switch r.cfg.Policy {
	case CostLatency:
		return p.latency(slot)
	case Cost2025:
		terms[0] = p.weighed(slot) * float64(bs) / float64(isl)
		if w.spec.TotalBlocks > 0 {
			terms[1] = float64(w.usedBlocks()) / float64(w.spec.TotalBlocks)
		}
		if p.mostWaiting > 0 {
			terms[2] = float64(w.waiting()) / float64(p.mostWaiting)
		}
		cost = k.Usage*terms[1] + k.Waiting*terms[2] - k.Score*terms[0]
	case Cost2026:
		if !decodeOnly {
			terms[0] = float64(w.prefillTokens+p.uncached(slot)) / float64(bs)
		}
		terms[1], terms[2] = blocks, float64(w.tree)
		cost = k.Prefill*terms[0] + terms[1]
	case CostCredits:
		excess := float64(w.prefillTokens-p.leastPrefill) / float64(bs) / max(1, float64(isl)/float64(bs))
		device := k.Device * float64(o.Device) / (1 + k.Decay*excess)
		terms[1] = device + k.Host*float64(o.Host) + k.Disk*float64(o.Disk+o.Shared+o.Object)
		terms[2] = blocks + k.Requests*float64(w.requests)
		if decodeOnly {
			return max(0, blocks-terms[1]) + k.Requests*float64(w.requests), terms
		}
		terms[0] = float64(w.prefillTokens+max(isl, o.Blocks()*bs)) / float64(bs)
		cost = k.Scale*max(0, terms[0]-terms[1]) + terms[2]
	case CostRoundRobin:
		cost, terms[0] = float64(w.lastChosen), float64(w.lastChosen)
	case CostLeastLoaded:
		cost, terms[0] = float64(w.requests), float64(w.requests)
	case CostPrefixHash:
		if n := min(len(p.req.Hashes), r.cfg.PrefixBlocks); n > 0 {
			cost = float64(mix(uint64(p.req.Hashes[n-1]), mix(uint64(w.id.Worker), uint64(w.id.DP))) >> 11)
		}
		terms[0] = cost
	}
	return cost, terms
}

// latency is the formula of Router.latency from the worker's own fields.
func (p *plain) latency(slot int32) (cost float64, terms [maxTerms]float64) {
	r, w, o := p.r, &p.r.workers[slot], &p.overlaps[slot]
	f, isl, decodeOnly := &w.spec.Profile, float64(p.req.PromptTokens), p.req.Phase == DecodeOnly
	batch, chunk := float64(w.spec.BatchTokens), float64(w.spec.ChunkTokens)
	if batch == 0 {
		batch = usualBatchTokens
	}
	if chunk == 0 {
		chunk = batch
	}
	uncached := float64(p.uncached(slot))
	prompt, delay, own := 0.0, 0.0, isl+p.output/2
	if !decodeOnly {
		prompt = f.prefill(uncached, isl-uncached) + f.HostBlock*float64(o.Host) + f.DiskBlock*float64(o.Disk+o.Shared+o.Object)
	}
	rows, running, context := float64(w.requests), float64(w.requests-w.prefilling), float64(w.contextTokens)
	blocks := w.blocks() + len(p.req.Hashes) - int(p.depths[slot])
	if p.req.Unshared {
		blocks = w.blocks() + kv.FloorPages(p.req.PromptTokens, r.cfg.BlockTokens)
	}
	behind := p.output / 2 / float64(r.cfg.BlockTokens)
	all := f.decode(rows+1, context+own) + f.Block*(float64(blocks)+behind)
	pending := time.Duration(0)
	if w.prefilling > 0 {
		first := r.slab[w.prefillingQueue.head].predicted
		pending = w.predicted - min(max(r.now-w.anchor, 0), first)
	}
	terms[0] = pending.Seconds() + prompt
	if !decodeOnly {
		step := f.decode(running, context*running/max(rows, 1)) + f.Block*(float64(w.blocks())*running/max(rows, 1))
		steps := max(1, math.Ceil(uncached/batch))
		if w.prefilling > 0 {
			steps += max(1, math.Ceil(float64(w.prefillTokens)/batch))
		}
		now := step
		if w.prefilling > 0 {
			now += f.Prompt
		}
		rest := now / 2
		if since := (r.now - w.heard).Seconds(); since < now {
			rest = now - since
		}
		if w.requests == 0 {
			rest = 0
		}
		terms[0] += rest + steps*(step+f.Prompt)
		delay = min(prompt+f.Prompt*max(1, math.Ceil(uncached/batch)), p.output/2*chunk*f.Token+p.output/2*f.Prompt)
	}
	if over := blocks - w.spec.TotalBlocks; w.spec.TotalBlocks > 0 && over > 0 {
		share := min(1, float64(over)*float64(r.cfg.BlockTokens)/max(1, context))
		terms[0] += share * p.output * all
	}
	terms[1] = p.output * all
	terms[2] = running*delay + rows*(p.output/2)*(f.Row+f.KV*own+f.Block*(float64(blocks-w.blocks())+behind))
	terms[3] = float64(w.prefilling) * prompt
	return p.weights.TTFT*terms[0] + p.weights.ITL*(terms[1]+terms[2]) + p.weights.Backlog*terms[3], terms
}

// choose is what Select would do; not ok: there is nobody to choose.
func (p *plain) choose() (c choice, ok bool) {
	if len(p.candidates) == 0 {
		return choice{}, false
	}
	c.chance = p.r.chance
	at := p.pick(&c)
	c.worker, c.cost, c.overlap = p.r.workers[p.candidates[at]].id, math.Float64bits(p.costs[at]), p.overlaps[p.candidates[at]]
	c.overlap.Worker = c.worker
	return c, true
}

// pick is the index of the candidate.
func (p *plain) pick(c *choice) int {
	r := p.r
	if p.req.Pinned != nil {
		c.reason = ByPin
		return 0
	}
	if w, ok := r.sessions.get(r.now, p.req.Session); ok {
		at := slices.IndexFunc(p.candidates, func(slot int32) bool { return r.workers[slot].id == w })
		if at >= 0 && !r.workers[p.candidates[at]].busy(r.cfg.BusyFactor) {
			c.reason = BySession
			return at
		}
	}
	least, most := slices.Min(p.costs), slices.Max(p.costs)
	if t := p.weights.Temperature; t > 0 {
		c.reason = ByChance
		if p.weights.Spread == SpreadRelative && most > least {
			t *= most - least
		}
		var chances []float64
		sum := 0.0
		for _, cost := range p.costs {
			weight := 1.0
			if cost > least {
				weight = math.Exp(-(cost - least) / t)
			}
			chances = append(chances, weight)
			sum += weight
		}
		left, last := c.chance.unit()*sum, 0
		for i, weight := range chances {
			if left -= weight; left < 0 {
				return i
			}
			if weight > 0 {
				last = i
			}
		}
		return last
	}
	var ties []int
	for i, cost := range p.costs {
		if cost == least {
			ties = append(ties, i)
		}
	}
	c.reason = ByTie
	if len(ties) == 1 {
		c.reason = ByCost
		return ties[0]
	}
	if r.cfg.Policy == Cost2026 {
		tree := func(i int) int { return r.workers[p.candidates[i]].tree }
		small := tree(slices.MinFunc(ties, func(i, j int) int { return tree(i) - tree(j) }))
		ties = slices.DeleteFunc(ties, func(i int) bool { return tree(i) > small })
	}
	if r.cfg.Policy == CostRoundRobin || len(ties) == 1 {
		return ties[0]
	}
	return ties[c.chance.below(len(ties))]
}

// agrees holds a decision, and what led to it, against the oracle's.
func (p *plain) agrees(t testing.TB, want choice, d *Decision) {
	t.Helper()
	got := choice{d.Worker, math.Float64bits(d.Cost), d.Reason, d.Overlap, p.r.chance}
	if got != want {
		t.Fatalf("%v: %+v\ngot  %v\nwant %v", p.r.cfg.Policy, p.req, got, want)
	}
	e := p.req.Explain
	if e == nil {
		return
	}
	if len(e.Candidates) != len(p.candidates) {
		t.Fatalf("%d candidates are explained, want %d", len(e.Candidates), len(p.candidates))
	}
	for i, c := range e.Candidates {
		slot := p.candidates[i]
		if c.Worker != p.r.workers[slot].id || math.Float64bits(c.Cost) != math.Float64bits(p.costs[i]) || c.Terms != p.terms[i] || c.Shared != int(p.depths[slot]) {
			t.Fatalf("%v: %+v\ngot  %+v\nwant %v, cost %v of %v, %d active blocks", p.r.cfg.Policy, p.req, c, p.r.workers[slot].id, p.costs[i], p.terms[i], p.depths[slot])
		}
	}
}

// selectPlainly is Select beside the oracle.
func selectPlainly(t testing.TB, r *Router, now time.Duration, req *Request) (Decision, error) {
	t.Helper()
	r.advance(now)
	var p *plain
	var want choice
	ok := false
	if r.check(req) == nil {
		p = plainly(r, req)
		want, ok = p.choose()
	}
	d, err := r.Select(now, req)
	if err == nil {
		if !ok {
			t.Fatalf("%v was chosen where nobody may be, for %+v", d.Worker, req)
		}
		p.agrees(t, want, &d)
	}
	return d, err
}

// herd is a random fleet and its requests: few kinds of worker, so that costs tie, or many.
type herd struct {
	rng    *rand.Rand
	r      *Router
	now    time.Duration
	active []Reservation
	seen   map[Reason]int
	over   int // choices with a candidate whose pool was too small
}

func (h *herd) odd(n int) bool { return h.rng.IntN(n) == 0 }

func (h *herd) spec(kinds int) WorkerSpec {
	kind := h.rng.IntN(kinds)
	spec := WorkerSpec{BlockTokens: 16, BatchTokens: []int{0, 512, 2048}[kind%3], ChunkTokens: []int{0, 256}[kind%2], TotalBlocks: []int{0, 60, 4000}[kind%3], MaxRequests: 40 * (kind % 2)}
	if kind > 1 {
		spec.Profile = DefaultProfile()
		spec.Profile.Step *= float64(kind)
		spec.Profile.KV /= float64(kind)
		spec.Profile.Block = float64(kind%2) * 1e-6
		spec.Profile.Prompt = float64(kind/2%2) * 0.01
	}
	for m := range ModelID(3) {
		if h.odd(2) {
			spec.Models = append(spec.Models, 1+m)
		}
	}
	if h.odd(2) {
		spec.Pool = PoolID(1 + h.rng.IntN(2))
	}
	return spec
}

func (h *herd) request(workers int) Request {
	rng := h.rng
	req := Request{PromptTokens: 1 + rng.IntN(3000), ExpectedOutput: rng.IntN(2) * rng.IntN(900), Unshared: h.odd(9), Session: uint64(max(0, rng.IntN(20)-10))}
	if h.odd(6) {
		req.Phase = DecodeOnly
	}
	if h.odd(2) {
		req.Model = ModelID(rng.IntN(5))
	}
	if h.odd(3) {
		req.Pool = PoolID(rng.IntN(4))
	}
	beginning := rng.IntN(3)
	for b := range rng.IntN(1 + req.PromptTokens/16) {
		if b == 12 {
			beginning = rng.IntN(9)
		}
		req.Hashes = append(req.Hashes, kv.BlockHash(mix(uint64(beginning), uint64(b))))
	}
	if h.odd(8) {
		pin := worker1(rng.IntN(workers))
		req.Pinned = &pin
	}
	for range max(0, rng.IntN(8)-5) * rng.IntN(20) {
		req.Avoid = append(req.Avoid, worker1(rng.IntN(workers)))
	}
	if h.odd(3) {
		w := DefaultWeights()
		w.Temperature, w.Spread, w.Decay = float64(rng.IntN(2))*rng.Float64(), Spread(rng.IntN(2)), float64(rng.IntN(2))
		req.Weights = &w
	}
	if h.odd(3) {
		req.Explain = new(Explanation)
	}
	for o, n := rng.IntN(workers+1), 0; n < []int{0, 3, workers}[rng.IntN(3)]; n++ {
		if o++; h.odd(5) {
			o = rng.IntN(workers + 1) // of who is not there, too
		}
		lap := Overlap{Worker: worker1(o % (workers + 1)), Device: rng.IntN(2) * 12}
		if h.odd(7) {
			lap.Host, lap.Disk, lap.Shared, lap.Object = rng.IntN(9), rng.IntN(9), rng.IntN(4), rng.IntN(4)
		}
		req.Overlaps = append(req.Overlaps, lap)
	}
	return req
}

// step is one request, and what else happens between two.
func (h *herd) step(t *testing.T, workers, kinds int) {
	h.now += time.Duration(h.rng.IntN(3)) * time.Duration(h.rng.IntN(9_000_000))
	w := worker1(h.rng.IntN(workers))
	switch h.rng.IntN(12) {
	case 0:
		if err := h.r.Join(h.now, w, h.spec(kinds)); err != nil {
			t.Fatal(err)
		}
	case 1:
		if h.odd(3) {
			h.r.Leave(h.now, w, nil)
		}
	case 2:
		_ = h.r.SetHealth(h.now, w, Health(max(0, h.rng.IntN(5)-2))) // it may have left
		h.r.SetTree(w, h.rng.IntN(3))
		_ = h.r.Report(h.now, w, Usage{UsedBlocks: h.rng.IntN(3000), Waiting: h.rng.IntN(5)})
	}
	for range h.rng.IntN(3) {
		if len(h.active) > 0 {
			at := h.rng.IntN(len(h.active))
			if h.r.Progress(h.now, h.active[at], h.rng.IntN(3000), max(0, h.rng.IntN(200)-100)); h.odd(2) {
				h.r.Release(h.now, h.active[at]) // or it had left with its worker
				h.active = slices.Delete(h.active, at, at+1)
			}
		}
	}
	req := h.request(workers)
	p := plainly(h.r, &req)
	for _, slot := range p.candidates {
		if w := &h.r.workers[slot]; w.spec.TotalBlocks > 0 && w.blocks()+len(req.Hashes)-int(p.depths[slot]) > w.spec.TotalBlocks {
			h.over++
			break
		}
	}
	if d, err := selectPlainly(t, h.r, h.now, &req); err == nil {
		h.active = append(h.active, d.Reservation)
		h.seen[d.Reason]++
	}
}

// TestSelectIsPlain: in random fleets every policy chooses as the formulas say, to the
// last bit and the last draw.
func TestSelectIsPlain(t *testing.T) {
	seen := map[Reason]int{}
	over := 0
	for seed := range uint64(48) {
		policy, workers, kinds := Policies()[seed%8], []int{2, 9, 70, 130}[seed/8%4], []int{1, 2, 7}[seed%3]
		if seed >= 32 {
			policy = CostLatency // whose parts are kept
		}
		h := &herd{
			rng: rand.New(rand.NewPCG(seed, 11)), seen: seen,
			r: newRouter(t, Config{Policy: policy, Seed: seed, MaxWorkers: workers, SessionTTL: time.Minute}),
		}
		for i := range workers {
			if err := h.r.Join(0, worker1(i), h.spec(kinds)); err != nil {
				t.Fatal(err)
			}
		}
		for range 1200 {
			h.step(t, workers, kinds)
		}
		if err := h.r.Check(); err != nil {
			t.Fatal(err)
		}
		over += h.over
	}
	for reason := range Reason(len(reasonNames)) {
		if seen[reason] < 500 {
			t.Errorf("only %d choices by %v", seen[reason], reason)
		}
	}
	if over < 500 {
		t.Errorf("only in %d choices was a pool too small", over)
	}
}
