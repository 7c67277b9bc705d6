package gateway

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/gateway/internal/dispatch"
	"github.com/coppice-llm/coppice/gateway/internal/global"
	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/gateway/internal/prompt"
	"github.com/coppice-llm/coppice/gateway/internal/residency"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// The types of Config's fields that other packages of the gateway declare.
type (
	// WorkerConfig is the address of a worker, and facts that it does not publish itself.
	WorkerConfig = members.WorkerConfig
	// Bind is a port at which the gateway listens for the events of workers that connect.
	Bind = members.Bind
	// Sockets are the ports at which the host of each worker publishes the events of a further cache.
	Sockets = members.Sockets
	// PromptConfig configures how prompts become tokens.
	PromptConfig = prompt.Config
	// PoolsConfig is a grid of pools, in the form of Dynamo's global router.
	PoolsConfig = global.Config
)

// ErrDisaggregated is the error of ParsePools for separate pools for prefill and decode.
var ErrDisaggregated = global.ErrDisaggregated

// ParsePools reads a JSON configuration of Dynamo's global router. Warnings name keys of an older form.
func ParsePools(text []byte) (cfg *PoolsConfig, warnings []string, err error) {
	return global.Parse(text)
}

// Config describes the workers and how requests are spread over them. The zero value works;
// workers then come from SetWorkers or registration.
type Config struct {
	Workers []WorkerConfig
	// Router is the policy, its weights, and the block size of the whole fleet.
	Router router.Config
	// Index bounds the memory for the state of the workers' caches.
	Index residency.Config
	// Prompt configures how requests are read. Without a tokenizer the gateway uses that of the
	// first worker that offers one; until then, prompts are compared by their bytes.
	Prompt PromptConfig
	// Tokenizer is the digest of the bundle that contains Prompt's tokenizer and template.
	// Workers with another digest are refused. "": unknown.
	Tokenizer string

	// Pools choose the pool of a request by its length and latency targets; the router then
	// chooses a worker in that pool. Workers outside of all pools are refused.
	Pools *PoolsConfig
	// Buckets is an alternative to Pools: all workers are divided into this many pools, see
	// [router.Deal]; at most [router.MaxBuckets]. Stage says how the pool of a request is
	// chosen. 0: no pools.
	Buckets int
	Stage   router.Staging

	// NATS is the bus for the events of workers whose card asks for it. Without it the contents
	// of their caches are guessed.
	NATS *nats.Config
	// Replicas connects to the other gateways of the fleet, as [replica.Config.Join] does. nil:
	// this is the only gateway. The function calls notify with an error while there is a
	// problem, and with nil when it is solved.
	Replicas func(d *dispatch.Dispatcher, log *zap.Logger, notify func(error)) (dispatch.Peers, error)
	// Bind is where the gateway listens for the events of workers that publish nowhere else and connect
	// instead. nil: nowhere.
	Bind *Bind
	// Consolidate lists further event sources of each worker, such as an offloading server
	// beside the engine. All sources of a worker count as one cache: it holds a block while any
	// source has it.
	Consolidate []Sockets
	// Approximate ignores events and guesses the contents of all caches.
	Approximate bool
	// GuessTTL is how long a prompt counts as cached on the worker it was sent to, for workers
	// without events. Default 2 minutes.
	GuessTTL time.Duration `default:"2m" above:"0s" max:"24h"`
	// NoPredict turns off prediction. With prediction a prompt counts as cached where it was
	// sent, until its first token, so that simultaneous requests with the same prefix go to the
	// same worker. Router.Predict is set to the inverse of NoPredict.
	NoPredict bool
	// StallAfter is the tolerance for a worker's late tokens; see router.Config.Stall. A late
	// worker is no longer chosen until it makes progress, and requests that it has not begun
	// move to other workers. Default 2 s; negative: off.
	StallAfter time.Duration `default:"2s"`

	// EventSilence is how long no event may arrive from a worker with a card before its index
	// entries are no longer trusted. Such a worker sends a heartbeat every second. Over NATS
	// nothing else shows that events no longer arrive. Default 10 s.
	EventSilence time.Duration `default:"10s" above:"0s" max:"24h"`

	// EventOutlast is how long the last known cache of a worker still counts while NATS is away and
	// the worker is healthy. The usage in its answers corrects what is known. Default 5 min;
	// negative: not at all.
	EventOutlast time.Duration `default:"5m" max:"24h"`

	quiet time.Duration // in tests: see zmq.SourceConfig

	// Tenant returns the tenant of a request, or refuses it. Default: one unnamed tenant with
	// admin rights.
	Tenant func(*http.Request) (tenant string, admin bool, err error)
	// AllowHosts and CORS are as in server.Config: host names that a gateway without Tenant
	// answers to, and origins of web pages that may call.
	AllowHosts, CORS []string
	// WorkerKey is the API key for the gateway's own requests to workers.
	WorkerKey string

	// Retries is how often a request that no worker has begun to compute is sent again, usually
	// to another worker. Default 2; negative: never.
	Retries int `default:"2"`
	// Repeats is how often a request is sent again although a worker may have begun it, because that worker failed before a
	// byte of the answer reached the client. Requests with effects beyond their answer are not: those that store a response,
	// or have tools that the worker runs. A request that crashes its workers takes down 1 + Repeats of them. Default 1;
	// negative: never.
	Repeats int `default:"1"`
	// ProbeEvery is the time between health probes of a worker, ProbeTimeout the limit for its
	// answer, and FailAfter the number of failed probes in a row after which it counts as lost.
	// Defaults 1 s, 2 s and 2.
	ProbeEvery   time.Duration `default:"1s" above:"0s" max:"24h"`
	ProbeTimeout time.Duration `default:"2s" above:"0s" max:"24h"`
	FailAfter    int           `default:"2" min:"1" max:"1<<40"`
	// DialTimeout bounds the time to connect to a worker. Default 2 s.
	DialTimeout time.Duration `default:"2s" above:"0s" max:"24h"`
	// QueueTimeout is how long a request may wait while all workers are busy. Default 30 s.
	QueueTimeout time.Duration `default:"30s" above:"0s" max:"24h"`

	// MaxBodyBytes bounds one request's body, MaxBodiesBytes the bodies of all open requests
	// together. Defaults 8 MiB and 256 MiB.
	MaxBodyBytes   int `default:"8<<20" min:"1" max:"1<<40"`
	MaxBodiesBytes int `max:"1<<40"`
	// MaxHeaderBytes bounds a request's header. Default 64 KiB.
	MaxHeaderBytes int `default:"64<<10" min:"1024" max:"1<<40"`
	// MaxOpen bounds the open requests. Default 16384.
	MaxOpen int `default:"16384" min:"1" max:"1<<40"`
	// ReadHeaderTimeout bounds the time to read a header, ReadTimeout a body. WriteTimeout ends
	// a request whose client reads nothing of its answer for so long, IdleTimeout an idle
	// connection. Defaults 10 s, 30 s, 30 s and 2 min.
	ReadHeaderTimeout time.Duration `default:"10s" above:"0s" max:"24h"`
	ReadTimeout       time.Duration `default:"30s" above:"0s" max:"24h"`
	WriteTimeout      time.Duration `default:"30s" above:"0s" max:"24h"`
	IdleTimeout       time.Duration `default:"2m" above:"0s" max:"24h"`

	// Record is the path of a file to which the gateway writes its decisions, as package router/decisions says: what it knew, chose
	// and learnt, without texts and tokens. RecordBytes bounds it, with the file before it at Record + ".1"; default 256 MiB.
	// Requests never wait for it.
	Record      string
	RecordBytes int `default:"256<<20" min:"1<<20" max:"1<<40"`

	// NoPage turns off the live page of the fleet at /. The page shows Version.
	NoPage  bool
	Version string

	TLS      *tls.Config // for Serve; nil: plain HTTP
	Registry *prometheus.Registry
	Log      *zap.Logger
}

// WithDefaults returns c with every zero field set to its default.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	c.Router = c.Router.WithDefaults()
	if c.Index.Index.Holders == 0 { // per rank, and a worker may have several ranks
		c.Index.Index.Holders = min(max(residency.DefaultRanks, 2*c.Router.MaxWorkers), kvindex.MaxHolders/2) // half: lower tiers have a holder each too
	}
	c.Router.Predict, c.Router.Stall = !c.NoPredict, max(0, c.StallAfter)
	c.MaxBodiesBytes = cmp.Or(c.MaxBodiesBytes, max(256<<20, c.MaxBodyBytes))
	if c.Tenant == nil {
		c.Tenant = func(*http.Request) (string, bool, error) { return "", true, nil }
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
		c.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// dispatch returns the part of c about choosing a worker.
func (c *Config) dispatch() dispatch.Config {
	return dispatch.Config{Router: c.Router, Index: c.Index, GuessTTL: c.GuessTTL, Pools: c.Pools, Buckets: c.Buckets, Stage: c.Stage, Log: c.Log, Record: c.Record != ""}
}

// nameReplica gives a router a random replica ID, and the current time as its epoch.
func nameReplica(r *router.Config) {
	for r.Replica == 0 {
		r.Replica = router.ReplicaID(rand.Uint64())
	}
	if r.Epoch == 0 {
		r.Epoch = uint64(time.Now().UnixNano())
	}
}

// Validate reports all faults at once, by field and value. Call it on the result of
// WithDefaults.
func (c *Config) Validate() error {
	chooses := c.dispatch()
	errs := []error{bounds.Check("gateway", c), c.Router.Validate(), members.ValidateWorkers(c.Workers), chooses.ValidatePools()}
	if n := max(0, c.Retries) + max(0, c.Repeats); n > router.MaxAvoid {
		errs = append(errs, fmt.Errorf("gateway: Retries and Repeats are %d together, want at most %d", n, router.MaxAvoid))
	}
	if c.MaxBodiesBytes < c.MaxBodyBytes {
		errs = append(errs, fmt.Errorf("gateway: MaxBodiesBytes is %d, want at least MaxBodyBytes, %d", c.MaxBodiesBytes, c.MaxBodyBytes))
	}
	return errors.Join(errs...)
}
