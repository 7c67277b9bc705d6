package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/kv"
)

// tierCollector reads what the tiers below the device hold and have done.
type tierCollector struct {
	figures []tierFigure
	hits    [kv.Tiers]*prometheus.Desc // cached tokens that were fetched; of the device it is a figure of its own
}

// tierFigure is a number in TierStats.
type tierFigure struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*coppice.TierStats) float64
}

// newTierCollector names the figures, by the collector's way of describing one.
func newTierCollector(desc func(name, help string, more prometheus.Labels, by ...string) *prometheus.Desc) (c tierCollector) {
	for t := range c.hits {
		c.hits[t] = desc("cached_tokens_total", cachedHelp, prometheus.Labels{"cache_source": kv.Tier(t).String()})
	}
	add := func(kind prometheus.ValueType, name, help string, value func(*coppice.TierStats) float64) {
		c.figures = append(c.figures, tierFigure{desc("tier_"+name, help, nil, "tier"), kind, value})
	}
	add(gauges, "capacity_bytes", "Bytes that a tier below the device may hold.", func(t *coppice.TierStats) float64 { return float64(t.CapacityBytes) })
	add(gauges, "held_bytes", "Bytes that a tier holds.", func(t *coppice.TierStats) float64 { return float64(t.HeldBytes) })
	add(gauges, "extents", "Extents of pages that a tier holds.", func(t *coppice.TierStats) float64 { return float64(t.Extents) })
	add(counts, "reads_total", "Extents read from a tier.", func(t *coppice.TierStats) float64 { return float64(t.Reads) })
	add(counts, "writes_total", "Extents written to a tier.", func(t *coppice.TierStats) float64 { return float64(t.Writes) })
	add(counts, "read_bytes_total", "Bytes read from a tier.", func(t *coppice.TierStats) float64 { return float64(t.ReadBytes) })
	add(counts, "write_bytes_total", "Bytes written to a tier.", func(t *coppice.TierStats) float64 { return float64(t.WriteBytes) })
	add(counts, "read_seconds_total", "Time of the reads from a tier.", func(t *coppice.TierStats) float64 { return float64(t.ReadNanos) / 1e9 })
	add(counts, "errors_total", "Moves from and to a tier that failed. What they were for was computed.", func(t *coppice.TierStats) float64 { return float64(t.Errors) })
	add(counts, "lost_total", "Extents that found no room in a tier.", func(t *coppice.TierStats) float64 { return float64(t.Lost) })
	add(counts, "damaged_total", "Records of a tier whose bytes were wrong.", func(t *coppice.TierStats) float64 { return float64(t.Damaged) })
	return c
}

func (c *tierCollector) describe(to chan<- *prometheus.Desc) {
	for i := range c.figures {
		to <- c.figures[i].desc
	}
	for _, d := range c.hits[kv.TierHost:] {
		to <- d
	}
}

func (c *tierCollector) collect(to chan<- prometheus.Metric, tiers []coppice.TierStats) {
	for i := range tiers {
		t := &tiers[i]
		to <- prometheus.MustNewConstMetric(c.hits[t.Tier], counts, float64(t.HitTokens))
		for j := range c.figures {
			f := &c.figures[j]
			to <- prometheus.MustNewConstMetric(f.desc, f.kind, f.value(t), t.Tier.String())
		}
	}
}

// fromDevice counts the cached tokens that were on the device when their request came.
func fromDevice(s *coppice.Stats) float64 {
	n := s.Scheduler.CachedTokens
	for i := range s.Tiers {
		n -= s.Tiers[i].HitTokens
	}
	return float64(n)
}
