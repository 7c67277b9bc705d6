package main

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/fleet"
	"github.com/coppice-llm/coppice/internal/eventurl"
)

// fleetFlags make coppice serve a worker of a fleet.
type fleetFlags struct {
	Publish     []string `sep:"none" placeholder:"URL" help:"Publish what the cache holds, for routers: zmq://*:5557 or nats://host:4222, see above. Several are repeated or separated by commas."`
	Name        string   `placeholder:"NAME" help:"The worker's name, unique in its fleet. Default: host and port and a random number, so another one after a restart."`
	Pool        string   `placeholder:"NAME" help:"The pool that it is in, for routers with --pools."`
	Advertise   string   `placeholder:"URL" help:"Where routers reach this server. Default: by --addr, http://host:port."`
	BlockTokens int      `name:"block-tokens" default:"16" help:"Tokens of a block of published events: a multiple of --page-tokens, and the same in all of a fleet."`
	ArrayEvents bool     `name:"array-events" help:"Publish events as arrays, for readers from before vLLM 0.26."`
}

const fleetHelp = `
With --publish the server is a worker of a fleet: routers hear what its cache holds, and
read at /v1/worker who it is. Events are vLLM's. The URLs:

  zmq://*:5557?replay=5558&topic=T   a PUB socket, and one for replays: the next port, or
                                     none with replay=0. Default topic: kv@host:port@model
  nats://a:4222,b:4222?prefix=P      one NATS, by several of its servers; tls:// likewise, with
                                     ca=FILE. nats://user:password@…, or creds=FILE. There the
                                     worker registers itself, too. The server keeps nothing:
                                     what a router missed, the worker sends again. Default
                                     prefix: coppice-kv
`

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
		if b, p := f.BlockTokens, pageTokens; b < 1 || b > maxBlockTokens || p > 0 && b%p != 0 {
			errs = append(errs, fmt.Errorf("--block-tokens is %d, want a multiple of --page-tokens, which is %d, up to %d: give both the same value, or smaller pages; routers and other workers need the same blocks", b, p, maxBlockTokens))
		}
	}
	return errors.Join(errs...)
}

// maxBlockTokens is the largest block size for published events. Few prompts would have a
// whole block of a larger size.
const maxBlockTokens = 4096
