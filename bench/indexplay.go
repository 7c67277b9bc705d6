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
// The overlaps that a request finds depend on earlier requests, but only on those with the same
// first block. So requests are sorted into groups by their first block; the type lane is such a
// group. Threads hash the requests of a lane in parallel. Then one thread at a time, which holds
// the lane's lock, looks up and stores the hashed requests in order. No thread waits for the lock:
// if it is taken, the thread leaves its hashed request to the thread that holds the lock.
type indexPlay struct {
	ctx   context.Context
	trace *Trace
	cfg   IndexConfig
	index blockIndex

	hands  []*indexHand
	lanes  []lane
	laneOf func(i int) int
	ready  []atomic.Pointer[kvindex.TokensWithHashes] // by request: its hashes, from hashed until stored
	free   chan *kvindex.TokensWithHashes             // unused buffers; bounds how far hashing runs ahead
	failed atomic.Pointer[error]
}

// lane holds the requests of one or more branches, and counts how many of them have been taken and
// done. A branch consists of the requests with the same first block.
type lane struct {
	sync.Mutex
	requests []int32      // in order of arrival
	taken    atomic.Int64 // requests taken to be hashed; may exceed len(requests)
	done     atomic.Int64 // requests found and stored
	hands    atomic.Int64 // threads that hash its requests
	_        [64]byte     // keeps lanes on separate cache lines
}

// indexHand is one thread of a replay, with its counts and times.
type indexHand struct {
	p        *indexPlay
	sum      IndexSummary
	overlaps []kvindex.Overlap
	finds    []time.Duration // by request, if room was made
	find     stopwatch
	store    stopwatch
	hash     stopwatch
	_        [64]byte // keeps hands on separate cache lines
}

// newIndexPlay makes an empty index with its lanes: one for each shard if several threads
// share an index that is sharded by branch, otherwise one for all requests.
func newIndexPlay(ctx context.Context, t *Trace, cfg IndexConfig) (*indexPlay, error) {
	index, err := cfg.newIndex()
	if err != nil {
		return nil, err
	}
	p := &indexPlay{ctx: ctx, trace: t, cfg: cfg, index: index, laneOf: func(int) int { return 0 }}
	lanes := 1
	if s, ok := index.(*kvindex.Sharded); ok && cfg.Threads > 1 { // one thread keeps the order of arrival
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

// branch returns the number of the lane of request i: the number of the shard in s that has the
// request's first block.
func (p *indexPlay) branch(s *kvindex.Sharded, i int) int {
	request := p.trace.Request(i)
	if len(request) < p.cfg.BlockTokens {
		return 0
	}
	var first kvindex.TokensWithHashes
	first.Reset(request[:p.cfg.BlockTokens], kv.Namespace{})
	return s.Branch(first.Hashes(p.cfg.BlockTokens)[0])
}

// room allocates the memory for the times of this many requests, so that the replay itself does
// not allocate.
func (p *indexPlay) room(requests int) {
	for _, h := range p.hands {
		h.finds = make([]time.Duration, 0, requests)
	}
}

// run replays all requests and returns the counts and the wall time, from the first
// token hashed to the last block stored.
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

// times joins the times of all threads.
func (p *indexPlay) times() (finds []time.Duration, store, hash stopwatch) {
	for _, h := range p.hands {
		finds = append(finds, h.finds...)
		store.sum, store.runs = store.sum+h.store.sum, store.runs+h.store.runs
		hash.sum, hash.runs = hash.sum+h.hash.sum, hash.runs+h.hash.runs
	}
	return finds, store, hash
}

// play picks a lane, hashes up to handTurn of its requests, and repeats until no lane has requests
// left to hash. It takes a buffer before it takes a request. So the earliest unfinished request of
// a lane always has a buffer, and the replay cannot deadlock on the free buffers.
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
			tokens.Hashes(p.cfg.BlockTokens) // not timed: in a fleet the worker computes these
			p.ready[i].Store(tokens)
			h.drain(l)
		}
		l.hands.Add(-1)
	}
}

// handTurn is the number of requests that a thread hashes from a lane before it picks a lane
// again.
const handTurn = 16

// pick returns the lane, among those with requests left to hash, on which the fewest threads work;
// of several such lanes the one with the most requests left. It counts the caller among the
// threads of that lane. It returns nil if no lane has requests left.
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

// fail keeps the first error of all threads. After an error the threads still take all requests,
// but neither look them up nor store them.
func (h *indexHand) fail(err error) { h.p.failed.CompareAndSwap(nil, &err) }

// drain looks up and stores the hashed requests of a lane in order. It does nothing while another
// thread holds the lane's lock: after that thread has unlocked, it checks again whether a request
// is due, so no request is forgotten.
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

// due returns the hashes of the next request of the lane to be looked up; nil if that request is
// not hashed yet, or if all requests are done.
func (h *indexHand) due(l *lane) *kvindex.TokensWithHashes {
	at := l.done.Load()
	if at == int64(len(l.requests)) {
		return nil
	}
	return h.p.ready[l.requests[at]].Load()
}

// step looks up request i, whose hashes are in tokens, and stores the blocks that its worker
// lacks. After an error of any thread it does nothing.
func (h *indexHand) step(i int, tokens *kvindex.TokensWithHashes) {
	p := h.p
	if p.failed.Load() != nil {
		return // the caller still returns the buffer, so no thread waits for one forever
	}
	worker := kv.Rank{Worker: kv.WorkerID(i % p.cfg.Workers)}
	hashes := tokens.Hashes(p.cfg.BlockTokens)
	h.find.start()
	h.overlaps = p.index.Find(hashes, h.overlaps[:0])
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
	h.sum.Blocks += len(hashes)
	h.sum.Best += best
	h.sum.Own += own
	if own == len(hashes) {
		return
	}
	run := tokens.Run(p.cfg.BlockTokens, own)
	h.store.start()
	stored, err := p.index.Store(worker, run)
	h.store.stop()
	if err == nil && stored != len(hashes)-own {
		err = fmt.Errorf("%d blocks were new to worker %d, which had %d of %d", stored, worker.Worker, own, len(hashes))
	}
	if err != nil {
		h.fail(fmt.Errorf("bench: request %d: %w", i, err))
	}
	h.sum.Stored += stored
	h.sum.StoreEvents++
}
