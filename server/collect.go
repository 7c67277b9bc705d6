package server

import (
	"context"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/internal/figures"
	"github.com/coppice-llm/coppice/server/view"
)

// scrape is read for each GET /metrics. The tags of its fields define the Prometheus metrics.
type scrape struct {
	Up         bool        `metric:"up" help:"1 while the node runs and takes requests."`
	Conns      int64       `metric:"http_connections" help:"Open connections."`
	BodyBytes  int64       `metric:"http_body_bytes" help:"Bytes of the bodies of open requests."`
	MemoryUsed int64       `metric:"http_memory_bytes" help:"Bytes of memory that open requests hold: bodies, texts, conversations and outputs."`
	MemoryMost int64       `metric:"http_memory_limit_bytes" help:"Most bytes of memory that open requests may hold."`
	Stats      *view.Stats // nil if the node does not answer
	Events     *publisher  // nil if events are not published
}

// publisher has the fields of events.PublisherMetrics, by the same names.
type publisher struct {
	Events     uint64 `metric:"events_published_total" help:"Cache events that were numbered."`
	Batches    uint64 `metric:"events_batches_total" help:"Batches of events sent, heartbeats included."`
	Heartbeats uint64 `metric:"events_heartbeats_total" help:"Empty batches of events sent."`
	Bytes      uint64 `metric:"events_bytes_total" help:"Payload bytes of the batches of events."`
	Lost       uint64 `metric:"events_lost_total" help:"Batches of events that were dropped before they were sent."`
	SendErrors uint64 `metric:"events_send_errors_total" help:"Batches of events that a transport did not take."`
	Snapshots  uint64 `metric:"events_snapshots_total" help:"Snapshots made for readers."`
	HeldBlocks uint64 `metric:"events_held_blocks" help:"Blocks that events announced and did not remove, counted in each tier."`
	NextSeq    uint64 `metric:"events_next_sequence" help:"Sequence number of the next batch of events."`
}

// statsTimeout is the longest that a scrape waits for the current step to end.
const statsTimeout = 5 * time.Second

// stats returns the node's current figures.
func (s *Server) stats(ctx context.Context) (*view.Stats, error) {
	st, err := s.cfg.Node.Stats(ctx)
	if err != nil {
		return nil, err
	}
	info := s.cfg.Node.Info()
	figures := view.StatsOf(&info, &st)
	return &figures, nil
}

// scrape reads the figures for Prometheus. If the node does not answer in time, Stats is nil and
// Up false.
func (s *Server) scrape() scrape {
	ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
	defer cancel()
	all := scrape{Conns: s.metrics.conns.Load(), BodyBytes: s.bodies.Load(), MemoryUsed: s.memory.Used(), MemoryMost: s.memory.Most()}
	if s.cfg.Events != nil {
		all.Events = new(publisher)
		figures.Copy(all.Events, s.cfg.Events())
	}
	st, err := s.stats(ctx)
	if err != nil {
		return all
	}
	all.Up, all.Stats = s.failed.Load() == nil && !s.Draining(), st
	all.Stats.Tenants = s.metrics.summed(st.Tenants)
	return all
}

// summed adds up the figures of tenants that share a metric label: all tenants beyond
// Config.TenantLabels have the label "other". It returns one element per label, with the label in
// Tenant.
func (m *metrics) summed(tenants []view.Tenant) (sums []view.Tenant) {
	for _, t := range tenants {
		t.Tenant = m.label(t.Tenant)
		i := slices.IndexFunc(sums, func(sum view.Tenant) bool { return sum.Tenant == t.Tenant })
		if i < 0 {
			sums = append(sums, t)
			continue
		}
		sums[i].Running += t.Running
		sums[i].Waiting += t.Waiting
	}
	return sums
}
