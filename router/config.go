package router

import (
	"errors"
	"fmt"
	"math"
	"time"
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
	BlockTokens int
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
	ExpectedOutput int
	// PrefixBlocks is the number of blocks of a prompt that CostPrefixHash hashes.
	// Default 4.
	PrefixBlocks int

	// MaxWorkers bounds the workers. Default 512, at most 65536.
	MaxWorkers int
	// MaxModels bounds the distinct models of all workers. Default 4096, at most 1 <<
	// 20. A model takes 4 bytes per worker that serves it, and 4 more if that worker is
	// in a pool.
	MaxModels int
	// MaxActive bounds the reservations, including those of replicas. Default 65536.
	MaxActive int
	// Expiry is the time without progress after which Expire ends a reservation. It
	// protects the predicted load from callers that never release. Default 5 minutes,
	// as in Dynamo; there progress does not renew a reservation.
	Expiry time.Duration

	// Predict counts blocks of a prompt as cached at a worker while an active request
	// is about to compute them: from its choice to its first token. Without it,
	// overlaps come only from events, which report a block after it is computed, and
	// requests that arrive together with one prefix go to different workers.
	Predict bool
	// Stall is the time by which a worker may exceed both the prediction of a token and
	// three times that prediction. Later it gets no new requests until it makes
	// progress. Use it only if every token is reported by Progress. Default 0: workers
	// never stall.
	Stall time.Duration

	// BusyFactor makes a worker busy when its prompt tokens to compute exceed this many
	// steps' budgets. When all workers are busy, requests wait. 0: only MaxRequests
	// makes a worker busy.
	BusyFactor float64
	// MaxQueued bounds the waiting requests. Default 1024.
	MaxQueued int
	// Order of waiting requests of equal priority. Default FCFS.
	Order Order

	// MaxSessions bounds the sessions; beyond it the least recently used one is
	// forgotten. Default 65536.
	MaxSessions int
	// SessionTTL is the time after its last request for which a session keeps its
	// worker. Default 0: no affinity. It must be equal in all replicas, which share
	// sessions.
	SessionTTL time.Duration

	// Replica names this router among its replicas. 0: it has none, and keeps no events
	// for them.
	Replica ReplicaID
	// Epoch distinguishes this router from the same one before a restart: a later start
	// has a higher epoch. Use the start time in nanoseconds; claims on sessions build
	// on it, see Claim.
	Epoch uint64
	// MaxJournal bounds the events that Drain has not fetched. Beyond it the oldest are
	// lost; replicas notice by the numbers. Default 65536.
	MaxJournal int
	// MaxBuried bounds, per replica, the reservations remembered as ended. The memory
	// prevents a late event from reviving them. Default 4096.
	MaxBuried int
	// MaxPeers bounds the replicas. Default 64.
	MaxPeers int
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	set(&c.BlockTokens, 16)
	set(&c.ExpectedOutput, 256)
	set(&c.PrefixBlocks, 4)
	set(&c.MaxWorkers, 512)
	set(&c.MaxModels, 4096)
	set(&c.MaxActive, 65536)
	set(&c.MaxQueued, 1024)
	set(&c.MaxSessions, 65536)
	set(&c.MaxJournal, 65536)
	set(&c.MaxBuried, 4096)
	set(&c.MaxPeers, 64)
	if c.Weights == (Weights{}) {
		c.Weights = DefaultWeights()
	}
	if c.TierWeights == (TierWeights{}) {
		c.TierWeights = DefaultTierWeights()
	}
	if c.Profile == (Profile{}) {
		c.Profile = DefaultProfile()
	}
	if c.Expiry == 0 {
		c.Expiry = 5 * time.Minute
	}
	return c
}

// Validate returns all faults at once, by field and value.
func (c *Config) Validate() error {
	var errs []error
	bad := func(field string, value, want any) {
		errs = append(errs, fmt.Errorf("router: Config.%s is %v, want %v", field, value, want))
	}
	for _, f := range []struct {
		name        string
		value, most int
	}{
		{"BlockTokens", c.BlockTokens, 1 << 16}, {"ExpectedOutput", c.ExpectedOutput, MaxPromptTokens},
		{"PrefixBlocks", c.PrefixBlocks, 1 << 20}, {"MaxWorkers", c.MaxWorkers, 1 << 16}, {"MaxModels", c.MaxModels, 1 << 20},
		{"MaxActive", c.MaxActive, 1 << 26},
		{"MaxQueued", c.MaxQueued, 1 << 20}, {"MaxSessions", c.MaxSessions, 1 << 26}, {"MaxJournal", c.MaxJournal, 1 << 26},
		{"MaxBuried", c.MaxBuried, 1 << 26}, {"MaxPeers", c.MaxPeers, 1 << 16},
	} {
		if f.value < 1 || f.value > f.most {
			bad(f.name, f.value, fmt.Sprintf("1 to %d", f.most))
		}
	}
	if !policyNames.Has(c.Policy) {
		bad("Policy", c.Policy, policyNames.Names())
	}
	if !orderNames.Has(c.Order) {
		bad("Order", c.Order, orderNames.Names())
	}
	if c.Expiry < 0 {
		bad("Expiry", c.Expiry, "a positive duration")
	}
	if c.Stall < 0 {
		bad("Stall", c.Stall, "0 or a positive duration")
	}
	if c.SessionTTL < 0 {
		bad("SessionTTL", c.SessionTTL, "0 or a positive duration")
	}
	if !(c.BusyFactor >= 0) || math.IsInf(c.BusyFactor, 0) {
		bad("BusyFactor", c.BusyFactor, "0 or a positive number")
	}
	return errors.Join(append(errs, c.Weights.Validate(), c.TierWeights.Validate(), c.Profile.Validate())...)
}
