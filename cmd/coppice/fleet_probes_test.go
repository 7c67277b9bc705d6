package main

import (
	"testing"

	"github.com/coppice-llm/coppice/gateway/fleetview"
)

// TestFleetProbes: the probes of coppice bench serve, for token ids that a model may lack, do not make the
// page of a fresh fleet report failures.
func TestFleetProbes(t *testing.T) {
	t.Parallel()
	f := &realFleet{T: t}
	f.workers = append(f.workers, startWorker(t, "w0", storyTokens, "zmq://127.0.0.1:0"))
	f.route("--worker", f.workers[0].url)
	bench := []string{"bench", "serve", "--url", f.router.url, "--requests", "2", "--input-tokens", "16", "--output-tokens", "2"}
	if _, stderr, ok := command(t, bench...); !ok {
		t.Fatal(stderr)
	}
	var view fleetview.State
	f.router.document("/v1/fleet/view", &view)
	if s := view.Fleet; s.Failed != 0 || s.Refused == 0 || s.Requests <= s.Refused {
		t.Errorf("%+v", view.Fleet)
	}
}
