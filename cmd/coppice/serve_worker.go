package main

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/fleet"
	"github.com/coppice-llm/coppice/kv"
)

// join makes the server that listens there a worker, which publishes what --publish says.
func (c *serveCmd) join(s *served, at net.Addr, keyed bool, log *zap.Logger) (*fleet.Worker, error) {
	w, err := fleet.Join(s.node, fleet.Config{
		Publish: c.Publish, ArrayEvents: c.ArrayEvents, Addr: at, TLS: c.TLSCert != "", URL: c.Advertise, Models: s.names, Name: c.Name, Pool: c.Pool,
		Keyed: keyed, Controls: c.ControlTokens, Bundle: s.bundle, Profile: s.profile, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("--publish: %w", err)
	}
	return w, nil
}

// greetWorker says what is published, and where.
func greetWorker(to io.Writer, w *fleet.Worker) {
	if !w.Publishes() {
		return
	}
	for line := range strings.Lines(w.String() + "\n") {
		fmt.Fprint(to, "coppice: ", line)
	}
	if u, err := url.Parse(w.Card().URL); err == nil && net.ParseIP(u.Hostname()).IsLoopback() {
		fmt.Fprintln(to, "coppice: routers on other machines can't reach this: see --addr and --advertise")
	}
}

// profileOf are the coefficients of a device's steps, by differences of simulated steps;
// nil for one that costs nothing.
func profileOf(device *sim.Profile) *card.Profile {
	if *device == (sim.Profile{}) {
		return nil
	}
	step := func(rows ...engine.Row) float64 { return device.Step(&engine.Batch{Rows: rows}, 0).Seconds() }
	prompt := func(n int) float64 { return step(engine.Row{Tokens: make([]kv.Token, n)}) }
	decodes := func(n, context int) float64 {
		rows := make([]engine.Row, n)
		for i := range rows {
			rows[i] = engine.Row{Tokens: make([]kv.Token, 1), Start: int32(context), Sample: true}
		}
		return step(rows...)
	}
	// A prompt of n tokens takes t0 + token·n + pair·n(n+1)/2: three of them tell the pair and
	// the token. They are long, so that the device multiplies rather than reads weights.
	const n, context = 4096, 100_000
	a, b, c := prompt(n), prompt(2*n), prompt(4*n)
	pairs := func(n float64) float64 { return n * (n + 1) / 2 }
	p := card.Profile{Step: decodes(1, 1), KV: (decodes(1, 1+context) - decodes(1, 1)) / context}
	p.Pair = max(0, ((c-b)-2*(b-a))/((pairs(4*n)-pairs(2*n))-2*(pairs(2*n)-pairs(n))))
	p.Token = max(0, (b-a-p.Pair*(pairs(2*n)-pairs(n)))/n)
	// So many rows decode together that a device which computes longer than it reads shows it.
	const rows = 64
	p.Row = max(0, (decodes(1+rows, 1)-decodes(1, 1))/rows-2*p.KV)
	return &p
}
