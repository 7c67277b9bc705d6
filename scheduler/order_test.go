package scheduler

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

func (b *bed) request(r Request) {
	b.t.Helper()
	b.now += time.Millisecond
	if r.MaxTokens == 0 {
		r.MaxTokens = 1
	}
	if err := b.s.Add(b.now, r); err != nil {
		b.t.Fatal(err)
	}
}

// order runs all requests, one at a time, and returns the order in which they ran.
func (b *bed) order() string {
	b.t.Helper()
	var ids []string
	for i := 0; b.s.Open() > 0 && i < 1000; i++ {
		b.step()
		for _, row := range b.log {
			id, _, _ := strings.Cut(row, "[")
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return strings.Join(ids, " ")
}

// TestOrders checks which request goes next under each policy, with the same requests.
// SGLang's tests have the same cases for the policies that it has.
func TestOrders(t *testing.T) {
	const never = 1 << 29
	for _, c := range []struct{ policy, want string }{
		{"fcfs", "1 2 3 4 5 6"},
		{"lpm", "4 3 5 6 1 2"},        // 17, 12, 8, 8 and nothing cached; ties by age
		{"lof", "2 1 5 3 4 6"},        // 9, 5, 5, then 1
		{"priority", "6 2 4 1 3 5"},   // 7, 3, 3, then 0
		{"dfs-weight", "3 4 5 6 1 2"}, // 3 and 4 end in a branch below the node of 5 and 6
		{"hrrn", "3 4 6 5 1 2"},       // 1, 1, 1, 6, 30 and 31 uncached
	} {
		t.Run(c.policy, func(t *testing.T) {
			var p Policy
			if err := p.UnmarshalText([]byte(c.policy)); err != nil {
				t.Fatal(err)
			}
			b := newBed(t, Config{Policy: p, MaxRunning: 1, OldestEvery: never, Aging: never}, 4, 60)
			b.add(90, seq(0, 18), 1) // the stem, and two branches
			b.add(91, append(seq(0, 8), seq(60, 8)...), 1)
			b.order()
			b.request(Request{ID: 1, Prompt: seq(30, 30), MaxTokens: 5})
			b.request(Request{ID: 2, Prompt: seq(70, 31), MaxTokens: 9, Priority: 3})
			b.request(Request{ID: 3, Prompt: append(seq(0, 12), 95)})
			b.request(Request{ID: 4, Prompt: seq(0, 18), Priority: 3})
			b.request(Request{ID: 5, Prompt: append(seq(0, 8), 93, 93, 93, 93, 93, 93), MaxTokens: 5})
			b.request(Request{ID: 6, Prompt: append(seq(0, 8), 92), Priority: 7})
			if got := b.order(); got != c.want {
				t.Errorf("order %s, want %s", got, c.want)
			}
		})
	}
}

// TestRandomOrder checks that under Random the order follows the seed, not the arrival.
func TestRandomOrder(t *testing.T) {
	orders := map[string]bool{}
	for seed := range uint64(4) {
		b := newBed(t, Config{Policy: Random, Seed: seed, MaxRunning: 1, OldestEvery: 1 << 29}, 4, 60)
		for id := range RequestID(8) {
			b.request(Request{ID: id + 1, Prompt: seq(int(id)*9, 5)})
		}
		orders[b.order()] = true
	}
	if len(orders) < 3 || orders["1 2 3 4 5 6 7 8"] {
		t.Errorf("orders %v", orders)
	}
}

// TestLPMAges checks that waiting counts as cached tokens: a request with nothing cached
// overtakes those that arrive more than Aging times their cached tokens later.
func TestLPMAges(t *testing.T) {
	b := newBed(t, Config{Policy: LPM, MaxRunning: 1, Aging: 2, OldestEvery: 1 << 29}, 4, 60)
	b.add(90, seq(0, 16), 1)
	b.order()
	b.request(Request{ID: 1, Prompt: seq(50, 5)})
	for id := RequestID(2); id < 12; id++ { // each costs 4 tokens of work and has 16 cached
		b.request(Request{ID: id, Prompt: append(seq(0, 16), kv.Token(80+id), 1, 2, 3)})
	}
	got := ""
	for id := RequestID(20); !strings.HasSuffix(got, " 1"); id++ {
		b.step()
		who, _, _ := strings.Cut(b.log[0], "[")
		got += " " + who
		b.request(Request{ID: id, Prompt: append(seq(0, 16), kv.Token(id%97), 9, 9, 9)})
		if id == 40 {
			t.Fatalf("1 starves: %s", got)
		}
	}
	// With Aging 2, requests with 16 cached tokens stay ahead of request 1 if they arrive
	// within 32 tokens of work: the 10 that arrived with it, and about 8 more.
	if n := len(strings.Fields(got)); n < 14 || n > 20 {
		t.Errorf("1 was served as number %d: %s", n, got)
	}
}

// TestHRRNServesLongPrompts checks that by response ratio a long prompt that has waited
// gets its turn among short ones.
func TestHRRNServesLongPrompts(t *testing.T) {
	b := newBed(t, Config{Policy: HRRN, MaxRunning: 1, OldestEvery: 1 << 29}, 4, 60)
	b.add(1, seq(0, 5), 1)
	b.step()
	b.request(Request{ID: 2, Prompt: seq(10, 40)})
	b.request(Request{ID: 100, Prompt: seq(80, 8)})
	var got []string
	for id := RequestID(3); id < 60 && !slices.Contains(got, "2"); id++ { // always two short ones
		b.request(Request{ID: id, Prompt: append([]kv.Token{kv.Token(id)}, seq(60, 7)...)})
		b.step()
		who, _, _ := strings.Cut(b.log[0], "[")
		got = append(got, who)
	}
	if n := len(got); n < 3 || n > 20 {
		t.Errorf("the long one was served as number %d", n)
	}
}

// TestQueueLearnsOfCachedPrefixes checks that a request moves up when more of it gets cached
// while it waits, without matching the tree again.
func TestQueueLearnsOfCachedPrefixes(t *testing.T) {
	b := newBed(t, Config{Policy: LPM, MaxRunning: 1, OldestEvery: 1 << 29}, 16, 60)
	long := seq(0, 150)
	b.request(Request{ID: 1, Prompt: append(slices.Clone(long[:100]), 7), MaxTokens: 2})
	b.request(Request{ID: 2, Prompt: seq(40, 20)})
	b.request(Request{ID: 3, Prompt: long})
	b.step() // 1 publishes 96 tokens, 64 of which are a block of the index
	b.s.queue.rerankPublished()
	q := b.s.open[3].samples[0]
	if q.wait.cached != 64 {
		t.Errorf("%d tokens of 3 are known to be cached", q.wait.cached)
	}
	if got := b.order(); got != "1 3 2" {
		t.Errorf("order %s", got)
	}
}

// TestStaleRanksAreUpdated checks that a rank that eviction made too high is corrected
// before it is used.
func TestStaleRanksAreUpdated(t *testing.T) {
	b := newBed(t, Config{Policy: LPM, MaxRunning: 1, OldestEvery: 1 << 29}, 16, 40)
	b.add(1, seq(50, 200), 1)
	b.order()
	b.add(9, seq(0, 50), 1)
	b.order()
	b.request(Request{ID: 2, Prompt: seq(50, 200)})
	b.s.room.reclaim(b.s.cache.Evict(12, nil)) // of 1's 13 pages
	b.request(Request{ID: 3, Prompt: seq(0, 50)})
	if was := b.s.open[2].samples[0].wait.cached; was < 90 {
		t.Fatalf("%d tokens cached", was)
	}
	if got := b.order(); got != "3 2" {
		t.Errorf("order %s", got)
	}
}

// TestLaneSorts checks that the queue agrees with a plain sort through random changes.
func TestLaneSorts(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var l seqHeap
	var all []*sequence
	for i := range uint64(2000) {
		if rng.IntN(3) > 0 || len(all) == 0 {
			q := &sequence{arrival: i}
			q.wait.rank = int64(rng.IntN(20))
			all = append(all, q)
			l.push(q)
		} else {
			i := rng.IntN(len(all))
			if rng.IntN(2) == 0 {
				i = slices.Index(all, l.head())
			}
			l.remove(all[i])
			all = slices.Delete(all, i, i+1)
		}
		if len(all) > 0 {
			first := slices.MinFunc(all, func(a, b *sequence) int {
				if a.outranks(b) {
					return -1
				}
				return 1
			})
			if l.head() != first {
				t.Fatalf("after %d: head %d, want %d", i, l.head().arrival, first.arrival)
			}
		}
	}
}

// TestDLPMSharesByWeight checks that tenants that wait all the time are served by weight,
// not by arrival or cached tokens, within the bound of DLPM.
func TestDLPMSharesByWeight(t *testing.T) {
	for _, weight := range []int{1, 3} {
		cfg := Config{Policy: DLPM, MaxRunning: 1, Quantum: 40, Tenants: map[string]TenantConfig{"b": {Weight: weight}}}
		b := newBed(t, cfg, 4, 60)
		for id := RequestID(1); id <= 60; id++ { // a comes first, and its prompts share
			b.request(Request{ID: id, Tenant: "a", Prompt: append(seq(0, 8), kv.Token(id), 1, 2, 3), MaxTokens: 2})
		}
		for id := RequestID(61); id <= 120; id++ {
			b.request(Request{ID: id, Tenant: "b", Prompt: append([]kv.Token{kv.Token(id % 97)}, seq(60, 15)...), MaxTokens: 2})
		}
		bound := 2 * (40*weight + 16 + 2)
		most := 0
		for {
			b.step()
			u := b.s.Tenants()
			if len(u) < 2 || u[0].Waiting == 0 || u[1].Waiting == 0 {
				break
			}
			off := int(u[0].ServedTokens)*weight - int(u[1].ServedTokens)
			most = max(most, off, -off)
			if most > bound {
				t.Fatalf("weight %d: served %d and %d", weight, u[0].ServedTokens, u[1].ServedTokens)
			}
		}
		if most < 8 {
			t.Errorf("weight %d: never apart by more than %d: no test", weight, most)
		}
		if m := b.s.Metrics(); m.CachedTokens < 100 {
			t.Errorf("%d tokens cached", m.CachedTokens)
		}
		b.s.Fail(b.now, errRow, nil)
	}
}
