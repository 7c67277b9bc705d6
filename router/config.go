package router

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// MaxPromptTokens is the longest prompt that is routed.
const MaxPromptTokens = 1 << 24

// maxCount bounds what workers say of themselves.
const maxCount = 1 << 40

// ReplicaID names a router among its replicas.
type ReplicaID uint64

// Config sets policy and limits. The zero value serves.
type Config struct {
	// BlockTokens is the block size of all: index, events and workers. Default 16.
	BlockTokens int
	// Policy is the cost function. Default CostLatency.
	Policy Policy
	// Weights of the policy. All zero means DefaultWeights.
	Weights Weights
	// TierWeights say what cached blocks below the device count. All zero means
	// DefaultTierWeights.
	TierWeights TierWeights
	// Profile of workers that join without one. Zero means DefaultProfile.
	Profile Profile
	// Seed of all chance.
	Seed uint64
	// ExpectedOutput is how many tokens a request is taken to output that does not
	// say. Default 256.
	ExpectedOutput int
	// PrefixBlocks is how many blocks of a prompt CostPrefixHash hashes. Default 4.
	PrefixBlocks int

	// MaxWorkers bounds the workers. Default 512, at most 65536.
	MaxWorkers int
	// MaxModels bounds the models that workers serve, all together. Default 4096, at most
	// 1 << 20; each takes 4 bytes for every worker that serves it, and as much again for
	// those that are in a pool.
	MaxModels int
	// MaxActive bounds the reservations, with those of replicas. Default 65536.
	MaxActive int
	// Expiry is after how long without progress a reservation ends by Expire: a
	// safeguard against callers who never release. Default 5 minutes, as in Dynamo,
	// where progress does not renew it.
	Expiry time.Duration

	// Predict counts the blocks of a prompt as cached at a worker where an active request
	// will compute them, from its choice to its first token: overlaps come from events,
	// which tell of blocks that are there.
	Predict bool
	// Stall is by how much a worker may be late with a token, beyond the prediction and
	// beyond three times the prediction, before it is not chosen any more. It is for callers
	// who tell each Progress. Default 0: workers are never late.
	Stall time.Duration

	// BusyFactor is by how many times the tokens of its step the prefill tokens of a
	// worker must exceed them for it to be busy. When all are, requests wait. 0: only
	// MaxRequests makes a worker busy.
	BusyFactor float64
	// MaxQueued bounds the waiting requests. Default 1024.
	MaxQueued int
	// Order is who of equal priority goes first. Default FCFS.
	Order Order

	// MaxSessions bounds the sessions; beyond it the one that was used longest ago
	// is forgotten. Default 65536.
	MaxSessions int
	// SessionTTL is how long after its last request a session keeps its worker.
	// Default 0: no affinity. Replicas have the same, and share sessions.
	SessionTTL time.Duration

	// Replica names this router among its replicas. 0: it has none, and no events
	// are kept for them.
	Replica ReplicaID
	// Epoch tells a router from itself before a restart: higher is later, so the time
	// of its start will do. In nanoseconds it is what claims on sessions go by, see Claim.
	Epoch uint64
	// MaxJournal bounds the events that Drain has not fetched; beyond it the oldest
	// are lost, which replicas see by their numbers. Default 65536.
	MaxJournal int
	// MaxBuried bounds, for each replica, the reservations that are remembered as
	// ended, so that what comes late does not bring them back. Default 4096.
	MaxBuried int
	// MaxPeers bounds the replicas. Default 64.
	MaxPeers int
}

// WithDefaults fills what is zero.
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

// Validate reports all faults at once, by field and value.
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
