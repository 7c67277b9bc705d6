package fleet

import (
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// gate is one gateway of a fleet: a router with its view of the workers. Gateways tell each other
// their reservations, as package replica does.
type gate struct {
	r      *router.Router
	index  *kvindex.Index
	late   time.Duration         // of all that it sends to other gateways and hears of others and of workers' caches
	queued map[router.Ticket]int // requests that wait at its router, by ticket
	events []router.Event        // scratch
}

// newGate makes gateway number i, without workers. Reservations expire after 24 virtual hours: a request
// that is lost shows as an error of the run, not as an expiry.
func newGate(cfg *Config, i, requests int) (*gate, error) {
	g := &gate{queued: make(map[router.Ticket]int)}
	if i == cfg.Gateways-1 {
		g.late = cfg.Lag
	}
	var err error
	if g.index, err = kvindex.New(kvindex.Config{Seed: cfg.Seed}); err != nil {
		return nil, err
	}
	rc := router.Config{
		BlockTokens: BlockTokens, Policy: cfg.Policy, Weights: cfg.Weights, Seed: cfg.Seed + uint64(i), MaxWorkers: cfg.Workers,
		Predict: cfg.PredictRequests, MaxActive: max(1<<16, requests), MaxQueued: 1 << 20, Profile: cfg.believed(), Expiry: 24 * time.Hour,
	}
	if cfg.Gateways > 1 {
		rc.Replica, rc.Epoch = router.ReplicaID(i+1), 1
	}
	g.r, err = router.New(rc)
	return g, err
}

// gateOf returns the gateway at which request i arrives: all get one after the other.
func (p *play) gateOf(i int) *gate { return p.gates[i%len(p.gates)] }

// share sends the reservations that gateway g has made, changed and ended to the others.
func (p *play) share(g *gate) {
	if len(p.gates) == 1 {
		return
	}
	g.events = g.r.Drain(g.events[:0])
	if len(g.events) == 0 {
		return
	}
	var kept []router.Event // a copy for gateways that hear of them later
	for _, other := range p.gates {
		if other == g {
			continue
		}
		late := max(g.late, other.late)
		if late == 0 {
			p.hear(other, g.events)
			continue
		}
		if kept == nil {
			kept = slices.Clone(g.events)
			for i := range kept {
				kept[i].Hashes = slices.Clone(kept[i].Hashes)
			}
		}
		p.clock.At(p.clock.Now()+late, func() { p.hear(other, kept) })
	}
}

// hear applies events of another gateway.
func (p *play) hear(g *gate, events []router.Event) {
	for i := range events {
		if v := g.r.Apply(p.clock.Now(), &events[i]); v == router.Rejected && p.cfg.RestartAt == 0 {
			p.fail(fmt.Errorf("fleet: a gateway rejects %+v", events[i]))
		}
	}
}

// publish applies events of worker w to each gateway's index, after EventDelay and the gateway's lag. If the
// worker is restarted before that, they are lost.
func (p *play) publish(w *station, events []kv.Event) {
	if len(events) == 0 {
		return
	}
	var kept []kv.Event // a copy for later
	for _, g := range p.gates {
		late := p.cfg.EventDelay + g.late
		if late == 0 {
			p.apply(g, w, events)
			continue
		}
		if kept == nil {
			kept = cloned(events)
		}
		life := w.life
		p.clock.At(p.clock.Now()+late, func() {
			if w.life == life {
				p.apply(g, w, kept)
			}
		})
	}
}

// apply updates the index and the predictions of gateway g by events of worker w.
func (p *play) apply(g *gate, w *station, events []kv.Event) {
	for i := range events {
		switch events[i].Kind {
		case kv.Removed:
			g.r.Removed(w.id, events[i].Hashes)
		case kv.Cleared:
			g.r.Cleared(w.id)
		}
		if err := g.index.Apply(w.holder, events[i]); err != nil {
			p.fail(fmt.Errorf("fleet: event %d of worker %v: %w", i, w.id, err))
		}
	}
	if p.checked != nil && g == p.gates[0] {
		p.fail(p.checked(w))
	}
}

// admit sends the requests that wait at gateway g, for as long as a worker can take one.
func (p *play) admit(g *gate) {
	now := p.clock.Now()
	for p.err == nil {
		ticket, _, ok := g.r.Next(now)
		if !ok {
			return
		}
		i := g.queued[ticket]
		start := p.tick()
		d, err := g.r.Take(now, ticket, p.overlaps(g, p.asked[i].req))
		p.chose(start)
		if err != nil {
			p.fail(fmt.Errorf("fleet: waiting request %d: %w", i, err))
			return
		}
		delete(g.queued, ticket)
		p.send(i, &d)
	}
}
