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
)

// Why a move did not begin.
var (
	// ErrMoves answers that Config.MaxMoves are in flight.
	ErrMoves = errors.New("scheduler: too many moves in flight")
	// ErrNoRoom answers that there are no pages to onboard to, for now.
	ErrNoRoom = errors.New("scheduler: no room")
)

// moves are the copies of pages between the device and lower tiers. They go out with
// plans, by number, and end by Moved. A page that is offloaded stays the cache's, which
// may evict it meanwhile: the next batch that writes to it waits for the move. Pages that
// are onboarded are nobody's until their move has ended well.
type moves struct {
	cfg  *Config
	room *room

	last     engine.MoveID
	due      []tiering.Move // for the next plan
	inflight []move         // by number, those that are due among them
	coming   int            // pages that moves in flight will free, as evictable ones
	after    []engine.MoveID
	reads    map[kv.PageID]engine.MoveID // pages that moves in flight read; nil: none
}

// move is one that has not ended.
type move struct {
	id    engine.MoveID
	read  []kv.PageID // offloaded
	held  []kv.PageID // to onboard to
	key   radixcache.Key
	pin   radixcache.NodeID // what stands before the pages held
	epoch uint64            // of the cache
}

// Offload begins to copy the whole pages that are cached of a key to a lower tier, with
// the next plan. It returns the move's number and how many tokens it copies, from the
// first. The error is ErrNoCache, ErrMoves, or radixcache.ErrNotCached.
func (s *Scheduler) Offload(key radixcache.Key, to kv.Tier) (engine.MoveID, int, error) {
	if err := s.moves.may(to); err != nil {
		return 0, 0, err
	}
	m := s.cache.Match(key)
	if m.Tokens == 0 || m.Distrusted {
		return 0, 0, fmt.Errorf("%w: nothing to offload", radixcache.ErrNotCached)
	}
	key.Tokens = slices.Clone(key.Tokens[:m.Tokens])
	pages := s.cache.AppendPages(m, make([]kv.PageID, 0, m.Tokens/s.info.PageTokens))
	id := s.moves.begin(key, pages, kv.TierDevice, to)
	s.moves.inflight = append(s.moves.inflight, move{id: id, read: pages})
	if s.moves.reads == nil {
		s.moves.reads = make(map[kv.PageID]engine.MoveID, len(pages))
	}
	for _, p := range pages {
		s.moves.reads[p] = id
	}
	s.verify()
	return id, m.Tokens, nil
}

// Onboard begins to copy what is not cached of the whole pages of a key from a lower tier,
// with the next plan; when that has ended, they are cached. It returns the move's number
// and the first token that it copies. The error is ErrNoCache, ErrMoves, ErrNoRoom, or
// ErrInvalid if all are cached or a token is none.
func (s *Scheduler) Onboard(key radixcache.Key, from kv.Tier) (engine.MoveID, int, error) {
	if err := s.moves.may(from); err != nil {
		return 0, 0, err
	}
	if _, err := s.prefix(key.Namespace, key.Tokens); err != nil {
		return 0, 0, err
	}
	size := s.info.PageTokens
	key.Tokens = slices.Clone(key.Tokens[:kv.FloorPages(len(key.Tokens), size)*size])
	m := s.cache.Match(key)
	n := (len(key.Tokens) - m.Tokens) / size
	if n == 0 || m.Distrusted {
		return 0, 0, fmt.Errorf("%w: %d of %d tokens are to be onboarded", ErrInvalid, n*size, len(key.Tokens))
	}
	pin := s.cache.Pin(m) // what comes before must not make room
	if !s.room.take(n) {
		s.cache.Unpin(pin)
		s.verify()
		return 0, 0, fmt.Errorf("%w: %d pages wanted", ErrNoRoom, n)
	}
	held, _ := s.room.lease.Hold(n, nil)
	id := s.moves.begin(key, held, from, kv.TierDevice)
	s.moves.coming += n
	s.moves.inflight = append(s.moves.inflight, move{id: id, held: held, key: key, pin: pin, epoch: s.cache.Epoch()})
	s.verify()
	return id, m.Tokens, nil
}

// may reports why no move from or to a tier can begin.
func (v *moves) may(tier kv.Tier) error {
	switch {
	case v.room.cache == nil:
		return ErrNoCache
	case tier == kv.TierDevice || tier >= kv.Tiers:
		return fmt.Errorf("%w: tier %v", ErrInvalid, tier)
	case len(v.inflight) >= v.cfg.MaxMoves:
		return fmt.Errorf("%w: %d", ErrMoves, len(v.inflight))
	}
	return nil
}

// begin gives a move its number.
func (v *moves) begin(key radixcache.Key, pages []kv.PageID, from, to kv.Tier) engine.MoveID {
	v.last++
	kind := tiering.Write
	if to == kv.TierDevice {
		kind = tiering.Read
	}
	v.due = append(v.due, tiering.Move{
		ID: tiering.MoveID(v.last), Kind: kind, From: from, To: to, Pages: pages,
		Extent: mempool.Extent{Namespace: key.Namespace, Tokens: key.Tokens},
	})
	return v.last
}

// Moved takes the ending of a Write, Read or Drop of Plan.Moves, which has been under way
// for took: a Write has stored its extent, and a Read's pages hold the KV, if err is nil.
// After that nothing touches the pages of the move any more. A number that is not in
// flight, since Fail for example, is ignored.
func (s *Scheduler) Moved(now time.Duration, id tiering.MoveID, err error, took time.Duration) {
	i, ok := slices.BinarySearchFunc(s.moves.inflight, engine.MoveID(id), func(m move, id engine.MoveID) int {
		return int(int64(m.id) - int64(id))
	})
	if !ok {
		return
	}
	m := s.moves.inflight[i]
	s.moves.inflight = slices.Delete(s.moves.inflight, i, i+1)
	s.moves.end(&m, err == nil)
	if len(s.open) == 0 {
		s.expireCache(now)
	}
	s.verify()
}

// end lets go of what a move has held, or caches what it brought.
func (v *moves) end(m *move, good bool) {
	for _, p := range m.read {
		if v.reads[p] == m.id {
			delete(v.reads, p)
		}
	}
	if len(v.reads) == 0 {
		v.reads = nil
	}
	if len(m.held) == 0 {
		return
	}
	v.coming -= len(m.held)
	if good && m.epoch == v.room.cache.Epoch() && !v.room.cache.Match(m.key).Distrusted {
		v.adopt(m)
		return
	}
	v.room.lease.Drop(m.held)
	v.room.cache.Unpin(m.pin)
}

// adopt puts pages that were onboarded into the cache.
func (v *moves) adopt(m *move) {
	all := len(m.key.Tokens) / v.room.pageTokens
	lent := v.room.lent[:0]
	for len(lent) < all-len(m.held) {
		lent = append(lent, kv.NoPage) // the tree's own, which it does not look at
	}
	lent = append(lent, m.held...)
	pin, freed := v.room.cache.Extend(m.pin, m.key, lent, v.room.freed[:0])
	v.room.reclaim(freed)
	for i := all - len(m.held); i < all; i++ {
		if id := lent[i]; id != kv.NoPage && v.room.lease.Held(id) {
			v.room.lease.Publish(lent[i : i+1])
		}
	}
	v.room.lent = lent
	v.room.cache.Unpin(pin)
}

// drop ends all moves as failed: the device is lost.
func (v *moves) drop() {
	for i := range v.inflight {
		v.end(&v.inflight[i], false)
	}
	clear(v.inflight)
	clear(v.due)
	v.inflight, v.due, v.after = v.inflight[:0], v.due[:0], v.after[:0]
}

// hold takes idle pages of the lease to write to. The next plan waits for the moves that
// still read them.
func (v *moves) hold(n int, dst []kv.PageID) []kv.PageID {
	from := len(dst)
	dst, _ = v.room.lease.Hold(n, dst)
	if v.reads == nil {
		return dst
	}
	for _, p := range dst[from:] {
		if id := v.reads[p]; id != 0 && !slices.Contains(v.after, id) {
			v.after = append(v.after, id)
		}
	}
	return dst
}

// plan hands over what goes with p.
func (v *moves) plan(p *Plan) {
	p.Moves = append(p.Moves, v.due...)
	p.Batch.After = append(p.Batch.After, v.after...)
	clear(v.due)
	v.due, v.after = v.due[:0], v.after[:0]
}
