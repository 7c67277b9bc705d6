package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"
)

var (
	chaosFor  = flag.Duration("chaos-for", 5*time.Second, "duration of TestFleetChaos")
	chaosSeed = flag.Uint64("chaos-seed", 1, "seed of the faults of TestFleetChaos")
)

// TestFleetChaos kills, stops and renames workers, one at a time and at random, while clients
// send requests. A request may be lost only if its worker had sent a part of the answer.
// After each event the router's index must again equal each worker's cache.
func TestFleetChaos(t *testing.T) {
	t.Parallel()
	t.Logf("go test ./cmd/coppice -run TestFleetChaos -chaos-for %v -chaos-seed %d", *chaosFor, *chaosSeed)
	const workers, clients = 3, 9
	c := &chaos{realFleet: &realFleet{T: t}, rnd: rand.New(rand.NewPCG(*chaosSeed, 18)), first: freePorts(t, 3*workers)}
	var urls []string
	for i := range workers {
		c.workers = append(c.workers, c.begin(i, fmt.Sprint("w", i)))
		urls = append(urls, c.workers[i].url)
	}
	c.router = startCoppice(t, "router", "route", "--addr", "127.0.0.1:0", "--probe-every", "200ms", "--probe-timeout", "1s", "--worker", strings.Join(urls, ","))
	c.untilWhole()
	next, events := 0, map[string]int{}
	for end := time.Now().Add(*chaosFor); len(events) < 3 || time.Now().Before(end); {
		load := gather(t, c.router.url, clients, next, story)
		load.untilMore(t, 10)
		what := c.event(load)
		events[what]++
		c.untilWhole()
		load.untilMore(t, 10)
		next = load.disperse()
		c.judge(what, load)
		c.untilIdle()
		quiet := time.Now()
		c.untilAgreed()
		c.slowest = max(c.slowest, time.Since(quiet))
		if t.Failed() {
			t.Fatalf("after %v", events)
		}
	}
	t.Logf("%v: of %d requests %d were moved or repeated and %d lost, all with a part of the answer; the router agreed with all workers within %v", events, c.asked, c.moved, c.lost, c.slowest)
}

// chaos is a fleet whose workers fail at random.
type chaos struct {
	*realFleet
	rnd                       *rand.Rand
	first                     int // first port of worker 0
	names, asked, moved, lost int
	slowest                   time.Duration
}

// begin starts worker i at its ports, which stay the same.
func (c *chaos) begin(i int, name string) *process {
	c.Helper()
	port := c.first + 3*i
	return startWorker(c.T, name, storyTokens, fmt.Sprintf("zmq://%s?replay=%d", at(port+1), port+2), "--addr", at(port))
}

// event kills, stops or renames a random worker, and returns when it runs again.
func (c *chaos) event(load *crowd) (what string) {
	c.Helper()
	i := c.rnd.IntN(len(c.workers))
	w := c.workers[i]
	switch c.rnd.IntN(3) {
	case 0:
		w.kill()
		c.workers[i] = c.begin(i, w.name)
		return "killed"
	case 1:
		w.pause()
		c.Cleanup(func() { w.resume() }) // a stopped process cannot end
		load.untilMore(c.T, 1+c.rnd.IntN(60))
		w.resume()
		return "stopped"
	}
	w.kill()
	c.names++
	c.workers[i] = c.begin(i, fmt.Sprintf("renamed%d", c.names))
	return "renamed"
}

// judge checks and counts the outcomes of the requests of load during one event. what describes
// the event in errors.
func (c *chaos) judge(what string, load *crowd) {
	c.Helper()
	c.asked += len(load.answers)
	for _, a := range load.answers {
		switch {
		case a.well() && a.attempts > 1:
			c.moved++
		case a.well():
		case a.status == http.StatusOK && a.fault == "worker_failed" && a.broken == nil: // also if the worker was stopped for so long that the router gave it up
			c.lost++
		default:
			c.Errorf("a worker was %s: in a plan %v: %v", what, a.began, a)
		}
	}
}

// TestFleetPoison checks that a request which kills the process that computes it kills one
// of three workers if the router repeats none, and that the others go on.
func TestFleetPoison(t *testing.T) {
	t.Parallel()
	f := &realFleet{T: t}
	var urls []string
	for i := range 3 {
		w := startWorker(t, fmt.Sprint("w", i), storyTokens, "zmq://127.0.0.1:0", "--sim-poison", "7", "--failed-grace", "0s")
		f.workers, urls = append(f.workers, w), append(urls, w.url)
	}
	f.route("--worker", strings.Join(urls, ","), "--retries", "5", "--repeats", "0")
	status, body := f.router.completes(`{"prompt":[5,7],"max_tokens":1}`)
	if code := codeOf([]byte(body)); status < 500 || code != "device_failed" && code != "worker_failed" {
		t.Errorf("%d %s", status, body)
	}
	dead := func() (n int) {
		for _, w := range f.workers {
			if w.ended() {
				n++
			}
		}
		return n
	}
	until(t, "one ends", func() string {
		if dead() == 0 {
			return "none has"
		}
		return ""
	})
	until(t, "the router has noticed", func() string {
		lost := 0
		for _, s := range f.status() {
			if s.State == "lost" {
				lost++
			}
		}
		if lost != 1 {
			return fmt.Sprint(lost)
		}
		return ""
	})
	c := gather(t, f.router.url, 6, 0, story)
	c.untilMore(t, 30)
	c.disperse()
	c.fine(t)
	if n := dead(); n != 1 {
		t.Errorf("%d of 3 workers have ended", n)
	}
}
