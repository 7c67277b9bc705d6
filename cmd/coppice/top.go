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

	"github.com/coppice-llm/coppice/server/view"
)

type topCmd struct {
	URL      string        `name:"url" default:"http://127.0.0.1:8080" help:"Server to look at."`
	APIKey   string        `name:"api-key" env:"COPPICE_API_KEY" placeholder:"KEY" help:"Key of the server, if it asks for one."`
	Interval time.Duration `default:"1s" help:"Time between two looks, at least 100ms."`
	Once     bool          `help:"Print one frame as plain text, as without a terminal."`
}

// Help is printed by kong under the summary.
func (*topCmd) Help() string {
	return `Keys: tab and shift-tab choose a list, s its order, p pauses, q quits.

Examples:
  coppice top
  coppice top --url http://10.0.0.7:8080 --api-key $KEY
  coppice top --once`
}

// Size of the frame of --once where the terminal's is not known.
const (
	topPlainWidth  = 100
	topPlainHeight = 40
)

// Run is called by kong.
func (c *topCmd) Run(ctx context.Context) error {
	if c.Interval < 100*time.Millisecond {
		return fmt.Errorf("--interval is %v, want at least 100ms", c.Interval)
	}
	from, err := newTopClient(c.URL, c.APIKey)
	if err != nil {
		return err
	}
	out := int(os.Stdout.Fd())
	if c.Once || !term.IsTerminal(out) || !term.IsTerminal(int(os.Stdin.Fd())) {
		m := topModel{width: topPlainWidth, height: topPlainHeight}
		if w, h, err := term.GetSize(out); err == nil {
			m.width, m.height = w, max(h-1, topMinHeight)
		}
		if m.snap, err = from.get(ctx); err != nil {
			return err
		}
		if !m.snap.Now.OutputRate.Known() { // nobody watched before: a rate takes two looks
			select {
			case <-time.After(c.Interval):
			case <-ctx.Done():
				return ctx.Err()
			}
			if m.snap, err = from.get(ctx); err != nil {
				return err
			}
		}
		_, err = fmt.Println(m.frame())
		return err
	}
	m := topModel{width: 80, height: 24, colored: true, interval: c.Interval, get: func() (*view.Snapshot, error) { return from.get(ctx) }}
	_, err = tea.NewProgram(m, tea.WithContext(ctx)).Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// topClient asks a server for snapshots.
type topClient struct {
	url, key string
	http     http.Client
}

func newTopClient(base, key string) (*topClient, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User == nil && strings.Contains(base, "@") {
		return nil, fmt.Errorf("--url is %q, want something as http://127.0.0.1:8080", redact(base))
	}
	return &topClient{url: strings.TrimRight(base, "/"), key: key, http: http.Client{Timeout: 10 * time.Second}}, nil
}

// maxSnapshotBytes bounds what is read of an answer.
const maxSnapshotBytes = 64 << 20

func (c *topClient) get(ctx context.Context) (*view.Snapshot, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/v1/view", nil)
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	answer, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no answer (does coppice serve run there?): %w", err)
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, fmt.Errorf("%s refuses the key: give one with --api-key or COPPICE_API_KEY", redact(c.url))
	case http.StatusNotFound:
		return nil, fmt.Errorf("%s has no /v1/view: only servers of coppice serve can be looked at", redact(c.url))
	default:
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 300))
		return nil, fmt.Errorf("%s answers %s: %s", redact(c.url), answer.Status, strings.TrimSpace(string(text)))
	}
	snap := &view.Snapshot{}
	err = json.NewDecoder(io.LimitReader(answer.Body, maxSnapshotBytes)).Decode(snap)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s/v1/view is no snapshot of coppice serve: %w", redact(c.url), err)
	case snap.Schema != view.Schema:
		return nil, fmt.Errorf("%s has snapshots of schema %d, want %d: take coppice top of the server's version", redact(c.url), snap.Schema, view.Schema)
	}
	return snap, nil
}
