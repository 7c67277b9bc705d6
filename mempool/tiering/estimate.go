package tiering

import (
	"time"

	"github.com/coppice-llm/coppice/mempool"
)

// estimate is a quantity that is guessed until it has been measured.
type estimate struct {
	guess    float64
	value    float64
	measured bool
}

// at returns the measured value, or the guess if there is none.
func (e *estimate) at() float64 {
	if e.measured {
		return e.value
	}
	return e.guess
}

// take moves the value an eighth of the way to a measurement. The first measurement replaces the
// guess.
func (e *estimate) take(measured float64) {
	if e.measured {
		measured = e.value + (measured-e.value)/8
	}
	e.value, e.measured = measured, true
}

// relaxed returns the value when its last measurement is age old: the value's excess over the
// guess is halved for each halfLife in age. So a tier that was slow once is tried again later.
func (e *estimate) relaxed(age time.Duration) float64 {
	above := e.at() - e.guess
	for ; above > 0 && age >= halfLife; age -= halfLife {
		if above /= 2; above < e.guess/16 {
			return e.guess
		}
	}
	return e.guess + above
}

// halfLife is the time in which half of a measured slowness is forgotten. A tier that was 16 times
// slower than its guess counts as 2 times after about 2 minutes.
const halfLife = 30 * time.Second

// sum accumulates work until there is enough for a measurement.
type sum struct {
	done int
	took time.Duration
}

// add adds as many units of work as done says, which took the time took. Once the sum has at least
// as many units as enough says, add returns the seconds per unit and true, and the sum starts
// again from zero.
func (s *sum) add(done int, took time.Duration, enough int) (each float64, ok bool) {
	s.done, s.took = s.done+done, s.took+took
	if s.done < enough || s.took <= 0 {
		return 0, false
	}
	each = s.took.Seconds() / float64(s.done)
	*s = sum{}
	return each, true
}

// The least work of one measurement: less work would measure mostly fixed costs and noise.
const (
	leastTokens  = 64
	leastExtents = 8
)

// Cost reports that the device computed some tokens of prompts in some time. It does nothing if
// Config.TokenSeconds is set.
func (b *Book) Cost(tokens int, took time.Duration) {
	if tokens <= 0 || took <= 0 || b.cfg.TokenSeconds > 0 {
		return
	}
	if each, ok := b.computed.add(tokens, took, leastTokens); ok {
		b.cost.take(each)
	}
}

// fetchSeconds estimates how long a tier takes to read some bytes.
func (t *tier) fetchSeconds(now time.Duration, bytes int) float64 {
	return float64(bytes) * t.speed.relaxed(now-t.readAt)
}

// measure adds a read of some bytes, which ended now and took the time took, to the estimate of
// the tier's speed. A read counts at most the time since the previous read ended: eight
// concurrent reads that take 4 ms together count 4 ms in sum.
func (t *tier) measure(now time.Duration, l *mempool.Layout, bytes int, took time.Duration) {
	if t.stats.Reads > 1 { // Moved has counted this read already
		took = min(took, now-t.readAt)
	}
	t.readAt, t.misses = now, 0
	if each, ok := t.bytes.add(bytes, max(took, 0), leastExtents*l.ExtentBytes()); ok {
		t.speed.take(each)
	}
}

// late records that read m missed its deadline: it doubles the estimated time per byte. It does
// nothing if m began before the latest read that counted: reads that are late together have one cause,
// often a machine that stalls, and eight of them would make a tier look 256 times slower at once.
func (t *tier) late(now time.Duration, m *entry) {
	if m.stalls < t.stalls {
		return
	}
	t.stalls++
	t.misses++
	t.speed.value, t.speed.measured, t.readAt, t.bytes = 2*t.speed.relaxed(now-t.readAt), true, now, sum{}
}
