package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/events/eventurl"
	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/fleet"
	"github.com/coppice-llm/coppice/gateway"
	"github.com/coppice-llm/coppice/gateway/replica"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/server"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// check reports the faults that kong does not find. It refuses zeros that the gateway would
// take for its defaults.
func (c *routeCmd) check() error {
	var faults bounds.Faults
	faults.Add(checkAddr(c.Addr), c.serverFlags.check(), canWrite("--record", c.Record))
	bad := func(r rune) bool { return r <= ' ' || r >= 0x7f }
	faults.If(strings.ContainsFunc(c.WorkerKey, bad), "--worker-key has characters that a header can't carry")
	faults.Add(c.poolFlags.check(&c.settings))
	return faults.Err()
}

// gateway returns the gateway's configuration from the flags and the contents of the
// workers' file.
func (c *routeCmd) gateway(ctx context.Context, keys []server.Key, file []byte, log *zap.Logger) (cfg gateway.Config, err error) {
	cfg = gateway.Config{
		Router: router.Config{
			BlockTokens: c.BlockTokens, Policy: c.Policy, Seed: c.Seed, MaxWorkers: c.MaxWorkers, MaxQueued: c.MaxQueued,
			TierWeights: c.TierWeights, SessionTTL: c.SessionTTL, Order: c.QueueOrder, BusyFactor: c.BusyFactor,
		},
		// The gateway takes zeros for its defaults: translate those that mean none. A nanosecond is over before any
		// request ends and frees a worker.
		EventOutlast: cmp.Or(c.Outlast, -1), StallAfter: cmp.Or(c.StallAfter, -1), Retries: cmp.Or(c.Retries, -1), Repeats: cmp.Or(c.Repeats, -1), QueueTimeout: cmp.Or(c.QueueTimeout, 1),
		GuessTTL: c.GuessTTL, NoPredict: !c.Predict, ProbeEvery: c.ProbeEvery, ProbeTimeout: c.ProbeTimeout,
		MaxBodyBytes: int(c.MaxBody), MaxBodiesBytes: int(c.MaxBodies), MaxOpen: c.MaxOpen, WriteTimeout: c.WriteTimeout, AllowHosts: c.AllowHost, CORS: c.CORS, NoPage: !c.Page, Version: version(), Log: log,
		Record: c.Record, RecordBytes: int(c.RecordMax),
	}
	if cfg.Router.Weights, err = c.weights(); err != nil {
		return cfg, err
	}
	if err := c.events(&cfg); err != nil {
		return cfg, err
	}
	others, err := c.replicas(cfg.NATS)
	if err != nil {
		return cfg, err
	}
	if others != nil {
		cfg.Replicas = others.Join
	}
	if err := c.poolFlags.apply(&cfg, log); err != nil {
		return cfg, err
	}
	if len(keys) > 0 {
		ring, err := server.NewKeyring(keys)
		if err != nil {
			return cfg, fmt.Errorf("--api-key or --api-key-file: %w", err)
		}
		cfg.Tenant = ring.Find
	}
	if cfg.WorkerKey, err = c.workerKey(keys, cfg.NATS != nil); err != nil {
		return cfg, err
	}
	if cfg.Workers, err = c.workers(file); err != nil {
		return cfg, err
	}
	if len(cfg.Workers) == 0 && c.WorkersFile == "" && cfg.NATS == nil {
		return cfg, errors.New("there are no workers: give --worker, --workers-file, or --events nats://… for those that register")
	}
	cfg.Prompt, cfg.Tokenizer, err = c.prompts(ctx) // last, as it may take long
	return cfg, err
}

// workerKey returns the key that the router sends to workers: --worker-key, else the first
// key that is not an admin's, else the first key. With register, workers register over
// NATS, where any client that reaches NATS can pose as a worker; then sending an admin's
// key is refused with an error.
func (c *routeCmd) workerKey(keys []server.Key, register bool) (string, error) {
	if c.WorkerKey != "" || len(keys) == 0 {
		return c.WorkerKey, nil
	}
	for _, k := range keys {
		if !k.Admin {
			return k.Secret, nil
		}
	}
	if register {
		return "", errors.New("--worker-key is not given, and all keys are admins': the router would send one to every worker that registers over NATS; " +
			"give a --worker-key, or a key of a tenant that is not an admin")
	}
	return keys[0].Secret, nil
}

// prompts returns how the gateway reads prompts: with the tokenizer and template of
// --model, if given, and the namespaces of --salts. digest identifies the tokenizer.
func (c *routeCmd) prompts(ctx context.Context) (cfg gateway.PromptConfig, digest string, err error) {
	cfg.Namespace = conversation.Namespace
	switch c.Salts {
	case "plain":
		cfg.Namespace = plainNamespace
	case "auto":
		cfg.ForeignNamespace = plainNamespace
	}
	if c.Model == "" {
		return cfg, "", nil
	}
	path, err := c.Model.find(ctx)
	if err != nil {
		return cfg, "", err
	}
	if cfg.Tokenizer, err = local.Tokenizer(path); err != nil {
		return cfg, "", fmt.Errorf("--model: %w; give a directory with a tokenizer.json or a GGUF file, or omit --model if workers send their tokenizer, as coppice serve --publish does", err)
	}
	if cfg.Template, err = local.Template(path); err != nil && !errors.Is(err, chat.ErrInvalid) {
		return cfg, "", fmt.Errorf("--model: %w", err)
	}
	b, err := fleet.Bundle(path)
	if err != nil {
		return cfg, "", fmt.Errorf("--model: %w", err)
	}
	return cfg, b.Digest, nil
}

// plainNamespace returns a namespace of the salt alone, equal for all tenants.
func plainNamespace(_, salt string) kv.Namespace { return kv.Namespace{Salt: salt} }

// weights returns the router's weights: the defaults, except for the weights that flags give.
func (c *routeCmd) weights() (router.Weights, error) {
	w := router.DefaultWeights()
	w.Temperature = c.Temperature
	var faults bounds.Faults
	for _, name := range slices.Sorted(maps.Keys(c.Weight)) {
		err := w.Set(name, c.Weight[name])
		if used := c.Policy.WeightNames(); err == nil && !slices.Contains(used, strings.ToLower(name)) {
			err = fmt.Errorf("policy %v has no weight %s; its weights are %s", c.Policy, name, strings.Join(used, ", "))
		}
		faults.Add(err)
	}
	faults.Add(w.Validate())
	if err := faults.Err(); err != nil {
		return w, fmt.Errorf("--weight: %w", err)
	}
	return w, nil
}

// events sets the sources of the workers' events: cfg.NATS, or c.ports for ZMQ.
func (c *routeCmd) events(cfg *gateway.Config) error {
	all := eventurl.Split(c.Events)
	for _, text := range all {
		switch {
		case text == "auto":
			continue
		case text == "none" && len(all) > 1:
			return errors.New("--events none excludes other values of --events")
		case text == "none":
			cfg.Approximate = true
			continue
		}
		if rest, ok := strings.CutPrefix(text, gateway.BindScheme); ok {
			if err := c.bind(cfg, rest); err != nil {
				return err
			}
			continue
		}
		t, err := eventurl.Parse(text)
		switch {
		case err != nil:
			return fmt.Errorf("--events %s: %w; or auto, or none", eventurl.Redact(text), err)
		case t.NATS != nil && cfg.NATS != nil || t.ZMQ != nil && c.ports != nil:
			return fmt.Errorf("--events %s: there is already one of this kind; give several NATS servers as one URL: nats://a:4222,b:4222", eventurl.Redact(text))
		case t.NATS != nil:
			at := *t.NATS
			cfg.NATS = &at
		default:
			if err := everywhere(t.ZMQ); err != nil {
				return fmt.Errorf("--events %s: %w; --workers-file gives the endpoint of a single worker", eventurl.Redact(text), err)
			}
			c.ports = t.ZMQ
		}
	}
	return c.consolidate(cfg)
}

// everywhere reports why a ZMQ target cannot mean a port of every worker; nil if it can.
func everywhere(z *eventurl.ZMQ) error {
	if z.Host != "*" || z.Port == 0 {
		return errors.New("want zmq://*:PORT, the port at which the workers publish")
	}
	return nil
}

// consolidate sets the sources at which further caches of the workers publish.
func (c *routeCmd) consolidate(cfg *gateway.Config) error {
	for _, text := range eventurl.Split(c.Consolidate) {
		t, err := eventurl.Parse(text)
		if err == nil && t.ZMQ == nil {
			err = errors.New("want zmq://*:PORT")
		}
		if err == nil {
			err = everywhere(t.ZMQ)
		}
		if err != nil {
			return fmt.Errorf("--consolidate %s: %w", eventurl.Redact(text), err)
		}
		cfg.Consolidate = append(cfg.Consolidate, gateway.Sockets{Port: t.ZMQ.Port, ReplayPort: max(0, t.ZMQ.Replay), Topic: t.ZMQ.Topic})
	}
	return nil
}

// replicas returns the configuration for sharing state with other routers of the same
// workers; nil without --replicas.
func (c *routeCmd) replicas(events *nats.Config) (*replica.Config, error) {
	switch {
	case c.Replicas == "":
		return nil, nil
	case c.Replicas == "auto" && events == nil:
		return nil, errors.New("--replicas auto: there is no NATS in --events; give its URL")
	case c.Replicas == "auto":
		return &replica.Config{NATS: *events}, nil
	}
	t, err := eventurl.Parse(c.Replicas)
	switch {
	case !strings.Contains(c.Replicas, "://") || err == nil && t.NATS == nil:
		err = errors.New("want auto, or a URL like nats://host:4222?prefix=P")
	}
	if err != nil {
		return nil, fmt.Errorf("--replicas %s: %w", eventurl.Redact(c.Replicas), err)
	}
	return &replica.Config{NATS: *t.NATS}, nil
}
