package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// soakFault is a fault of the schedule.
type soakFault struct {
	kind    string
	victim  int           // number of a worker
	after   time.Duration // of the fault before
	lasting time.Duration
}

// soakKinds are the kinds of faults.
var soakKinds = []string{"kill", "kill", "stop", "stop", "kill NATS", "stop NATS", "fill", "large"}

// soakSchedule draws faults from a seed: all kinds in a random order, then all again.
type soakSchedule struct {
	rnd  *rand.Rand
	left []string
}

func (s *soakSchedule) next(workers int) soakFault {
	if len(s.left) == 0 {
		s.left = append(s.left, soakKinds...)
		s.rnd.Shuffle(len(s.left), func(i, j int) { s.left[i], s.left[j] = s.left[j], s.left[i] })
	}
	f := soakFault{kind: s.left[0], victim: s.rnd.IntN(workers), after: s.between(100, 1500)}
	s.left = s.left[1:]
	switch f.kind {
	case "kill":
		f.lasting = s.between(0, 1000)
	case "stop":
		f.lasting = s.between(100, 5000)
	case "large":
	default:
		f.lasting = s.between(500, 5000)
	}
	return f
}

// between returns a random time of from to to milliseconds.
func (s *soakSchedule) between(from, to int) time.Duration {
	return time.Duration(from+s.rnd.IntN(to-from)) * time.Millisecond
}

// soakHarm is a fault that has begun. It can take a worker's answers until over, zero while it goes on.
type soakHarm struct {
	soakFault
	began, ends, over time.Time
	undo              func() // nil once it was called
}

// on reports whether a fault that satisfies so goes on.
func (s *soak) on(so func(h *soakHarm) bool) bool {
	for _, h := range s.harms {
		if h.over.IsZero() && so(h) {
			return true
		}
	}
	return false
}

// fits reports whether a fault may begin now: its victim must be well, and so must another worker.
func (s *soak) fits(f soakFault) bool {
	s.Helper()
	switch f.kind {
	case "kill", "stop":
		status, well := s.status(), 0
		sick := func(i int) bool {
			return status[s.workers[i].name].State != "healthy" ||
				s.on(func(h *soakHarm) bool { return (h.kind == "kill" || h.kind == "stop") && h.victim == i })
		}
		for i := range s.workers {
			if i != f.victim && !sick(i) {
				well++
			}
		}
		return well > 0 && !sick(f.victim)
	case "large":
		return true
	case "fill":
		return !s.on(func(h *soakHarm) bool { return h.kind == "fill" })
	}
	return !s.on(func(h *soakHarm) bool { return h.kind == "kill NATS" || h.kind == "stop NATS" })
}

// begin begins a fault.
func (s *soak) begin(f soakFault) {
	s.Helper()
	h := &soakHarm{soakFault: f, began: time.Now()}
	h.ends = h.began.Add(f.lasting)
	w := s.workers[f.victim]
	s.note("%s begins, worker %s, for %v", f.kind, w.name, f.lasting)
	s.faults[f.kind]++
	switch f.kind {
	case "kill":
		s.killed[w.cmd.Process.Pid] = true
		w.kill()
		h.undo = func() { s.workers[f.victim] = s.worker(f.victim) }
	case "stop":
		w.pause()
		h.undo = func() { w.resume() }
	case "kill NATS":
		s.nats.kill()
		h.undo = func() { s.nats = startNATS(s.T, s.natsAt) }
	case "stop NATS":
		n := s.nats
		n.pause()
		h.undo = func() { n.resume() }
	case "fill":
		if !s.mounted {
			return
		}
		h.undo = fill(s.T, s.dir)
	case "large":
		for n := range 64 {
			s.large.Go(func() {
				if err := postLarge(s.router.url, n); err != nil {
					s.Errorf("a large body: %v", err)
				}
			})
		}
		return
	}
	s.harms = append(s.harms, h)
}

// heal ends the faults that were to end by now, or all. A worker's fault is over once the router says that the
// worker is healthy.
func (s *soak) heal(now time.Time, all bool) {
	s.Helper()
	var status map[string]string
	for _, h := range s.harms {
		if h.undo != nil && (all || now.After(h.ends)) {
			undo := h.undo
			h.undo = nil
			undo()
			s.note("%s of %s ends", h.kind, s.workers[h.victim].name)
		}
		if h.undo == nil && h.over.IsZero() {
			if status == nil {
				status = states(s.router)
			}
			if w := s.workers[h.victim]; h.kind != "kill" && h.kind != "stop" || status[w.url] == "healthy" {
				h.over = time.Now()
			}
		}
	}
	for len(s.harms) > 100 && !s.harms[0].over.IsZero() {
		s.harms = s.harms[1:]
	}
}

// excused reports whether a fault of a worker may have taken the answer. The router may notice
// a fault late.
func (s *soak) excused(a *answer) bool {
	const late = 10 * time.Second
	for _, h := range s.harms {
		if (h.kind == "kill" || h.kind == "stop") && !a.ended.Before(h.began) && (h.over.IsZero() || a.sent.Before(h.over.Add(late))) {
			return true
		}
	}
	return false
}

// note adds a line to what happened.
func (s *soak) note(format string, args ...any) {
	s.said = append(s.said, fmt.Sprintf("%7.3f s: ", time.Since(s.start).Seconds())+fmt.Sprintf(format, args...))
}
