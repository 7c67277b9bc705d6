package gateway

import (
	"net/http"
	"time"

	"github.com/coppice-llm/coppice/gateway/fleetview"
)

// viewOf makes the snapshot for the live page of the fleet.
func viewOf(g *Gateway) fleetview.Snapshot {
	now := time.Now()
	f := g.Fleet()
	rm, _ := g.dispatch.Metrics()
	s := fleetview.Snapshot{
		Schema: fleetview.Schema, Version: g.cfg.Version, UptimeS: now.Sub(g.metrics.begun).Seconds(), Policy: f.Policy, Prompts: f.Prompts,
		Queued: rm.Waiting, Troubles: f.Troubles, Workers: make([]fleetview.Worker, 0, len(f.Workers)),
	}
	s.Open = g.door.Open()
	var sums map[string]fleetview.Sums
	s.Fleet, sums, s.Recent = g.metrics.recent.Read(now)
	for _, w := range f.Workers {
		v := fleetview.Worker{About: w.About, Sums: sums[w.Name]}
		for _, r := range w.Ranks {
			v.Requests += r.Requests
			v.Prefill += r.PrefillTokens
			v.HeldTokens += r.HeldBlocks * f.BlockTokens
		}
		s.Workers = append(s.Workers, v)
	}
	return s
}

// serveView answers /v1/fleet/view.
func serveView(g *Gateway) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		g.document(w, r, viewOf(g))
	}
}
