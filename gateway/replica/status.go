package replica

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coppice-llm/coppice/gateway/internal/dispatch"
	"github.com/coppice-llm/coppice/internal/figures"
	"github.com/coppice-llm/coppice/router"
)

// Status returns the state of the other routers, ascending by ID.
func (r *Replicas) Status() []dispatch.PeerStatus {
	reserved := map[router.ReplicaID]int{}
	r.d.With(func(d *router.Router, _ time.Duration) { // takes time in proportion to reservations and routers
		for _, p := range d.Peers(nil) {
			reserved[p.Replica] = p.Reservations
		}
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	out := make([]dispatch.PeerStatus, 0, len(r.peers.all))
	for _, p := range r.peers.all {
		out = append(out, dispatch.PeerStatus{ID: p.name(), Seq: p.top, Missing: p.missing(), Reservations: reserved[p.id], Silence: now.Sub(p.heard).Seconds()})
	}
	slices.SortFunc(out, func(a, b dispatch.PeerStatus) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// scrape holds the figures that are read for each GET /metrics. The tags of its fields define
// the Prometheus metrics.
type scrape struct {
	Replicas  int               `metric:"replicas" help:"Other routers that share their reservations."`
	Connected bool              `metric:"replica_connected" help:"1 while the NATS server that connects the routers is reachable."`
	Events    map[string]uint64 `metric:"replica_events_total" by:"what" help:"Events of reservations between routers, by outcome. Sent and lost: events of this router. All others: received events."`
	Claims    map[string]uint64 `metric:"replica_claims_total" by:"what" help:"Claims on sessions by other routers: taken, or doubted because their time is in the future."`
	Messages  map[string]uint64 `metric:"replica_messages_total" by:"what" help:"Messages between routers, by outcome."`
	Gaps      uint64            `metric:"replica_gaps_total" help:"Times that events of another router were missing."`
	Snapshots map[string]uint64 `metric:"replica_snapshots_total" by:"what" help:"Snapshots of reservations: asked, sent, taken, or overflow (too long to be taken)."`
	Ends      map[string]uint64 `metric:"replica_ends_total" by:"why" help:"Other routers that left, by how: goodbye or silence."`
}

// Collector returns the metrics of replicas.
func (r *Replicas) Collector() prometheus.Collector {
	return figures.Collector(figures.Names{Prefix: "coppice_router_"}, r.scrape)
}

// scrape reads the figures for Prometheus.
func (r *Replicas) scrape() scrape {
	r.mu.Lock()
	n, c := len(r.peers.all), r.peers.counts
	r.mu.Unlock()
	m, _ := r.d.Metrics()
	b := r.bus.Metrics()
	return scrape{
		Replicas: n, Connected: b.Connected, Gaps: c.Gaps,
		Events: map[string]uint64{
			"sent": c.SentEvents, "lost": m.JournalLost, "shortened": c.ShortenedEvents, "received": c.ReceivedEvents, "applied": m.Applied,
			"duplicate": m.Duplicate, "early": m.Early, "stale": m.Stale, "rejected": m.Rejected,
		},
		Claims: map[string]uint64{"taken": m.Claims, "doubted": c.Doubted},
		Messages: map[string]uint64{
			"sent": b.Sent, "unsent": b.Unsent, "received": b.Received, "dropped": b.Dropped, "malformed": c.Malformed + b.TooLong, "own": c.Own,
			"foreign": c.Foreign, "version": c.Versions, "too_many": c.TooMany, "late": c.Late,
		},
		Snapshots: map[string]uint64{"asked": c.Asked, "sent": c.SentSnapshots, "taken": c.TakenSnapshots, "overflow": c.Overflows},
		Ends:      map[string]uint64{"goodbye": c.Goodbyes, "silence": c.Lost},
	}
}
