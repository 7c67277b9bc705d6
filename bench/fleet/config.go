package fleet

import (
	"time"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// MaxWorkers bounds a fleet.
const MaxWorkers = 4096

// Config sizes one run: a fleet, a policy and a load.
type Config struct {
	Workers int `min:"1" max:"4096"`
	Kind    Kind
	// Policy and Weights configure the router. Zero Weights are the router's defaults.
	Policy  router.Policy
	Weights router.Weights
	Staged
	Seed uint64 // of the router's random choices

	// Rate is the rate of arrivals at the whole fleet, in requests per second. If it is 0, the
	// run is a closed loop of Clients concurrent requests: whenever a request ends, the next one
	// is sent. Exactly one of Rate and Clients must be set.
	Rate    float64 `min:"0"`
	Clients int     `min:"0"`

	// Device is the device of each worker. Default h100, with a model of 8 billion
	// parameters.
	Device     sim.Profile
	KVTokens   int `default:"1<<16" min:"1" max:"1<<30"` // KV pool of a worker. Default 65,536
	StepTokens int `default:"2048" min:"1" max:"1<<30"`  // most tokens in a step of a worker. Default 2048
	MaxRunning int `default:"256" min:"1" max:"1<<30"`   // most running requests of a worker. Default 256

	// EventDelay is the time from the end of a pass until the router receives its cache
	// events.
	EventDelay time.Duration `min:"0s"`
	// Gateways is the number of gateways. Requests arrive at the gateways in turn. Gateways tell
	// each other their reservations. Default 1.
	Gateways int `default:"1" min:"1" max:"64"`
	// Lag delays all messages to and from the last gateway: reservations in both directions, and the
	// workers' cache events on their way to it.
	Lag time.Duration `min:"0s"`
	// ReportEvery is the interval at which workers report their usage, and the router
	// learns the sizes of their prefix trees. Default 100 ms.
	ReportEvery time.Duration `default:"100ms" above:"0s"`
	// Predict, if above 0, is how long the router assumes that a worker has the blocks of a
	// prompt sent to it, in addition to the blocks known by events.
	Predict time.Duration `min:"0s"`
	// PredictRequests makes the router predict by its open requests instead, as coppice route
	// does; see router.Config.Predict.
	PredictRequests bool
	// RestartAt, if above 0, is the time at which worker 0 loses its cache and its
	// requests, which are sent again.
	RestartAt time.Duration

	// Clock measures the wall time of choices, the only part of a Result that differs
	// between runs. nil measures nothing.
	Clock func() time.Time

	plant *kv.Rank // test only: pins all requests to this worker
}

// WithDefaults returns a copy with the defaults in place of zeros.
func (c Config) WithDefaults() Config {
	if c.Device == (sim.Profile{}) {
		c.Device = bench.BuiltIn("h100")
	}
	return bounds.Fill(c)
}

// Validate reports all faults at once, by field and value. Workers validate their own
// sizes, and the router validates the weights.
func (c *Config) Validate() error {
	faults := bounds.Faults{Owner: "fleet: "}
	faults.Add(bounds.Check("fleet", c))
	faults.If(c.Buckets < 0 || c.Buckets > c.Workers, "Buckets is %d, want 1 for each of %d workers at most, or 0 for none", c.Buckets, c.Workers)
	faults.If(!kinds.Has(c.Kind), "Kind is %v, want %v", c.Kind, kinds.Names())
	faults.If((c.Rate > 0) == (c.Clients > 0), "Clients is %d and Rate %v, want one of them above 0", c.Clients, c.Rate)
	faults.If(c.Gateways > 1 && c.Predict > 0, "Predict is %v with %d gateways, want PredictRequests: guesses are not shared here", c.Predict, c.Gateways)
	faults.If(c.Gateways == 1 && c.Lag > 0, "Lag is %v with one gateway, want at least 2 gateways", c.Lag)
	faults.If(c.KVTokens < 2*BlockTokens, "KVTokens is %d, want at least %d", c.KVTokens, 2*BlockTokens)
	faults.If(c.Kind == Mocker && c.StepTokens < c.MaxRunning,
		"StepTokens is %d, want at least MaxRunning, %d: each decoding request takes a token", c.StepTokens, c.MaxRunning)
	return faults.Err()
}

// believed returns the router's cost model of a worker's steps, computed from the profile of the
// device. All coefficients are in seconds.
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

// usualRows is the number of decoding rows at which believed computes the cost of a row. A step
// takes the time of reading the weights or of multiplying all rows with them, whichever is
// longer. Up to the number of rows at which both are equal, a further row is free; above it, a
// row costs its own multiplications. The router's model is linear in the rows. So believed
// divides the time of reading by usualRows and charges a row only with the excess over that.
const usualRows = 64

// chunk returns the most tokens of one prompt in a step: a quarter of the step under our
// scheduler (scheduler.Config.ChunkTokens), 0 for no limit under the mocker.
func (c *Config) chunk() int {
	if c.Kind == Mocker {
		return 0
	}
	return min(c.StepTokens, max(256, c.StepTokens/4))
}

// kvTokenBytes returns the bytes of KV of a token over all layers; the 2 is for K and V.
func kvTokenBytes(m *sim.Model) int { return 2 * m.Layers * m.KVHeads * m.HeadDim * m.KVBytes }

// mockerProfile approximates the mocker's polynomials by linear costs, for pools of kvTokens
// tokens. A decoding pass takes 5.7 ms on an empty pool and 34 ms on a full one. Block is that
// difference divided by the number of blocks of the pool.
func mockerProfile(kvTokens int) router.Profile {
	p := dynamoTiming()
	const milli = 1e-3
	return router.Profile{
		Step: milli * p.decode[0], Token: milli * p.prefill[1], Pair: milli * 2 * p.prefill[2], Prompt: milli * p.prefill[0],
		Block: milli * (p.decode[1] + p.decode[2]) / float64(kv.FloorPages(kvTokens, BlockTokens)),
	}
}
