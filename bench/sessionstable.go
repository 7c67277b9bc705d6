package bench

import "fmt"

// Rows returns a header and a row for each figure.
func (f *SessionFigures) Rows() (_ [][]string, legend string) {
	rows := [][]string{{"sessions", "figure", "value"}}
	add := func(what, figure, format string, args ...any) {
		rows = append(rows, []string{what, figure, fmt.Sprintf(format, args...)})
	}
	for i := range f.Forks {
		r := &f.Forks[i]
		what := fmt.Sprintf("%d forks at %d tokens", r.Forks, r.Tokens)
		add(what, "a fork", "%.2f µs", r.MicrosPerFork)
		add(what, "forks", "%.0f/s", r.ForksPerSecond)
	}
	if a := f.Agents; a != nil {
		what := fmt.Sprintf("%d agents with %d sub-agents each over %d tokens", a.Agents, a.SubAgents, a.SharedTokens)
		add(what, "prompt tokens", "%d", a.PromptTokens)
		add(what, "computed", "%d", a.ComputedTokens)
		add(what, "computed at best", "%d", a.IdealTokens)
		add(what, "computed over the best", "%.3f", a.OverIdeal)
		add(what, "time", "%.1f s", a.Seconds)
	}
	if p := f.Parks; p != nil {
		what := fmt.Sprintf("%d parked sessions of %d tokens, pool of %d, %s", p.Sessions, p.PrivateTokens, p.PoolTokens, p.Tier)
		add(what, "prefill, p50 and p90", "%.1f and %.1f ms", p.PrefillMillis[0], p.PrefillMillis[1])
		add(what, "park, p50 and p90", "%.1f and %.1f ms", p.ParkMillis[0], p.ParkMillis[1])
		add(what, "parked", "%d tokens, %.1f MiB", p.ParkedTokens, float64(p.ParkedBytes)/(1<<20))
		add(what, "resume, p50 and p90", "%.1f and %.1f ms", p.ResumeMillis[0], p.ResumeMillis[1])
		add(what, "resume of prefill", "%.1f %%", 100*p.ResumeOfPrefill)
		add(what, "came back", "%d tokens", p.ResumedTokens)
		add(what, "computed again", "%d tokens", p.RecomputedTokens)
		add(what, fmt.Sprintf("same bits, of %d checked", p.Checked), "%s", map[bool]string{true: "yes", false: "NO"}[p.Identical])
	}
	add("all", "leaked pages", "%d", f.LeakedPages())
	return rows, "A resume ends with the first token of the next turn, which has 16 new tokens; a prefill with the first token of the session."
}
