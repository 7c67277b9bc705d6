package scheduler

import "github.com/coppice-llm/coppice/kv"

// growth is how many pages a running sequence is expected to need beside those
// that it holds.
func (s *Scheduler) growth(q *sequence) int {
	out := q.outputTokens() + int(q.sampling)
	if out >= q.limit {
		return 0
	}
	more := q.class.remaining(out, q.limit) * s.classes.care / careOne
	more = min(more, q.limit-out)
	// The last token is sampled and never run.
	return max(kv.CeilPages(q.prompt+out+more-1, s.info.PageTokens)-len(q.pages), 0)
}

// reserve is what running sequences are expected to need: a newcomer leaves it
// alone, or it or another one would soon be preempted. Under the policy Priority
// those below the newcomer do not count: they would give way.
func (s *Scheduler) reserve(newcomer *sequence) int {
	if s.cfg.Policy != Priority {
		if s.room.reserved < 0 {
			s.room.reserved = 0
			for _, q := range s.running.all {
				s.room.reserved += s.growth(q)
			}
		}
		return s.room.reserved
	}
	n := 0
	for _, q := range s.running.all {
		if s.reservesFor(q, newcomer) {
			n += s.growth(q)
		}
	}
	return n
}

// reservesFor reports whether a newcomer leaves alone what q, which runs, will need:
// not if it may take q's place.
func (s *Scheduler) reservesFor(q, newcomer *sequence) bool {
	return !s.cfg.mayReplace(newcomer, q)
}
