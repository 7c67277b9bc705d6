package schedtest

import (
	"math/rand/v2"
	"time"

	"github.com/zeebo/xxh3"
)

// stream is a source of random numbers with a name: what one part of a world
// draws does not shift what another one draws.
type stream struct{ *rand.Rand }

func newStream(seed uint64, name string) stream {
	return stream{rand.New(rand.NewPCG(seed, xxh3.HashString(name)))}
}

// one reports true once in n times.
func (s stream) one(n int) bool { return s.IntN(n) == 0 }

// between is uniform in [lo, hi].
func (s stream) between(lo, hi int) int { return lo + s.IntN(hi-lo+1) }

// wait draws from the exponential distribution with this mean, cut at ten times
// the mean, so that no world sleeps.
func (s stream) wait(mean time.Duration) time.Duration {
	return time.Duration(min(s.ExpFloat64(), 10) * float64(mean))
}

// pick draws one of the values.
func pick[T any](s stream, values ...T) T { return values[s.IntN(len(values))] }
