package gateway

import (
	"net/http"
	"time"

	"github.com/coppice-llm/coppice/gateway/fleetview"
)

// viewOf is what the live page of the fleet shows.
func viewOf(g *Gateway) fleetview.Snapshot {
	now := time.Now()
	f := g.Fleet()
	rm, _, _ := g.chooser.metrics()
	s := fleetview.Snapshot{
		Schema: fleetview.Schema, Version: g.cfg.Version, UptimeS: now.Sub(g.metrics.begun).Seconds(), Policy: f.Policy, Prompts: f.Prompts,
		Queued: rm.Waiting, Troubles: f.Troubles, Workers: make([]fleetview.Worker, 0, len(f.Workers)),
	}
	g.entry.Lock()
	s.Open = g.open
	g.entry.Unlock()
	var sums map[string]fleetview.Sums
	s.Fleet, sums, s.Recent = g.metrics.recent.Read(now)
	for _, w := range f.Workers {
		v := fleetview.Worker{Name: w.Name, URL: w.URL, State: w.State, Error: w.Error, Mode: w.Mode, Pool: w.Pool, Models: w.Models, Sums: sums[w.Name]}
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

// record tells the page of a request that has ended.
func (j *journey) record(worker string, status int, total time.Duration) {
	tokens := func(blocks int) int { return min(j.promptTokens, blocks*j.g.chooser.blockTokens) }
	r := fleetview.Routed{
		Model: j.model, Worker: worker, Status: status, Attempts: j.attempts, PromptTokens: j.promptTokens,
		TotalMillis: total.Seconds() * 1e3, Ended: j.start.Add(total),
	}
	if j.member != nil {
		r.Reason, r.PredictedTokens = j.decision.Reason.String(), tokens(j.decision.Overlap.Blocks())
	}
	if u := &j.answer.usage; u.told {
		r.CachedTokens = new(min(u.cached, j.promptTokens))
	}
	if at := j.answer.firstAt; !at.IsZero() {
		r.TTFTMillis = new(at.Sub(j.start).Seconds() * 1e3)
	}
	if j.fault != nil && status >= 400 {
		r.Error = j.fault.Error()
	}
	j.g.metrics.recent.Add(r)
}
