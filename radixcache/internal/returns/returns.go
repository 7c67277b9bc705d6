// Package returns owns an estimate of when idle things come back, such as the sessions of a cache: for each
// class of things how many came back, or did not, at each age. It never sees the things themselves, and it
// has no clock: ages come in as numbers of ticks. One goroutine uses a Model.
//
// The estimate is a life table. Ages are divided into bins, two for each doubling. For a bin, the hazard is
// the chance that a thing which is idle for that long comes back while its age is in the bin: those that did,
// over those that were there. A thing that left for another reason (it was removed, or its return cannot be noticed) counts
// as there up to that age and proves nothing about later ones, so the hazards of late bins are not wrong
// because few things are kept for so long.
//
// Worth is the best rate of returns per tick that a thing of some age promises: over all later ages, the
// chance that it comes back until then, divided by the time for which it is expected to be kept until then,
//
//	max over e of (S(age) - S(e)) / (integral of S from age to e),
//
// where S is the share that is still idle. It is the index of Gittins (1979) for a job of unknown length,
// and what LHD (Beckmann, Chen and Cidon, NSDI 2018) calls hit density, with the best time to give up. The
// thing with the least worth should make room first. With hazards that fall as ages grow this is the one that
// was idle for longest, as under LRU. Where things come back either soon or after a minute, it is one that
// has just missed the first chance.
package returns

import (
	"math"
	"math/bits"
)

// bins is the number of bins: ages up to 1<<31 ticks, and all above.
const bins = 64

// binOf returns the bin of an age.
func binOf(ticks uint32) int {
	if ticks == 0 {
		return 0
	}
	n := bits.Len32(ticks)
	half := 0
	if n > 1 {
		half = int(ticks>>(n-2)) & 1
	}
	return min(2*n-1+half, bins-1)
}

// Start returns the least age of a bin; of the bin after the last, the age at which estimates end. Bin 2 has
// no ages.
func Start(bin int) uint64 {
	if bin == 0 {
		return 0
	}
	n, half := (bin+1)/2, (bin+1)%2
	start := uint64(1) << (n - 1)
	if half == 1 {
		start += (start + 1) / 2
	}
	return start
}

// Scale of Worth: a doubling of the rate adds Octave. MaxWorth is the largest worth, that of a thing which is
// known to come back at once.
const (
	Octave   = 16
	MaxWorth = 1023
)

// The prior describes the broadest class before anything was seen: in each bin priorHazard of those idle come
// back, as firm as priorSeen observations. With it alone the order is LRU's. Another class believes what the next
// broader one shows, as firm as broadSeen observations. Both are firm enough that a load of some hundred requests, which
// teaches chance as much as habits, is evicted about as under LRU. With less than some hundred, replays of the Mooncake
// traces, which have no sessions, save less than LRU at some sizes. See NewApart for apartSeen and ownSeen.
const (
	priorHazard = 0.06
	priorSeen   = 512.0
	broadSeen   = 512.0
	apartSeen   = 32.0
	ownSeen     = 256.0
	fade        = 0.4 // of the hazard from a bin to the next one that nothing has reached
)

// halfLife is the number of episodes of a class after which older ones count half.
const halfLife = 4096

// Class is the history of one class of things.
type Class struct {
	broader  *Class // the class that has its things too; nil: it has all things
	apart    bool   // see NewApart
	returned [bins]float32
	ended    [bins]float32 // episodes that ended at that age, those that returned among them
	idle     [bins]float32 // episodes that have not ended, by their present age; see Idle
	episodes float32       // sum of ended
	came     float32       // sum of returned
	worth    [bins]uint16
}

// New returns a part of a broader class, or the broadest one if broader is nil. Until its first Learn a part has the
// worth that the broader class has now: what that has seen since its own last Learn counts for all classes at once.
func New(broader *Class) *Class {
	c := &Class{broader: broader}
	if broader == nil {
		c.Learn()
	} else {
		c.worth, c.apart = broader.worth, broader.apart
	}
	return c
}

// NewApart returns a part whose things are of one kind, unlike those of the broader class: it believes what the broader class
// shows as firmly as apartSeen observations, once it has seen ownSeen returns half as firmly, and after more even less. So do its own parts. Of
// things that only may be of a kind, habits change, and a firm belief does better.
func NewApart(broader *Class) *Class {
	c := New(broader)
	c.apart = true
	return c
}

// Returned counts a thing that came back at an age.
func (c *Class) Returned(age uint32) {
	b := binOf(age)
	c.returned[b]++
	c.ended[b]++
	c.episodes++
	c.came++
}

// Left counts a thing that left at an age without having come back.
func (c *Class) Left(age uint32) {
	c.ended[binOf(age)]++
	c.episodes++
}

// Idle counts a thing that is idle now, for the next Learn.
func (c *Class) Idle(age uint32) { c.idle[binOf(age)]++ }

// Worth returns the worth of a thing of an age, 0 to MaxWorth: Octave times the logarithm of its best rate of
// returns, plus a constant. Between the starts of two bins it changes in equal steps, the last of them at least
// a bin before the end. until is the age at which the next step begins; math.MaxUint64 if there is none.
func (c *Class) Worth(age uint32) (worth uint16, until uint64) {
	bin := binOf(age)
	if bin >= bins-2 {
		return c.worth[bin], math.MaxUint64
	}
	next := bin + 1
	if bin == 1 {
		next++ // no age is in bin 2
	}
	lo, hi := Start(bin), Start(next)
	step := (uint64(age) - lo) * steps / (hi - lo)
	from, to := int(c.worth[bin]), int(c.worth[next])
	return uint16(from + (to-from)*int(step)/steps), lo + ((step+1)*(hi-lo)+steps-1)/steps
}

// steps is the number of steps in which the worth changes over a bin.
const steps = 4

// Learn brings Worth up to date, and forgets the calls of Idle. It is called for all classes, for the broader ones first.
func (c *Class) Learn() {
	var hazard [bins]float64
	c.hazards(&hazard)
	// As corners of a curve: spent is the time that a thing is kept up to the start of a bin, and back the
	// share that came back by then. Worth is the slope of the steepest chord to a later corner; these are the
	// slopes of the curve's upper hull, which is built from the end.
	var spent, back [bins + 1]float64
	alive := 1.0
	for b := range bins {
		next := alive
		if Start(b+1) > Start(b) {
			next -= alive * hazard[b]
		}
		spent[b+1] = spent[b] + float64(Start(b+1)-Start(b))*(alive+next)/2
		back[b+1] = back[b] + alive - next
		alive = next
	}
	var hull [bins + 1]int
	top := 0
	hull[0] = bins
	slope := func(from, to int) float64 { return (back[to] - back[from]) / (spent[to] - spent[from]) }
	for b := bins - 1; b >= 0; b-- {
		if spent[b+1] > spent[b] { // not the bin without ages
			for top > 0 && slope(b, hull[top]) <= slope(b, hull[top-1]) {
				top--
			}
			rate := slope(b, hull[top])
			c.worth[b] = uint16(min(max(math.Round(Octave*(math.Log2(max(rate, 1e-12))+44)), 0), MaxWorth))
			top++
			hull[top] = b
		}
	}
	clear(c.idle[:])
	if c.episodes > halfLife {
		c.episodes /= 2
		c.came /= 2
		for b := range bins {
			c.returned[b] /= 2
			c.ended[b] /= 2
		}
	}
}

// hazards fills in the hazard of each bin.
func (c *Class) hazards(hazard *[bins]float64) {
	var broad [bins]float64
	seen := broadSeen
	if c.broader != nil {
		c.broader.hazards(&broad)
	} else {
		seen = priorSeen
		for b := range broad {
			broad[b] = priorHazard
		}
	}
	if c.apart {
		seen = apartSeen * ownSeen / (ownSeen + float64(c.came))
	}
	var there [bins]float64
	sum := 0.0
	for b := bins - 1; b >= 0; b-- {
		gone := float64(c.ended[b] - c.returned[b] + c.idle[b]) // within the bin, on average in its middle
		sum += float64(c.ended[b] + c.idle[b])
		there[b] = max(sum-gone/2, float64(c.returned[b]))
	}
	for b := range bins {
		if Start(b+1) == Start(b) {
			hazard[b] = hazard[b-1] // no age is in the bin
			continue
		}
		// At ages that few have reached, things are believed to go on as at the ages before, if anything worse:
		// otherwise the oldest, of which nothing is known, would look best.
		if c.broader == nil && b > 0 {
			broad[b] = min(broad[b], fade*hazard[b-1])
		}
		hazard[b] = (float64(c.returned[b]) + seen*broad[b]) / (there[b] + seen)
	}
}

// Broader returns the class that has all things of c and more; nil if c has all things.
func (c *Class) Broader() *Class { return c.broader }
