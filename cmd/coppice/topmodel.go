package main

import (
	"cmp"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/coppice-llm/coppice/internal/server/view"
)

// topModel is the state of coppice top for a server. Its methods have no side effects
// except through the commands that they return, so frames are tested without a terminal.
type topModel struct {
	width, height int
	colored       bool
	interval      time.Duration
	get           func() (*view.Snapshot, error)

	snap   *view.Snapshot // nil before the first
	err    error          // of the latest request
	paused bool
	list   topList
	order  [topLists]int // index into topOrders
}

// topList is one of the lists below the figures.
type topList int

const (
	topRunning topList = iota
	topWaiting
	topPrefixes
	topFinished
	topLists
)

var topNames = [topLists]string{"running", "waiting", "prefixes", "finished"}

var topOrders = [topLists][]string{
	{"age", "prompt", "cached", "output"},
	{"arrival", "cached"},
	{"reuses", "tokens", "recency"},
	{"time", "prompt", "ttft"},
}

// topLook is the message that requests the next snapshot; topNews delivers it.
type topLook struct{}
type topNews struct {
	snap *view.Snapshot
	err  error
}

func (m topModel) look() tea.Msg {
	snap, err := m.get()
	return topNews{snap, err}
}

// Init is called by bubbletea.
func (m topModel) Init() tea.Cmd { return m.look }

// Update is called by bubbletea.
func (m topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case topLook:
		if m.paused {
			return m, m.later()
		}
		return m, m.look
	case topNews:
		if m.err = msg.err; msg.snap != nil && !m.paused {
			m.snap = msg.snap
		}
		return m, m.later()
	case tea.KeyPressMsg:
		return m.press(msg.String())
	}
	return m, nil
}

// later returns the command that asks for a snapshot after the interval.
func (m topModel) later() tea.Cmd {
	return tea.Tick(m.interval, func(time.Time) tea.Msg { return topLook{} })
}

// press handles a key.
func (m topModel) press(key string) (tea.Model, tea.Cmd) {
	switch key {
	case "q", "esc", "ctrl+c":
		return m, tea.Quit
	case "p", "space":
		m.paused = !m.paused
	case "s":
		m.order[m.list] = (m.order[m.list] + 1) % len(topOrders[m.list])
	case "tab", "right":
		m.list = (m.list + 1) % topLists
	case "shift+tab", "left":
		m.list = (m.list + topLists - 1) % topLists
	}
	return m, nil
}

// View is called by bubbletea.
func (m topModel) View() tea.View {
	v := tea.NewView(m.frame())
	v.AltScreen = true
	v.WindowTitle = "coppice top"
	return v
}

// topSorted returns a copy of list sorted by descending key; equals keep their order.
func topSorted[T any, K cmp.Ordered](list []T, key func(T) K) []T {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b T) int { return cmp.Compare(key(b), key(a)) })
	return list
}

func (m topModel) running() []view.Running {
	switch topOrders[topRunning][m.order[topRunning]] {
	case "prompt":
		return topSorted(m.snap.Running, func(r view.Running) int { return r.PromptTokens })
	case "cached":
		return topSorted(m.snap.Running, func(r view.Running) int { return r.CachedTokens })
	case "output":
		return topSorted(m.snap.Running, func(r view.Running) int { return r.OutputTokens })
	}
	return topSorted(m.snap.Running, func(r view.Running) float64 { return r.AgeSeconds })
}

func (m topModel) waiting() []view.Waiting {
	if topOrders[topWaiting][m.order[topWaiting]] == "cached" {
		return topSorted(m.snap.Waiting, func(w view.Waiting) int { return w.CachedTokens })
	}
	return m.snap.Waiting
}

// prefixes returns the nodes in the chosen order, without those that stand for several
// hidden nodes (More > 0).
func (m topModel) prefixes() []view.Node {
	all := slices.DeleteFunc(slices.Clone(m.snap.Tree.Shown), func(n view.Node) bool { return n.More > 0 })
	switch topOrders[topPrefixes][m.order[topPrefixes]] {
	case "tokens":
		return topSorted(all, func(n view.Node) int { return n.Tokens })
	case "recency":
		return topSorted(all, func(n view.Node) float64 { return n.Heat })
	}
	return topSorted(all, func(n view.Node) uint64 { return n.Reuses })
}

func (m topModel) finished() []view.Finished {
	switch topOrders[topFinished][m.order[topFinished]] {
	case "prompt":
		return topSorted(m.snap.Finished, func(f view.Finished) int { return f.PromptTokens })
	case "ttft":
		return topSorted(m.snap.Finished, func(f view.Finished) float64 { return f.TTFTMillis })
	}
	return m.snap.Finished
}
