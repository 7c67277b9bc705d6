package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler/internal/planted"
)

// tiers connects the scheduler with the book of the tiers below the device. It tells the
// book which extents the device computes, evicts and lacks, and puts the book's moves
// into plans with their device pages. It is nil without Config.Tiers.
type tiers struct {
	book   *tiering.Book
	layout mempool.Layout
	room   *room
	now    time.Duration // time of the latest input

	due     bool                        // moves have begun that no plan has, see begun
	after   []tiering.MoveID            // Writes that the next plan's batch must wait for
	reading map[tiering.MoveID]*arrival // Reads that have not ended
	held    int                         // pages held for Reads, until they are in the tree
	coming  int                         // part of held: those of Reads that have not ended
	idle    []idleExtent                // conversations that may become idle, oldest first
	blocks  *tierBlocks                 // nil without Config.Events
	parks   parks
	fault   planted.Fault
}

// arrival is a Read and the pages held for it.
type arrival struct {
	q     *sequence // nil: no sequence waits for it
	pages []kv.PageID
}

// newTiers makes the tiers that cfg.Tiers configures, with the room l for their pages; nil if it is nil.
func newTiers(cfg *Config, info *engine.Info, l *room) (*tiers, error) {
	if cfg.Tiers == nil {
		return nil, nil
	}
	c := *cfg.Tiers
	if c.TokenGuess == 0 {
		c.TokenGuess = info.Cost.Token
	}
	c.NoChanges = !cfg.Events
	book, err := tiering.New(c)
	if err != nil {
		return nil, err
	}
	t := &tiers{book: book, layout: c.Layout, room: l, reading: map[tiering.MoveID]*arrival{}}
	if cfg.Events {
		t.blocks = newTierBlocks(cfg.BlockTokens)
	}
	return t, nil
}

// Found notes that a tier below the device has the extents xs, as its store's Contents or
// Probe report them: parents first. Extents that are known already are ignored.
func (s *Scheduler) Found(tier kv.Tier, xs []mempool.Extent) {
	if s.tiers != nil && s.tiers.book.Has(tier) {
		s.tiers.book.Found(tier, xs)
		s.verify()
	}
}

// Gone notes that a tier no longer has the extents of keys, for another reason than a Drop
// of the scheduler: the store reports them in Done.Gone.
func (s *Scheduler) Gone(tier kv.Tier, keys []mempool.Key) {
	if s.tiers != nil && s.tiers.book.Has(tier) {
		s.tiers.book.Gone(tier, keys)
		s.verify()
	}
}

// Copied notes that the Write id has read its device pages. A batch may overwrite them from
// now on without naming the move in Batch.After. Copied is called before the Moved of the
// same id, or not at all.
func (s *Scheduler) Copied(now time.Duration, id tiering.MoveID) {
	if s.tiers != nil {
		s.tiers.now = now
		s.tiers.book.Device.Copied(id)
		s.verify()
	}
}

// Moved takes the end of a move of Plan.Moves: a Write, Read or Drop with the number id,
// which was in progress for took. If err is nil, a Write has stored its extent, and the
// pages of a Read hold the KV. The store no longer touches the pages of the move. An id
// that is not in flight, for example since Fail, is ignored.
func (s *Scheduler) Moved(now time.Duration, id tiering.MoveID, err error, took time.Duration) {
	if s.fetches == nil {
		return
	}
	s.tiers.now = now
	if errors.Is(err, engine.ErrMove) {
		err = fmt.Errorf("%w: %w", tiering.ErrCopy, err)
	}
	s.tiers.book.Moved(now, id, err, took)
	s.fetches.read(id, err)
	s.fetches.settle()
	s.tiers.stepParks(now)
	if len(s.open) == 0 {
		s.prefixes.expire(now)
	}
	s.verify()
}

// Flush begins the last writes: as much of the cache as can be written by the time until
// goes to disk and to the shared tier. No further request may be added. Call Next and Moved
// as usual while Flushing returns true.
func (s *Scheduler) Flush(now, until time.Duration) {
	if s.tiers != nil {
		s.tiers.now = now
		s.tiers.book.Shutdown(now, until)
		s.fetches.settle()
		s.verify()
	}
}

// Flushing reports whether writes to lower tiers are due or in flight.
func (s *Scheduler) Flushing() bool { return s.tiers != nil && s.tiers.book.Busy() }

// metrics returns the counters of each tier.
func (fs *fetches) metrics() (all [kv.Tiers]TierMetrics) {
	for i := range all {
		c := fs.tiers.book.Stats(kv.Tier(i))
		all[i] = TierMetrics{
			HeldBytes: c.HeldBytes, Extents: c.Extents, HitTokens: fs.hits[i], Reads: c.Reads, Writes: c.Writes,
			ReadBytes: c.ReadBytes, WriteBytes: c.WriteBytes, ReadNanos: c.ReadNanos, Errors: c.Errors, Lost: c.Lost,
		}
	}
	return all
}

// computed registers with the book the extents that q has put into the tree, within its
// first tokens, as many as valid says. They are known to be sound, as q has sampled from
// them. With tail set it includes the last extent even if it is not full: q will not extend
// it from now on. It returns the key of the last extent, zero if there is none.
func (t *tiers) computed(q *sequence, valid int, tail bool) (last mempool.Key) {
	size := t.layout.PageTokens
	n := min(q.wholeMedia(min(valid, len(q.tokens)))/size, q.table.shared) * size
	if !tail {
		n -= n % t.layout.ExtentTokens()
	}
	xs := t.layout.AppendExtents(nil, q.req.Namespace, q.tokens[:n], q.req.Media)
	if len(xs) == 0 {
		return last
	}
	t.register(xs, q.table.pages, t.hashes(q, q.table.pin, n))
	return xs[len(xs)-1].Key
}

// hashes returns the hashes of those blocks that lie within the first tokens of q, as many
// as tokens says. The tree has them in the node at and in the nodes above it. hashes
// returns none unless hashedAlike reports true for q.
func (t *tiers) hashes(q *sequence, at radixcache.NodeID, tokens int) []kv.BlockHash {
	if !t.hashedAlike(q) {
		return nil
	}
	return t.room.cache.AppendHashes(at, tokens, nil)
}

// hashedAlike reports whether q's blocks have the same hashes in the tree and in lower
// tiers: not without events, not with media, and not if the tree keeps a public prefix
// under another namespace than lower tiers do.
func (t *tiers) hashedAlike(q *sequence) bool {
	return t.blocks != nil && len(q.req.Media) == 0 && (q.req.PublicTokens == 0 || q.req.Namespace.Salt == "")
}

// register tells the book that the extents xs of a sequence are on the device. pages are
// the pages of the sequence by position, and hashes those of its blocks from the start, or
// nil if unknown.
func (t *tiers) register(xs []mempool.Extent, pages []kv.PageID, hashes []kv.BlockHash) {
	for i := range xs {
		x := &xs[i]
		var own []kv.BlockHash
		if lo, hi := t.blocks.within(x); hi <= len(hashes) {
			own = hashes[lo:hi]
		}
		lo := x.Start / t.layout.PageTokens
		t.book.Computed(t.now, x, pages[lo:lo+t.layout.Pages(x)], own)
	}
	t.begun()
}

// lose tells the book that the tree gives up pages, and what becomes of their KV.
func (t *tiers) lose(pages []kv.PageID, to tiering.Fate) {
	if to == tiering.Discarded && t.fault == planted.KeepBelow {
		to = tiering.Forgotten
	}
	if t.book.Evict(t.now, pages, to) && to != tiering.Forgotten {
		t.begun()
	}
}

// begun notes that the book may have begun moves. It is not called for those that the book begins
// when another one ends: Return need not hurry for them.
func (t *tiers) begun() { t.due = t.book.Due() }

// discard removes the extent k and all that continue it from all tiers: its KV is wrong. What is
// on the device stays there, and is registered again if a request samples from it.
func (t *tiers) discard(k mempool.Key) {
	if t.fault != planted.KeepBelow {
		t.book.Discard(k)
		t.begun()
	}
}

// clear forgets everything, as after new weights.
func (t *tiers) clear() {
	t.book.Clear()
	t.idle = t.idle[:0]
	if t.blocks != nil {
		t.book.Changes(nil)
		t.blocks = newTierBlocks(t.blocks.blockTokens)
	}
	t.begun()
}

// overwrites notes that the next plan's batch writes to pages: the batch must wait for the
// Writes that still read them. Waiting on the device keeps planning free of waits.
func (t *tiers) overwrites(pages []kv.PageID) { t.after = t.book.Device.Readers(pages, t.after) }

// next adds to p the moves that the book wants to go with it. If the pool is more than
// deviceHigh full, the book may also write extents ahead of need.
func (t *tiers) next(now time.Duration, p *Plan) {
	if t.room.deviceFull() {
		t.book.Offer(now)
	}
	p.Moves = t.book.Next(now, p.Moves)
}

// holdFor notes that pages are held for the Read id, for which q waits. NoPage entries do
// not count.
func (t *tiers) holdFor(id tiering.MoveID, q *sequence, pages []kv.PageID) {
	t.reading[id] = &arrival{q: q, pages: pages}
	t.book.Fill(id, pages)
	n := count(pages)
	t.held, t.coming = t.held+n, t.coming+n
}

// count returns the number of pages that are not NoPage.
func count(pages []kv.PageID) (n int) {
	for _, p := range pages {
		if p != kv.NoPage {
			n++
		}
	}
	return n
}

// release returns pages that were held for a Read to the lease.
func (t *tiers) release(pages []kv.PageID) {
	for i, p := range pages {
		if p != kv.NoPage {
			t.room.lease.Drop(pages[i : i+1])
			t.held--
		}
	}
}

// used tells the book that a request uses those of the extents xs that end within its
// first tokens, as many as tokens says. The book counts uses to decide what is worth a
// write to disk.
func (t *tiers) used(xs []mempool.Extent, tokens int) {
	for i := range xs {
		if xs[i].Start+len(xs[i].Tokens) <= tokens {
			t.book.Used(t.now, xs[i].Key)
		}
	}
	t.begun()
}

// plan hands the Writes to wait for over to p.
func (t *tiers) plan(p *Plan) {
	for _, id := range t.after {
		p.Batch.After = append(p.Batch.After, engine.MoveID(id))
	}
	t.due, t.after = false, t.after[:0]
}

// drop gives up all reads and writes of the device: the device is lost, or the scheduler is drained. No
// extent counts as on the device from then on, also where its pages stay in the tree.
func (t *tiers) drop() {
	t.book.DeviceLost(t.now)
	for _, a := range t.reading {
		t.release(a.pages)
	}
	clear(t.reading)
	t.due, t.after, t.idle, t.coming = false, t.after[:0], t.idle[:0], 0
}

// idleExtent is the last extent of a conversation. If the extent is not used again before
// the time at, that is, if its use count is still uses, the conversation is idle.
type idleExtent struct {
	key  mempool.Key
	uses int
	at   time.Duration
}

// idleAfter is how long a conversation must be unused to count as idle; then the book
// may write its KV to disk though it was used only once. maxIdle bounds the conversations
// that are remembered; when one more request ends, the oldest counts as idle before its
// time.
const (
	idleAfter = 30 * time.Second
	maxIdle   = 4096
)

// rests notes that a request has ended whose last extent is k.
func (t *tiers) rests(k mempool.Key) {
	if !t.book.HasBelowHost() {
		return
	}
	if len(t.idle) == maxIdle {
		t.book.Idle(t.now, t.idle[0].key)
		t.idle = slices.Delete(t.idle, 0, 1)
	}
	t.idle = append(t.idle, idleExtent{k, t.book.Uses(k), t.now + idleAfter})
}

// wake tells the book which conversations are idle by now.
func (t *tiers) wake(now time.Duration) {
	n := 0
	for n < len(t.idle) && t.idle[n].at <= now {
		if x := &t.idle[n]; t.book.Uses(x.key) == x.uses {
			t.book.Idle(now, x.key)
		}
		n++
	}
	t.idle = slices.Delete(t.idle, 0, n)
}
