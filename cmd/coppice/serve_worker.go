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
	"github.com/coppice-llm/coppice/events/eventurl"
	"github.com/coppice-llm/coppice/fleet"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
)

// join makes the server at this address a worker of a fleet, which publishes the events of its
// cache to the targets of --publish. keyed says that the server requires API keys.
func (c *serveCmd) join(s *served, at net.Addr, keyed bool, log *zap.Logger) (*fleet.Worker, error) {
	w, err := fleet.Join(s.node, fleet.Config{
		Publish: c.Publish, ArrayEvents: c.ArrayEvents, Addr: at, TLS: c.TLSCert != "", URL: c.Advertise, Models: s.names, Name: c.Name, Pool: c.Pool,
		Keyed: keyed, Controls: c.ControlTokens, ToolsPrompt: c.ToolsPrompt, Bundle: s.bundle, Profile: s.profile, Log: nodeLog(log),
	})
	if err != nil {
		return nil, fmt.Errorf("--publish: %w", err)
	}
	return w, nil
}

// greetWorker prints the targets of published events; nothing if there are none.
func greetWorker(to io.Writer, w *fleet.Worker) {
	if !w.Publishes() {
		return
	}
	for line := range strings.Lines(w.String() + "\n") {
		fmt.Fprint(to, "coppice: ", line)
	}
	if u, err := url.Parse(w.Card().URL); err == nil && net.ParseIP(u.Hostname()).IsLoopback() {
		fmt.Fprintln(to, "coppice: routers on other machines can't reach this server: see --addr and --advertise")
	}
}

// profileOf returns the linear cost model of a device's steps, from differences of simulated
// steps; nil for the zero profile.
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
	// A prompt of n tokens takes t0 + token·n + pair·n(n+1)/2, so three lengths determine
	// pair and token. The prompts are long enough for the device to be bound by arithmetic
	// rather than by reading weights.
	const n, context = 4096, 100_000
	a, b, c := prompt(n), prompt(2*n), prompt(4*n)
	pairs := func(n float64) float64 { return n * (n + 1) / 2 }
	p := card.Profile{Step: decodes(1, 1), KV: (decodes(1, 1+context) - decodes(1, 1)) / context}
	p.Pair = max(0, ((c-b)-2*(b-a))/((pairs(4*n)-pairs(2*n))-2*(pairs(2*n)-pairs(n))))
	p.Token = max(0, (b-a-p.Pair*(pairs(2*n)-pairs(n)))/n)
	// The cost of a row is the mean over 64 rows, enough to show whether multiplying takes
	// longer than reading the weights. It excludes the KV that a row reads.
	const rows = 64
	p.Row = max(0, (decodes(1+rows, 1)-decodes(1, 1))/rows-2*p.KV)
	return &p
}

// fleetFlags make coppice serve a worker of a fleet.
type fleetFlags struct {
	Publish     []string `sep:"none" placeholder:"URL" help:"Publish cache events for routers at this URL: zmq://*:5557 (takes 5558 too, for replays) or nats://host:4222, see above. Repeat the flag, or separate URLs by commas."`
	Name        string   `placeholder:"NAME" help:"Name of the worker, unique in its fleet. Default: host, port and a random number, which changes at a restart."`
	Pool        string   `placeholder:"NAME" help:"Pool of the worker, for routers with --pools."`
	Advertise   string   `placeholder:"URL" help:"URL at which routers reach this server. Default: http://host:port, from --addr."`
	BlockTokens int      `name:"block-tokens" default:"16" min:"1" max:"4096" help:"Tokens per block of published events: a multiple of --page-tokens. All workers and routers of a fleet need the same value."`
	ArrayEvents bool     `name:"array-events" help:"Publish events as arrays, for readers older than vLLM 0.26."`
}

// check reports all faults of the flags and their combination.
func (f *fleetFlags) check(pageTokens int) error {
	var faults bounds.Faults
	for _, text := range eventurl.Split(f.Publish) {
		_, err := eventurl.Parse(text)
		faults.If(err != nil, "--publish %s: %w", eventurl.Redact(text), err)
	}
	if f.Name != "" {
		err := card.CheckName(f.Name)
		faults.If(err != nil, "--name: %w", err)
	}
	if f.Pool != "" {
		err := card.CheckPool(f.Pool)
		faults.If(err != nil, "--pool: %w", err)
	}
	faults.If(f.Advertise != "" && fleet.CheckURL(f.Advertise) != nil, "--advertise is %.80q, want a URL like http://host:8080", eventurl.Redact(f.Advertise))
	b, p := f.BlockTokens, pageTokens
	faults.If(len(f.Publish) > 0 && p > 0 && b%p != 0,
		"--block-tokens is %d, want a multiple of --page-tokens (%d): give both the same value, or smaller pages; all workers and routers need the same blocks", b, p)
	return faults.Err()
}
