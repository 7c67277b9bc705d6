package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/coppice-llm/coppice/server/view"
)

// topScreen is the part of coppice top that servers and routers share: states of type S on a
// terminal.
type topScreen[S any] struct {
	width, height int
	colored       bool
	interval      time.Duration
	get           func() (*S, error)

	snap, before *S    // the latest two; nil before the first
	err          error // of the latest request
	paused       bool
}

// topLook is the message that requests the next state; topNews delivers it.
type topLook struct{}
type topNews[S any] struct {
	snap *S
	err  error
}

func (m topScreen[S]) look() tea.Msg {
	snap, err := m.get()
	return topNews[S]{snap, err}
}

// Init is called by bubbletea.
func (m topScreen[S]) Init() tea.Cmd { return m.look }

// update handles the messages that both kinds of screens have.
func (m topScreen[S]) update(msg tea.Msg) (topScreen[S], tea.Cmd) {
	later := tea.Tick(m.interval, func(time.Time) tea.Msg { return topLook{} })
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case topLook:
		if m.paused {
			return m, later
		}
		return m, m.look
	case topNews[S]:
		if m.err = msg.err; msg.snap != nil && !m.paused {
			m.before, m.snap = m.snap, msg.snap
		}
		return m, later
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "esc", "ctrl+c":
			return m, tea.Quit
		case "p", "space":
			m.paused = !m.paused
		}
	}
	return m, nil
}

// topView returns a frame as bubbletea's view.
func topView(frame string) tea.View {
	v := tea.NewView(frame)
	v.AltScreen = true
	v.WindowTitle = "coppice top"
	return v
}

// topModel is the state of coppice top for a server. Its methods have no side effects
// except through the commands that they return, so frames are tested without a terminal.
type topModel struct {
	topScreen[view.State]
	list  int                // index into topLists
	order [len(topLists)]int // index into the list's orders
}

// topList is one of the lists below the figures.
type topList struct {
	name   string
	orders []string
	count  func(*view.State) int
	// rows returns the line of headings and the lines of the list, sorted by one of orders.
	rows func(s *view.State, by string) (head string, rows []string)
}

var topLists = [...]topList{
	{"running", []string{"age", "prompt", "cached", "output"}, func(s *view.State) int { return s.Totals.Running }, runningRows},
	{"waiting", []string{"arrival", "cached"}, func(s *view.State) int { return s.Totals.Waiting }, waitingRows},
	{"prefixes", []string{"reuses", "tokens", "recency"}, func(s *view.State) int { return s.Tree.Nodes }, prefixRows},
	{"finished", []string{"time", "prompt", "ttft"}, func(s *view.State) int { return len(s.Finished) }, finishedRows},
}

// Update is called by bubbletea.
func (m topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	m.topScreen, cmd = m.update(msg)
	if key, ok := msg.(tea.KeyPressMsg); ok {
		switch key.String() {
		case "s":
			m.order[m.list] = (m.order[m.list] + 1) % len(topLists[m.list].orders)
		case "tab", "right":
			m.list = (m.list + 1) % len(topLists)
		case "shift+tab", "left":
			m.list = (m.list + len(topLists) - 1) % len(topLists)
		}
	}
	return m, cmd
}

// View is called by bubbletea.
func (m topModel) View() tea.View { return topView(m.frame()) }

// topSorted returns a copy of list sorted by descending key; elements with equal keys keep their
// order. If key is nil, it returns list itself.
func topSorted[T any](list []T, key func(T) float64) []T {
	if key == nil {
		return list
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b T) int { return cmp.Compare(key(b), key(a)) })
	return list
}

func runningRows(s *view.State, by string) (head string, rows []string) {
	for _, r := range topSorted(s.Running, map[string]func(view.Running) float64{
		"age":    func(r view.Running) float64 { return r.AgeSeconds },
		"prompt": func(r view.Running) float64 { return float64(r.PromptTokens) },
		"cached": func(r view.Running) float64 { return float64(r.CachedTokens) },
		"output": func(r view.Running) float64 { return float64(r.OutputTokens) },
	}[by]) {
		rows = append(rows, fmt.Sprintf("%8s  %s%9d%9d%9d%9d%8s", topRequest(r.Request, r.Sample), topField(r.Tenant, 14), r.PromptTokens, r.CachedTokens, r.ComputedTokens, r.OutputTokens, topAge(r.AgeSeconds)))
	}
	return fmt.Sprintf("%8s  %-14s%9s%9s%9s%9s%8s", "request", "tenant", "prompt", "cached", "done", "output", "age"), rows
}

func waitingRows(s *view.State, by string) (head string, rows []string) {
	for _, w := range topSorted(s.Waiting, map[string]func(view.Waiting) float64{
		"cached": func(w view.Waiting) float64 { return float64(w.CachedTokens) },
	}[by]) {
		_, why, _ := strings.Cut(w.Why, w.Cause)
		rows = append(rows, fmt.Sprintf("%8s%9d  %s", topRequest(w.Request, w.Sample), w.CachedTokens, topClean(w.Cause+why)))
	}
	return fmt.Sprintf("%8s%9s  %s", "request", "cached", "why"), rows
}

// prefixRows leaves out the nodes that stand for several hidden nodes (More > 0).
func prefixRows(s *view.State, by string) (head string, rows []string) {
	for _, n := range topSorted(s.Tree.Shown, map[string]func(view.Node) float64{
		"reuses":  func(n view.Node) float64 { return float64(n.Reuses) },
		"tokens":  func(n view.Node) float64 { return float64(n.Tokens) },
		"recency": func(n view.Node) float64 { return n.Heat },
	}[by]) {
		if n.More == 0 {
			rows = append(rows, fmt.Sprintf("%8s%9d%8d%5d  %s", topCount(float64(n.Reuses)), n.Tokens, n.Start, n.Pins, topClean(n.Text)))
		}
	}
	return fmt.Sprintf("%8s%9s%8s%5s  %s", "reuses", "tokens", "start", "pins", "text"), rows
}

func finishedRows(s *view.State, by string) (head string, rows []string) {
	for _, f := range topSorted(s.Finished, map[string]func(view.Finished) float64{
		"prompt": func(f view.Finished) float64 { return float64(f.PromptTokens) },
		"ttft":   func(f view.Finished) float64 { return f.TTFTMillis },
	}[by]) {
		rows = append(rows, fmt.Sprintf("%s%s%9d%9d%9d%10s%10s", topField(f.Reason, 10), topField(f.Tenant, 14), f.PromptTokens, f.CachedTokens, f.OutputTokens, topMillis(view.Figure(f.TTFTMillis)), topMillis(view.Figure(f.TotalMillis))))
	}
	return fmt.Sprintf("%-10s%-14s%9s%9s%9s%10s%10s", "ending", "tenant", "prompt", "cached", "output", "ttft", "total"), rows
}
