package gateway

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coppice-llm/coppice/router"
)

// ReplicaStatus is what a gateway knows of another one.
type ReplicaStatus struct {
	ID           string  `json:"id"`
	Seq          uint64  `json:"seq"`     // of its last event
	Missing      uint64  `json:"missing"` // events up to it that have not come
	Reservations int     `json:"reservations"`
	Silence      float64 `json:"silence_seconds"`
}

// Replicas are the other gateways that tell what they reserve, by ID.
func (g *Gateway) Replicas() []ReplicaStatus {
	r := g.replicas
	if r == nil {
		return nil
	}
	reserved := map[router.ReplicaID]int{}
	for _, p := range g.chooser.peers() {
		reserved[p.Replica] = p.Reservations
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	out := make([]ReplicaStatus, 0, len(r.peers.all))
	for _, p := range r.peers.all {
		s := ReplicaStatus{ID: replicaName(p.id), Seq: p.top, Missing: p.missing(), Reservations: reserved[p.id], Silence: now.Sub(p.heard).Seconds()}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b ReplicaStatus) int { return cmp.Compare(a.ID, b.ID) })
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

// replicaCollector reads what replicas count when it is asked.
type replicaCollector struct{ r *replicas }

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
func (c *replicaCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{replicasDesc, busDesc, replicaEvents, replicaClaims, replicaWords, replicaGaps, replicaSnaps, replicaEnds} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *replicaCollector) Collect(ch chan<- prometheus.Metric) {
	r := c.r
	r.mu.Lock()
	n, counts := len(r.peers.all), r.peers.counts
	counts.ShortenedEvents += r.own.shortened
	r.mu.Unlock()
	m, _, _ := r.chooser.metrics()
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
