package fleetview

import (
	"testing"
	"time"
)

// TestRecorder: the ring keeps the latest requests, and sums count all. Prompts without a
// reported number of cached tokens are left out of both compared sums.
func TestRecorder(t *testing.T) {
	c, at := NewRecorder(), time.Now()
	for i := range Recent + 10 {
		r := Routed{Worker: "a", Status: 200, PromptTokens: 100, PredictedTokens: 64, CachedTokens: new(48), Ended: at.Add(time.Duration(i) * time.Second)}
		switch {
		case i%2 == 1:
			r.Worker, r.CachedTokens = "b", nil
		case i == 0:
			r.Worker, r.Status, r.CachedTokens = "", 503, nil
		}
		c.Add(r)
	}
	fleet, workers, recent := c.Read(at.Add(time.Minute + 13*time.Second))
	if len(recent) != Recent || recent[0].Seq != Recent+10 || recent[Recent-1].Seq != 11 || recent[0].AgeSeconds != 0 || recent[Recent-1].AgeSeconds != 63 {
		t.Errorf("%d requests, from %+v to %+v", len(recent), recent[0], recent[len(recent)-1])
	}
	if want := (Sums{Requests: 36, PromptTokens: 3600, ConfirmedTokens: 3600, PredictedTokens: 36 * 64, CachedTokens: 36 * 48}); workers["a"] != want {
		t.Errorf("a has %+v, want %+v", workers["a"], want)
	}
	if want := (Sums{Requests: 37, PromptTokens: 3700}); workers["b"] != want {
		t.Errorf("b has %+v, want %+v", workers["b"], want)
	}
	if fleet.Requests != Recent+10 || fleet.Failed != 1 || fleet.ConfirmedTokens != 3600 {
		t.Errorf("the fleet has %+v", fleet)
	}
	if c.Forget("a"); len(workers) != 2 {
		t.Errorf("what was read has changed: %v", workers)
	}
	if _, workers, _ = c.Read(at); len(workers) != 1 {
		t.Errorf("a worker that has left is there: %v", workers)
	}
}
