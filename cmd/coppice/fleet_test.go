package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/bench/load"
	"github.com/coppice-llm/coppice/gateway"
)

var fleetRequests = flag.Int("fleet-requests", 240, "requests of TestFleetComputesOnce")

// realFleet is a fleet of workers and a router, each a separate process.
type realFleet struct {
	*testing.T
	workers []*process
	router  *process
}

// startWorker starts coppice serve with a simulated device and a pool of kvTokens, as a worker of
// this name that publishes its events at the URL publish.
func startWorker(t *testing.T, name string, kvTokens int, publish string, args ...string) *process {
	t.Helper()
	return startCoppice(t, name, append([]string{"serve", "--addr", "127.0.0.1:0", "--backend", "sim", "--profile", "h200", "--no-page", "--no-curve",
		"--kv-tokens", strconv.Itoa(kvTokens), "--publish", publish, "--name", name}, args...)...)
}

// startFleet starts this many workers, each with a pool of kvTokens, which publish over ZMQ, and a
// router for them with the arguments args.
func startFleet(t *testing.T, workers, kvTokens int, args ...string) *realFleet {
	t.Helper()
	f := &realFleet{T: t}
	var urls []string
	for i := range workers {
		w := startWorker(t, fmt.Sprint("w", i), kvTokens, "zmq://127.0.0.1:0")
		f.workers, urls = append(f.workers, w), append(urls, w.url)
	}
	f.route(append([]string{"--worker", strings.Join(urls, ",")}, args...)...)
	return f
}

// route starts the router, or a new one in its place. Its probes have a long timeout, so that
// it does not give up workers stopped by a test.
func (f *realFleet) route(args ...string) {
	f.Helper()
	f.router = startCoppice(f.T, "router", append([]string{"route", "--addr", "127.0.0.1:0", "--probe-every", "200ms", "--probe-timeout", "10m"}, args...)...)
	f.untilWhole()
}

// status returns the router's view of each worker, by name.
func (f *realFleet) status() map[string]gateway.WorkerStatus {
	f.Helper()
	var s gateway.FleetStatus
	f.router.document("/v1/fleet", &s)
	all := map[string]gateway.WorkerStatus{}
	for _, w := range s.Workers {
		all[w.Name] = w
	}
	return all
}

// untilWhole waits until the router follows the events of all workers, and of no others.
func (f *realFleet) untilWhole() {
	f.Helper()
	until(f.T, "a whole fleet", func() string {
		all := f.status()
		whole := len(all) == len(f.workers)
		for _, w := range f.workers {
			is := all[w.name]
			whole = whole && is.URL == w.url && is.State == "healthy" && is.Mode == "events"
		}
		if !whole {
			return fmt.Sprintf("%+v", all)
		}
		return ""
	})
}

// untilIdle waits until no worker has a request or keeps a page for one.
func (f *realFleet) untilIdle() {
	f.Helper()
	for _, w := range f.workers {
		until(f.T, w.name+" is idle", func() string {
			var s struct {
				Running, Waiting int
				Held             int `json:"held_pages"`
				Protected        int `json:"protected_pages"`
				Leaked           int `json:"leaked_pages"`
			}
			if w.document("/v1/cache/stats", &s); s.Running+s.Waiting+s.Held+s.Protected+s.Leaked > 0 {
				return fmt.Sprintf("%+v", s)
			}
			return ""
		})
	}
}

// untilAgreed waits until the router's index has exactly the blocks of each worker, and
// checks that it never has more.
func (f *realFleet) untilAgreed() {
	f.Helper()
	until(f.T, "router and workers agree", func() string {
		if agreed, text := f.compare(); agreed < len(f.workers) {
			return text
		}
		return ""
	})
}

// compare compares the router's index with the blocks that the workers hold. agreed is the number
// of workers for which both are known to be equal; text describes the differences. The router may
// lag behind a worker. It is an error if the router has blocks that a worker did not have at the
// last batch that the router received. The order of the queries excludes false alarms: first the
// batches that the worker has made, sent or not, then the batches that the router has received, then the blocks
// in the router's index, and finally whether the worker has changed since.
func (f *realFleet) compare() (agreed int, text string) {
	f.Helper()
	figures := func() (all []map[string]int) {
		for _, w := range f.workers {
			all = append(all, w.figures())
		}
		return all
	}
	before, heard, believed, after := figures(), f.status(), f.status(), figures()
	for i, w := range f.workers {
		const changes, batches, holds = "coppice_events_published_total", "coppice_events_next_sequence", "coppice_events_held_blocks"
		if len(heard[w.name].Ranks) == 0 || len(believed[w.name].Ranks) == 0 {
			text += fmt.Sprintf("%s is not known; ", w.name)
			continue
		}
		held, index, next := before[i][holds], believed[w.name].Ranks[0].HeldBlocks, int(heard[w.name].Ranks[0].NextSeq)
		told := next >= before[i][batches] && before[i][changes] == after[i][changes]
		if told && index > held {
			f.Errorf("%s holds %d blocks, and the router believes in %d: before %v, router %+v then %+v", w.name, held, index, before[i], heard[w.name], believed[w.name])
		}
		if told && index == held {
			agreed++
			continue
		}
		text += fmt.Sprintf("%s holds %d blocks, the router counts %d; it expects batch %d of %d; ", w.name, held, index, next, before[i][batches])
	}
	return agreed, text
}

// untilHeld waits until the router knows of blocks of a worker.
func (f *realFleet) untilHeld(name string) {
	f.Helper()
	until(f.T, name+" reports its computed tokens", func() string {
		if s := f.status()[name]; len(s.Ranks) == 0 || s.Ranks[0].HeldBlocks == 0 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
}

// checkPrefixes sends a request for each of the prefixes numbered from, …, to-1, and compares the
// overlap that the router expected with the tokens that the worker found. The router must not
// predict, and the fleet must be idle.
func (f *realFleet) checkPrefixes(s shape, from, to int) {
	f.Helper()
	const blockTokens = 16
	found := 0
	for group := from; group < to; group++ {
		prompt := append(s.prefix(group), ids(suffixTokens, 4, uint64(group))...)
		res, err := asker.Post(f.router.url+"/v1/completions", "application/json", bytes.NewReader(completion(prompt, 1, false)))
		if err != nil {
			f.Fatal(err)
		}
		var a struct {
			Usage struct {
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		err = json.NewDecoder(res.Body).Decode(&a)
		res.Body.Close()
		overlap, err2 := strconv.Atoi(res.Header.Get("X-Coppice-Overlap-Blocks"))
		if cached := a.Usage.Details.Cached; err != nil || err2 != nil || res.StatusCode != http.StatusOK || overlap != cached/blockTokens {
			f.Errorf("prefix %d: %s %v %v: %d blocks were known at %s, which had %d tokens", group, res.Status, err, err2, overlap, res.Header.Get("X-Coppice-Worker"), cached)
		}
		if overlap > 0 {
			found++
		}
		f.untilAgreed() // the next request must see the evictions of this one
	}
	if found == 0 {
		f.Errorf("none of the prefixes %d to %d is held", from, to)
	}
}

// computed returns the prompt tokens that a server has computed, by its metrics.
func (p *process) computed() int {
	p.Helper()
	m := p.figures()
	return m["coppice_prompt_tokens_total"] - m["coppice_cached_tokens_total"] + m["coppice_recomputed_tokens_total"]
}

// TestFleetComputesOnce checks that three workers behind the router compute each shared prefix
// once, as one worker with the caches of all three would. Under round robin each worker computes
// nearly all prefixes. The load begins with one request for each prefix, a few requests at a time:
// if all arrived at once at an empty fleet, the router would have some prefixes computed twice
// rather than let requests wait.
func TestFleetComputesOnce(t *testing.T) {
	t.Parallel()
	const kvTokens, groups, prefixTokens, suffixTokens = 20_000, 24, 1500, 64
	each := max(1, *fleetRequests/groups)
	play := func(t *testing.T, at *process, workers ...*process) (computed int) {
		c, err := load.Dial(t.Context(), load.ClientConfig{URL: at.url, Options: load.Options{IgnoreEOS: true}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		sent := 0
		for _, wave := range []struct{ each, clients int }{{1, 3}, {each, 12}} {
			d, err := load.NewSharedPrefix(load.SharedPrefix{Vocabulary: load.Vocabulary{Low: 64, High: 256}, Groups: groups, PromptsPerGroup: wave.each,
				PrefixTokens: prefixTokens, SuffixTokens: suffixTokens, OutputTokens: 8, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			r, err := load.Run(t.Context(), c, d, load.Config{Concurrency: wave.clients}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if sent += d.Sessions(); r.Completed != d.Sessions() || r.Failed != 0 || r.InputTokens != d.Sessions()*(prefixTokens+suffixTokens) {
				t.Errorf("%d completed of %d, of %d tokens: %+v", r.Completed, d.Sessions(), r.InputTokens, r.Failures)
			}
		}
		for _, w := range workers {
			computed += w.computed()
		}
		// Suffixes may begin with the same tokens by chance.
		if least, most := groups*prefixTokens+sent*suffixTokens*9/10, sent*(prefixTokens+suffixTokens); computed < least || computed > most {
			t.Errorf("%d tokens computed, and it can only be %d to %d", computed, least, most)
		}
		return computed
	}
	figures := map[string]int{}
	for _, policy := range []string{"latency", "round-robin"} {
		t.Run(policy, func(t *testing.T) {
			f := startFleet(t, 3, kvTokens, "--policy", policy)
			figures[policy] = play(t, f.router, f.workers...)
			f.untilIdle()
			f.untilAgreed()
		})
	}
	t.Run("single", func(t *testing.T) {
		w := startWorker(t, "single", 3*kvTokens, "zmq://127.0.0.1:0")
		figures["single"] = play(t, w, w)
	})
	routed, inTurn, single := figures["latency"], figures["round-robin"], figures["single"]
	t.Logf("computed tokens: %d by three workers routed to by latency, %d in turn; %d by one with three times the cache", routed, inTurn, single)
	if 100*routed > 105*single || inTurn < 2*single {
		t.Errorf("routed %.3f, in turn %.3f of what one computes, want at most 1.05 and at least 2", float64(routed)/float64(single), float64(inTurn)/float64(single))
	}
}
