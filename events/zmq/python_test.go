package zmq

import (
	"flag"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/eventstest"
)

var pythonSeconds = flag.Int("python-seconds", 0, "how long TestForPython publishes")

// TestForPython runs the publisher for events/testdata/read.py.
func TestForPython(t *testing.T) {
	if *pythonSeconds == 0 {
		t.Skip("by hand: -python-seconds 20")
	}
	p, s := publisher(t, events.PublisherConfig{}, SenderConfig{Endpoint: "tcp://127.0.0.1:5557", ReplayEndpoint: "tcp://127.0.0.1:5558"})
	t.Logf("%v %v", endpoint(s.Addr()), endpoint(s.ReplayAddr()))
	c := eventstest.NewCache()
	tick, end := time.NewTicker(time.Millisecond), time.After(time.Duration(*pythonSeconds)*time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.Publish(c.Step(4))
		case <-end:
			t.Log(p.Metrics())
			t.Log(s.dropped.Load(), s.refused.Load())
			return
		}
	}
}
