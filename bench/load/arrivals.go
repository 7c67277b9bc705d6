package load

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/enum"
)

// Ramp selects how the rate of arrivals changes over a run.
type Ramp uint8

const (
	NoRamp      Ramp = iota // constant Rate
	Linear                  // from From to Rate, linearly
	Exponential             // from From to Rate, exponentially
)

var ramps = enum.New[Ramp]("load", "ramp", "none", "linear", "exponential")

// String returns the name in lower case.
func (r Ramp) String() string { return ramps.Name(r) }

// UnmarshalText accepts the names that String returns.
func (r *Ramp) UnmarshalText(text []byte) error { return ramps.Read(r, text) }

// Arrivals describes an open loop: the times at which sessions begin. Seed determines
// them.
type Arrivals struct {
	Rate float64 // sessions per second, at the end of a ramp; +Inf: all at once
	// Burstiness is the shape of the gamma distribution of the gaps. 1, the default, is
	// a Poisson process; below 1 arrivals come in bursts; above 1 they are more even,
	// and +Inf gives equal gaps. Source: vllm/benchmarks/serve.py, get_request.
	Burstiness float64 `default:"1"`
	Ramp       Ramp
	From       float64 // sessions per second at the beginning of a ramp
	Seed       uint64
}

// MaxArrivals is the longest schedule, in sessions.
const MaxArrivals = 1 << 22

// WithDefaults returns a copy with the defaults in place of zeros.
func (a Arrivals) WithDefaults() Arrivals { return bounds.Fill(a) }

func (a Arrivals) validate(duration time.Duration, sessions int) error {
	switch {
	case !(a.Rate > 0):
		return fmt.Errorf("load: Rate is %v, want more than 0, or +Inf for all at once", a.Rate)
	case !(a.Burstiness > 0):
		return fmt.Errorf("load: Burstiness is %v, want more than 0", a.Burstiness)
	case a.Ramp != NoRamp && (!(a.From > 0) || math.IsInf(a.From, 1) || math.IsInf(a.Rate, 1)):
		return fmt.Errorf("load: a ramp from %v to %v requests/s, want both above 0 and finite", a.From, a.Rate)
	case sessions == 0 && math.IsInf(a.Rate, 1):
		return fmt.Errorf("load: Rate is +Inf: say how many requests, for all of them come at once")
	case sessions == 0 && max(a.Rate, a.From)*duration.Seconds() > MaxArrivals/2 || sessions > MaxArrivals:
		return fmt.Errorf("load: a schedule of more than %d sessions", MaxArrivals)
	}
	return nil
}

// Schedule returns the times at which sessions arrive, ascending, counted from the beginning of
// the run. If sessions is above 0, the schedule has that many sessions; if duration is above 0
// too, sessions that arrive at duration or later are left out. If sessions is 0, the schedule has
// all arrivals before duration, at most MaxArrivals.
//
// As in vLLM, a schedule for a given number of sessions without a ramp is stretched so that the
// last session arrives at sessions/Rate exactly: 100 sessions at 10/s end at 10 s. The seed then
// changes the gaps but not the mean rate. A schedule for a duration alone is not stretched.
func (a Arrivals) Schedule(sessions int, duration time.Duration) []time.Duration {
	a = a.WithDefaults()
	rng := rand.New(rand.NewPCG(a.Seed, arrivalStream))
	var at []time.Duration
	var seconds []float64
	t := 0.0
	for i := 0; sessions == 0 && len(at) < MaxArrivals || i < sessions; i++ {
		progress := t / max(duration.Seconds(), 1e-9)
		if sessions > 0 {
			progress = float64(i) / float64(max(sessions-1, 1))
		}
		t += a.gap(rng, a.rate(min(progress, 1)))
		if sessions > 0 {
			seconds = append(seconds, t)
		} else if t >= duration.Seconds() {
			return at
		} else {
			at = append(at, time.Duration(t*1e9))
		}
	}
	stretch := 1.0
	if a.Ramp == NoRamp && t > 0 {
		stretch = float64(sessions) / a.Rate / t
	}
	for _, s := range seconds {
		d := time.Duration(min(s*stretch*1e9, math.MaxInt64/2))
		if duration > 0 && d >= duration {
			break
		}
		at = append(at, d)
	}
	return at
}

// rate returns the rate in sessions per second after the share progress of the run, from 0 to 1.
func (a Arrivals) rate(progress float64) float64 {
	switch a.Ramp {
	case Linear:
		return a.From + (a.Rate-a.From)*progress
	case Exponential:
		return a.From * math.Pow(a.Rate/a.From, progress)
	}
	return a.Rate
}

// gap draws the time until the next arrival, in seconds. Its mean is 1/rate; rate is in sessions
// per second.
func (a Arrivals) gap(rng *rand.Rand, rate float64) float64 {
	switch {
	case math.IsInf(rate, 1):
		return 0
	case math.IsInf(a.Burstiness, 1):
		return 1 / rate
	case a.Burstiness == 1:
		return rng.ExpFloat64() / rate
	}
	return gamma(rng, a.Burstiness) / (rate * a.Burstiness)
}

// gamma draws from the gamma distribution with this shape and scale 1, whose mean is
// the shape. Source: Marsaglia and Tsang, A Simple Method for Generating Gamma
// Variables, ACM TOMS 26 (2000); for shapes below 1 the note at its end:
// Gamma(s) = Gamma(s+1) U^(1/s).
func gamma(rng *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gamma(rng, shape+1) * math.Pow(1-rng.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := rng.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-rng.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}
