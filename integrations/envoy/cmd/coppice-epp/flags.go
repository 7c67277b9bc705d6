package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/events/eventurl"
	"github.com/coppice-llm/coppice/fleet"
	"github.com/coppice-llm/coppice/gateway"
	"github.com/coppice-llm/coppice/gateway/replica"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/server"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// command holds the flags.
type command struct {
	listenFlags
	endpointFlags
	envoyFlags
	chooseFlags
}

// listenFlags say where the picker answers.
type listenFlags struct {
	Listen     string        `default:"127.0.0.1:9002" help:"Address for Envoy's gRPC connections."`
	Health     string        `placeholder:"ADDR" help:"Further address for grpc.health.v1 alone, without TLS, for Kubernetes' probes: :9003."`
	HTTP       string        `name:"http" default:"127.0.0.1:9090" placeholder:"ADDR" help:"Address for operators: /metrics, /v1/fleet, /ready and the live page. Empty: none. It routes requests too, as coppice route does."`
	AllowHost  []string      `name:"allow-host" placeholder:"NAME" help:"Host name that --http answers to besides IP addresses and localhost."`
	TLSCert    string        `name:"tls-cert" type:"path" placeholder:"FILE" help:"Certificate chain (PEM) for --listen, with --tls-key. The files are read again when they change."`
	TLSKey     string        `name:"tls-key" type:"path" placeholder:"FILE" help:"Private key of --tls-cert (PEM)."`
	SelfSigned bool          `name:"self-signed" help:"TLS with a certificate made at the start, for gateways that encrypt but do not verify."`
	Drain      time.Duration `default:"30s" help:"Time for open requests to finish after SIGTERM. A second signal ends them at once."`
	LogLevel   zapcore.Level `name:"log-level" default:"info" help:"debug, info, warn or error."`
}

// endpointFlags say where the workers are. A program without --pool and --service needs no Kubernetes.
type endpointFlags struct {
	Worker       []string      `placeholder:"URL" help:"URL of a worker: http://host:8080. A name stands for all its addresses, as of a headless service. Repeat the flag, or separate URLs by commas."`
	WorkersFile  string        `name:"workers-file" type:"path" placeholder:"FILE" help:"JSON file of workers, as for coppice route: {\"workers\": [{\"url\": \"http://host:8080\"}]}."`
	ResolveEvery time.Duration `name:"resolve-every" default:"5s" help:"How often names are resolved and the file is read again."`
	Pool         string        `placeholder:"NAME" help:"InferencePool whose pods are the workers."`
	Service      string        `placeholder:"NAME" help:"Service whose EndpointSlices list the workers: with --pool instead of its selector, without --pool with the service's ports."`
	Namespace    string        `placeholder:"NAME" help:"Namespace of --pool and --service. Default: the picker's own."`
	Kubeconfig   string        `type:"path" placeholder:"FILE" help:"Kubernetes' configuration file. Default: the pod's service account."`
}

// envoyFlags are about the protocol.
type envoyFlags struct {
	Fallbacks     int            `default:"0" help:"Further endpoints to name beside the chosen one, best first, 0 to 16. Envoy's override_host policy takes several; an ORIGINAL_DST cluster takes one."`
	Objective     map[string]int `placeholder:"NAME=PRIORITY" help:"Priority of an objective, which requests name in x-gateway-inference-objective: waiting requests of higher priority go first. With --pool, InferenceObjectives of the cluster count too."`
	Objectives    bool           `help:"Read InferenceObjectives of the cluster, with --pool."`
	WritePriority bool           `name:"write-priority" help:"Write the objective's priority into the body as \"priority\". vLLM takes it only with --scheduling-policy priority."`
	Conformance   bool           `help:"Obey the headers of the Inference Extension's conformance tests."`
}

// chooseFlags are flags of coppice route of the same names and defaults.
type chooseFlags struct {
	Events       []string           `sep:"none" default:"auto" placeholder:"URL" help:"Source of the workers' cache events: auto (as each worker says), zmq://*:5557, zmq+bind://*:5557 (the picker listens and workers connect), nats://host:4222, or none (guess)."`
	Consolidate  []string           `sep:"none" placeholder:"URL" help:"Events of a second cache beside each worker: zmq://*:5700."`
	Replicas     string             `placeholder:"URL" help:"NATS over which several pickers share reservations, sessions and predictions: nats://host:4222?prefix=P, or auto for the NATS of --events."`
	Model        string             `type:"path" placeholder:"PATH" help:"Model directory or GGUF file with the workers' tokenizer and chat template. Default: those that the first worker sends."`
	BlockTokens  int                `name:"block-tokens" default:"16" help:"Tokens per block of events."`
	Pools        string             `type:"path" placeholder:"FILE" help:"JSON file of pools, in the format of NVIDIA Dynamo's global router."`
	Buckets      int                `placeholder:"N" help:"Divide all workers into N pools, and choose one of these first."`
	Stage        router.Staging     `default:"turn" help:"How a bucket is chosen: turn or prefix."`
	PrefixBlocks int                `name:"prefix-blocks" default:"4" help:"Blocks of the beginning that --stage prefix and --policy prefix-hash compare."`
	Policy       router.Policy      `default:"latency" help:"How a worker is chosen: latency, credits, 2026, 2025, round-robin, random, least-loaded or prefix-hash."`
	Weight       map[string]float64 `placeholder:"NAME=X" help:"Weights of the policy."`
	TierWeights  router.TierWeights `name:"tier-weights" default:"device=1,host=0.8,disk=0.6,shared=0.4,object=0.2" placeholder:"TIER=X" help:"Value of a cached block by the tier that holds it."`
	Temperature  float64            `default:"0" help:"Above 0, choose workers of higher cost too, at random."`
	SessionTTL   time.Duration      `name:"session-ttl" default:"0" help:"How long after its last request a session (header X-Session-Id, or the field user) keeps its worker. 0: ignore sessions."`
	GuessTTL     time.Duration      `name:"guess-ttl" default:"2m" help:"For workers without events: how long a prompt counts as cached at the worker that got it."`
	Outlast      time.Duration      `name:"events-outlast" default:"5m" help:"While NATS is away: how long the last known caches still count. 0: not at all."`
	Predict      bool               `default:"true" negatable:"" help:"Count a prompt as cached at its worker until its first token."`
	StallAfter   time.Duration      `name:"stall-after" default:"2s" help:"A worker that is late with a token by this much gets no new requests. 0: never."`
	Seed         uint64             `default:"1" help:"Seed of all random choices."`
	MaxWorkers   int                `name:"max-workers" default:"512" help:"Most workers."`
	MaxQueued    int                `name:"max-queued" default:"1024" help:"Most requests that wait while all workers are busy. More get status 429."`
	QueueOrder   router.Order       `name:"queue-order" default:"fcfs" help:"Order of waiting requests of equal priority: fcfs, lcfs, wspt, or fair (tenants take turns, by x-gateway-inference-fairness-id, else by their keys)."`
	BusyFactor   float64            `name:"busy-factor" default:"0" help:"A worker also counts as busy when its prompts to compute fill this many steps."`
	QueueTimeout time.Duration      `name:"queue-timeout" default:"30s" help:"Longest wait while all workers are busy. 0: requests do not wait. Envoy's message_timeout must be longer."`
	ProbeEvery   time.Duration      `name:"probe-every" default:"1s" help:"Interval of health probes of a worker."`
	ProbeTimeout time.Duration      `name:"probe-timeout" default:"2s" help:"Time limit of a health probe."`
	APIKeyFile   string             `name:"api-key-file" type:"path" placeholder:"FILE" help:"File of API keys, one per line: \"tenant: key\" or \"tenant: key admin\". Workers must accept them too."`
	WorkerKey    string             `name:"worker-key" placeholder:"KEY" help:"Key for the picker's own requests to workers. Default: the first key without admin rights."`
	Salts        string             `enum:"auto,coppice,plain" default:"auto" help:"How caches are separated: coppice (by tenant and cache_salt), plain (by cache_salt alone, as vLLM and SGLang do), or auto (plain while no worker is coppice serve)."`
	MaxOpen      int                `name:"max-open" default:"16384" help:"Most open requests."`
	MaxBody      int                `name:"max-body" default:"8388608" placeholder:"BYTES" help:"Largest request body."`
	MaxBodies    int                `name:"max-bodies" default:"268435456" placeholder:"BYTES" help:"Most bytes of the bodies of all open requests. A request beyond it gets status 503."`

	ports *eventurl.ZMQ // where all workers publish events, from --events zmq://*:PORT
}

// gateway returns the gateway's configuration.
func (c *chooseFlags) gateway(log *zap.Logger) (cfg gateway.Config, err error) {
	cfg = gateway.Config{
		Router: router.Config{
			BlockTokens: c.BlockTokens, Policy: c.Policy, Seed: c.Seed, MaxWorkers: c.MaxWorkers, MaxQueued: c.MaxQueued, PrefixBlocks: c.PrefixBlocks,
			TierWeights: c.TierWeights, SessionTTL: c.SessionTTL, Order: c.QueueOrder, BusyFactor: c.BusyFactor,
		},
		Buckets: c.Buckets, Stage: c.Stage,
		// The gateway takes zeros for its defaults: translate those that mean none.
		EventOutlast: cmp.Or(c.Outlast, -1), StallAfter: cmp.Or(c.StallAfter, -1), QueueTimeout: cmp.Or(c.QueueTimeout, 1),
		GuessTTL: c.GuessTTL, NoPredict: !c.Predict, ProbeEvery: c.ProbeEvery, ProbeTimeout: c.ProbeTimeout,
		MaxOpen: c.MaxOpen, MaxBodyBytes: c.MaxBody, MaxBodiesBytes: c.MaxBodies, Log: log,
	}
	keys, err := c.keys()
	weights, err2 := c.weights()
	cfg.Router.Weights = weights
	if err = errors.Join(err, err2, c.events(&cfg), c.replicas(&cfg), c.prompts(&cfg), c.pools(&cfg, log)); err != nil {
		return cfg, err
	}
	if cfg.WorkerKey = c.WorkerKey; len(keys) > 0 {
		ring, err := server.NewKeyring(keys)
		if err != nil {
			return cfg, fmt.Errorf("--api-key-file: %w", err)
		}
		cfg.Tenant = ring.Find
		if i := slices.IndexFunc(keys, func(k server.Key) bool { return !k.Admin }); i >= 0 && c.WorkerKey == "" {
			cfg.WorkerKey = keys[i].Secret
		}
	}
	return cfg, nil
}

// keys reads the file of keys. Errors do not quote lines, which hold secrets.
func (c *chooseFlags) keys() (keys []server.Key, err error) {
	if c.APIKeyFile == "" {
		return nil, nil
	}
	f, err := os.Open(c.APIKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--api-key-file: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		tenant, rest, _ := strings.Cut(line, ":")
		words := strings.Fields(rest)
		if len(words) == 0 || len(words) > 2 || len(words) == 2 && words[1] != "admin" {
			return nil, fmt.Errorf("--api-key-file: line %d is not like \"tenant: key\" or \"tenant: key admin\"", n)
		}
		keys = append(keys, server.Key{Tenant: strings.TrimSpace(tenant), Secret: words[0], Admin: len(words) == 2})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("--api-key-file: %w", err)
	}
	if len(keys) == 0 {
		return nil, errors.New("--api-key-file: it has no keys: every request would be refused")
	}
	return keys, nil
}

// weights returns the router's weights: the defaults, except for those that flags give.
func (c *chooseFlags) weights() (router.Weights, error) {
	w := router.DefaultWeights()
	w.Temperature = c.Temperature
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Weight)) {
		err := w.Set(name, c.Weight[name])
		if used := c.Policy.WeightNames(); err == nil && !slices.Contains(used, strings.ToLower(name)) {
			err = fmt.Errorf("policy %v has no weight %s; its weights are %s", c.Policy, name, strings.Join(used, ", "))
		}
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, w.Validate())...); err != nil {
		return w, fmt.Errorf("--weight: %w", err)
	}
	return w, nil
}

// events sets the sources of the workers' events: cfg.NATS, or c.ports for ZMQ.
func (c *chooseFlags) events(cfg *gateway.Config) error {
	all := eventurl.Split(c.Events)
	for _, text := range all {
		if text == "auto" {
			continue
		}
		if text == "none" {
			if cfg.Approximate = true; len(all) > 1 {
				return errors.New("--events none excludes other values of --events")
			}
			continue
		}
		if rest, ok := strings.CutPrefix(text, gateway.BindScheme); ok {
			b, err := gateway.ParseBind(rest)
			if err != nil || cfg.Bind != nil {
				return fmt.Errorf("--events %.200s: %w", text, cmp.Or(err, errors.New("it is the second of its kind")))
			}
			cfg.Bind = b
			continue
		}
		t, err := eventurl.Parse(text)
		switch {
		case err == nil && t.NATS != nil && cfg.NATS == nil:
			cfg.NATS = t.NATS
		case err == nil && t.ZMQ != nil && c.ports == nil && t.ZMQ.Host == "*" && t.ZMQ.Port > 0:
			c.ports = t.ZMQ
		default:
			return fmt.Errorf("--events %s: want auto, none, zmq://*:PORT or nats://host:4222, each once: %w", eventurl.Redact(text), cmp.Or(err, errors.New("it is another form, or the second of its kind")))
		}
	}
	for _, text := range eventurl.Split(c.Consolidate) {
		t, err := eventurl.Parse(text)
		if err != nil || t.ZMQ == nil || t.ZMQ.Host != "*" || t.ZMQ.Port == 0 {
			return fmt.Errorf("--consolidate %s: want zmq://*:PORT", eventurl.Redact(text))
		}
		cfg.Consolidate = append(cfg.Consolidate, gateway.Sockets{Port: t.ZMQ.Port, ReplayPort: max(0, t.ZMQ.Replay), Topic: t.ZMQ.Topic})
	}
	return nil
}

// replicas connects the picker with others of the same workers.
func (c *chooseFlags) replicas(cfg *gateway.Config) error {
	switch t, err := eventurl.Parse(c.Replicas); {
	case c.Replicas == "":
	case c.Replicas == "auto" && cfg.NATS != nil:
		cfg.Replicas = (&replica.Config{NATS: *cfg.NATS}).Join
	case c.Replicas != "auto" && strings.Contains(c.Replicas, "://") && err == nil && t.NATS != nil:
		cfg.Replicas = (&replica.Config{NATS: *t.NATS}).Join
	default:
		return fmt.Errorf("--replicas %s: want nats://host:4222?prefix=P, or auto with a NATS in --events", eventurl.Redact(c.Replicas))
	}
	return nil
}

// prompts sets how prompts are read.
func (c *chooseFlags) prompts(cfg *gateway.Config) (err error) {
	p := &cfg.Prompt
	plain := func(_, salt string) kv.Namespace { return kv.Namespace{Salt: salt} }
	p.Namespace = conversation.Namespace
	switch c.Salts {
	case "plain":
		p.Namespace = plain
	case "auto":
		p.ForeignNamespace = plain
	}
	if c.Model == "" {
		return nil
	}
	if p.Tokenizer, err = local.Tokenizer(c.Model); err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	if p.Template, err = local.Template(c.Model); err != nil && !errors.Is(err, chat.ErrInvalid) {
		return fmt.Errorf("--model: %w", err)
	}
	b, err := fleet.Bundle(c.Model)
	if err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	cfg.Tokenizer = b.Digest
	return nil
}

// pools reads the file of pools.
func (c *chooseFlags) pools(cfg *gateway.Config, log *zap.Logger) error {
	if c.Pools == "" {
		return nil
	}
	text, err := os.ReadFile(c.Pools)
	if err != nil {
		return fmt.Errorf("--pools: %w", err)
	}
	pools, warnings, err := gateway.ParsePools(text)
	for _, w := range warnings {
		log.Warn("pools' file", zap.String("says", w))
	}
	if err != nil {
		return fmt.Errorf("--pools %s: %w", c.Pools, err)
	}
	cfg.Pools = pools
	return nil
}
