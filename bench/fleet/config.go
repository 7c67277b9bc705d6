package fleet

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/bench/fleet/mocker"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// MaxWorkers bounds a fleet.
const MaxWorkers = 4096

// Config is one run: a fleet, a policy and a load.
type Config struct {
	Workers int `min:"1" max:"4096"`
	Kind    Kind
	// Policy and Weights are the router's; no weights are the defaults.
	Policy  router.Policy
	Weights router.Weights
	Staged
	Seed uint64 // of the router's chance

	// Rate is of arrivals, in requests per second of the whole fleet. 0 is a closed
	// loop: as many requests at a time as Clients, each followed by the next one.
	Rate    float64 `min:"0"`
	Clients int     `min:"0"`

	// Device of each worker. Default h100, with a model of 8 billion parameters.
	Device     sim.Profile
	KVTokens   int `default:"1<<16" min:"1" max:"1<<30"` // KV pool of a worker. Default 65,536
	StepTokens int `default:"2048" min:"1" max:"1<<30"`  // of a worker. Default 2048
	MaxRunning int `default:"256" min:"1" max:"1<<30"`   // requests that a worker runs at a time. Default 256

	// EventDelay is how long after a pass the router hears of its cache events.
	EventDelay time.Duration `min:"0s"`
	// ReportEvery is how often workers report usage, and the router hears of the sizes
	// of trees. Default 100 ms.
	ReportEvery time.Duration `default:"100ms" above:"0s"`
	// Predict, if above 0, is for how long the router takes a prompt to be where it
	// was sent, beside what events say.
	Predict time.Duration `min:"0s"`
	// PredictRequests has the router predict by its requests instead, as coppice route does:
	// see router.Config.Predict.
	PredictRequests bool
	// RestartAt, if above 0, is when worker 0 loses all it has and its requests come anew.
	RestartAt time.Duration

	// Clock measures what a choice costs; nil measures nothing. It is wall time, the
	// only thing in a Result that is not the same in every run.
	Clock func() time.Time

	plant *kv.Rank // a policy that no router has: all go to this worker
}

// WithDefaults fills what is zero.
func (c Config) WithDefaults() (Config, error) {
	if c.Device == (sim.Profile{}) {
		var err error
		if c.Device, err = sim.ProfileByName("h100"); err != nil {
			return c, err
		}
	}
	return bounds.Fill(c), nil
}

// Validate reports all faults at once, by field and value; those of a worker's sizes
// and of weights are the worker's and the router's to find.
func (c *Config) Validate() error {
	errs := []error{bounds.Check("fleet", c)}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("fleet: "+format, args...)) }
	if c.Buckets < 0 || c.Buckets > c.Workers {
		bad("Buckets is %d, want 1 for each of %d workers at most, or 0 for none", c.Buckets, c.Workers)
	}
	if !kinds.Has(c.Kind) {
		bad("Kind is %v, want %v", c.Kind, kinds.Names())
	}
	if (c.Rate > 0) == (c.Clients > 0) {
		bad("Clients is %d and Rate %v, want one of them above 0", c.Clients, c.Rate)
	}
	if c.KVTokens < 2*BlockTokens {
		bad("KVTokens is %d, want at least %d", c.KVTokens, 2*BlockTokens)
	}
	return errors.Join(errs...)
}

// believed is what the router takes a worker's steps to cost, from the profile.
func (c *Config) believed() router.Profile {
	if c.Kind == Mocker {
		return mockerProfile(c.KVTokens)
	}
	m, d, e := &c.Device.Model, &c.Device.Device, &c.Device.Eff
	head, linear := float64(m.Vocab*m.Hidden), float64(m.LinearParams)
	perToken := float64(kvTokenBytes(m))
	weights, row := (linear+head)*m.WeightBytes/(e.Weights*d.BW), 2*(linear+head)/(e.Flops*d.Flops)
	return router.Profile{
		Step:      e.Step + e.Host0 + weights,
		Token:     2 * linear / (e.Flops * d.Flops),
		Pair:      float64(4*m.Heads*m.HeadDim*m.Layers) / (e.Attend * d.Flops),
		Row:       e.Row + e.Host1 + float64(4*m.Vocab)/(e.Sample*d.BW) + max(0, row-weights/usualRows),
		KV:        perToken / (e.KVRow * d.BW),
		HostBlock: BlockTokens * perToken / (e.PCIe * d.PCIe),
	}
}

// usualRows is how many rows decode together in the profile of a device: with fewer of them
// than it computes while it reads the weights, a row more takes no time, and with more it
// takes its own.
const usualRows = 64

// chunk is what one long prompt takes of a step while others decode: a quarter under
// our scheduler (scheduler.Config.ChunkTokens), all under the mocker.
func (c *Config) chunk() int {
	if c.Kind == Mocker {
		return 0
	}
	return min(c.StepTokens, max(256, c.StepTokens/4))
}

// kvTokenBytes is the KV of a token over all layers.
func kvTokenBytes(m *sim.Model) int { return 2 * m.Layers * m.KVHeads * m.HeadDim * m.KVBytes }

// mockerProfile is what is nearest to the mocker's polynomials: a decoding pass takes
// 5.7 ms and, as its pool fills with distinct blocks, some 34 ms (the chord from empty to
// full).
func mockerProfile(kvTokens int) router.Profile {
	p := mocker.DefaultPolynomial()
	const milli = 1e-3
	return router.Profile{
		Step: milli * p.Decode[0], Token: milli * p.Prefill[1], Pair: milli * 2 * p.Prefill[2], Prompt: milli * p.Prefill[0],
		Block: milli * (p.Decode[1] + p.Decode[2]) / float64(kv.FloorPages(kvTokens, BlockTokens)),
	}
}
