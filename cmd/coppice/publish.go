package main

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/eventurl"
	"github.com/coppice-llm/coppice/fleet"
)

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
	var errs []error
	for _, text := range eventurl.Split(f.Publish) {
		if _, err := eventurl.Parse(text); err != nil {
			errs = append(errs, fmt.Errorf("--publish %s: %w", eventurl.Redact(text), err))
		}
	}
	if f.Name != "" {
		if err := card.CheckName(f.Name); err != nil {
			errs = append(errs, fmt.Errorf("--name: %w", err))
		}
	}
	if f.Pool != "" {
		if err := card.CheckPool(f.Pool); err != nil {
			errs = append(errs, fmt.Errorf("--pool: %w", err))
		}
	}
	if f.Advertise != "" {
		if fleet.CheckURL(f.Advertise) != nil {
			errs = append(errs, fmt.Errorf("--advertise is %.80q, want a URL like http://host:8080", eventurl.Redact(f.Advertise)))
		}
	}
	if len(f.Publish) > 0 {
		if b, p := f.BlockTokens, pageTokens; p > 0 && b%p != 0 {
			errs = append(errs, fmt.Errorf("--block-tokens is %d, want a multiple of --page-tokens (%d): give both the same value, or smaller pages; all workers and routers need the same blocks", b, p))
		}
	}
	return errors.Join(errs...)
}
