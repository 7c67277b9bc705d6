package predict

// Class estimates the output lengths of one kind of request. It learns as TCP learns
// round-trip times (Jacobson 1988): a mean and a mean deviation, each moved by an eighth
// of the error with each output that ends. The values are fixed-point integers, so that
// every machine learns the same.
//
// For example, after outputs of 100 and 180 tokens the mean is 100 + 80/8 = 110 and the
// deviation 25 + (80-25)/8, about 32.
type Class struct {
	mean, deviation int  // tokens << lengthBits
	seen            bool // an output has ended
}

// Lengths holds the class of each name, and a common safety factor for their estimates.
type Lengths struct {
	byName map[string]*Class
	rest   *Class // for names beyond maxClasses
	care   int    // factor on estimates, in units of 1/careOne
}

// lengthBits is the number of fractional bits of a mean or deviation. maxClasses bounds
// the memory for names that clients choose: beyond it, new names share one class. care
// goes from careOne, a factor of 1, to careMost, a factor of 4.
const (
	lengthBits = 8
	maxClasses = 1024
	careOne    = 256
	careMost   = 4 * careOne
	// Farthest is the longest estimate, in tokens. Pages that a sequence needs after more
	// tokens than that come free when other sequences end (SGLang clips its estimate there
	// too).
	Farthest = 4096
)

// NewLengths returns the lengths of no outputs.
func NewLengths() Lengths {
	return Lengths{byName: make(map[string]*Class), rest: new(Class), care: careOne}
}

// Of returns the class with that name.
func (c *Lengths) Of(name string) *Class {
	k := c.byName[name]
	if k == nil {
		if len(c.byName) >= maxClasses {
			return c.rest
		}
		k = new(Class)
		c.byName[name] = k
	}
	return k
}

// Learn adds the length, in tokens, of an output that was not cut short.
func (k *Class) Learn(tokens int) {
	x := tokens << lengthBits
	if !k.seen {
		k.mean, k.deviation, k.seen = x, x/4, true
		return
	}
	off := x - k.mean
	k.mean += off / 8
	k.deviation += (max(off, -off) - k.deviation) / 8
}

// remaining estimates how many more tokens an output will get. tokens is its length so far,
// and limit the most that it may reach. The estimate includes one mean deviation as margin.
// The result is between 1 and limit-tokens (0 if the limit is reached) and at most
// Farthest. For a class of which no output has ended, it is seven tenths of limit-tokens,
// which is SGLang's initial new_token_ratio.
func (k *Class) remaining(tokens, limit int) int {
	most := limit - tokens
	expect := most * 7 / 10
	if k.seen {
		// An output that is longer than expected continues for about a deviation: mean 100
		// and deviation 30 give 130 at the start, 50 at 80 tokens, and 30 from 100 on.
		expect = max((k.mean+k.deviation)>>lengthBits-tokens, k.deviation>>lengthBits)
	}
	return max(min(expect, most, Farthest), min(1, most))
}

// Remaining estimates how many more tokens an output of class k will get, raised by the safety
// factor. tokens and limit are those of Class.remaining.
func (c *Lengths) Remaining(k *Class, tokens, limit int) int {
	return min(k.remaining(tokens, limit)*c.care/careOne, limit-tokens)
}

// Caution raises the factor on all estimates by half, up to careMost. It is called after a
// preemption, which shows that the estimates were too low.
func (c *Lengths) Caution() { c.care = min(c.care*3/2, careMost) }

// Decay lowers the factor towards 1, once per step: by 1/256 of the excess, at least 1. So
// the effect of one preemption ends after 128 steps, and that of the highest factor after
// about 640.
func (c *Lengths) Decay() {
	if c.care > careOne {
		c.care -= max((c.care-careOne)/256, 1)
	}
}
