package schedtest

import (
	"math/rand/v2"
	"time"

	"github.com/zeebo/xxh3"
)

// stream is a named source of random numbers: the draws of one part of a world do not affect
// those of another.
type stream struct{ *rand.Rand }

func newStream(seed uint64, name string) stream {
	return stream{rand.New(rand.NewPCG(seed, xxh3.HashString(name)))}
}

// one returns true with probability 1/n.
func (s stream) one(n int) bool { return s.IntN(n) == 0 }

// between draws uniformly from [lo, hi].
func (s stream) between(lo, hi int) int { return lo + s.IntN(hi-lo+1) }

// wait draws a duration from the exponential distribution with the given mean, limited to
// ten times the mean.
func (s stream) wait(mean time.Duration) time.Duration {
	return time.Duration(min(s.ExpFloat64(), 10) * float64(mean))
}

// pick returns one of the values, each with the same probability.
func pick[T any](s stream, values ...T) T { return values[s.IntN(len(values))] }
