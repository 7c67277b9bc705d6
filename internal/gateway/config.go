package gateway

import (
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
	"github.com/coppice-llm/coppice/internal/gateway/dispatch"
	"github.com/coppice-llm/coppice/internal/gateway/members"
	"github.com/coppice-llm/coppice/internal/gateway/prompt"
	"github.com/coppice-llm/coppice/internal/gateway/residency"
	"github.com/coppice-llm/coppice/internal/router/global"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// Config says which workers there are and how requests are spread. The zero value
// serves, without workers until SetWorkers or Announce.
type Config struct {
	Workers []members.Worker
	// Router is the policy, its weights and the block size of the whole fleet.
	Router router.Config
	// Index bounds what is known of the workers' caches.
	Index residency.Config
	// Prompt reads requests. Without a tokenizer it takes that of the first worker that
	// hands it out; until then, and without one, prompts are compared by their bytes.
	Prompt prompt.Config
	// Tokenizer is the digest of the bundle that Prompt's tokenizer and template are of;
	// workers with another one are refused. "": not known.
	Tokenizer string

	// Pools choose the pool of a request, by its length and targets, and the router a worker
	// of that. Workers that are in none of them are refused. Mode [global.Aggregated].
	Pools *global.Config
	// Buckets, in their place, deals all workers into so many pools, see [router.Deal], at
	// most [router.MaxBuckets]; Stage chooses one. 0: there are none.
	Buckets int
	Stage   router.Staging

	// NATS is where the events are of workers whose card says so. Without it they are
	// guessed.
	NATS *nats.Config
	// Replicas joins the other gateways of the fleet, as [replica.Config.Join] does. nil: this is
	// the only one. notify is told what is in the way of them, nil when nothing is any more.
	Replicas func(d *dispatch.Dispatcher, log *zap.Logger, notify func(error)) (dispatch.Peers, error)
	// Consolidate are further caches of each worker that publish for themselves, such as an offloading server's beside
	// the engine. They and the engine's are taken for one cache: a block is held while one of them has it.
	Consolidate []members.Sockets
	// Approximate routes to all workers by guesses, whatever events they have.
	Approximate bool
	// GuessTTL is how long a prompt is taken to be cached where it was sent, for workers
	// without events. Default 2 minutes.
	GuessTTL time.Duration
	// NoPredict leaves out what requests on their way will compute: by default a prompt is
	// taken to be cached where it was sent until its first token, so that requests which come
	// together with the same prefix find each other. It is the router's Predict.
	NoPredict bool
	// StallAfter is by how much a worker may be late with a token before it is not chosen
	// until it makes progress, see router.Config.Stall. Requests that it has not begun to
	// compute go to others then. Default 2 s; below 0 it is not looked at.
	StallAfter time.Duration

	// EventSilence is how long the events of a worker with a card, which has a heartbeat of a
	// second, may be silent and what they told be believed: over NATS nothing else shows that
	// they do not come any more. Default 10 s.
	EventSilence time.Duration

	quiet time.Duration // tests: as in zmq.SourceConfig

	// Tenant finds out on whose account a request comes, or refuses it. Default: nobody's.
	Tenant func(*http.Request) (tenant string, admin bool, err error)
	// AllowHosts and CORS are those of server.Config: names that a gateway without Tenant
	// answers to, and origins of web pages that may call.
	AllowHosts, CORS []string
	// WorkerKey is an API key for the gateway's own questions to workers.
	WorkerKey string

	// Retries is how often a request that no worker has begun to compute goes to another
	// worker. Default 2; below 0 never.
	Retries int
	// ProbeEvery is how often a worker is asked how it is, ProbeTimeout how long it may
	// take to say so, and FailAfter how many times in a row it must fail to be lost.
	// Defaults 1 s, 2 s and 2.
	ProbeEvery, ProbeTimeout time.Duration
	FailAfter                int
	// DialTimeout bounds how long connecting to a worker may take. Default 2 s.
	DialTimeout time.Duration
	// QueueTimeout is how long a request may wait while all workers are busy. Default 30 s.
	QueueTimeout time.Duration

	// MaxBodyBytes bounds one request's body, MaxBodiesBytes those of all open ones.
	// Defaults 8 MiB and 256 MiB.
	MaxBodyBytes, MaxBodiesBytes int
	// MaxHeaderBytes bounds a request's header. Default 64 KiB.
	MaxHeaderBytes int
	// MaxOpen bounds the requests that are open. Default 16384.
	MaxOpen int
	// ReadHeaderTimeout is how long a header may take, ReadTimeout a body, WriteTimeout how
	// long a client may take nothing of its answer, IdleTimeout how long a connection may
	// rest. Defaults 10 s, 30 s, 30 s and 2 min.
	ReadHeaderTimeout, ReadTimeout, WriteTimeout, IdleTimeout time.Duration

	// NoPage leaves out the live page of the fleet at /. Version stands on it.
	NoPage  bool
	Version string

	TLS      *tls.Config // what Serve speaks, if any
	Registry *prometheus.Registry
	Log      *zap.Logger
}

// WithDefaults is c with every zero field filled in.
func (c Config) WithDefaults() Config {
	count := func(field *int, v int) {
		if *field == 0 {
			*field = v
		}
	}
	span := func(field *time.Duration, v time.Duration) {
		if *field == 0 {
			*field = v
		}
	}
	c.Router = c.Router.WithDefaults()
	if c.Index.Index.Holders == 0 { // ranks, of which a worker may have some
		c.Index.Index.Holders = min(max(residency.DefaultRanks, 2*c.Router.MaxWorkers), kvindex.MaxHolders)
	}
	span(&c.GuessTTL, 2*time.Minute)
	span(&c.StallAfter, 2*time.Second)
	c.Router.Predict, c.Router.Stall = !c.NoPredict, max(0, c.StallAfter)
	span(&c.EventSilence, 10*time.Second)
	count(&c.Retries, 2)
	span(&c.ProbeEvery, time.Second)
	span(&c.ProbeTimeout, 2*time.Second)
	count(&c.FailAfter, 2)
	span(&c.DialTimeout, 2*time.Second)
	span(&c.QueueTimeout, 30*time.Second)
	count(&c.MaxBodyBytes, 8<<20)
	count(&c.MaxBodiesBytes, max(256<<20, c.MaxBodyBytes))
	count(&c.MaxHeaderBytes, 64<<10)
	count(&c.MaxOpen, 16384)
	span(&c.ReadHeaderTimeout, 10*time.Second)
	span(&c.ReadTimeout, 30*time.Second)
	span(&c.WriteTimeout, 30*time.Second)
	span(&c.IdleTimeout, 2*time.Minute)
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

// dispatch is what of it says how a worker is chosen.
func (c *Config) dispatch() dispatch.Config {
	return dispatch.Config{Router: c.Router, Index: c.Index, GuessTTL: c.GuessTTL, Pools: c.Pools, Buckets: c.Buckets, Stage: c.Stage, Log: c.Log}
}

// nameReplica gives a router its place among replicas.
func nameReplica(r *router.Config) {
	for r.Replica == 0 {
		r.Replica = router.ReplicaID(rand.Uint64())
	}
	if r.Epoch == 0 {
		r.Epoch = uint64(time.Now().UnixNano())
	}
}

// Validate reports all faults at once, by field and value. It expects defaults to be
// filled in.
func (c *Config) Validate() error {
	chooses := c.dispatch()
	errs := []error{c.Router.Validate(), members.ValidateWorkers(c.Workers), chooses.ValidatePools()}
	count := func(field string, v, lo int) {
		if v < lo || v > 1<<40 {
			errs = append(errs, fmt.Errorf("gateway: %s is %d, want %d to %d", field, v, lo, 1<<40))
		}
	}
	if c.Retries > router.MaxAvoid {
		errs = append(errs, fmt.Errorf("gateway: Retries is %d, want at most %d", c.Retries, router.MaxAvoid))
	}
	count("FailAfter", c.FailAfter, 1)
	count("MaxBodyBytes", c.MaxBodyBytes, 1)
	count("MaxBodiesBytes", c.MaxBodiesBytes, c.MaxBodyBytes)
	count("MaxHeaderBytes", c.MaxHeaderBytes, 1024)
	count("MaxOpen", c.MaxOpen, 1)
	span := func(field string, v time.Duration) {
		if v <= 0 || v > 24*time.Hour {
			errs = append(errs, fmt.Errorf("gateway: %s is %v, want more than 0, up to a day", field, v))
		}
	}
	span("GuessTTL", c.GuessTTL)
	span("EventSilence", c.EventSilence)
	span("ProbeEvery", c.ProbeEvery)
	span("ProbeTimeout", c.ProbeTimeout)
	span("DialTimeout", c.DialTimeout)
	span("QueueTimeout", c.QueueTimeout)
	span("ReadHeaderTimeout", c.ReadHeaderTimeout)
	span("ReadTimeout", c.ReadTimeout)
	span("WriteTimeout", c.WriteTimeout)
	span("IdleTimeout", c.IdleTimeout)
	return errors.Join(errs...)
}
