package bench

import (
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// replayer is one replay of a trace on a radix cache, with a simple page pool. It does
// the same work in every replay, timed or not.
type replayer struct {
	cache      *radixcache.Cache
	pageTokens int

	limit int         // size of the pool in pages; 0 means no limit
	next  kv.PageID   // lowest id not handed out yet; also the number of ids handed out
	free  []kv.PageID // returned pages, reused last in first out
	pages []kv.PageID // pages of the current request: matched ones, then new ones

	turns   []traceTurn // of the trace that is being replayed; nil: it has no times
	told    told
	at      int           // requests of it so far
	before  time.Duration // time before it, of an earlier trace
	names   uint32        // sessions of earlier traces
	warming bool          // nothing is counted

	matched, partial             int // tokens matched so far, in whole pages and in parts of pages
	held                         int // number of matched pages of the current request
	fnv                          uint64
	match, gather, evict, insert stopwatch
}

// fnvOffset is the initial value of replayer.fnv.
const fnvOffset = 1469598103934665603

// newReplayer makes an empty cache and pool. It allocates all scratch here, so that steps
// of a timed replay do not.
func newReplayer(t *Trace, cfg RadixConfig) (*replayer, error) {
	cache, err := radixcache.New(cfg.cache())
	if err != nil {
		return nil, err
	}
	r := &replayer{cache: cache, pageTokens: cfg.cache().PageTokens, fnv: fnvOffset}
	r.turns, r.told = t.turns, t.told
	r.pages = make([]kv.PageID, 0, t.longest/r.pageTokens)
	r.free = make([]kv.PageID, 0, 1)
	if cfg.CapacityTokens > 0 {
		// Capped at what the trace can fill, so that r.free stays small; the evictions
		// stay the same.
		r.limit = min(cfg.CapacityTokens, max(t.tokens, 1)+r.pageTokens) / r.pageTokens
		r.free = make([]kv.PageID, 0, r.limit)
	}
	return r, nil
}

// step replays one request: match, pin, evict if needed, insert, unpin. An eviction
// that frees too few pages and a failed audit are errors.
func (r *replayer) step(request []kv.Token) error {
	key := radixcache.Key{Tokens: request}
	turn := r.turn()
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
	r.cache.EndTurn(handle, nil, turn)
	r.cache.Unpin(handle)
	r.turnEnded(turn.Session)
	r.insert.stop()

	if r.warming {
		return r.audit()
	}
	r.matched += m.Tokens
	r.partial += m.Partial.Tokens
	r.fnv = foldFNV(r.fnv, m.Tokens)
	return r.audit()
}

// turnEnded tells the cache what comes after the turn of a session that has ended.
func (r *replayer) turnEnded(session radixcache.SessionID) {
	if session == 0 {
		return
	}
	t := &r.turns[r.at-1]
	if t.Calls > 0 && r.told.calls {
		r.cache.AwaitTools(session, t.Calls)
	}
	if t.Last && r.told.ends {
		r.cache.ReleaseTurns(session)
	}
}

// turn tells the cache the time of the next request, if the trace has times, and that its session has come. It
// returns the turn.
func (r *replayer) turn() (turn radixcache.Turn) {
	if r.turns == nil {
		return turn
	}
	t := r.turns[r.at]
	r.at++
	r.cache.Tick(r.before + t.At)
	if t.Session != 0 && r.told.names {
		turn.Session = radixcache.SessionID(r.names + t.Session)
		r.cache.BeginTurn(turn.Session)
	}
	return turn
}

// warm replays a trace that does not count. Then its sessions are forgotten and the cache is emptied: what has been
// learnt of them is left.
func (r *replayer) warm(t *Trace) error {
	r.turns, r.told, r.warming = t.turns, t.told, true
	for _, request := range t.requests {
		if err := r.step(request); err != nil {
			return err
		}
	}
	r.warming, r.at = false, 0
	for _, turn := range t.turns {
		r.before, r.names = max(r.before, turn.At), max(r.names, turn.Session)
	}
	for id := range r.names {
		r.cache.ForgetTurns(radixcache.SessionID(id + 1))
	}
	r.cache.Flush()
	r.free = r.cache.Evict(r.cache.Stats().Pages, r.free)
	return nil
}

// room returns the number of pages available without eviction, in a limited pool.
func (r *replayer) room() int { return len(r.free) + r.limit - int(r.next) }

// take appends n unused pages to the request's pages: first the pages in r.free, from its end,
// then pages with new ids. In a limited pool with fewer unused pages it returns an error.
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

// audit finds lost and duplicated pages: each page handed out must be in the cache or
// in free.
func (r *replayer) audit() error {
	if cached := r.cache.Stats().Pages; cached+len(r.free) != int(r.next) {
		return fmt.Errorf("%d pages cached and %d given back, of %d handed out", cached, len(r.free), r.next)
	}
	return nil
}

// foldFNV folds a matched length into the checksum: one step of FNV-1a, over whole
// numbers instead of bytes, modulo 2^64.
func foldFNV(h uint64, matched int) uint64 { return (h ^ uint64(matched)) * 1099511628211 }

// stopwatch adds up intervals as short as 100 ns, of which reading the clock is a good part. So
// the clock is read only once at either end of an interval, and for each interval the length of an
// empty interval, measured in the same process by calibrate, is subtracted. The clock then adds no
// systematic error to the sum over a whole replay.
type stopwatch struct {
	sum   time.Duration
	begun time.Duration
	runs  int // intervals
	laps  int // operations: intervals that ended by stop rather than pause
}

// epoch lets start and pause use time.Since, which reads the monotonic clock only and
// costs half of time.Now.
var epoch = time.Now()

func (w *stopwatch) start() { w.begun = time.Since(epoch) }

// pause ends an interval of an operation that another interval continues.
func (w *stopwatch) pause() {
	w.sum += time.Since(epoch) - w.begun
	w.runs++
}

// stop ends the last interval of an operation.
func (w *stopwatch) stop() {
	w.pause()
	w.laps++
}

// total returns the sum without the cost of the clock; clock is that of one interval,
// in ns, from calibrate.
func (w *stopwatch) total(clock float64) time.Duration {
	return max(0, w.sum-time.Duration(clock*float64(w.runs)))
}

// calibrate returns the mean length of an empty interval, in ns. It takes the best of
// 20 batches, so that interruptions do not count as the cost of the clock.
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
