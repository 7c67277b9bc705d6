package scheduler

import (
	"fmt"
	"time"
)

// Moment is a kind of thing that happens to a request.
type Moment uint8

// The moments, and what Mark.Tokens says of each.
const (
	Queued     Moment = iota // prompt tokens
	Matched                  // admitted: tokens found in the cache
	FirstChunk               // tokens of the first chunk since admission
	FirstToken               // 1
	Preempted                // tokens whose KV was valid
	Ended                    // output tokens
)

var momentNames = [...]string{"queued", "matched", "first chunk", "first token", "preempted", "ended"}

func (m Moment) String() string {
	if int(m) < len(momentNames) {
		return momentNames[m]
	}
	return fmt.Sprintf("moment(%d)", uint8(m))
}

// Mark is one entry of a timeline.
type Mark struct {
	At     time.Duration // since Add
	What   Moment
	Tokens int
}

func (m Mark) String() string { return fmt.Sprintf("%v %v (%d)", m.At, m.What, m.Tokens) }

func (q *sequence) mark(now time.Duration, what Moment, tokens int) {
	if q.req.Timeline {
		q.timeline = append(q.timeline, Mark{now - q.arrived, what, tokens})
	}
}

// Timeline is what has happened so far to the open samples of a request that was
// added with Timeline, by sample; nil for others.
func (s *Scheduler) Timeline(id RequestID) [][]Mark {
	g, ok := s.open[id]
	if !ok || !g.req.Timeline {
		return nil
	}
	all := make([][]Mark, g.req.Samples)
	for _, q := range g.samples {
		all[q.sample] = append([]Mark(nil), q.timeline...)
	}
	return all
}
