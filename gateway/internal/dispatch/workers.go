package dispatch

import (
	"slices"
	"time"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway/internal/residency"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// spec converts the card of worker w for the router. Step times that the card does not have are
// those of the router's own profile.
func (d *Dispatcher) spec(w kv.Rank, c *card.Card) router.WorkerSpec {
	block := d.BlockTokens()
	spec := router.WorkerSpec{
		BlockTokens: block, TotalBlocks: c.PoolTokens / block, BatchTokens: c.StepTokens, ChunkTokens: c.ChunkTokens,
		HitTokens: c.HitTokens, MaxRequests: c.MaxRunning, Pool: d.groups.Load().pool[w.Worker],
	}
	if p := c.Profile; p != nil {
		own := d.cfg.Router.Profile
		if own == (router.Profile{}) {
			own = router.DefaultProfile()
		}
		spec.Profile = router.Profile{Step: p.Step, Token: p.Token, Pair: p.Pair, Row: p.Row, KV: p.KV, HostBlock: own.HostBlock, DiskBlock: own.DiskBlock}
	}
	for _, name := range c.Models {
		if id := ModelID(name); id != 0 {
			spec.Models = append(spec.Models, id)
		}
	}
	return spec
}

// longest returns the largest number of blocks that a prompt may have at a worker with this
// card, 0 if that is unknown.
func (d *Dispatcher) longest(c *card.Card) int {
	tokens := c.MaxModelTokens
	if c.PoolTokens > 0 && (tokens == 0 || c.PoolTokens < tokens) {
		tokens = c.PoolTokens
	}
	return tokens / d.BlockTokens()
}

// Join adds rank w of a worker with card c. The rank counts as lost until SetHealth. If blind is
// true, it sends no events, and the contents of its cache are guessed.
func (d *Dispatcher) Join(w kv.Rank, c *card.Card, blind bool) (err error) {
	spec := d.spec(w, c)
	spec.Pool = 0 // set by Regroup
	d.With(func(r *router.Router, now time.Duration) {
		if err = r.Join(now, w, spec); err != nil {
			return
		}
		d.ranks[w] = &rank{blind: blind, fresh: true, longest: d.longest(c), spec: spec}
		note(d.peers.joined) // ask replicas again: their reservations there were refused
		err = r.SetHealth(now, w, router.Lost)
	})
	return err
}

// Respec replaces the card of a joined rank by c. The rank keeps its health.
func (d *Dispatcher) Respec(w kv.Rank, c *card.Card) (err error) {
	spec := d.spec(w, c)
	d.change(func(r *router.Router, now time.Duration) { // a waiting request's model may now be served, or no longer
		was, _ := r.Load(now, w)
		if err = r.Join(now, w, spec); err != nil {
			return
		}
		if k := d.ranks[w]; k != nil {
			k.longest, k.spec = d.longest(c), spec
		}
		err = r.SetHealth(now, w, was.Health)
	})
	return err
}

// Leave removes a rank and ends its reservations. Requests that run there are not cancelled:
// they end when their answers end.
func (d *Dispatcher) Leave(w kv.Rank) {
	d.change(func(r *router.Router, now time.Duration) {
		d.ended = r.Leave(now, w, d.ended[:0])
		for _, res := range d.ended {
			delete(d.open, res)
		}
		delete(d.ranks, w)
		d.left = true
		d.notePeers()
		d.guesses.RemoveWorker(w.Worker) // its other ranks leave with it
	})
}

// SetHealth sets the health of a rank. If the rank is lost, its guesses and predictions are
// dropped. An unknown rank is ignored.
func (d *Dispatcher) SetHealth(w kv.Rank, h router.Health) {
	d.change(func(r *router.Router, now time.Duration) {
		if r.SetHealth(now, w, h) != nil {
			return
		}
		if k := d.ranks[w]; k != nil {
			k.fresh = false
		}
		if h == router.Lost {
			d.guesses.Clear(w)
			r.Cleared(w)
		}
	})
}

// SetEventsLive sets whether the events of a rank arrive. While they do, the contents of its cache
// are not guessed. An unknown rank is ignored.
func (d *Dispatcher) SetEventsLive(w kv.Rank, live bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.ranks[w]
	if k == nil || k.blind == !live {
		return
	}
	if k.blind = !live; live {
		k.indexed = true
		d.guesses.Clear(w)
	}
}

// Guesses reports whether the contents of the cache of a rank are guessed.
func (d *Dispatcher) Guesses(w kv.Rank) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.ranks[w]
	return k != nil && k.blind
}

// Doubted returns the hashes of the blocks that rank d.Worker should have by an index which is
// outdated since its events no longer arrive. It returns nil if the index is current, or guesses are
// all there is. It allocates only the result.
func (a *Ask) Doubted(d *router.Decision) []kv.BlockHash {
	if !a.Exact || !a.outdated {
		return nil
	}
	return slices.Clone(a.Request.Hashes[:min(d.Overlap.Blocks(), len(a.Request.Hashes))])
}

// Correct removes blocks from the index of rank w if it is still outdated: an answer of the rank has
// shown that its cache lacked them, and so all blocks after them. The rank has computed them since then,
// which is a guess.
func (d *Dispatcher) Correct(w kv.Rank, hashes []kv.BlockHash) {
	if d.Guesses(w) {
		d.index.Lose(w, hashes)
	}
}

// Sink returns the sink for workers' events. It updates the index, and ends the router's
// predictions for removed blocks.
func (d *Dispatcher) Sink() events.Sink { return &sink{d.index, d} }

// sink is a Residency that also tells the Dispatcher of removals.
type sink struct {
	*residency.Residency
	d *Dispatcher
}

// Remove implements [events.Sink]. It also ends the router's predictions for these blocks.
func (s *sink) Remove(w kv.Rank, tier kv.Tier, hashes []kv.BlockHash) {
	s.Residency.Remove(w, tier, hashes)
	for part := range slices.Chunk(hashes, blocksAtOnce) {
		s.d.With(func(r *router.Router, _ time.Duration) { r.Removed(w, part) })
	}
}

// Clear implements [events.Sink]. It also ends all of the router's predictions for the rank.
func (s *sink) Clear(w kv.Rank) {
	s.Residency.Clear(w)
	s.d.With(func(r *router.Router, _ time.Duration) { r.Cleared(w) })
}
