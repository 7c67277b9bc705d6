package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/term"

	"github.com/coppice-llm/coppice/bench/load"
	"github.com/coppice-llm/coppice/events/eventurl"
	"github.com/coppice-llm/coppice/gateway/fleetview"
	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/server/view"
)

// topCmd is coppice top, for a server or a router.
type topCmd struct {
	URL      string        `name:"url" default:"http://127.0.0.1:8080" help:"URL of the server or router to watch."`
	APIKey   string        `name:"api-key" env:"COPPICE_API_KEY" placeholder:"KEY" help:"API key of the server, if it needs one."`
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
	from, err := newServerClient(c.URL, c.APIKey)
	if err != nil {
		return err
	}
	snap, err := from.get(ctx)
	if errors.Is(err, errTopNothing) { // a router has no /v1/view
		if fleet, err := from.getFleet(ctx); !errors.Is(err, errTopNothing) {
			return topShow(ctx, c, fleet, err, from.getFleet, func(*fleetview.Snapshot) bool { return false },
				func(s topScreen[fleetview.Snapshot]) topFrame { return topFleet{s} })
		}
	}
	return topShow(ctx, c, snap, err, from.get, func(s *view.Snapshot) bool { return s.Now.OutputRate.Known() },
		func(s topScreen[view.Snapshot]) topFrame { return topModel{topScreen: s} })
}

// topFrame is a terminal program whose screen can be read.
type topFrame interface {
	tea.Model
	frame() string
}

// topShow shows the snapshots that get returns. On a terminal it runs until the user quits. With
// --once, and elsewhere, it prints a single frame: that of the snapshot first, or if first has no
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

// serverClient gets snapshots from a server.
type serverClient struct {
	url, key string
	http     http.Client
}

func newServerClient(base, key string) (*serverClient, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User == nil && strings.Contains(base, "@") {
		return nil, fmt.Errorf("--url is %q, want something as http://127.0.0.1:8080", eventurl.Redact(base))
	}
	return &serverClient{url: strings.TrimRight(base, "/"), key: key, http: http.Client{Timeout: 10 * time.Second}}, nil
}

// maxSnapshotBytes bounds the bytes read of an answer.
const maxSnapshotBytes = 64 << 20

// get returns a snapshot of a server.
func (c *serverClient) get(ctx context.Context) (*view.Snapshot, error) {
	snap := &view.Snapshot{}
	if err := c.read(ctx, "/v1/view", snap, &snap.Schema, view.Schema); err != nil {
		return nil, err
	}
	return snap, nil
}

// getFleet returns a snapshot of a router's fleet.
func (c *serverClient) getFleet(ctx context.Context) (*fleetview.Snapshot, error) {
	snap := &fleetview.Snapshot{}
	if err := c.read(ctx, "/v1/fleet/view", snap, &snap.Schema, fleetview.Schema); err != nil {
		return nil, err
	}
	return snap, nil
}

// errTopNothing means that the server has no such path.
var errTopNothing = errors.New("only servers of coppice serve and routers of coppice route can be looked at")

// read gets the JSON document at a path into into. schema points to the document's schema number,
// which must be want.
func (c *serverClient) read(ctx context.Context, path string, into any, schema *int, want int) error {
	answer, err := c.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%s has no %s: %w", eventurl.Redact(c.url), path, errTopNothing)
	}
	if err := c.refused(answer); err != nil {
		return err
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxSnapshotBytes)).Decode(into); err != nil {
		return fmt.Errorf("%s%s is not a snapshot of coppice: %w", eventurl.Redact(c.url), path, err)
	}
	if *schema != want {
		return fmt.Errorf("%s has snapshots of schema %d, want %d: use coppice top of the server's version", eventurl.Redact(c.url), *schema, want)
	}
	return nil
}

// send sends a request, with a body in JSON unless that is nil. The caller closes the answer's body.
func (c *serverClient) send(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	answer, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no answer (does coppice serve or route run there?): %w", err)
	}
	return answer, nil
}

// refused returns an error with the server's words, or nil if the status of the answer is 200.
func (c *serverClient) refused(answer *http.Response) error {
	switch answer.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%s refuses the key: give one with --api-key or COPPICE_API_KEY", eventurl.Redact(c.url))
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 300))
	return fmt.Errorf("%s answers %s: %s", eventurl.Redact(c.url), load.StatusText(answer.StatusCode), load.Said(text))
}
