package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

// collector reads a node's Stats when metrics are asked for. This is the one place that
// says what they are called.
type collector struct {
	s       *Server
	figures []figure
	waiting *prometheus.Desc // by tenant
	running *prometheus.Desc
	up      *prometheus.Desc
	tiers   tierCollector
}

// figure is a number in Stats.
type figure struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*coppice.Stats) float64
}

const cachedHelp = "Prompt tokens that were not computed, by where they came from."

const (
	counts = prometheus.CounterValue
	gauges = prometheus.GaugeValue
)

func newCollector(s *Server, labels prometheus.Labels) *collector {
	c := &collector{s: s}
	desc := func(name, help string, more prometheus.Labels, by ...string) *prometheus.Desc {
		all := prometheus.Labels{}
		for _, set := range []prometheus.Labels{labels, more} {
			for k, v := range set {
				all[k] = v
			}
		}
		return prometheus.NewDesc("coppice_"+name, help, by, all)
	}
	add := func(kind prometheus.ValueType, name, help string, more prometheus.Labels, value func(*coppice.Stats) float64) {
		c.figures = append(c.figures, figure{desc(name, help, more), kind, value})
	}
	tier := prometheus.Labels{"tier": "device"}

	add(gauges, "num_requests_running", "Samples that have a slot.", nil, func(s *coppice.Stats) float64 { return float64(s.Scheduler.Running) })
	add(gauges, "num_requests_waiting", "Samples that wait for one.", nil, func(s *coppice.Stats) float64 { return float64(s.Scheduler.Waiting) })
	add(gauges, "kv_cache_usage_perc", "Share of the pool that running requests need, 0 to 1.", tier, usage)
	add(gauges, "cache_hit_rate", "Share of prompt tokens that came from the cache, since the start.", nil, func(s *coppice.Stats) float64 { return s.Scheduler.HitRate() })
	for _, p := range []struct {
		state string
		value func(*coppice.Stats) int
	}{
		{"idle", func(s *coppice.Stats) int {
			return s.Scheduler.PoolPages - s.Scheduler.HeldPages - s.Scheduler.CachedPages
		}},
		{"held", func(s *coppice.Stats) int { return s.Scheduler.HeldPages }},
		{"evictable", func(s *coppice.Stats) int { return s.Scheduler.Cache.EvictablePages }},
		{"protected", func(s *coppice.Stats) int { return s.Scheduler.Cache.ProtectedPages }},
	} {
		add(gauges, "kv_pages", "Pages granted to the scheduler, by state.", prometheus.Labels{"tier": "device", "state": p.state},
			func(s *coppice.Stats) float64 { return float64(p.value(s)) })
	}
	add(gauges, "kv_pool_pages", "Pages of the pool.", tier, func(s *coppice.Stats) float64 { return float64(s.Scheduler.PoolPages) })
	add(gauges, "kv_leaked_pages", "Pages that nobody owns. Always 0.", nil, func(s *coppice.Stats) float64 { return float64(s.LeakedPages) })
	add(gauges, "cache_nodes", "Nodes of the radix tree.", nil, func(s *coppice.Stats) float64 { return float64(s.Scheduler.Cache.Nodes) })
	add(gauges, "cache_tokens", "Tokens in the radix tree.", tier, func(s *coppice.Stats) float64 { return float64(s.Scheduler.Cache.Tokens) })

	add(counts, "prefix_cache_queries_total", "Prompt tokens that were looked for in the cache.", nil, func(s *coppice.Stats) float64 { return float64(s.Scheduler.PromptTokens) })
	add(counts, "prefix_cache_hits_total", "Of these, the ones that were there.", nil, func(s *coppice.Stats) float64 { return float64(s.Scheduler.CachedTokens) })
	add(counts, "cached_tokens_total", cachedHelp, prometheus.Labels{"cache_source": "device"}, fromDevice)
	add(counts, "prompt_tokens_total", "Prompt tokens of admitted requests.", nil, func(s *coppice.Stats) float64 { return float64(s.Scheduler.PromptTokens) })
	add(counts, "generation_tokens_total", "Output tokens.", nil, func(s *coppice.Stats) float64 { return float64(s.Scheduler.OutputTokens) })
	add(counts, "recomputed_tokens_total", "Tokens that were run again after preemptions.", nil, func(s *coppice.Stats) float64 { return float64(s.Scheduler.RecomputedTokens) })
	add(counts, "num_preemptions_total", "Samples that had to give their pages back.", nil, func(s *coppice.Stats) float64 { return float64(s.Scheduler.Preemptions) })
	for _, r := range []struct {
		reason scheduler.Reason
		name   string
	}{{scheduler.Stop, "stop"}, {scheduler.Length, "length"}, {scheduler.Abort, "abort"}, {scheduler.Failed, "error"}} {
		add(counts, "request_success_total", "Samples that ended, by how.", prometheus.Labels{"finished_reason": r.name},
			func(s *coppice.Stats) float64 { return float64(s.Scheduler.Endings[r.reason]) })
	}
	add(counts, "requests_displaced_total", "Requests that one of higher priority displaced in a full queue.", nil, func(s *coppice.Stats) float64 { return float64(s.Scheduler.Displaced) })
	add(counts, "requests_expired_total", "Samples that a time limit ended.", nil, func(s *coppice.Stats) float64 { return float64(s.Scheduler.Expired) })
	add(counts, "steps_total", "Steps of the device.", nil, func(s *coppice.Stats) float64 { return float64(s.Scheduler.Steps) })
	add(counts, "step_rows_total", "Sequences in them.", nil, func(s *coppice.Stats) float64 { return float64(s.Scheduler.Rows) })
	add(counts, "step_seconds_total", "Time of the device in them.", nil, func(s *coppice.Stats) float64 { return float64(s.Engine.Nanos) / 1e9 })
	for i := range (radixcache.Stats{}).EvictedTokens {
		why := prometheus.Labels{"reason": radixcache.Reason(i).String(), "tier": "device"}
		add(counts, "evicted_tokens_total", "Tokens that left the cache, by why.", why, func(s *coppice.Stats) float64 { return float64(s.Scheduler.Cache.EvictedTokens[i]) })
		add(counts, "evicted_pages_total", "Pages that left the cache, by why.", why, func(s *coppice.Stats) float64 { return float64(s.Scheduler.Cache.EvictedPages[i]) })
	}
	c.tiers = newTierCollector(desc)
	c.running = desc("tenant_requests_running", "Samples that have a slot, by tenant.", nil, "tenant")
	c.waiting = desc("tenant_requests_waiting", "Samples that wait, by tenant.", nil, "tenant")
	c.up = desc("up", "1 while the node runs and takes requests.", nil)
	return c
}

// usage counts what can't be evicted, as vLLM's metric of the name does.
func usage(s *coppice.Stats) float64 {
	m := &s.Scheduler
	if m.PoolPages == 0 {
		return 0
	}
	return float64(m.HeldPages+m.Cache.ProtectedPages) / float64(m.PoolPages)
}

// Describe is for the registry.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for i := range c.figures {
		to <- c.figures[i].desc
	}
	c.tiers.describe(to)
	to <- c.running
	to <- c.waiting
	to <- c.up
}

// statsPatience is how long a scrape waits for the end of a step.
const statsPatience = 5 * time.Second

// Collect is for the registry. Of a node that does not answer in time there is only
// that it is not up.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), statsPatience)
	defer cancel()
	st, err := c.s.cfg.Node.Stats(ctx)
	up := 0.0
	if err == nil && c.s.failed.Load() == nil && !c.s.Draining() {
		up = 1
	}
	to <- prometheus.MustNewConstMetric(c.up, gauges, up)
	if err != nil {
		return
	}
	for i := range c.figures {
		f := &c.figures[i]
		to <- prometheus.MustNewConstMetric(f.desc, f.kind, f.value(&st))
	}
	c.tiers.collect(to, st.Tiers)
	type load struct{ running, waiting int }
	loads := map[string]load{}
	for _, t := range st.Tenants {
		name := c.s.metrics.label(t.Tenant)
		l := loads[name]
		loads[name] = load{l.running + t.Running, l.waiting + t.Waiting}
	}
	for name, l := range loads {
		to <- prometheus.MustNewConstMetric(c.running, gauges, float64(l.running), name)
		to <- prometheus.MustNewConstMetric(c.waiting, gauges, float64(l.waiting), name)
	}
}
