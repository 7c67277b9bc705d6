package main

import (
	"fmt"
	"testing"
)

// TestFleetNATS checks that requests go on while NATS is down: routed by the last known
// caches until --events-outlast ends, then by load. When NATS is back, the router soon knows each worker's
// blocks, and it never assumed more than a worker had. A worker that died meanwhile leaves
// the fleet.
func TestFleetNATS(t *testing.T) {
	t.Parallel()
	natsAt := at(freePorts(t, 1))
	broker := startNATS(t, natsAt)
	f := &realFleet{T: t}
	for i := range 3 {
		f.workers = append(f.workers, startWorker(t, fmt.Sprint("w", i), storyTokens, broker.url))
	}
	f.route("--events", broker.url, "--no-predict", "--events-outlast", "2s")
	next := 0
	play := func(requests int) { next = f.play(requests, next) }
	play(60)
	f.untilIdle()
	f.untilAgreed()

	// Down for a moment, under load.
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

	// Down for longer than --events-outlast: the router no longer trusts the last known caches.
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
	f.untilWhole() // with two workers
	f.untilIdle()
	f.untilAgreed()
	f.checkPrefixes(story, next/story.each-1, next/story.each+2)
	for _, w := range f.workers {
		if m := w.figures(); m["coppice_events_lost_total"] > 0 || m["coppice_events_held_blocks"] == 0 {
			t.Errorf("%s: %v", w.name, m)
		}
	}
}

// play sends this many requests, numbered from the number from, and checks that all are answered.
// Then, when no request is open, it compares the router's index with the workers' caches; events
// may still be on their way. It returns the number of the next request.
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

// evicted returns the evicted tokens of each worker.
func (f *realFleet) evicted() (all []int) {
	for _, w := range f.workers {
		all = append(all, w.figures()["coppice_evicted_tokens_total"])
	}
	return all
}

// TestFleetWorkerMoves checks that a worker which dies and comes back at another address
// under its name is the same worker, whether or not its end was noticed before.
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
