package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// indexPlay is one replay on a block index.
//
// What a request finds depends on what was stored before, but only below the same
// first block. So each branch is a lane: threads hash its requests, and whoever
// is free takes the lane and does them, in order, as far as they are hashed. Nobody
// waits for a lane; who finds it taken leaves its request to the thread that has it.
type indexPlay struct {
	ctx   context.Context
	trace *Trace
	cfg   IndexConfig
	index blockIndex

	hands  []*indexHand
	lanes  []lane
	laneOf func(i int) int
	ready  []atomic.Pointer[kvindex.TokensWithHashes] // by request: hashed, not done
	free   chan *kvindex.TokensWithHashes             // bounds how far hashing is ahead
	failed atomic.Pointer[error]
}

// lane is the requests of a branch.
type lane struct {
	sync.Mutex
	requests []int32      // in order
	taken    atomic.Int64 // requests, maybe more than there are
	done     atomic.Int64
	hands    atomic.Int64 // threads that take from it
	_        [64]byte
}

// indexHand is what one thread measures.
type indexHand struct {
	p        *indexPlay
	sum      IndexSummary
	overlaps []kvindex.Overlap
	finds    []time.Duration
	find     stopwatch
	store    stopwatch
	hash     stopwatch
	_        [64]byte
}

func newIndexPlay(ctx context.Context, t *Trace, cfg IndexConfig) (*indexPlay, error) {
	index, err := cfg.newIndex()
	if err != nil {
		return nil, err
	}
	p := &indexPlay{ctx: ctx, trace: t, cfg: cfg, index: index, laneOf: func(int) int { return 0 }}
	lanes := 1
	if s, ok := index.(*kvindex.Sharded); ok && cfg.By == kvindex.ByBranch && cfg.Threads > 1 { // one thread keeps the order of arrival
		lanes = s.Shards()
		p.laneOf = func(i int) int { return p.branch(s, i) }
	}
	p.lanes = make([]lane, lanes)
	p.hands = make([]*indexHand, cfg.Threads)
	for i := range p.hands {
		p.hands[i] = &indexHand{p: p}
	}
	p.ready = make([]atomic.Pointer[kvindex.TokensWithHashes], t.Requests())
	p.free = make(chan *kvindex.TokensWithHashes, 32*cfg.Threads)
	for range cap(p.free) {
		p.free <- &kvindex.TokensWithHashes{}
	}
	return p, nil
}

// branch is the shard of a request's first block.
func (p *indexPlay) branch(s *kvindex.Sharded, i int) int {
	request := p.trace.Request(i)
	if len(request) < p.cfg.BlockTokens {
		return 0
	}
	var first kvindex.TokensWithHashes
	first.Reset(request[:p.cfg.BlockTokens], kv.Namespace{})
	return s.Branch(first.Locals(p.cfg.BlockTokens)[0])
}

// room makes room for times, so that the replay need not.
func (p *indexPlay) room(requests int) {
	for _, h := range p.hands {
		h.finds = make([]time.Duration, 0, requests)
	}
}

// run plays all requests and returns the counts and the time it took, from the
// first token to the last block stored.
func (p *indexPlay) run() (IndexSummary, time.Duration, error) {
	begun := time.Now()
	for i := range p.trace.Requests() {
		l := &p.lanes[p.laneOf(i)]
		l.requests = append(l.requests, int32(i))
	}
	if len(p.hands) == 1 {
		p.hands[0].play()
	} else {
		var all sync.WaitGroup
		for _, h := range p.hands {
			all.Go(h.play)
		}
		all.Wait()
	}
	took := time.Since(begun)
	if err := p.failed.Load(); err != nil {
		return IndexSummary{}, 0, *err
	}
	sum := IndexSummary{Requests: p.trace.Requests()}
	for _, h := range p.hands {
		sum.Blocks += h.sum.Blocks
		sum.Best += h.sum.Best
		sum.Own += h.sum.Own
		sum.Stored += h.sum.Stored
		sum.StoreEvents += h.sum.StoreEvents
	}
	return sum, took, nil
}

// times gathers what the threads measured.
func (p *indexPlay) times() (finds []time.Duration, store, hash stopwatch) {
	for _, h := range p.hands {
		finds = append(finds, h.finds...)
		store.sum, store.runs = store.sum+h.store.sum, store.runs+h.store.runs
		hash.sum, hash.runs = hash.sum+h.hash.sum, hash.runs+h.hash.runs
	}
	return finds, store, hash
}

// play takes requests, some of one lane at a time, until there are no more. It
// takes a buffer before a request: so the first request that is not done always
// has one, and goes on.
func (h *indexHand) play() {
	p := h.p
	for l := p.pick(); l != nil; l = p.pick() {
		for range handTurn {
			tokens := <-p.free
			at := int(l.taken.Add(1)) - 1
			if at >= len(l.requests) {
				p.free <- tokens
				break
			}
			if at%64 == 0 && p.ctx.Err() != nil {
				h.fail(context.Cause(p.ctx))
			}
			i := l.requests[at]
			h.hash.start()
			tokens.Reset(p.trace.Request(int(i)), kv.Namespace{})
			tokens.Locals(p.cfg.BlockTokens)
			h.hash.stop()
			tokens.Hashes(p.cfg.BlockTokens) // the worker's part, not the index's
			p.ready[i].Store(tokens)
			h.drain(l)
		}
		l.hands.Add(-1)
	}
}

// handTurn is how many requests of a lane a thread takes before it looks for the
// longest again.
const handTurn = 16

// pick is the lane with the most requests to take, among those with the fewest
// threads at them; nil if nothing is to be taken.
func (p *indexPlay) pick() (best *lane) {
	var hands, left int
	for i := range p.lanes {
		l := &p.lanes[i]
		at, more := int(l.hands.Load()), len(l.requests)-int(l.taken.Load())
		if more > 0 && (best == nil || at < hands || at == hands && more > left) {
			best, hands, left = l, at, more
		}
	}
	if best != nil {
		best.hands.Add(1)
	}
	return best
}

func (h *indexHand) fail(err error) { h.p.failed.CompareAndSwap(nil, &err) }

// drain does what is ready of a lane, unless another thread is at it: that one
// looks again after it has let go.
func (h *indexHand) drain(l *lane) {
	for h.due(l) != nil && l.TryLock() {
		for tokens := h.due(l); tokens != nil; tokens = h.due(l) {
			i := l.requests[l.done.Load()]
			h.step(int(i), tokens)
			h.p.ready[i].Store(nil)
			l.done.Add(1)
			h.p.free <- tokens
		}
		l.Unlock()
	}
}

// due is the lane's next request if it is hashed.
func (h *indexHand) due(l *lane) *kvindex.TokensWithHashes {
	at := l.done.Load()
	if at == int64(len(l.requests)) {
		return nil
	}
	return h.p.ready[l.requests[at]].Load()
}

// step finds a request and stores what its worker lacks.
func (h *indexHand) step(i int, tokens *kvindex.TokensWithHashes) {
	p := h.p
	if p.failed.Load() != nil {
		return // buffers go round to the end, so that no thread waits for one
	}
	worker := kv.Rank{Worker: kv.WorkerID(i % p.cfg.Workers)}
	locals := tokens.Locals(p.cfg.BlockTokens)
	h.find.start()
	h.overlaps = p.index.Find(locals, h.overlaps[:0])
	h.find.stop()
	if len(h.finds) < cap(h.finds) {
		h.finds = append(h.finds, h.find.sum)
	}
	h.find.sum = 0
	best, own := 0, 0
	for _, o := range h.overlaps {
		best = max(best, int(o.Blocks))
		if o.Holder == worker {
			own = int(o.Blocks)
		}
	}
	h.sum.Blocks += len(locals)
	h.sum.Best += best
	h.sum.Own += own
	if own == len(locals) {
		return
	}
	run := tokens.Run(p.cfg.BlockTokens, own)
	h.store.start()
	stored, err := p.index.Store(worker, run)
	h.store.stop()
	if err == nil && stored != len(locals)-own {
		err = fmt.Errorf("%d blocks were new to worker %d, which had %d of %d", stored, worker.Worker, own, len(locals))
	}
	if err != nil {
		h.fail(fmt.Errorf("bench: request %d: %w", i, err))
	}
	h.sum.Stored += stored
	h.sum.StoreEvents++
}
