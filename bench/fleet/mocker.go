package fleet

import (
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// mocker is a worker that behaves as the mocker of NVIDIA Dynamo (lib/mocker), with its timing.
//
// A request waits, first come first served, until the blocks of its prompt fit. Its prompt is
// computed in chunks, together with all decoding requests. Then it outputs one token in each pass,
// and may be preempted when blocks run out. Other requests can find a full block as soon as the pass
// that computes the block has begun; an event announces the block when that pass ends. Blocks that no
// request holds stay cached until their room is needed. They are evicted least recently used first,
// and never before their descendants.
//
// Differences from upstream:
//
//   - an admission does not count blocks of the prompt that running requests hold: a prompt that
//     shares its prefix with them needs that much less room. Upstream counts all blocks, so requests
//     with a long common prefix wait although there is room;
//   - the sequence admitted last is preempted, as in vLLM, and not the first decoding one: it loses
//     least, requests end roughly in order of arrival, and the oldest sequence always makes progress;
//   - taking blocks is all or nothing; upstream keeps what it took before it failed;
//   - a block of a prompt can be found once the chunk that computes it has begun, not from the first
//     chunk on, so no request finds a block that is not there;
//   - at least the last token of a prompt is computed, since it gives the first output token. That
//     token comes with the pass that ends the prompt, which does not count as a decoding row of that
//     pass;
//   - a sequence gets the block for its next token before a pass, and is preempted at that point;
//     upstream computes the token and takes it back;
//   - prompts get the part of the batch that the decoding rows leave;
//   - prefix caching and chunked prefill are always on, and the watermark is upstream's default.
type mocker struct {
	blockTokens int
	maxSeqs     int // most running requests
	batchTokens int // most tokens in a pass, at least maxSeqs
	limit       int // most active blocks after an admission
	timing      polynomial
	cache       mockCache

	waiting []*sequence   // first to be admitted first
	running []*sequence   // in order of admission
	busy    bool          // a pass is in progress, until the time in until
	until   time.Duration // its end

	seq        uint64 // number of the next event
	cached     int    // cached prompt tokens of the requests admitted to the pass in progress
	preempted  []int  // requests preempted when the pass in progress began
	recomputed int    // tokens computed again after preemptions, in all passes
}

// watermark is the share of the blocks that an admission keeps free.
const watermark = 0.01

func newMocker(blocks, blockTokens, maxSeqs, batchTokens int) *mocker {
	return &mocker{
		blockTokens: blockTokens, maxSeqs: maxSeqs, batchTokens: batchTokens,
		limit: int((1 - watermark) * float64(blocks)), timing: dynamoTiming(), cache: newMockCache(blocks),
	}
}

// Submit implements Worker. It refuses a request that needs more blocks than the worker has. An idle
// worker wakes at now, so requests submitted at the same time enter the same pass.
func (w *mocker) Submit(now time.Duration, r *Request) error {
	// The last token of output needs no KV.
	need := kv.CeilPages(len(r.Tokens)+r.OutputTokens-1, w.blockTokens)
	if need > w.cache.capacity {
		return fmt.Errorf("fleet: request %d needs %d blocks, a worker has %d", r.ID, need, w.cache.capacity)
	}
	w.waiting = append(w.waiting, &sequence{
		req: r, tokens: len(r.Tokens), slots: make([]slot, 0, need), hashes: append(make([]kv.BlockHash, 0, need), r.Hashes...),
	})
	if !w.busy {
		w.busy, w.until = true, now
	}
	return nil
}

// Wake implements Worker.
func (w *mocker) Wake() (at time.Duration, ok bool) { return w.until, w.busy }

// Usage implements Worker.
func (w *mocker) Usage() Usage {
	return Usage{UsedBlocks: w.cache.active, Waiting: len(w.waiting), Running: len(w.running)}
}

// Pass implements Worker. Cost: O(running requests + blocks of admitted requests).
func (w *mocker) Pass(now time.Duration, out *Report) error {
	w.end(out)
	w.begin(now)
	return nil
}

// end adds the tokens and the events of the pass in progress to out, and ends requests that have
// all their output.
func (w *mocker) end(out *Report) {
	w.running = slices.DeleteFunc(w.running, func(s *sequence) bool { return w.advance(s, out) })
	out.Cached += w.cached
	for _, e := range w.cache.events {
		e.Seq = w.seq
		w.seq++
		out.Events = append(out.Events, e)
	}
	w.cache.events = w.cache.events[:0]
	w.cached, w.preempted = 0, w.preempted[:0]
}

// advance adds what the pass in progress did for sequence s to out. It reports whether that ended the
// sequence.
func (w *mocker) advance(s *sequence, out *Report) (ended bool) {
	if !s.decoding {
		from := s.computed - s.chunk
		w.recomputed += max(0, min(s.computed, s.reached)-from)
		out.Computed += max(0, min(s.computed, max(s.reached, len(s.req.Tokens)))-from)
	}
	s.reached = max(s.reached, s.computed)
	if s.chunk > 0 && s.computed == s.tokens {
		s.decoding = true
		s.tokens++
		out.Tokens = append(out.Tokens, s.req.ID)
		if s.output() == s.req.OutputTokens {
			out.Ended = append(out.Ended, s.req.ID)
			w.cache.drop(s.slots)
			return true
		}
	}
	s.chunk = 0
	return false
}

// begin composes the next pass, which begins at now. First each decoding sequence that needs a block
// gets one; then come the chunks of the prompts already admitted; then new prompts that fit. If there
// is nothing to do, the worker becomes idle.
func (w *mocker) begin(now time.Duration) {
	if w.busy = len(w.running)+len(w.waiting) > 0; !w.busy {
		return
	}
	w.makeRoom()
	var in mockLoad
	for _, s := range w.running {
		if s.decoding {
			in.rows++
			w.compute(s, 1)
		}
	}
	budget := w.batchTokens - in.rows
	for _, s := range w.running {
		if n := min(s.tokens-s.computed, budget); !s.decoding && n > 0 {
			in.addPrompt(n)
			w.compute(s, n)
			budget -= n
		}
	}
	w.admit(budget, &in)
	if in.rows+in.prompts == 0 {
		panic(fmt.Sprintf("fleet: no request is in a mocker's pass: %+v, %d blocks", w.Usage(), w.cache.capacity))
	}
	in.used = float64(w.cache.active) / float64(w.cache.capacity)
	w.until = now + w.timing.pass(in)
}

// makeRoom gives each decoding sequence the block for the KV of its last token, and preempts the
// sequence admitted last whenever no block is left.
func (w *mocker) makeRoom() {
	for i := 0; i < len(w.running); i++ {
		s := w.running[i]
		room := !s.decoding || s.tokens <= len(s.slots)*w.blockTokens
		for !room && i < len(w.running) {
			if s.slots, room = w.cache.use(nil, 1, s.slots); !room {
				w.preempt()
			}
		}
	}
}

// preempt releases all blocks of the sequence admitted last and puts it at the head of the queue. Its
// output is kept. When it is admitted again, the part that is not cached is recomputed.
func (w *mocker) preempt() {
	last := len(w.running) - 1
	s := w.running[last]
	w.running = slices.Delete(w.running, last, last+1)
	w.cache.drop(s.slots)
	s.slots, s.named, s.computed = s.slots[:0], 0, 0
	s.decoding, s.resumed = false, true
	w.preempted = append(w.preempted, s.req.ID)
	w.waiting = slices.Insert(w.waiting, 0, s)
}

// admit admits waiting requests, first come first served, until one does not fit. budget is the
// number of tokens that the pass has left; admit adds the admitted prompts to in. After a
// preemption in this pass nothing is admitted: the request preempted last is at the head of the
// queue and needs all the blocks that it gave up, of which at least one is taken. If nothing
// runs, the watermark is ignored, since no block would ever be freed.
func (w *mocker) admit(budget int, in *mockLoad) {
	for len(w.waiting) > 0 && len(w.running) < w.maxSeqs && budget > 0 {
		limit := w.limit
		if len(w.running) == 0 {
			limit = w.cache.capacity
		}
		s := w.waiting[0]
		found, active := w.cache.match(s.hashes)
		blocks := kv.CeilPages(s.tokens, w.blockTokens)
		if w.cache.active+blocks-active > limit {
			return
		}
		w.waiting = slices.Delete(w.waiting, 0, 1)
		var ok bool
		if s.slots, ok = w.cache.use(s.hashes[:found], blocks-found, s.slots); !ok {
			panic(fmt.Sprintf("fleet: a mocker admitted %d blocks with %d of %d active", blocks-active, w.cache.active, w.cache.capacity))
		}
		cached := min(found*w.blockTokens, s.tokens-1)
		s.named, s.computed = found, cached
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
func (w *mocker) compute(s *sequence, n int) {
	s.chunk = n
	s.computed += n
	for (s.named+1)*w.blockTokens <= s.computed {
		w.name(s)
	}
}

// name names the first unnamed block of sequence s, which is full now.
func (w *mocker) name(s *sequence) {
	k := s.named
	local := s.local(k, w.blockTokens)
	parent := slot(0)
	if k > 0 {
		parent = s.slots[k-1]
	}
	if k == len(s.hashes) {
		hash := kv.BlockHash(local)
		if k > 0 {
			hash = kv.Chain(s.hashes[k-1], local)
		}
		s.hashes = append(s.hashes, hash)
	}
	s.slots[k] = w.cache.name(s.slots[k], parent, s.hashes[k], local)
	s.named++
}

// sequence is the state of a request, waiting or running. Only running sequences hold blocks.
type sequence struct {
	req      *Request
	tokens   int            // prompt and output so far
	computed int            // tokens with KV, counting the pass in progress
	reached  int            // largest value of computed at the end of any pass
	chunk    int            // tokens that the pass in progress adds to computed
	slots    []slot         // the sequence's blocks in order, if it is running
	named    int            // number of leading slots with names
	hashes   []kv.BlockHash // of the prompt's full blocks, and of all blocks of output named so far, kept over preemptions
	decoding bool           // all tokens but the last have KV, so each pass outputs one more
	resumed  bool           // preempted at least once
}

// output returns the number of output tokens so far.
func (s *sequence) output() int { return s.tokens - len(s.req.Tokens) }

// local returns the local hash of block number index (from 0) of the sequence. The block may
// contain output tokens.
func (s *sequence) local(index, blockTokens int) kv.LocalHash {
	if index < len(s.req.Locals) {
		return s.req.Locals[index]
	}
	prompt := len(s.req.Tokens)
	from, to := index*blockTokens, (index+1)*blockTokens
	tokens := slices.Concat(s.req.Tokens[min(from, prompt):], s.req.Answer[max(0, from-prompt):to-prompt])
	return kv.HashLocal(tokens, kv.Namespace{}.Seed())
}
