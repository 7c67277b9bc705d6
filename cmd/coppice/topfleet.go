package main

import (
	"cmp"
	"fmt"
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/coppice-llm/coppice/gateway/fleetview"
	"github.com/coppice-llm/coppice/server/view"
)

// topFleet is the state of coppice top for a router: its workers and recent requests.
type topFleet struct{ topScreen[fleetview.State] }

// Update is called by bubbletea.
func (m topFleet) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	m.topScreen, cmd = m.update(msg)
	return m, cmd
}

// View is called by bubbletea.
func (m topFleet) View() tea.View { return topView(m.frame()) }

func (m topFleet) frame() string { return m.draw("p pause · q quit", m.body) }

// body draws figures, workers and requests.
func (m topFleet) body() []string {
	lines := []string{m.head()}
	if m.err != nil {
		lines = append(lines, m.paint(topRed, topClean(m.err.Error())))
	}
	for _, t := range m.snap.Troubles {
		lines = append(lines, m.paint(topRed, topClean(t)))
	}
	lines = append(append(lines, m.figures()...), "")
	lines = append(append(lines, m.workers(max(3, (m.height-len(lines)-2)/2))...), "")
	return append(lines, m.recent(m.height-1-len(lines))...)
}

// head draws the first line: the state at its right end.
func (m topFleet) head() string {
	healthy := 0
	for _, w := range m.snap.Workers {
		if w.State == "healthy" {
			healthy++
		}
	}
	left := m.paint(topBold, "coppice top") + fmt.Sprintf("  %d of %d workers healthy", healthy, len(m.snap.Workers)) +
		m.paint(topFaint, fmt.Sprintf("  by %s, up %s", topClean(m.snap.Policy), topAge(m.snap.UptimeS)))
	return topSpread(left, m.state(), m.width)
}

// figures draws the lines with totals of the fleet.
func (m topFleet) figures() []string {
	s, f := m.snap, m.snap.Fleet
	rate := "–"
	if b := m.before; b != nil && s.UptimeS > b.UptimeS {
		rate = fmt.Sprintf("%.1f", float64(f.Requests-b.Fleet.Requests)/(s.UptimeS-b.UptimeS))
	}
	return []string{
		fmt.Sprintf("%s requests/s, %d open, %d waiting, %s in all, %s failed", rate, s.Open, s.Queued, topCount(float64(f.Requests)), topCount(float64(f.Failed))),
		fmt.Sprintf("prompt tokens cached %s, predicted %s", fleetShare(f.CachedTokens, &f), fleetShare(f.PredictedTokens, &f)),
	}
}

// fleetShare formats tokens as a share of the prompt tokens of all requests whose answers reported
// cached tokens. of has their sum; if it is 0, the result is a dash.
func fleetShare(tokens uint64, of *fleetview.Sums) string {
	if of.ConfirmedTokens == 0 {
		return "–"
	}
	return topShare(view.Figure(float64(tokens) / float64(of.ConfirmedTokens)))
}

// workers draws a table of at most room lines, the busiest workers first.
func (m topFleet) workers(room int) []string {
	all := slices.Clone(m.snap.Workers)
	slices.SortStableFunc(all, func(a, b fleetview.Worker) int { return cmp.Compare(b.Requests, a.Requests) })
	lines := []string{m.paint(topFaint, fmt.Sprintf("%-22s%-10s%-12s%6s%9s%9s%9s%8s%10s", "worker", "state", "cache by", "open", "prefill", "held", "ended", "cached", "predicted"))}
	for i, w := range all {
		if i == room-2 && len(all) > room-1 {
			return append(lines, m.paint(topFaint, fmt.Sprintf("  … and %d more", len(all)-i)))
		}
		lines = append(lines, fmt.Sprintf("%s%s%s%6d%9s%9s%9s%8s%10s", topField(cmp.Or(w.Name, w.URL), 22), topField(w.State, 10), topField(w.Mode, 12),
			w.Requests, topCount(float64(w.Prefill)), topCount(float64(w.HeldTokens)), topCount(float64(w.Sums.Requests)), fleetShare(w.Sums.CachedTokens, &w.Sums), fleetShare(w.Sums.PredictedTokens, &w.Sums)))
	}
	if len(all) == 0 {
		lines = append(lines, m.paint(topFaint, "  none"))
	}
	return lines
}

// recent draws a table of the requests that ended last, in at most room lines.
func (m topFleet) recent(room int) []string {
	lines := []string{m.paint(topFaint, fmt.Sprintf("%6s  %-20s%7s%9s%9s%10s%10s%10s  %s", "ago", "went to", "status", "prompt", "cached", "predicted", "ttft", "total", "why"))}
	for _, r := range m.snap.Recent[:min(len(m.snap.Recent), max(room-1, 0))] {
		cached, ttft := "–", "–"
		if r.CachedTokens != nil {
			cached = topCount(float64(*r.CachedTokens))
		}
		if r.TTFTMillis != nil {
			ttft = topMillis(view.Figure(*r.TTFTMillis))
		}
		why := r.Reason
		if r.Attempts > 1 {
			why += fmt.Sprintf(", %d asked", r.Attempts)
		}
		if r.Error != "" {
			why = r.Error
		}
		lines = append(lines, fmt.Sprintf("%6s  %s%7d%9s%9s%10s%10s%10s  %s", topAge(r.AgeSeconds), topField(cmp.Or(r.Worker, "no worker"), 20), r.Status,
			topCount(float64(r.PromptTokens)), cached, topCount(float64(r.PredictedTokens)), ttft, topMillis(view.Figure(r.TotalMillis)), topClean(why)))
	}
	if len(m.snap.Recent) == 0 {
		lines = append(lines, m.paint(topFaint, "  no request yet"))
	}
	return lines
}
