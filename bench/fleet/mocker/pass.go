package mocker

import (
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

// Pass ends the pass in progress, adds its outcome to out, and begins the next pass if a request
// waits or runs. now must be the time that Wake returns; any other is an error and changes
// nothing. Cost: O(running requests + blocks of admitted requests).
func (w *Worker) Pass(now time.Duration, out *Report) error {
	if !w.busy || now != w.until {
		return fmt.Errorf("mocker: Pass at %v, want the time of Wake: %v, %v", now, w.until, w.busy)
	}
	w.now = now
	w.end(out)
	w.begin()
	if invariants.Enabled {
		if err := w.Check(); err != nil {
			panic(err)
		}
	}
	return nil
}

// end adds the tokens and the events of the pass in progress to out, and ends requests that have
// all their output.
func (w *Worker) end(out *Report) {
	before := *out
	kept := w.running[:0]
	for _, s := range w.running {
		if !s.decoding {
			from := s.computed - s.chunk
			out.Recomputed += max(0, min(s.computed, s.reached)-from)
			out.Computed += max(0, min(s.computed, s.prompt)-max(from, s.reached))
		}
		s.reached = max(s.reached, s.computed)
		if s.chunk > 0 && s.computed == s.tokens {
			s.decoding = true
			s.tokens++
			out.Tokens = append(out.Tokens, s.req.ID)
			if s.output() == s.req.OutputTokens {
				out.Ended = append(out.Ended, s.req.ID)
				w.cache.drop(s.slots)
				w.recycle(s)
				continue
			}
		}
		s.chunk = 0
		kept = append(kept, s)
	}
	clear(w.running[len(kept):])
	w.running = kept
	out.Cached += w.cached
	out.Preempted = append(out.Preempted, w.preempted...)
	out.Events = w.logs[w.current].drain(out.Events, &w.seq)
	w.current ^= 1
	w.logs[w.current].reset()

	w.stats.Tokens += uint64(len(out.Tokens) - len(before.Tokens))
	w.stats.Computed += uint64(out.Computed - before.Computed)
	w.stats.Recomputed += uint64(out.Recomputed - before.Recomputed)
	w.stats.Cached += uint64(w.cached)
	w.stats.Preemptions += uint64(len(w.preempted))
	w.cached, w.preempted = 0, w.preempted[:0]
}

// begin composes the next pass. First each decoding sequence that needs a block gets one; then
// come the chunks of the prompts already admitted; then new prompts that fit. If there is
// nothing to do, the worker becomes idle.
func (w *Worker) begin() {
	if w.busy = len(w.running)+len(w.waiting) > 0; !w.busy {
		return
	}
	w.makeRoom()
	var in load
	for _, s := range w.running {
		if s.decoding {
			in.Rows++
			w.compute(s, 1)
		}
	}
	budget := w.cfg.MaxBatchedTokens - in.Rows
	for _, s := range w.running {
		if n := min(s.tokens-s.computed, budget); !s.decoding && n > 0 {
			in.addPrompt(n)
			w.compute(s, n)
			budget -= n
		}
	}
	w.admit(budget, &in)
	if in.Rows+in.Prompts == 0 {
		panic(fmt.Sprintf("mocker: no request is in the pass: %+v, %d blocks", w.Usage(), w.cfg.Blocks))
	}
	in.ActiveTokens = w.cache.active * w.cfg.BlockTokens
	in.TotalTokens = w.cfg.Blocks * w.cfg.BlockTokens
	w.until = w.now + w.timing.pass(in)
	w.stats.Passes++
	w.stats.MostUsed = max(w.stats.MostUsed, w.cache.active)
}

// makeRoom gives each decoding sequence the block for the KV of its last token, and
// preempts a sequence whenever no block is left.
func (w *Worker) makeRoom() {
	log := &w.logs[w.current]
	for _, s := range w.running {
		if !s.decoding || s.tokens <= len(s.slots)*w.cfg.BlockTokens {
			continue
		}
		for !s.gone {
			slots, ok := w.cache.use(nil, 1, s.slots, log)
			if s.slots = slots; ok {
				break
			}
			w.preempt(w.victim())
		}
	}
	if len(w.preempted) == 0 {
		return
	}
	kept := w.running[:0]
	for _, s := range w.running {
		if s.gone {
			s.gone = false
			continue
		}
		kept = append(kept, s)
	}
	clear(w.running[len(kept):])
	w.running = kept
}

// victim returns the sequence to preempt: the one admitted last. At least one must run.
func (w *Worker) victim() *sequence {
	i := len(w.running) - 1
	for w.running[i].gone {
		i--
	}
	return w.running[i]
}

// preempt releases all blocks of sequence s and puts it at the head of the queue. Its output is
// kept. When it is admitted again, the part that is not cached is recomputed.
func (w *Worker) preempt(s *sequence) {
	w.cache.drop(s.slots)
	s.slots, s.named, s.computed = s.slots[:0], 0, 0
	s.decoding, s.resumed, s.gone = false, true, true
	w.preempted = append(w.preempted, s.req.ID)
	w.waiting = slices.Insert(w.waiting, 0, s)
}

// admit admits waiting requests, first come first served, until one does not fit. budget is the
// number of tokens that the pass has left; admit adds the admitted prompts to in. After a
// preemption in this pass nothing is admitted: the request preempted last is at the head of the
// queue and needs all the blocks that it gave up, of which at least one is taken. If nothing
// runs, the watermark is ignored, since no block would ever be freed.
func (w *Worker) admit(budget int, in *load) {
	for len(w.waiting) > 0 && len(w.running) < w.cfg.MaxSeqs && budget > 0 {
		limit := w.limit
		if len(w.running) == 0 {
			limit = w.cfg.Blocks
		}
		s := w.waiting[0]
		names := s.cachedNames(w.cfg.BlockTokens)
		found, active := w.cache.match(names)
		blocks := kv.CeilPages(s.tokens, w.cfg.BlockTokens)
		need := blocks - active
		cached := min(found*w.cfg.BlockTokens, s.tokens-1)
		if w.cache.active+need > limit {
			return
		}
		slots, ok := w.cache.use(names[:found], blocks-found, s.slots, &w.logs[w.current])
		if !ok {
			panic(fmt.Sprintf("mocker: %d blocks admitted with %d of %d active", need, w.cache.active, w.cfg.Blocks))
		}
		w.waiting = slices.Delete(w.waiting, 0, 1)
		s.slots, s.named, s.computed = slots, found, cached
		if len(s.hashes) == 0 {
			s.hashes = append(s.hashes, names...)
		}
		if !s.resumed {
			w.cached += cached
		}
		n := min(s.tokens-cached, budget)
		in.addPrompt(n)
		w.compute(s, n)
		budget -= n
		w.running = append(w.running, s)
	}
}

// compute schedules n more tokens of sequence s for this pass, and names the blocks that they
// fill. Requests admitted later, even in the same pass, find these blocks.
func (w *Worker) compute(s *sequence, n int) {
	s.chunk = n
	s.computed += n
	for (s.named+1)*w.cfg.BlockTokens <= s.computed {
		w.name(s)
	}
}

// name names the first unnamed block of sequence s, and records it in the log if no other block
// has the name.
func (w *Worker) name(s *sequence) {
	k := s.named
	parent, before := none, kv.BlockHash(0)
	if k > 0 {
		parent, before = s.slots[k-1], s.hashes[k-1]
	}
	local := s.local(k, w.cfg.BlockTokens, &w.tokens)
	if k == len(s.hashes) {
		hash := kv.BlockHash(local)
		if k > 0 {
			hash = kv.Chain(before, local)
		}
		s.hashes = append(s.hashes, hash)
	}
	hash := s.hashes[k]
	at, fresh := w.cache.name(s.slots[k], parent, hash)
	s.slots[k] = at
	s.named++
	if fresh {
		w.logs[w.current].stored(before, k > 0, hash, local)
	}
}
