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
	"github.com/coppice-llm/coppice/internal/bounds"
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
	GuessTTL time.Duration `default:"2m" above:"0s" max:"24h"`
	// NoPredict leaves out what requests on their way will compute: by default a prompt is
	// taken to be cached where it was sent until its first token, so that requests which come
	// together with the same prefix find each other. It is the router's Predict.
	NoPredict bool
	// StallAfter is by how much a worker may be late with a token before it is not chosen
	// until it makes progress, see router.Config.Stall. Requests that it has not begun to
	// compute go to others then. Default 2 s; below 0 it is not looked at.
	StallAfter time.Duration `default:"2s"`

	// EventSilence is how long the events of a worker with a card, which has a heartbeat of a
	// second, may be silent and what they told be believed: over NATS nothing else shows that
	// they do not come any more. Default 10 s.
	EventSilence time.Duration `default:"10s" above:"0s" max:"24h"`

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
	Retries int `default:"2"`
	// ProbeEvery is how often a worker is asked how it is, ProbeTimeout how long it may
	// take to say so, and FailAfter how many times in a row it must fail to be lost.
	// Defaults 1 s, 2 s and 2.
	ProbeEvery   time.Duration `default:"1s" above:"0s" max:"24h"`
	ProbeTimeout time.Duration `default:"2s" above:"0s" max:"24h"`
	FailAfter    int           `default:"2" min:"1" max:"1<<40"`
	// DialTimeout bounds how long connecting to a worker may take. Default 2 s.
	DialTimeout time.Duration `default:"2s" above:"0s" max:"24h"`
	// QueueTimeout is how long a request may wait while all workers are busy. Default 30 s.
	QueueTimeout time.Duration `default:"30s" above:"0s" max:"24h"`

	// MaxBodyBytes bounds one request's body, MaxBodiesBytes those of all open ones.
	// Defaults 8 MiB and 256 MiB.
	MaxBodyBytes   int `default:"8<<20" min:"1" max:"1<<40"`
	MaxBodiesBytes int `max:"1<<40"`
	// MaxHeaderBytes bounds a request's header. Default 64 KiB.
	MaxHeaderBytes int `default:"64<<10" min:"1024" max:"1<<40"`
	// MaxOpen bounds the requests that are open. Default 16384.
	MaxOpen int `default:"16384" min:"1" max:"1<<40"`
	// ReadHeaderTimeout is how long a header may take, ReadTimeout a body, WriteTimeout how
	// long a client may take nothing of its answer, IdleTimeout how long a connection may
	// rest. Defaults 10 s, 30 s, 30 s and 2 min.
	ReadHeaderTimeout time.Duration `default:"10s" above:"0s" max:"24h"`
	ReadTimeout       time.Duration `default:"30s" above:"0s" max:"24h"`
	WriteTimeout      time.Duration `default:"30s" above:"0s" max:"24h"`
	IdleTimeout       time.Duration `default:"2m" above:"0s" max:"24h"`

	// NoPage leaves out the live page of the fleet at /. Version stands on it.
	NoPage  bool
	Version string

	TLS      *tls.Config // what Serve speaks, if any
	Registry *prometheus.Registry
	Log      *zap.Logger
}

// WithDefaults is c with every zero field filled in.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	c.Router = c.Router.WithDefaults()
	if c.Index.Index.Holders == 0 { // ranks, of which a worker may have some
		c.Index.Index.Holders = min(max(residency.DefaultRanks, 2*c.Router.MaxWorkers), kvindex.MaxHolders)
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
	errs := []error{bounds.Check("gateway", c), c.Router.Validate(), members.ValidateWorkers(c.Workers), chooses.ValidatePools()}
	if c.Retries > router.MaxAvoid {
		errs = append(errs, fmt.Errorf("gateway: Retries is %d, want at most %d", c.Retries, router.MaxAvoid))
	}
	if c.MaxBodiesBytes < c.MaxBodyBytes {
		errs = append(errs, fmt.Errorf("gateway: MaxBodiesBytes is %d, want at least MaxBodyBytes, %d", c.MaxBodiesBytes, c.MaxBodyBytes))
	}
	return errors.Join(errs...)
}
