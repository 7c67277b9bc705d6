package main

import (
	"fmt"
	"testing"
)

// TestFleetNATS: while NATS is away requests go on, by what was known and then by load. When
// it is back, the router soon knows what each worker holds, and never
// believed that it held more than it did. A worker that died meanwhile is not one of the
// fleet any more.
func TestFleetNATS(t *testing.T) {
	t.Parallel()
	natsAt := at(freePorts(t, 1))
	broker := startNATS(t, natsAt)
	f := &realFleet{T: t}
	for i := range 3 {
		f.workers = append(f.workers, startWorker(t, fmt.Sprint("w", i), storyTokens, broker.url))
	}
	f.route("--events", broker.url, "--no-predict")
	next := 0
	play := func(requests int) { next = f.play(requests, next) }
	play(60)
	f.untilIdle()
	f.untilAgreed()

	// Away for a moment, mid-load.
	c := gather(t, f.router.url, 9, next, story)
	c.untilMore(t, 10)
	broker.kill()
	broker = startNATS(t, natsAt)
	c.untilMore(t, 20)
	next = c.disperse()
	c.fine(t)
	f.untilIdle()
	f.untilAgreed()
	f.checkPrefixes(story, next/story.each-1, next/story.each+2)

	// Away for long: what was known is not believed any more.
	c = gather(t, f.router.url, 9, next, story)
	c.untilMore(t, 10)
	broker.kill()
	before := f.evicted()
	until(t, "nothing is believed", func() string {
		for _, w := range f.status() {
			if w.State != "healthy" || w.Mode != "waiting" || len(w.Ranks) != 1 || w.Ranks[0].HeldBlocks != 0 {
				return fmt.Sprintf("%+v", w)
			}
		}
		return ""
	})
	c.untilMore(t, 20)
	next = c.disperse()
	c.fine(t)
	until(t, "all evict", func() string {
		play(10)
		now := f.evicted()
		for i, n := range before {
			if now[i] == n {
				return fmt.Sprintf("%s has not: %v then %v", f.workers[i].name, before, now)
			}
		}
		return ""
	})
	f.workers[2].kill()
	f.workers = f.workers[:2]
	startNATS(t, natsAt)
	play(30)
	f.untilWhole() // of two
	f.untilIdle()
	f.untilAgreed()
	f.checkPrefixes(story, next/story.each-1, next/story.each+2)
	for _, w := range f.workers {
		if m := w.figures(); m["coppice_events_lost_total"] > 0 || m["coppice_events_held_blocks"] == 0 {
			t.Errorf("%s: %v", w.name, m)
		}
	}
}

// play has so many requests answered, from a number on, all of them well, and compares while none is under
// way, though what they caused may be. It returns the next number.
func (f *realFleet) play(requests, from int) (next int) {
	f.Helper()
	c := gather(f.T, f.router.url, 9, from, story)
	c.untilMore(f.T, requests)
	next = c.disperse()
	c.fine(f.T)
	for range 3 {
		f.compare()
	}
	return next
}

// evicted are the evicted tokens of each worker.
func (f *realFleet) evicted() (all []int) {
	for _, w := range f.workers {
		all = append(all, w.figures()["coppice_evicted_tokens_total"])
	}
	return all
}

// TestFleetWorkerMoves: a worker that dies and comes back elsewhere under its name is the
// same worker, whether or not its end was noticed before.
func TestFleetWorkerMoves(t *testing.T) {
	t.Parallel()
	broker := startNATS(t, "127.0.0.1:0")
	f := &realFleet{T: t}
	for i := range 2 {
		f.workers = append(f.workers, startWorker(t, fmt.Sprint("w", i), storyTokens, broker.url))
	}
	f.route("--events", broker.url)
	c := gather(t, f.router.url, 4, 0, story)
	c.untilMore(t, 10)
	next := c.disperse()
	f.workers[1].kill()
	f.workers[1] = startWorker(t, "w1", storyTokens, broker.url)
	f.untilWhole()
	c = gather(t, f.router.url, 4, next, story)
	c.untilMore(t, 20)
	c.disperse()
	c.fine(t)
	f.untilHeld("w1")
	f.untilIdle()
	f.untilAgreed()
}
