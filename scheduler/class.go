package scheduler

// class is what is known of the output lengths of a kind of request. It learns
// as TCP learns round-trip times (Jacobson 1988): a mean and a mean deviation,
// both of which forget by an eighth with each ending. Fixed point, so that every
// machine learns the same.
type class struct {
	mean, deviation int // tokens << lengthBits
	seen            bool
}

// classes are all of them, and how careful to be with what they say.
type classes struct {
	byName map[string]*class
	rest   *class // of names beyond maxClasses
	care   int    // factor on estimates, careOne is 1
}

const (
	lengthBits = 8
	maxClasses = 1024
	careOne    = 256
	careMost   = 4 * careOne
	// farthest is where an estimate ends: what lies so far ahead can wait for
	// others to end (SGLang clips there too).
	farthest = 4096
)

func newClasses() classes {
	return classes{byName: make(map[string]*class), rest: new(class), care: careOne}
}

// of is the class of a request: its own or its tenant's.
func (c *classes) of(req *Request) *class {
	name := req.Class
	if name == "" {
		name = req.Tenant
	}
	k := c.byName[name]
	if k == nil {
		if len(c.byName) >= maxClasses {
			return c.rest
		}
		k = new(class)
		c.byName[name] = k
	}
	return k
}

// learn takes the length of an output that ended by itself.
func (k *class) learn(tokens int) {
	x := tokens << lengthBits
	if !k.seen {
		k.mean, k.deviation, k.seen = x, x/4, true
		return
	}
	off := x - k.mean
	k.mean += off / 8
	k.deviation += (max(off, -off) - k.deviation) / 8
}

// remaining is how many more tokens an output of so many is expected to get, with
// some margin, at least 1 and at most limit-tokens. Of a class without endings
// it takes seven tenths of the limit, as SGLang begins.
func (k *class) remaining(tokens, limit int) int {
	most := limit - tokens
	expect := most * 7 / 10
	if k.seen {
		// One that is longer than expected goes on for about a deviation.
		expect = max((k.mean+k.deviation)>>lengthBits-tokens, k.deviation>>lengthBits)
	}
	return max(min(expect, most, farthest), min(1, most))
}

// caution is called for by a preemption: estimates were too low.
func (c *classes) caution() { c.care = min(c.care*3/2, careMost) }

// decay forgets caution, step by step.
func (c *classes) decay() {
	if c.care > careOne {
		c.care -= max((c.care-careOne)/256, 1)
	}
}
