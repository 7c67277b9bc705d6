package router

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// MaxPromptTokens is the length of the longest prompt that a router takes.
const MaxPromptTokens = 1 << 24

// maxCount bounds the figures of workers' specs and reports, so that sums can't
// overflow: 65,536 workers of 2^40 are 2^56.
const maxCount = 1 << 40

// ReplicaID names a router among its replicas.
type ReplicaID uint64

// Config sets policy and limits. The zero value is usable.
type Config struct {
	// BlockTokens is the block size of index, events and workers. Default 16.
	BlockTokens int `default:"16" min:"1" max:"1<<16"`
	// Policy is the cost function. Default CostLatency.
	Policy Policy
	// Weights of the policy. Default DefaultWeights.
	Weights Weights
	// TierWeights are the values of cached blocks below the device. Default
	// DefaultTierWeights.
	TierWeights TierWeights
	// Profile of workers that join without one. Default DefaultProfile.
	Profile Profile
	// Seed of all random draws.
	Seed uint64
	// ExpectedOutput is the assumed number of output tokens of a request that gives
	// none. Default 256.
	ExpectedOutput int `default:"256" min:"1" max:"1<<24"`
	// PrefixBlocks is the number of blocks of a prompt that CostPrefixHash hashes.
	// Default 4.
	PrefixBlocks int `default:"4" min:"1" max:"1<<20"`

	// MaxWorkers bounds the workers. Default 512, at most 65536.
	MaxWorkers int `default:"512" min:"1" max:"1<<16"`
	// MaxModels bounds the distinct models of all workers. Default 4096, at most 1 <<
	// 20. A model takes 4 bytes per worker that serves it, and 4 more if that worker is
	// in a pool.
	MaxModels int `default:"4096" min:"1" max:"1<<20"`
	// MaxActive bounds the reservations, including those of replicas. Default 65536.
	MaxActive int `default:"65536" min:"1" max:"1<<26"`
	// Expiry is the time without progress after which Expire ends a reservation. It
	// protects the predicted load from callers that never release. Default 5 minutes,
	// as in Dynamo; there progress does not renew a reservation.
	Expiry time.Duration `default:"5m" min:"0s"`

	// Predict counts blocks of a prompt as cached at a worker while an active request
	// is about to compute them: from its choice to its first token. Without it,
	// overlaps come only from events, which report a block after it is computed, and
	// requests that arrive together with one prefix go to different workers.
	Predict bool
	// Stall is the tolerance for late tokens. A worker is stalled if it takes longer for a token
	// than the prediction plus Stall, and longer than three times the prediction. It gets no new
	// requests until it makes progress, unless all other eligible workers are stalled too. Use
	// it only if every token is reported by Progress. Default 0: workers never stall.
	Stall time.Duration `min:"0s"`

	// BusyFactor bounds the prompt tokens that a worker has yet to compute, as a multiple of its
	// WorkerSpec.BatchTokens. A worker with more is busy. When all workers are busy, requests
	// wait. 0: only WorkerSpec.MaxRequests makes a worker busy.
	BusyFactor float64 `min:"0"`
	// MaxQueued bounds the waiting requests. Default 1024.
	MaxQueued int `default:"1024" min:"1" max:"1<<20"`
	// Order of waiting requests. Default FCFS.
	Order Order

	// MaxSessions bounds the sessions; beyond it the least recently used one is
	// forgotten. Default 65536.
	MaxSessions int `default:"65536" min:"1" max:"1<<26"`
	// SessionTTL is how long a session stays bound to its worker after its last request. Default
	// 0: no affinity. It must be equal in all replicas, because they share sessions.
	SessionTTL time.Duration `min:"0s"`

	// Replica names this router among its replicas. 0: it has none, and keeps no events
	// for them.
	Replica ReplicaID
	// Epoch distinguishes this router from the same one before a restart: a later start
	// has a higher epoch. Use the start time in nanoseconds; claims on sessions build
	// on it, see Claim.
	Epoch uint64
	// MaxJournal bounds the events that Drain has not fetched. When it is reached, all of them
	// are dropped; replicas notice the gap in Event.Seq and ask for a snapshot. Default 65536.
	MaxJournal int `default:"65536" min:"1" max:"1<<26"`
	// MaxBuried bounds, per replica, the ended reservations that this router remembers. The
	// memory prevents a late event from making an ended reservation again. Default 4096.
	MaxBuried int `default:"4096" min:"1" max:"1<<26"`
	// MaxPeers bounds the replicas. Default 64.
	MaxPeers int `default:"64" min:"1" max:"1<<16"`
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	if c.Weights == (Weights{}) {
		c.Weights = DefaultWeights()
	}
	if c.TierWeights == (TierWeights{}) {
		c.TierWeights = DefaultTierWeights()
	}
	if c.Profile == (Profile{}) {
		c.Profile = DefaultProfile()
	}
	return c
}

// Validate returns all faults at once, by field and value.
func (c *Config) Validate() error {
	errs := []error{bounds.Check("router: Config", c)}
	if !policyNames.Has(c.Policy) {
		errs = append(errs, fmt.Errorf("router: Config.Policy is %v, want %v", c.Policy, policyNames.Names()))
	}
	if !orderNames.Has(c.Order) {
		errs = append(errs, fmt.Errorf("router: Config.Order is %v, want %v", c.Order, orderNames.Names()))
	}
	return errors.Join(append(errs, c.Weights.Validate(), c.TierWeights.Validate(), c.Profile.Validate())...)
}
