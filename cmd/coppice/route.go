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

	"github.com/coppice-llm/coppice/events/eventurl"
	"github.com/coppice-llm/coppice/gateway"
	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/internal/web"
	"github.com/coppice-llm/coppice/router"
)

// routeCmd is coppice route; see gateway.
type routeCmd struct {
	Config string `type:"path" placeholder:"FILE" help:"JSON file of settings, for example {\"addr\": \":8000\"}."`

	Addr        string    `default:"127.0.0.1:8000" help:"Address to listen on. To accept other machines, use one like :8000 and set keys."`
	Worker      []string  `placeholder:"URL" help:"URL of a worker, for example http://host:8080. Repeat the flag, or separate URLs by commas."`
	WorkersFile string    `name:"workers-file" type:"path" placeholder:"FILE" help:"JSON file of workers, see above. The router reloads it when it changes."`
	Events      []string  `sep:"none" default:"auto" placeholder:"URL" help:"Source of the workers' cache events: auto (as each worker says), zmq://*:5557, zmq+bind://*:5557, nats://host:4222, or none (guess), see above."`
	Consolidate []string  `sep:"none" placeholder:"URL" help:"Events of a second cache beside each worker, such as an offloading server: zmq://*:5700. The router merges both caches: a block counts while either holds it."`
	Replicas    string    `placeholder:"URL" help:"NATS over which several routers of the same workers share reservations, sessions and predictions: nats://host:4222?prefix=P, or auto for the NATS of --events. Default: a single router."`
	Model       modelPath `placeholder:"PATH" help:"Model directory, GGUF file or hf:owner/name[:file] with the tokenizer and chat template of the workers. Default: those that the first worker sends."`
	BlockTokens int       `name:"block-tokens" default:"16" min:"1" max:"4096" help:"Tokens per block of the index. All routers of a fleet need the same value; the workers' blocks are as long, or a multiple."`

	poolFlags

	Policy       router.Policy      `default:"latency" help:"How the router chooses a worker: latency (lowest predicted time to first token), credits, 2026 or 2025 (NVIDIA Dynamo's costs of these dates), round-robin, random, least-loaded or prefix-hash."`
	Weight       map[string]float64 `placeholder:"NAME=X" help:"Weights of the policy, for example ttft=1;itl=0.05. /v1/fleet/weights shows and changes them."`
	TierWeights  router.TierWeights `name:"tier-weights" default:"device=1,host=0.8,disk=0.6,shared=0.4,object=0.2" placeholder:"TIER=X" help:"Value of a cached block by the tier that holds it: 1 is that of the device, 0 that of an uncached block. Unnamed tiers have the defaults. The policy credits uses --weight host and disk instead."`
	Temperature  float64            `default:"0" min:"0" max:"1e9" help:"Above 0, choose workers of higher cost too, at random: with 1 the worst worker has about a third of the best one's probability."`
	SessionTTL   time.Duration      `name:"session-ttl" default:"0" min:"0s" max:"8760h" help:"How long after its last request a session (prompt_cache_key, session_id, the header X-Session-Id, or the field user) keeps its worker, at all --replicas. 0: ignore sessions."`
	GuessTTL     time.Duration      `name:"guess-ttl" default:"2m" min:"1ms" max:"24h" help:"For workers without events: how long a prompt counts as cached at the worker that got it."`
	Outlast      time.Duration      `name:"events-outlast" default:"5m" min:"0s" max:"24h" help:"While NATS is away: how long the last known caches of healthy workers still count. Usage in answers corrects them. 0: not at all."`
	Predict      bool               `default:"true" negatable:"" help:"Count a prompt as cached at its worker until its first token, because events arrive a little later."`
	StallAfter   time.Duration      `name:"stall-after" default:"2s" min:"0s" max:"24h" help:"A worker that is late with a token by this much and by three times the prediction gets no new requests until it makes progress. 0: never."`
	Seed         uint64             `default:"1" help:"Seed of all random choices."`
	MaxWorkers   int                `name:"max-workers" default:"512" min:"1" max:"65536" help:"Most workers; each data-parallel rank counts as one."`
	MaxQueued    int                `name:"max-queued" default:"1024" min:"1" max:"1048576" help:"Most requests that wait while all workers are busy. More get status 429."`
	QueueOrder   router.Order       `name:"queue-order" default:"fcfs" help:"Order of waiting requests: fcfs, lcfs, wspt (fewest tokens to compute first), or fair (the tenants of the keys take turns, by tokens)."`
	BusyFactor   float64            `name:"busy-factor" default:"0" min:"0" max:"1e9" help:"A worker also counts as busy when its prompts to compute fill this many steps. 0: it is busy only when it runs as many requests as it can."`
	QueueTimeout time.Duration      `name:"queue-timeout" default:"30s" min:"0s" max:"24h" help:"Longest wait of a request while all workers are busy. 0: requests do not wait."`
	Retries      int                `default:"2" help:"How often a request is sent to another worker if the first has not begun to compute it. 0: never."`
	Repeats      int                `default:"1" help:"How often a request is sent again after its worker failed with it, before a byte of the answer reached the client. Not those that store a response or have tools that the server runs. 0: never, so that a request that crashes its worker takes down only one."`
	ProbeEvery   time.Duration      `name:"probe-every" default:"1s" min:"1ms" max:"24h" help:"Interval of health probes of a worker."`
	ProbeTimeout time.Duration      `name:"probe-timeout" default:"2s" min:"1ms" max:"24h" help:"Time limit of a health probe. After two failed probes in a row a worker gets no requests until it answers one."`

	Record    string   `type:"path" placeholder:"FILE" help:"Write each choice of a worker to FILE: what the router knew, chose and learnt of it. It has no text and no tokens. coppice sim fleet --decisions FILE scores other policies on it."`
	RecordMax byteSize `name:"record-max" default:"256MiB" min:"1MiB" max:"1TiB" help:"Most bytes of --record and the file before it, FILE.1, together."`

	WorkerKey string `name:"worker-key" placeholder:"KEY" help:"Key for the router's own requests to workers. Default: the first key without admin rights; without such a key an admin's, unless workers register over NATS."`
	Salts     string `enum:"auto,coppice,plain" default:"auto" help:"How caches are separated: coppice (by tenant and cache_salt, as coppice serve does), plain (by cache_salt alone, as vLLM and SGLang do) or auto (plain while no worker is coppice serve)."`

	serverFlags
	MaxOpen int `name:"max-open" default:"16384" min:"1" max:"1<<24" help:"Most open requests."`

	settings settings      `kong:"-"`
	ports    *eventurl.ZMQ // where all workers publish events, from --events zmq://*:PORT
}

// BeforeResolve is called by kong after it has read the flags.
func (c *routeCmd) BeforeResolve(ctx *kong.Context) error {
	return c.settings.resolve(ctx, func(string, json.RawMessage) (bool, error) { return false, nil })
}

// Run is called by kong.
func (c *routeCmd) Run(ctx context.Context) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	if c.PrintConfig != "" {
		return c.settings.print(terminal.Out(), c.PrintConfig, nil)
	}
	signals := make(chan os.Signal, 3) // before the rest, which may take long: loading a model's tokenizer
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	keys, certificates, log, err := c.open(&c.settings)
	if err != nil {
		return err
	}
	defer log.Sync()
	file, err := c.readWorkers()
	if err != nil {
		return err
	}
	cfg, err := c.gateway(ctx, keys, file, log)
	if err != nil {
		return err
	}
	cfg.TLS = certificates
	plan := c.memoryFlags.apply(0, int64(c.MaxBody), 0, log)
	cfg.Prompt.CacheBytes = plan.textBytes()
	cfg.MaxBodiesBytes = min(cfg.MaxBodiesBytes, int(plan.Requests/routedBytes))
	l, err := listen(c.Addr)
	if err != nil {
		return err
	}
	l = web.LimitConns(l, web.ConnLimits{Conns: c.MaxConns, Spare: web.SpareConns}, new(atomic.Int64))
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
	c.greet(terminal.Err(), l.Addr(), len(cfg.Workers), len(keys) > 0)
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

// routedBytes is the number of bytes that a byte of a body takes at the most while the router reads and routes it: its
// buffer, which grows by half, the buffer before, and the text that the tokenizer reads.
const routedBytes = 4

// greet prints the address of the router and how to watch it.
func (c *routeCmd) greet(w io.Writer, at net.Addr, workers int, keys bool) {
	fmt.Fprintf(w, "coppice: routing to %d given workers by policy %v\n", workers, c.Policy)
	path := "/v1/fleet"
	if c.Page {
		path = "/"
	}
	c.serverFlags.greet(w, at, greetText, keys, path)
}
