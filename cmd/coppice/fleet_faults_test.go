package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// story is a load under which caches of storyTokens evict constantly.
var story = shape{groups: 6, each: 12, prefixTokens: 480, outputTokens: 48}

const storyTokens = 6_000

// follow starts this many workers at fixed ports, each with a pool of kvTokens, and a router with
// the arguments args. begin starts worker i again at its ports.
func follow(t *testing.T, workers, kvTokens int, args ...string) (f *realFleet, begin func(i int) *process) {
	t.Helper()
	f = &realFleet{T: t}
	first := freePorts(t, 3*workers)
	begin = func(i int) *process {
		port := first + 3*i
		return startWorker(t, fmt.Sprint("w", i), kvTokens, fmt.Sprintf("zmq://%s?replay=%d", at(port+1), port+2), "--addr", at(port))
	}
	var urls []string
	for i := range workers {
		f.workers = append(f.workers, begin(i))
		urls = append(urls, f.workers[i].url)
	}
	f.route(append([]string{"--worker", strings.Join(urls, ",")}, args...)...)
	return f, begin
}

// TestFleetWorkerKilled checks that clients lose only the answers of which a killed worker had
// sent a token. Another worker computes all others, also those that the killed one had begun. The
// router forgets its blocks, and learns them again when it is back. A kill proves nothing if
// answers had arrived more than the clients had read: then it is killed once more.
func TestFleetWorkerKilled(t *testing.T) {
	t.Parallel()
	record := filepath.Join(t.TempDir(), "decisions.jsonl")
	f, begin := follow(t, 3, storyTokens, "--policy", "round-robin", "--record", record)
	next, kills, lost, retried := 0, 0, 0, 0
	for lost < 2 || retried == 0 {
		if kills++; kills > 5 {
			t.Fatalf("%d answers broken off and %d requests retried prove nothing: want 2 and 1", lost, retried)
		}
		c := gather(t, f.router.url, 9, next, story)
		died := f.killFirst(c, begin)
		next = c.disperse()
		broken, begun, moved := 0, 0, 0
		for _, a := range c.answers {
			switch {
			case a.well():
				if a.attempts > 1 {
					moved++
				}
				if a.attempts > 1 && a.began && a.sent.Before(died) {
					begun++ // most likely by the killed worker
				}
			case a.worker == f.workers[0].name && a.sent.Before(died) && a.fault == "worker_failed" && a.broken == nil && !a.done:
				broken++
			default:
				t.Errorf("%v, %v before the end of %s", a, died.Sub(a.sent), f.workers[0].name)
			}
		}
		t.Logf("%d requests: %d answers broken off, %d requests sent to another worker, %d of them maybe begun before", len(c.answers), broken, moved, begun)
		lost, retried = lost+broken, retried+moved
	}
	if n := f.router.figures()["coppice_router_broken_answers_total"]; n != lost {
		t.Errorf("the router counts %d broken answers, and clients %d", n, lost)
	}
	f.untilIdle()
	f.untilAgreed()
	f.scores(record, next)
}

// scores checks that coppice sim fleet scores policies on what the router has recorded of at least this many requests.
func (f *realFleet) scores(record string, requests int) {
	f.Helper()
	until(f.T, "all is written", func() string {
		if n := f.router.figures()[`coppice_router_recorded_decisions_total{what="written"}`]; n < requests {
			return fmt.Sprintf("%d of %d", n, requests)
		}
		return ""
	})
	text, stderr, ok := command(f.T, "sim", "fleet", "--decisions", record, "--policies", "latency,round-robin", "--json")
	var table struct {
		Workers  int
		Measured struct{ Requests int }
		Policies []struct {
			Policy  string
			Regrets []struct{ Worker string }
		}
	}
	if err := json.Unmarshal([]byte(text), &table); err != nil || !ok {
		f.Fatal(err, text, stderr)
	}
	if table.Workers != len(f.workers) || len(table.Policies) != 2 || table.Measured.Requests == 0 || len(table.Policies[1].Regrets) != table.Measured.Requests {
		f.Errorf("%.2000s", text)
	}
	for _, form := range []string{"--each", "--markdown"} {
		if text, stderr, ok := command(f.T, "sim", "fleet", "--decisions", record, "--policies", "2026", "--weight", "prefill=2", form); !ok || !strings.Contains(text, "recorded choices") {
			f.Errorf("%s: %.2000s %s", form, text, stderr)
		}
	}
}

// killFirst kills the first worker while it computes answers of c and other requests wait for it,
// and begins it again after its end shows. It returns the time of the end.
func (f *realFleet) killFirst(c *crowd, begin func(i int) *process) (died time.Time) {
	f.Helper()
	victim := f.workers[0].name
	c.untilMore(f.T, 20)
	f.untilHeld(victim)
	c.halt(f.T, 2, func(a *answer) bool { return a.worker == victim }, f.workers[0])
	// The stopped worker gets requests in its turn. It can't begin those sent from now on, but the
	// router may find the worker late and send them to another.
	stopped, waits := time.Now(), 0
	until(f.T, "requests wait for "+victim, func() string {
		w := f.status()[victim]
		n := c.count(func(a *answer) bool {
			return open(a) && (a.worker == victim || a.worker == "" && a.sent.Before(stopped))
		})
		if len(w.Ranks) != 1 || w.Ranks[0].Requests <= n {
			waits = 0
		} else if waits++; waits == 3 { // seen three times, so it has not merely just ended
			return ""
		}
		if n == c.clients || c.count(func(a *answer) bool { return a.attempts > 1 }) > 0 {
			return ""
		}
		return fmt.Sprintf("%d may have begun, of %+v", n, w)
	})
	f.workers[0].kill()
	died = time.Now()
	until(f.T, "its end shows", func() string {
		w := f.status()[victim]
		if w.State != "lost" || len(w.Ranks) != 1 || w.Ranks[0].HeldBlocks != 0 || w.Mode == "events" {
			return fmt.Sprintf("%+v", w)
		}
		return ""
	})
	c.untilMore(f.T, 30)
	f.workers[0] = begin(0)
	f.untilWhole()
	f.untilHeld(victim)
	c.untilMore(f.T, 30)
	return died
}

// TestFleetRouterRestarted checks that workers abort the requests of a router that dies, and
// that the next router knows the workers' blocks before its first request.
func TestFleetRouterRestarted(t *testing.T) {
	t.Parallel()
	for _, over := range []string{"zmq", "nats"} {
		t.Run(over, func(t *testing.T) {
			f, args := &realFleet{T: t}, []string{"--addr", at(freePorts(t, 1))}
			publish := func(int) string { return "zmq://127.0.0.1:0" }
			if over == "nats" {
				broker := startNATS(t, "127.0.0.1:0")
				publish = func(int) string { return broker.url }
				args = append(args, "--events", broker.url)
			}
			for i := range 2 {
				f.workers = append(f.workers, startWorker(t, fmt.Sprint("w", i), storyTokens, publish(i)))
				if over == "zmq" {
					args = append(args, "--worker", f.workers[i].url)
				}
			}
			f.route(args...)
			long := story
			long.outputTokens = 150
			c := gather(t, f.router.url, 8, 0, long)
			c.untilMore(t, 16)
			c.halt(t, 2, func(*answer) bool { return true }, f.workers...)
			f.router.kill()
			for _, w := range f.workers {
				w.resume()
			}
			next := c.disperse()
			broken := 0
			for _, a := range c.answers {
				if a.done { // answered; the last bytes of the connection may be missing
					continue
				}
				if broken++; a.broken == nil || broken > 8 {
					t.Error(a)
				}
			}
			f.untilIdle()
			asked, aborted := 0, 0
			for _, w := range f.workers {
				m := w.figures()
				asked += m["coppice_prompt_tokens_total"]
				aborted += m[`coppice_request_success_total{finished_reason="abort",model_name="demo"}`]
			}
			if broken < 2 || aborted < 2 || aborted > 8 {
				t.Errorf("%d answers broke, workers gave %d up", broken, aborted)
			}
			f.route(args...)
			f.untilAgreed()
			for _, w := range f.workers {
				m := w.figures()
				if asked -= m["coppice_prompt_tokens_total"]; m["coppice_events_held_blocks"] == 0 {
					t.Errorf("%s holds nothing", w.name)
				}
			}
			if asked != 0 {
				t.Errorf("workers were asked for %d tokens more", -asked)
			}
			f.checkPrefixes(long, max(0, next/long.each-2), next/long.each+long.groups)
		})
	}
}

// TestFleetRouterDrains checks that a router asked to end finishes its answers and refuses
// new requests. The worker is stopped meanwhile, so that no answer ends too early.
func TestFleetRouterDrains(t *testing.T) {
	t.Parallel()
	const clients = 4
	f := startFleet(t, 1, 20_000)
	one := story
	one.once, one.outputTokens = true, 200
	c := gather(t, f.router.url, clients, 0, one)
	c.halt(t, 2, func(*answer) bool { return true }, f.workers[0])
	f.router.signal(syscall.SIGTERM)
	until(t, "the router drains", func() string {
		res, err := asker.Get(f.router.url + "/ready")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if code := codeOf(body); res.StatusCode != http.StatusServiceUnavailable || code != "shutting_down" {
			return res.Status + code
		}
		return ""
	})
	late := gather(t, f.router.url, 1, clients, one)
	late.disperse()
	if a := late.answers[0]; a.status != http.StatusServiceUnavailable || a.fault != "shutting_down" || a.broken != nil {
		t.Errorf("%v", a)
	}
	if n := c.count(open); n == 0 || f.router.ended() {
		t.Errorf("%d answers are open, the router has ended: %v", n, f.router.ended())
	}
	f.workers[0].resume()
	c.disperse()
	c.fine(t)
	f.router.wait()
	f.untilIdle()
	if n := f.workers[0].figures()[`coppice_request_success_total{finished_reason="length",model_name="demo"}`]; n != clients {
		t.Errorf("the worker has ended %d requests, want %d", n, clients)
	}
}
