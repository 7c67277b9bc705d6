package main

import (
	"testing"

	"github.com/coppice-llm/coppice/internal/gateway/fleetview"
)

// TestFleetProbes: the probes of coppice bench serve, for token ids that a model may lack, do not make the
// page of a fresh fleet report failures.
func TestFleetProbes(t *testing.T) {
	t.Parallel()
	f := &realFleet{T: t}
	f.workers = append(f.workers, startWorker(t, "w0", storyTokens, "zmq://127.0.0.1:0"))
	f.route("--worker", f.workers[0].url)
	if _, stderr, ok := command(t, "bench", "serve", "--url", f.router.url, "--requests", "2", "--input-tokens", "16", "--output-tokens", "2"); !ok {
		t.Fatal(stderr)
	}
	var view fleetview.Snapshot
	if f.router.document("/v1/fleet/view", &view); view.Fleet.Failed != 0 || view.Fleet.Refused == 0 || view.Fleet.Requests <= view.Fleet.Refused {
		t.Errorf("%+v", view.Fleet)
	}
}
