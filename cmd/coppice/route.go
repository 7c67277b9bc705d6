package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/internal/conns"
	"github.com/coppice-llm/coppice/internal/eventurl"
	"github.com/coppice-llm/coppice/internal/gateway"
	"github.com/coppice-llm/coppice/router"
)

// routeCmd is coppice route; see internal/gateway.
type routeCmd struct {
	Config      string    `type:"path" placeholder:"FILE" help:"JSON file with flags as keys, as {\"addr\": \":8000\"}."`
	PrintConfig printMode `name:"print-config" help:"Print each setting and where it is from, and exit; --print-config=json prints a file for --config instead, without keys."`

	Addr        string    `default:"127.0.0.1:8000" help:"Address to listen at. Others than this machine need one like :8000, and then keys."`
	Worker      []string  `placeholder:"URL" help:"Workers, as http://host:8080; several are repeated or separated by commas."`
	WorkersFile string    `name:"workers-file" type:"path" placeholder:"FILE" help:"JSON file of workers, see above; read again when it changes."`
	Events      []string  `sep:"none" default:"auto" placeholder:"URL" help:"Where the events of workers are: auto (as they say), zmq://*:5557, nats://host:4222, or none (guess), see above."`
	Consolidate []string  `sep:"none" placeholder:"URL" help:"Events of a further cache of each worker that publishes for itself, as an offloading server beside the engine does: zmq://*:5700. Both are taken for one: a block counts while either has it."`
	Replicas    string    `placeholder:"URL" help:"Where several routers of the same workers tell each other what they reserve, and so where sessions are and what was sent where: nats://host:4222?prefix=P, or auto, the NATS of --events. Default: this router is alone."`
	Model       modelPath `placeholder:"PATH" help:"Model directory, GGUF file or hf:owner/name[:file] whose tokenizer and chat template the workers have. Default: the first worker's that hands its own out."`
	BlockTokens int       `name:"block-tokens" default:"16" min:"1" max:"4096" help:"Tokens of a block of events: the same in all of a fleet."`

	poolFlags

	Policy       router.Policy      `default:"latency" help:"How a worker is chosen: latency (predicted times to tokens), credits, 2026 or 2025 (NVIDIA Dynamo's costs of these dates), round-robin, random, least-loaded or prefix-hash."`
	Weight       map[string]float64 `placeholder:"NAME=X" help:"Weights of the policy, as ttft=1;itl=0.05; /v1/fleet/weights shows and changes them."`
	TierWeights  router.TierWeights `name:"tier-weights" default:"device=1,host=0.8,disk=0.6,shared=0.4,object=0.2" placeholder:"TIER=X" help:"How much a cached block counts by the tier where a worker has it: 1 as on the device, 0 as not cached. Those not named have the defaults. Policy credits has --weight host and disk."`
	Temperature  float64            `default:"0" min:"0" max:"1e9" help:"Above 0, workers that cost more are chosen too, by chance: 1 gives the worst a third of the best one's."`
	SessionTTL   time.Duration      `name:"session-ttl" default:"0" min:"0s" max:"8760h" help:"How long after its last request a session (header X-Session-Id, or user) keeps its worker; the same for all --replicas, whichever of them a request comes to. 0: sessions are not looked at."`
	GuessTTL     time.Duration      `name:"guess-ttl" default:"2m" min:"1ms" max:"24h" help:"How long a prompt is taken to be cached where it was sent, for workers without events."`
	Predict      bool               `default:"true" negatable:"" help:"Take a prompt to be cached where it was sent, until its first token, also for workers with events, which come a little later."`
	StallAfter   time.Duration      `name:"stall-after" default:"2s" min:"0s" max:"24h" help:"By how much a worker may be late with a token, and three times the prediction, before it gets no requests until it makes progress. 0: never."`
	Seed         uint64             `default:"1" help:"Of all chance."`
	MaxWorkers   int                `name:"max-workers" default:"512" min:"1" max:"65536" help:"Workers at most; each data-parallel rank is one."`
	MaxQueued    int                `name:"max-queued" default:"1024" min:"1" max:"1048576" help:"Requests that may wait while all workers are busy; more get status 429."`
	QueueOrder   router.Order       `name:"queue-order" default:"fcfs" help:"Who of them goes first: fcfs, lcfs, or wspt (who has least to be computed)."`
	BusyFactor   float64            `name:"busy-factor" default:"0" min:"0" max:"1e9" help:"A worker is busy, too, with so many steps' worth of prompts to compute. 0: only with as many requests as it runs."`
	QueueTimeout time.Duration      `name:"queue-timeout" default:"30s" min:"0s" max:"24h" help:"How long they may wait. 0: not at all."`
	Retries      int                `default:"2" help:"How often a request that no worker has begun to compute goes to another worker. 0: never."`
	ProbeEvery   time.Duration      `name:"probe-every" default:"1s" min:"1ms" max:"24h" help:"How often a worker is asked how it is."`
	ProbeTimeout time.Duration      `name:"probe-timeout" default:"2s" min:"1ms" max:"24h" help:"How long it may take to say so. Two such failures in a row, and nothing goes there until it answers."`

	APIKey     string `name:"api-key" placeholder:"KEY" help:"A key that requests must have, of an admin, and that the workers know too. Better in COPPICE_API_KEY: others see flags."`
	APIKeyFile string `name:"api-key-file" type:"path" placeholder:"FILE" help:"Keys, a line each: \"acme: sk-acme-1f3a\", with \" admin\" at the end for one who may see the fleet. The workers' own file serves."`
	WorkerKey  string `name:"worker-key" placeholder:"KEY" help:"Key for the router's own questions to workers. Default: the first of the keys that is no admin's, or else, unless workers register over NATS, an admin's."`
	Salts      string `enum:"coppice,plain" default:"coppice" help:"How a request's cache_salt and tenant separate caches: as coppice serve does, or plain: cache_salt alone, as vLLM does."`

	Page bool `default:"true" negatable:"" help:"Serve the live page of the fleet at /."`
	doorFlags
	TLSCert      string        `name:"tls-cert" type:"path" placeholder:"FILE" help:"Certificate chain, PEM. With --tls-key, speaks TLS."`
	TLSKey       string        `name:"tls-key" type:"path" placeholder:"FILE" help:"Its private key, PEM."`
	Drain        time.Duration `default:"30s" min:"0s" max:"8760h" help:"How long open requests may go on after SIGTERM or an interrupt. A second one ends them at once."`
	MaxBody      byteSize      `name:"max-body" default:"8MiB" min:"1B" max:"1TiB" help:"Longest body of a request."`
	MaxBodies    byteSize      `name:"max-bodies" default:"256MiB" help:"Bodies of all open requests together; one too many gets status 503."`
	MaxOpen      int           `name:"max-open" default:"16384" min:"1" max:"16777216" help:"Requests that may be open."`
	MaxConns     int           `name:"max-conns" default:"8192" min:"1" max:"16777216" help:"Connections at a time; over a few more, /health and /ready are answered, and all else gets status 503."`
	WriteTimeout time.Duration `name:"write-timeout" default:"30s" min:"1ms" max:"24h" help:"How long a client may take nothing of its answer."`
	logFlags

	settings settings      `kong:"-"`
	ports    *eventurl.ZMQ // where all workers publish events, from --events zmq://*:PORT
}

// BeforeResolve is called by kong after it has read the flags.
func (c *routeCmd) BeforeResolve(ctx *kong.Context) error {
	return c.settings.resolve(ctx, func(string, json.RawMessage) (bool, error) { return false, nil })
}

// Help is printed by kong under the summary.
func (*routeCmd) Help() string {
	return `An OpenAI-compatible server in front of several: each request goes to the worker that
will answer it soonest, by what the workers' caches hold and by what they have to do.
/ is a live page of the fleet, as is coppice top --url; /v1/fleet shows the workers,
/v1/fleet/explain why a request would go where, /metrics the rest.

Workers are coppice serve --publish …, vLLM or SGLang. They are given by --worker or in a file,

  {"workers": [{"url": "http://a:8080"},
   {"url": "http://b:8000", "events": "tcp://b:5557", "replay": "tcp://b:5657", "ranks": 2,
    "name": "b", "pool": "fast", "topic": "", "pool_tokens": 500000, "max_running": 256}]}

or register themselves over NATS. Of several ranks each has the next port. Where events are:

  auto                          as a worker says at /v1/worker; without that, guessed
  zmq://*:5557?replay=5558      at these ports of each given worker, as vLLM has them
  nats://host:4222?prefix=P     over NATS, where workers register too; with a password as
                                nats://user:password@host, or creds=FILE; tls://, ca=FILE
  none                          guessed: a prompt is cached where it was sent; of one worker
                                in the file: "events": "none"
` + poolHelp + `
Each flag may also be set by the environment, --probe-every as COPPICE_PROBE_EVERY, or in
--config.

Examples:
  coppice serve --addr 127.0.0.1:8081 --publish zmq://127.0.0.1:5557
  coppice serve --addr 127.0.0.1:8082 --publish zmq://127.0.0.1:5559
  coppice route --worker http://127.0.0.1:8081,http://127.0.0.1:8082
  coppice route --events nats://127.0.0.1:4222 --replicas auto
  coppice route --workers-file workers.json --pools pools.json
  coppice route --workers-file workers.json --buckets 4 --stage prefix --prefix-blocks 64
  coppice route --worker http://vllm-1:8000,http://vllm-2:8000 --events zmq://*:5557?replay=5558 --model ./llama --salts plain`
}

// Run is called by kong.
func (c *routeCmd) Run(ctx context.Context) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	if c.PrintConfig != "" {
		return c.settings.print(os.Stdout, c.PrintConfig, nil)
	}
	signals := make(chan os.Signal, 3) // before the rest, which may take long: loading a model's tokenizer
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	keys, err := readKeys(c.APIKey, c.APIKeyFile)
	if err != nil {
		return err
	}
	certificates, err := readCertificates(c.TLSCert, c.TLSKey)
	if err != nil {
		return err
	}
	log, err := c.log()
	if err != nil {
		return err
	}
	defer log.Sync()
	c.settings.warn(log)
	file, err := readWorkersFile(c.WorkersFile)
	if err != nil {
		return err
	}
	cfg, err := c.gateway(ctx, keys, file, log)
	if err != nil {
		return err
	}
	cfg.TLS = certificates
	l, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return fmt.Errorf("--addr: %w", err)
	}
	l = conns.Limit(l, conns.Config{Conns: c.MaxConns, Spare: conns.Spare}, new(atomic.Int64))
	defer l.Close()
	g, err := gateway.New(cfg)
	if err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	var files sync.WaitGroup
	files.Go(func() { c.watchedPools(g, log).run(watching, log) })
	files.Go(func() { c.watchedWorkers(file, g).run(watching, log) })
	defer func() { stop(); files.Wait() }()
	c.greet(os.Stderr, l.Addr(), len(cfg.Workers), len(keys) > 0)
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(l) }()
	select {
	case err := <-ended:
		return errors.Join(err, g.Close())
	case s := <-signals:
		log.Info("draining", zap.Stringer("signal", s), zap.Duration("limit", c.Drain))
	}
	return errors.Join(drain(g, c.Drain, signals, log), <-ended)
}

// greet prints the address of the router and how to watch it.
func (c *routeCmd) greet(w io.Writer, at net.Addr, workers int, keys bool) {
	scheme := "http"
	if c.TLSCert != "" {
		scheme = "https"
	}
	url := scheme + "://" + reachable(at.String())
	auth := ""
	if keys {
		auth = " -H 'Authorization: Bearer KEY'"
	}
	fmt.Fprintf(w, "coppice: routing to %d workers given, by %v\n", workers, c.Policy)
	fmt.Fprintf(w, "coppice: try  curl %s/v1/completions%s -H 'Content-Type: application/json' -d '{\"prompt\": \"What is light?\", \"max_tokens\": 32}'\n", url, auth)
	look := "/v1/fleet"
	if c.Page {
		look = "/"
	}
	fmt.Fprintf(w, "coppice: look at %s%s\n", url, look)
	if host, _, err := net.SplitHostPort(at.String()); err == nil && !keys && !net.ParseIP(host).IsLoopback() {
		fmt.Fprintln(w, "coppice: other machines can reach this, and no key is asked for: see --api-key-file")
	}
}
