package main

import (
	"cmp"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/coppice-llm/coppice/internal/server/view"
)

// topScreen is the part of coppice top that servers and routers share: snapshots of type S on a
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

// newTopScreen returns a screen whose size is not known yet. get returns a new snapshot; interval
// is the pause after a snapshot before the next call of get.
func newTopScreen[S any](interval time.Duration, get func() (*S, error)) topScreen[S] {
	return topScreen[S]{width: 80, height: 24, colored: true, interval: interval, get: get}
}

// topLook is the message that requests the next snapshot; topNews delivers it.
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
	topScreen[view.Snapshot]
	list  topList
	order [topLists]int // index into topOrders
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

// Update is called by bubbletea.
func (m topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	m.topScreen, cmd = m.update(msg)
	if key, ok := msg.(tea.KeyPressMsg); ok {
		switch key.String() {
		case "s":
			m.order[m.list] = (m.order[m.list] + 1) % len(topOrders[m.list])
		case "tab", "right":
			m.list = (m.list + 1) % topLists
		case "shift+tab", "left":
			m.list = (m.list + topLists - 1) % topLists
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

// by returns the chosen order of a list.
func (m topModel) by(list topList) string { return topOrders[list][m.order[list]] }

func (m topModel) running() []view.Running {
	return topSorted(m.snap.Running, map[string]func(view.Running) float64{
		"age":    func(r view.Running) float64 { return r.AgeSeconds },
		"prompt": func(r view.Running) float64 { return float64(r.PromptTokens) },
		"cached": func(r view.Running) float64 { return float64(r.CachedTokens) },
		"output": func(r view.Running) float64 { return float64(r.OutputTokens) },
	}[m.by(topRunning)])
}

func (m topModel) waiting() []view.Waiting {
	return topSorted(m.snap.Waiting, map[string]func(view.Waiting) float64{
		"cached": func(w view.Waiting) float64 { return float64(w.CachedTokens) },
	}[m.by(topWaiting)])
}

// prefixes returns the nodes in the chosen order, without those that stand for several
// hidden nodes (More > 0).
func (m topModel) prefixes() []view.Node {
	all := slices.DeleteFunc(slices.Clone(m.snap.Tree.Shown), func(n view.Node) bool { return n.More > 0 })
	return topSorted(all, map[string]func(view.Node) float64{
		"reuses":  func(n view.Node) float64 { return float64(n.Reuses) },
		"tokens":  func(n view.Node) float64 { return float64(n.Tokens) },
		"recency": func(n view.Node) float64 { return n.Heat },
	}[m.by(topPrefixes)])
}

func (m topModel) finished() []view.Finished {
	return topSorted(m.snap.Finished, map[string]func(view.Finished) float64{
		"prompt": func(f view.Finished) float64 { return float64(f.PromptTokens) },
		"ttft":   func(f view.Finished) float64 { return f.TTFTMillis },
	}[m.by(topFinished)])
}
