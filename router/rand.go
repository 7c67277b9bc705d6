package router

import "math/bits"

// draw is SplitMix64 (Steele, Lea and Flood 2014), the only source of randomness in a
// router, so that equal calls give equal choices.
type draw struct{ state uint64 }

// next returns 64 random bits.
func (d *draw) next() uint64 {
	d.state += 0x9e3779b97f4a7c15
	return finish(d.state)
}

// unit returns a number in [0, 1).
func (d *draw) unit() float64 { return float64(d.next()>>11) / (1 << 53) }

// below returns a random number in [0, n); n is at least 1. Multiplying instead of dividing
// makes some numbers more likely than others, by at most n/2^64.
func (d *draw) below(n int) int {
	hi, _ := bits.Mul64(d.next(), uint64(n))
	return int(hi)
}

// finish is the output function of SplitMix64.
func finish(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// mix hashes two numbers into one.
func mix(a, b uint64) uint64 { return finish(a ^ finish(b+0x9e3779b97f4a7c15)) }
