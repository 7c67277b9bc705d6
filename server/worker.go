package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/server/openai"
)

var errNoCard = &openai.Error{Status: http.StatusNotFound, Type: "invalid_request_error", Code: "unknown_url",
	Message: "this server has no card: whoever started it did not make it a worker of a fleet"}

// worker answers with what this server is to a fleet.
func (c *call) worker() error {
	if c.s.fixed.card == nil {
		return errNoCard
	}
	return c.json(http.StatusOK, c.s.fixed.card)
}

var errNoTokenizerBundle = &openai.Error{Status: http.StatusNotFound, Type: "invalid_request_error", Code: "unknown_url",
	Message: "this server does not hand its tokenizer out; coppice serve does with --publish"}

// tokenizer answers with the files that make the model's tokens, for routers.
func (c *call) tokenizer() error {
	b := c.s.cfg.Bundle
	if b == nil {
		return errNoTokenizerBundle
	}
	c.w.Header().Set("Content-Length", strconv.Itoa(len(b.Data)))
	c.begin(http.StatusOK, "application/x-tar")
	const part = 1 << 20 // between two looks at the clock
	for data := b.Data; len(data) > 0; {
		n := min(part, len(data))
		c.extend(time.Now())
		if !c.write(data[:n]) {
			return nil
		}
		data = data[n:]
	}
	return nil
}

// eventsCollector reads a publisher's figures when metrics are asked for. This is the one
// place that says what they are called.
type eventsCollector struct {
	read    func() events.PublisherMetrics
	figures []eventsFigure
}

// eventsFigure is a number in PublisherMetrics.
type eventsFigure struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*events.PublisherMetrics) uint64
}

func newEventsCollector(read func() events.PublisherMetrics, labels prometheus.Labels) *eventsCollector {
	c := &eventsCollector{read: read}
	add := func(kind prometheus.ValueType, name, help string, value func(*events.PublisherMetrics) uint64) {
		c.figures = append(c.figures, eventsFigure{prometheus.NewDesc("coppice_events_"+name, help, nil, labels), kind, value})
	}
	add(counts, "published_total", "Cache events that the publisher took.", func(m *events.PublisherMetrics) uint64 { return m.Events })
	add(counts, "batches_total", "Batches of events sent, heartbeats included.", func(m *events.PublisherMetrics) uint64 { return m.Batches })
	add(counts, "heartbeats_total", "Of those, the empty ones.", func(m *events.PublisherMetrics) uint64 { return m.Heartbeats })
	add(counts, "bytes_total", "Payload of the batches.", func(m *events.PublisherMetrics) uint64 { return m.Bytes })
	add(counts, "gaps_total", "Times that readers were told to forget all, because events were lost.", func(m *events.PublisherMetrics) uint64 { return m.Gaps })
	add(counts, "lost_total", "Events that were lost, the publisher having been too slow.", func(m *events.PublisherMetrics) uint64 { return m.LostEvents })
	add(counts, "orphan_blocks_total", "Blocks kept from readers, who lost their parents in a gap.", func(m *events.PublisherMetrics) uint64 { return m.OrphanBlocks })
	add(counts, "refused_blocks_total", "Blocks of another size than the events'. Always 0.", func(m *events.PublisherMetrics) uint64 { return m.RefusedBlocks })
	add(counts, "snapshots_total", "Snapshots made for readers.", func(m *events.PublisherMetrics) uint64 { return m.Snapshots })
	add(counts, "send_errors_total", "Batches that a transport did not take.", func(m *events.PublisherMetrics) uint64 { return m.SendErrors })
	add(gauges, "held_blocks", "Blocks that readers who are up to date have of this worker.", func(m *events.PublisherMetrics) uint64 { return m.HeldBlocks })
	return c
}

// Describe is for the registry.
func (c *eventsCollector) Describe(to chan<- *prometheus.Desc) {
	for i := range c.figures {
		to <- c.figures[i].desc
	}
}

// Collect is for the registry.
func (c *eventsCollector) Collect(to chan<- prometheus.Metric) {
	m := c.read()
	for i := range c.figures {
		f := &c.figures[i]
		to <- prometheus.MustNewConstMetric(f.desc, f.kind, float64(f.value(&m)))
	}
}
