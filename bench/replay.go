package bench

import (
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// replayer is one replay of a trace on a radix cache, with the pages that the
// cache is given. It does in every pass the same, timed or not.
type replayer struct {
	cache      *radixcache.Cache
	pageTokens int

	limit int         // pages that there are; 0 without limit
	next  kv.PageID   // never handed out so far; so many pages have been
	free  []kv.PageID // handed out and given back, last in first out
	pages []kv.PageID // of the step's request after its Insert

	matched, partial             int // tokens so far
	held                         int // pages that the step's request found, of pages
	fnv                          uint64
	match, gather, evict, insert stopwatch
}

// fnvOffset is where [replayer.fnv] starts.
const fnvOffset = 1469598103934665603

func newReplayer(t *Trace, cfg RadixConfig) (*replayer, error) {
	cache, err := radixcache.New(cfg.cache())
	if err != nil {
		return nil, err
	}
	r := &replayer{cache: cache, pageTokens: cfg.cache().PageTokens, fnv: fnvOffset}
	r.pages = make([]kv.PageID, 0, t.longest/r.pageTokens)
	r.free = make([]kv.PageID, 0, 1)
	if cfg.CapacityTokens > 0 {
		// A capacity beyond what the trace could fill is no limit, but keeps its pins.
		r.limit = min(cfg.CapacityTokens, max(t.tokens, 1)+r.pageTokens) / r.pageTokens
		r.free = make([]kv.PageID, 0, r.limit)
	}
	return r, nil
}

// step takes one request.
func (r *replayer) step(request []kv.Token) error {
	key := radixcache.Key{Tokens: request}
	r.match.start()
	m := r.cache.Match(key)
	r.match.stop()
	r.gather.start()
	r.pages = r.cache.AppendPages(m, r.pages[:0])
	r.gather.stop()

	whole := kv.FloorPages(len(request), r.pageTokens)
	r.held = len(r.pages)
	fresh := whole - r.held
	r.insert.start()
	handle := r.cache.Pin(m)
	r.insert.pause()
	if r.limit > 0 {
		if lack := fresh - r.room(); lack > 0 {
			r.evict.start()
			r.free = r.cache.Evict(lack, r.free)
			r.evict.stop()
		}
	}
	if err := r.take(fresh); err != nil {
		return err
	}
	r.insert.start()
	key.Tokens = request[:whole*r.pageTokens]
	handle, r.free = r.cache.Extend(handle, key, r.pages, r.free)
	r.cache.Unpin(handle)
	r.insert.stop()

	r.matched += m.Tokens
	r.partial += m.Partial.Tokens
	r.fnv = foldFNV(r.fnv, m.Tokens)
	return r.audit()
}

// room is the number of pages that are left without eviction.
func (r *replayer) room() int { return len(r.free) + r.limit - int(r.next) }

// take appends n fresh pages to the step's: the last given back first, as a
// pool does, then new ones.
func (r *replayer) take(n int) error {
	if r.limit > 0 && r.room() < n {
		return fmt.Errorf("eviction left %d pages of %d, %d are wanted", r.room(), r.limit, n)
	}
	again := min(n, len(r.free))
	r.pages = append(r.pages, r.free[len(r.free)-again:]...)
	r.free = r.free[:len(r.free)-again]
	for range n - again {
		r.pages = append(r.pages, r.next)
		r.next++
	}
	return nil
}

// audit finds pages lost or given twice: all that were handed out are in the
// cache or came back.
func (r *replayer) audit() error {
	if cached := r.cache.Stats().Pages; cached+len(r.free) != int(r.next) {
		return fmt.Errorf("%d pages cached and %d given back, of %d handed out", cached, len(r.free), r.next)
	}
	return nil
}

// foldFNV folds a matched length into a checksum of all: the step of FNV-1a,
// by whole numbers rather than bytes, modulo 2^64.
func foldFNV(h uint64, matched int) uint64 { return (h ^ uint64(matched)) * 1099511628211 }

// stopwatch sums up intervals of some 100 ns, of which reading the clock is a
// good part. So the clock is read once at either end, and what an empty interval
// shows in the same process (calibrate) is taken off for each. The sum over a
// whole replay has no other error by the clock.
type stopwatch struct {
	sum   time.Duration
	begun time.Duration
	runs  int // intervals
	laps  int // intervals that ended by stop, rather than pause
}

// epoch gives time.Since a monotonic start: it reads no wall clock then, which
// is half the cost of time.Now.
var epoch = time.Now()

func (w *stopwatch) start() { w.begun = time.Since(epoch) }

// pause ends an interval to which another one belongs.
func (w *stopwatch) pause() {
	w.sum += time.Since(epoch) - w.begun
	w.runs++
}

func (w *stopwatch) stop() {
	w.pause()
	w.laps++
}

// total is the sum without the clock's own cost; clock is that of an interval in ns.
func (w *stopwatch) total(clock float64) time.Duration {
	return max(0, w.sum-time.Duration(clock*float64(w.runs)))
}

// calibrate measures empty intervals: their mean, in ns, of the best of some
// batches, so that no interruption counts as the clock's cost.
func calibrate() float64 {
	const batch = 2000
	best := time.Duration(1 << 62)
	for range 20 {
		var w stopwatch
		for range batch {
			w.start()
			w.stop()
		}
		best = min(best, w.sum)
	}
	return float64(best) / batch
}
