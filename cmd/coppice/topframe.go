package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"charm.land/lipgloss/v2"

	"github.com/coppice-llm/coppice/server/view"
)

// Smallest size of the screen; below it there is no room for lists.
const (
	topMinWidth  = 40
	topMinHeight = 12
)

// Styles. They change colors only, never the layout.
var (
	topBold   = lipgloss.NewStyle().Bold(true)
	topFaint  = lipgloss.NewStyle().Faint(true)
	topGreen  = lipgloss.NewStyle().Foreground(lipgloss.Green)
	topYellow = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	topRed    = lipgloss.NewStyle().Foreground(lipgloss.Red)
	topChosen = lipgloss.NewStyle().Reverse(true)
)

func (m topScreen[S]) paint(s lipgloss.Style, text string) string {
	if !m.colored || text == "" {
		return text
	}
	return s.Render(text)
}

// state returns the mark at the right end of the first line.
func (m topScreen[S]) state() string {
	switch {
	case m.paused:
		return m.paint(topYellow, "paused")
	case m.err != nil:
		return m.paint(topRed, "lost")
	}
	return m.paint(topGreen, "live")
}

// draw returns the screen: height lines, none wider than width. body returns the lines at the top;
// draw calls it only if there is a state. keys is the last line, which lists the keys.
func (m topScreen[S]) draw(keys string, body func() []string) string {
	if m.width < topMinWidth || m.height < topMinHeight {
		return topCut(fmt.Sprintf("coppice top wants %d × %d", topMinWidth, topMinHeight), m.width)
	}
	var lines []string
	if m.snap != nil {
		lines = body()
	} else {
		text := "asking …"
		if m.err != nil {
			text = m.paint(topRed, topClean(m.err.Error()))
		}
		lines = append(lines, m.paint(topBold, "coppice top"))
		lines = append(lines, strings.Split(lipgloss.NewStyle().Width(m.width).Render(text), "\n")...)
	}
	lines = lines[:min(len(lines), m.height-1)]
	for i, line := range lines {
		lines[i] = strings.TrimRight(topCut(line, m.width), " ")
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	return strings.Join(append(lines, topCut(m.paint(topFaint, keys), m.width)), "\n")
}

func (m topModel) frame() string {
	return m.draw("tab list · s order · p pause · q quit", m.body)
}

// body draws figures and one or two lists.
func (m topModel) body() []string {
	lines := []string{m.head()}
	if e := m.trouble(); e != "" {
		lines = append(lines, m.paint(topRed, e))
	}
	lines = append(append(lines, m.figures()...), "")
	room := m.height - len(lines) - 1
	if room < 20 {
		return append(lines, m.table(m.list, room)...)
	}
	room -= room / 2 // enough for two lists
	to := len(lines) + room
	for lines = append(lines, m.table(m.list, room)...); len(lines) <= to; {
		lines = append(lines, "")
	}
	return append(lines, m.table((m.list+1)%len(topLists), m.height-1-len(lines))...)
}

// trouble returns the error of the latest request, else that of the server; "" for none.
func (m topModel) trouble() string {
	if m.err != nil {
		return topClean(m.err.Error())
	}
	return topClean(m.snap.Server.Error)
}

// head draws the first line: model, backend, uptime and state.
func (m topModel) head() string {
	s := m.snap.Server
	left := m.paint(topBold, "coppice top") + "  " + topClean(s.Model) + m.paint(topFaint, fmt.Sprintf("  %s, up %s", topClean(s.Backend), topAge(s.UptimeSeconds)))
	return topSpread(left, m.state(), m.width)
}

// figures draws the lines with rates and the pool.
func (m topModel) figures() []string {
	s, n, t := m.snap, m.snap.Now, m.snap.Totals
	half := (m.width - 2) / 2
	graph := max(half-36, 6)
	cell := func(name, value, more string, column []view.Figure, top float64) string {
		text := fmt.Sprintf("%-5s%8s ", name, value)
		line := m.paint(topFaint, text[:5]) + m.paint(topBold, text[5:]) + m.paint(topGreen, topSparks(column, graph, top)) + " " + m.paint(topFaint, more)
		return topPad(topCut(line, half), half)
	}
	loads := make([]view.Figure, len(s.History.Running))
	for i, r := range s.History.Running {
		loads[i] = view.Figure(r)
	}
	hit := n.HitRate
	if !hit.Known() && t.PromptTokens > 0 {
		hit = view.Figure(t.HitRate)
	}
	prompts := fmt.Sprintf("prompt %s/s", topCount(float64(n.PromptRate)))
	if t.Prefilling > 0 {
		prompts = fmt.Sprintf("prompt %s/s, %s to go", topCount(float64(n.PrefillRate)), topCount(float64(t.PrefillLeft)))
	}
	lines := []string{
		cell("hit", topShare(hit), fmt.Sprintf("of %s prompt", topCount(float64(t.PromptTokens))), s.History.HitRate, 1) + "  " +
			cell("out", topCount(float64(n.OutputRate))+"/s", prompts, s.History.OutputRate, 0),
		cell("ttft", topMillis(n.TTFTp50Millis), "p99 "+topMillis(n.TTFTp99Millis), s.History.TTFTp50Millis, 0) + "  " +
			cell("run", fmt.Sprint(t.Running), fmt.Sprintf("waiting %d of %s", t.Waiting, topCount(float64(t.Requests))), loads, 0),
		cell("itl", topMillis(n.ITLp50Millis), "p99 "+topMillis(n.ITLp99Millis), s.History.ITLp50Millis, 0) + "  " +
			fmt.Sprintf("%d preempted, %s pages evicted", t.Preemptions, topCount(float64(t.EvictedPages))),
	}
	p := s.Pool
	all := float64(max(p.Pages, 1))
	parts := []struct {
		pages int
		mark  string
		name  string
		style lipgloss.Style
	}{
		{p.HeldPages, "█", "held", topYellow}, {p.ProtectedPages, "▓", "cached, in use", topGreen},
		{p.EvictablePages, "▒", "evictable", topGreen}, {p.IdlePages, "░", "idle", topFaint},
	}
	var bar, legend strings.Builder
	used, drawn := 0, 0
	for _, part := range parts {
		used += part.pages
		to := int(math.Round(float64(used) / all * float64(m.width-5)))
		bar.WriteString(m.paint(part.style, strings.Repeat(part.mark, max(to-drawn, 0))))
		drawn = max(drawn, to)
		fmt.Fprintf(&legend, "%s %s %.1f %%   ", m.paint(part.style, part.mark), part.name, 100*float64(part.pages)/all)
	}
	lines = append(lines, m.paint(topFaint, "pool ")+bar.String(), "     "+strings.TrimRight(legend.String(), " "))
	if len(p.Tiers) > 1 {
		lines = append(lines, topCut(m.paint(topFaint, "tiers")+topTiers(p.Tiers), m.width))
	}
	if guesses := topDrafts(&t); guesses != "" {
		lines = append(lines, topCut(m.paint(topFaint, "guess")+guesses, m.width))
	}
	return lines
}

// topDrafts formats, for each source of guesses at output tokens, how many steps have verified and how many
// were right.
func topDrafts(t *view.Totals) string {
	var b strings.Builder
	for _, source := range slices.Sorted(maps.Keys(t.DraftTokens)) {
		if n := t.DraftTokens[source]; n > 0 {
			fmt.Fprintf(&b, "  %s %s of %s right", topClean(source), topShare(view.Figure(float64(t.AcceptedDraftTokens[source])/float64(n))), topCount(float64(n)))
		}
	}
	return b.String()
}

// topTiers formats, for each tier, the used share and the cached tokens found there.
func topTiers(tiers []view.Tier) string {
	var b strings.Builder
	for _, t := range tiers {
		fmt.Fprintf(&b, "  %s %s, %s found", topClean(t.Name), topShare(view.Figure(float64(t.UsedPages)/float64(max(t.Pages, 1)))), topCount(float64(t.HitTokens)))
		if t.Failing > 0 {
			b.WriteString(", failing")
		}
		if t.Errors > 0 {
			fmt.Fprintf(&b, ", %s failed", topCount(float64(t.Errors)))
		}
	}
	return b.String()
}

// table draws a list with its title, in at most room lines.
func (m topModel) table(list, room int) []string {
	var title strings.Builder
	for i, l := range topLists {
		name := fmt.Sprintf(" %s %s ", l.name, topCount(float64(l.count(m.snap))))
		switch {
		case i != list:
			name = m.paint(topFaint, name)
		case m.colored:
			name = topChosen.Render(name)
		default:
			name = "[" + name[1:len(name)-1] + "]"
		}
		title.WriteString(name)
	}
	l := &topLists[list]
	by := l.orders[m.order[list]]
	lines := []string{topSpread(title.String(), m.paint(topFaint, "by "+by), m.width)}
	head, rows := l.rows(m.snap, by)
	if len(rows) == 0 {
		return append(lines, m.paint(topFaint, "  none"))
	}
	lines = append(lines, m.paint(topFaint, head))
	if over := len(rows) - (room - 2); over > 0 {
		keep := max(room-3, 0)
		rows = append(rows[:keep:keep], m.paint(topFaint, fmt.Sprintf("  … and %d more", len(rows)-keep)))
	}
	return append(lines, rows...)
}

// topSparks draws the last n values of a column as bars. A full bar is top, or the largest
// of the values if top is 0.
func topSparks(column []view.Figure, n int, top float64) string {
	column = column[max(0, len(column)-n):]
	if top == 0 {
		for _, v := range column {
			if v.Known() {
				top = max(top, float64(v))
			}
		}
	}
	marks := []rune("▁▂▃▄▅▆▇█")
	out := []rune(strings.Repeat(" ", n-len(column)))
	for _, v := range column {
		switch {
		case !v.Known():
			out = append(out, ' ')
		case top <= 0:
			out = append(out, marks[0])
		default:
			out = append(out, marks[min(max(int(float64(v)/top*float64(len(marks))), 0), len(marks)-1)])
		}
	}
	return string(out)
}

// topClean removes control characters from text, since prompts may contain terminal
// sequences.
func topClean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return '↵'
		case r == '\t':
			return ' '
		case !unicode.IsGraphic(r):
			return '·'
		}
		return r
	}, s)
}

// topCut cuts a line to a width in cells, counting styles and wide characters correctly.
func topCut(line string, width int) string {
	if lipgloss.Width(line) <= width {
		return line
	}
	return lipgloss.NewStyle().MaxWidth(width).Render(line)
}

func topPad(s string, width int) string {
	return s + strings.Repeat(" ", max(width-lipgloss.Width(s), 0))
}

// topField returns cleaned text in exactly width cells, with at least one blank at its end.
func topField(s string, width int) string { return topPad(topCut(topClean(s), width-1), width) }

// topSpread puts left and right at the two ends of a line of this width.
func topSpread(left, right string, width int) string {
	left = topCut(left, max(width-lipgloss.Width(right)-1, 0))
	return topPad(left, width-lipgloss.Width(right)) + right
}

func topRequest(request uint64, sample int) string {
	if sample > 0 {
		return fmt.Sprintf("%d.%d", request, sample)
	}
	return fmt.Sprint(request)
}

func topShare(f view.Figure) string {
	if !f.Known() {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(f))
}

func topMillis(f view.Figure) string {
	switch {
	case !f.Known():
		return "–"
	case f < 10:
		return fmt.Sprintf("%.2f ms", float64(f))
	case f < 1000:
		return fmt.Sprintf("%.0f ms", float64(f))
	}
	return fmt.Sprintf("%.2f s", float64(f)/1000)
}

// topCount formats a count in at most four significant digits and a unit; a dash for NaN.
func topCount(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case v < 10_000:
		return fmt.Sprintf("%.0f", v)
	case v < 1e6:
		return fmt.Sprintf("%.1fk", v/1e3)
	case v < 1e9:
		return fmt.Sprintf("%.1fM", v/1e6)
	}
	return fmt.Sprintf("%.1fG", v/1e9)
}

func topAge(seconds float64) string {
	if seconds < 100 {
		return fmt.Sprintf("%.1fs", seconds)
	}
	return time.Duration(seconds * float64(time.Second)).Truncate(time.Second).String()
}
