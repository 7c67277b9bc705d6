package replica

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coppice-llm/coppice/gateway/dispatch"
	"github.com/coppice-llm/coppice/router"
)

// Status is what is known of the other routers, by ID.
func (r *Replicas) Status() []dispatch.PeerStatus {
	reserved := map[router.ReplicaID]int{}
	r.d.With(func(d *router.Router, _ time.Duration) { // a step for each reservation and router
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

// missing are the events that have not come.
func (x *peer) missing() uint64 {
	n := x.top + 1 - x.next
	for _, s := range x.later {
		n -= s.to - s.from
	}
	return n
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("coppice_router_"+name, help, labels, nil)
}

var (
	replicasDesc  = desc("replicas", "Other gateways that tell what they reserve.")
	busDesc       = desc("replica_connected", "1 while there is a server over which gateways talk.")
	replicaEvents = desc("replica_events_total", "Reservations' events between gateways, by what became of them: sent and lost are this one's, the others' are received.", "what")
	replicaClaims = desc("replica_claims_total", "What other gateways said of sessions: news that was taken, and what is of the future by this one's clock.", "what")
	replicaWords  = desc("replica_messages_total", "Messages between gateways, by what became of them.", "what")
	replicaGaps   = desc("replica_gaps_total", "Times that events of another gateway were missing.")
	replicaSnaps  = desc("replica_snapshots_total", "Snapshots of what is reserved: asked for, sent, taken, or too long to be taken.", "what")
	replicaEnds   = desc("replica_ends_total", "Other gateways that are gone, by why.", "why")
)

// Describe implements prometheus.Collector.
func (r *Replicas) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{replicasDesc, busDesc, replicaEvents, replicaClaims, replicaWords, replicaGaps, replicaSnaps, replicaEnds} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (r *Replicas) Collect(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	n, counts := len(r.peers.all), r.peers.counts
	counts.ShortenedEvents += r.own.shortened
	r.mu.Unlock()
	m, _ := r.d.Metrics()
	b := r.bus.Metrics()
	up := 0.0
	if b.Connected {
		up = 1
	}
	ch <- prometheus.MustNewConstMetric(replicasDesc, prometheus.GaugeValue, float64(n))
	ch <- prometheus.MustNewConstMetric(busDesc, prometheus.GaugeValue, up)
	for _, e := range []struct {
		d    *prometheus.Desc
		what string
		n    uint64
	}{
		{replicaEvents, "sent", counts.SentEvents}, {replicaEvents, "lost", m.JournalLost}, {replicaEvents, "shortened", counts.ShortenedEvents},
		{replicaEvents, "received", counts.ReceivedEvents}, {replicaEvents, "applied", m.Applied}, {replicaEvents, "duplicate", m.Duplicate},
		{replicaEvents, "early", m.Early}, {replicaEvents, "stale", m.Stale}, {replicaEvents, "rejected", m.Rejected}, {replicaClaims, "taken", m.Claims}, {replicaClaims, "doubted", counts.Doubted},
		{replicaWords, "sent", b.Sent}, {replicaWords, "unsent", b.Unsent}, {replicaWords, "received", b.Received},
		{replicaWords, "dropped", b.Dropped}, {replicaWords, "malformed", counts.Malformed + b.TooLong}, {replicaWords, "own", counts.Own},
		{replicaWords, "foreign", counts.Foreign}, {replicaWords, "version", counts.Versions}, {replicaWords, "too_many", counts.TooMany}, {replicaWords, "late", counts.Late},
		{replicaSnaps, "asked", counts.Asked}, {replicaSnaps, "sent", counts.SentSnapshots}, {replicaSnaps, "taken", counts.TakenSnapshots},
		{replicaSnaps, "overflow", counts.Overflows}, {replicaEnds, "goodbye", counts.Goodbyes}, {replicaEnds, "silence", counts.Lost},
	} {
		ch <- prometheus.MustNewConstMetric(e.d, prometheus.CounterValue, float64(e.n), e.what)
	}
	ch <- prometheus.MustNewConstMetric(replicaGaps, prometheus.CounterValue, float64(counts.Gaps))
}
