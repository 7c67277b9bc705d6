package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/term"

	"github.com/coppice-llm/coppice/gateway/fleetview"
	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/server/view"
)

// topCmd is coppice top, for a server or a router.
type topCmd struct {
	askFlags `set:"asked=URL of the server or router to watch."`
	Interval time.Duration `default:"1s" min:"100ms" help:"Time between two frames, at least 100ms."`
	Once     bool          `help:"Print one frame as plain text and exit. The default if the output is no terminal."`
}

// Size of the frame of --once if the terminal's is unknown.
const (
	topPlainWidth  = 100
	topPlainHeight = 40
)

// Run is called by kong.
func (c *topCmd) Run(ctx context.Context) error {
	from, err := c.client()
	if err != nil {
		return err
	}
	get := func(ctx context.Context) (*view.State, error) {
		return snapshot(ctx, from, "/v1/view", func(s *view.State) int { return s.Schema }, view.Schema)
	}
	getFleet := func(ctx context.Context) (*fleetview.State, error) {
		return snapshot(ctx, from, "/v1/fleet/view", func(s *fleetview.State) int { return s.Schema }, fleetview.Schema)
	}
	snap, err := get(ctx)
	if errors.Is(err, errTopNothing) { // a router has no /v1/view
		if fleet, err := getFleet(ctx); !errors.Is(err, errTopNothing) {
			return topShow(ctx, c, fleet, err, getFleet, func(*fleetview.State) bool { return false },
				func(s topScreen[fleetview.State]) topFrame { return topFleet{s} })
		}
	}
	return topShow(ctx, c, snap, err, get, func(s *view.State) bool { return s.Now.OutputRate.Known() },
		func(s topScreen[view.State]) topFrame { return topModel{topScreen: s} })
}

// topFrame is a terminal program whose screen can be read.
type topFrame interface {
	tea.Model
	frame() string
}

// topShow shows the states that get returns. On a terminal it runs until the user quits. With
// --once, and elsewhere, it prints a single frame: that of the state first, or if first has no
// rates yet, that of a second one. err is the error of the request for first. screen makes a screen.
func topShow[S any](ctx context.Context, c *topCmd, first *S, err error, get func(context.Context) (*S, error), hasRates func(*S) bool, screen func(topScreen[S]) topFrame) error {
	m := topScreen[S]{interval: c.Interval, get: func() (*S, error) { return get(ctx) }}
	out := int(os.Stdout.Fd())
	if !c.Once && term.IsTerminal(out) && term.IsTerminal(int(os.Stdin.Fd())) {
		m.width, m.height, m.colored = 80, 24, true // until bubbletea tells the size
		_, err := tea.NewProgram(screen(m), tea.WithContext(ctx)).Run()
		if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	if err != nil {
		return err
	}
	m.width, m.height, m.snap = topPlainWidth, topPlainHeight, first
	if w, h, err := term.GetSize(out); err == nil {
		m.width, m.height = w, max(h-1, topMinHeight)
	}
	if !hasRates(first) {
		select {
		case <-time.After(c.Interval):
		case <-ctx.Done():
			return ctx.Err()
		}
		m.before = first
		if m.snap, err = get(ctx); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(terminal.Out(), screen(m).frame())
	return err
}
