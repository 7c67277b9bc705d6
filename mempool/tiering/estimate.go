package tiering

import (
	"time"

	"github.com/coppice-llm/coppice/mempool"
)

// estimate is a figure that is guessed until it is measured.
type estimate struct {
	guess    float64
	value    float64
	measured bool
}

// at is the figure in force.
func (e *estimate) at() float64 {
	if e.measured {
		return e.value
	}
	return e.guess
}

// take moves the figure an eighth of the way to a measurement; the first one counts whole.
func (e *estimate) take(measured float64) {
	if e.measured {
		measured = e.value + (measured-e.value)/8
	}
	e.value, e.measured = measured, true
}

// relaxed is the figure some time after its last measurement: what it is above the guess
// counts half after each halfLife. So a tier that was slow once is tried again.
func (e *estimate) relaxed(age time.Duration) float64 {
	above := e.at() - e.guess
	for ; above > 0 && age >= halfLife; age -= halfLife {
		if above /= 2; above < e.guess/16 {
			return e.guess
		}
	}
	return e.guess + above
}

const halfLife = 30 * time.Second

// sum is work that was done, until it is enough for a measurement.
type sum struct {
	done int
	took time.Duration
}

// add returns the seconds that each of so many took, once they are enough; then it begins anew.
func (s *sum) add(done int, took time.Duration, enough int) (each float64, ok bool) {
	s.done, s.took = s.done+done, s.took+took
	if s.done < enough || s.took <= 0 {
		return 0, false
	}
	each = s.took.Seconds() / float64(s.done)
	*s = sum{}
	return each, true
}

// What a measurement is taken over at least: less tells little.
const (
	leastTokens  = 64
	leastExtents = 8
)

// Cost says that the device took so long to compute so many tokens of prompts. It does
// nothing where Config.TokenSeconds is given.
func (p *Policy) Cost(tokens int, took time.Duration) {
	if tokens <= 0 || took <= 0 || p.cfg.TokenSeconds > 0 {
		return
	}
	if each, ok := p.computed.add(tokens, took, leastTokens); ok {
		p.cost.take(each)
	}
}

// fetchSeconds is how long a tier takes to read so many bytes.
func (t *tier) fetchSeconds(now time.Duration, bytes int) float64 {
	return float64(bytes) * t.speed.relaxed(now-t.readAt)
}

// measure takes the time of a read. Of reads that ran beside each other only the time counts
// since the one before has ended.
func (t *tier) measure(now time.Duration, l *mempool.Layout, bytes int, took time.Duration) {
	if t.stats.Reads > 1 { // as Moved has counted
		took = min(took, now-t.readAt)
	}
	t.readAt, t.misses = now, 0
	if each, ok := t.bytes.add(bytes, max(took, 0), leastExtents*l.ExtentBytes()); ok {
		t.speed.take(each)
	}
}

// late notes that a read passed its deadline: the tier is slower than it was believed to be.
func (t *tier) late(now time.Duration) {
	t.misses++
	t.speed.value, t.speed.measured, t.readAt, t.bytes = 2*t.speed.relaxed(now-t.readAt), true, now, sum{}
}
