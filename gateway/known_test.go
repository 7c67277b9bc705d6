package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// TestByEvents: a prompt goes to the worker whose events announced its blocks.
func TestByEvents(t *testing.T) {
	a, b := newWorker(t, "a", true, nil), newWorker(t, "b", true, nil)
	s := newStand(t, Config{NoPredict: true}, a, b)
	s.ready(2)
	inA, inB := run(0, 400), run(5000, 400)
	a.holds(inA)
	b.holds(inB)
	s.until("the events", func() bool {
		return len(s.worker("a").Ranks) == 1 && s.worker("a").Ranks[0].HeldBlocks == 100 && s.worker("b").Ranks[0].HeldBlocks == 100
	})
	for i := range 20 {
		tokens, want := inA, "a"
		if i%2 == 1 {
			tokens, want = inB, "b"
		}
		r := s.ask(t.Context(), tokens, `,"max_tokens":3,"model":"m"`)
		if r.StatusCode != 200 || r.worker() != want || r.text != fmt.Sprintf(`{"worker":%q,"tokens":3}`, want) {
			t.Fatalf("%s from %q: %s, want from %s", r.Status, r.worker(), r.text, want)
		}
		if h := r.Header; h.Get(headerOverlap) != "100" || h.Get(headerBlocks) != "100" || h.Get(headerAttempts) != "1" {
			t.Errorf("headers are %v", h)
		}
	}
	for _, at := range []struct {
		tokens []kv.Token
		want   string
	}{{inA, "a"}, {inB, "b"}} {
		input, _ := json.Marshal(at.tokens)
		for _, body := range []string{`{"input":%s,"model":"m"}`, `{"input":[%s,[1]],"model":"m"}`} {
			if r := s.post(t.Context(), "/v1/embeddings", fmt.Sprintf(body, input)); r.worker() != at.want || r.Header.Get(headerOverlap) != "100" {
				t.Errorf("the embedding of a prompt that %s knows goes to %q, %s blocks", at.want, r.worker(), r.Header.Get(headerOverlap))
			}
		}
	}
	s.idle()
	if f := s.Fleet(); f.Workers[0].Mode != "events" || f.Workers[1].Mode != "events" || f.BlockTokens != blockTokens {
		t.Errorf("%+v", f)
	}
}

// TestTierWeights: of two workers with a part of a prompt, the one whose tiers weigh more gets
// it.
func TestTierWeights(t *testing.T) {
	const blocks = 50
	type part struct {
		tier   kv.Tier
		blocks int
	}
	for _, tc := range []struct {
		name, weights string
		a, b          part
		want          string
	}{
		{"host before less on the device", "", part{kv.TierHost, 50}, part{kv.TierDevice, 35}, "a"},
		{"device before more on disk", "", part{kv.TierDisk, 50}, part{kv.TierDevice, 35}, "b"},
		{"disk before more in a shared directory", "", part{kv.TierShared, 50}, part{kv.TierDisk, 40}, "b"},
		{"shared directory before an object store", "", part{kv.TierObject, 50}, part{kv.TierShared, 30}, "b"},
		{"object store before nothing", "", part{kv.TierObject, 50}, part{kv.TierDevice, 0}, "a"},
		{"weights given", "disk=0.9", part{kv.TierDisk, 50}, part{kv.TierDevice, 35}, "a"},
		{"a tier that counts nothing", "object=0,host=0.1", part{kv.TierObject, 50}, part{kv.TierHost, 20}, "b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := newWorker(t, "a", true, nil), newWorker(t, "b", true, nil)
			cfg := Config{NoPredict: true, Router: router.Config{Policy: router.Cost2026}}
			if tc.weights != "" {
				if err := cfg.Router.TierWeights.UnmarshalText([]byte(tc.weights)); err != nil {
					t.Fatal(err)
				}
			}
			s := newStand(t, cfg, a, b)
			s.ready(2)
			tokens := run(0, blocks*blockTokens)
			for w, p := range map[*worker]part{a: tc.a, b: tc.b} {
				w.holdIn(p.tier, tokens[:p.blocks*blockTokens], blockTokens)
			}
			s.until("the events", func() bool {
				held := func(name string, n int) bool {
					return n == 0 || len(s.worker(name).Ranks) == 1 && s.worker(name).Ranks[0].HeldBlocks == n
				}
				return held("a", tc.a.blocks) && held("b", tc.b.blocks)
			})
			if r := s.ask(t.Context(), tokens, `,"max_tokens":1,"model":"m"`); r.worker() != tc.want {
				t.Errorf("%s from %q, want from %s", r.Status, r.worker(), tc.want)
			}
			s.idle()
		})
	}
}

// TestSilentEvents: a worker's blocks are no longer trusted when its events stop, even if the
// connection stays up.
func TestSilentEvents(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	a.beats("tcp://127.0.0.1:0", "tcp://127.0.0.1:0", blockTokens, -1)
	a.holds(run(0, 40))
	s := newStand(t, Config{EventSilence: 20 * time.Millisecond}, a)
	s.until("its silence is noticed", func() bool {
		w, counts := s.worker("a"), s.members.EventCounts()
		return counts.Snapshots > 0 && w.State == "healthy" && w.Mode == "waiting" && w.Ranks[0].HeldBlocks == 0
	})
	a.holds(run(100, 40)) // the worker is alive
	s.until("it is believed again", func() bool { return s.members.EventCounts().Snapshots > 1 })
}

// TestEventsOfAnotherTopic: if nothing arrives because of a wrong topic, a warning is logged.
func TestEventsOfAnotherTopic(t *testing.T) {
	a := newWorker(t, "a", true, func(c *card.Card) { c.ZMQ.Topic = "kv@other" })
	s := newStand(t, Config{quiet: time.Millisecond}, a)
	s.until("it is reported", func() bool {
		a.holds(run(0, 40))
		found := s.logs.FilterMessageSnippet("the worker's events have another topic")
		return found.Len() == 1 && strings.Contains(fmt.Sprint(found.All()[0].ContextMap()), `rank 0: a message arrived with topic ""`)
	})
}

// TestByGuess: workers without events count as holding the prompts sent to them.
func TestByGuess(t *testing.T) {
	a, b := newWorker(t, "a", false, nil), newWorker(t, "b", false, nil)
	s := newStand(t, Config{}, a, b)
	s.ready(2)
	at := map[int]string{}
	for i := range 30 {
		kind := i % 3
		r := s.ask(t.Context(), append(run(kind*10000, 800), run(i, 8)...), `,"max_tokens":1`)
		if r.StatusCode != 200 {
			t.Fatal(r.Status, r.text)
		}
		if i >= 3 && r.worker() != at[kind] {
			t.Errorf("request %d of kind %d went to %s, the others to %s", i, kind, r.worker(), at[kind])
		}
		at[kind] = r.worker()
	}
	if m := s.worker("a").Mode; m != "approximate" {
		t.Errorf("mode is %s", m)
	}
	s.idle()
}

// TestTooLongPrompts: a prompt that a worker must refuse is not guessed to be cached there, and
// displaces no other guess.
func TestTooLongPrompts(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	s := newStand(t, Config{}, a)
	s.ready(1)
	whole := run(0, a.card.PoolTokens)
	for i, n := range []int{len(whole) - 2*blockTokens, len(whole), len(whole) + blockTokens} {
		tokens := run(i*10000, n)
		s.ask(t.Context(), tokens, ``)
		want := strconv.Itoa(n / blockTokens)
		if n > len(whole) {
			want = "0"
		}
		if r := s.ask(t.Context(), tokens, ``); r.Header.Get(headerOverlap) != want {
			t.Errorf("of %d tokens %s blocks are guessed, want %s", n, r.Header.Get(headerOverlap), want)
		}
	}
}

// TestSiblings: simultaneous requests with the same new prefix go to one worker before any event
// reports it. A finished request is no longer predicted.
func TestSiblings(t *testing.T) {
	a := newWorker(t, "a", true, nil)
	s := newStand(t, Config{}, a)
	s.ready(1)
	gate := make(chan struct{})
	free := sync.OnceFunc(func() { close(gate) })
	defer free()
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		<-gate
		a.complete(rw, r)
	})
	const siblings = 6
	replies := make(chan reply, siblings)
	predicted := func() int {
		m, _ := s.dispatch.Metrics()
		n := m.Promised
		return n
	}
	for i := range siblings {
		go func() { replies <- s.ask(t.Context(), append(run(0, 4000), run(90000+8*i, 8)...), `,"max_tokens":1`) }()
		s.until("it is sent", func() bool { return a.requests() == i+1 })
	}
	if n := predicted(); n != 1000+2*siblings {
		t.Errorf("%d blocks are predicted, want %d", n, 1000+2*siblings)
	}
	free()
	found := map[string]int{}
	for range siblings {
		found[(<-replies).Header.Get(headerOverlap)]++
	}
	if found["0"] != 1 || found["1000"] != siblings-1 {
		t.Errorf("of %d requests with blocks found: %v", siblings, found)
	}
	s.idle()
	if n := predicted(); n != 0 {
		t.Errorf("%d blocks are predicted after all have ended", n)
	}
}

// TestRemovalEndsPrediction: removed blocks are no longer predicted.
func TestRemovalEndsPrediction(t *testing.T) {
	a := newWorker(t, "a", true, nil)
	s := newStand(t, Config{}, a)
	s.ready(1)
	gate := make(chan struct{})
	free := sync.OnceFunc(func() { close(gate) })
	defer free()
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		<-gate
		a.complete(rw, r)
	})
	ask := func() <-chan reply {
		before, done := a.requests(), make(chan reply, 1)
		go func() { done <- s.ask(t.Context(), run(0, 40), `,"max_tokens":1`) }()
		s.until("it is sent", func() bool { return a.requests() == before+1 })
		return done
	}
	overlap := func(r <-chan reply) string { return (<-r).Header.Get(headerOverlap) }
	first, second := ask(), ask()
	hashes := kv.NewHasher(kv.Namespace{}, blockTokens)
	var gone kv.BlockHash
	for i := range 5 {
		gone, _ = hashes.Next(run(i*blockTokens, blockTokens))
	}
	a.holds(run(0, 24)) // one chunk, a part of which is then evicted
	a.pub.Publish([]kv.Event{{Kind: kv.Removed, Hashes: []kv.BlockHash{gone}}})
	s.until("the removal", func() bool {
		m, _ := s.dispatch.Metrics()
		n := m.Promised
		return n == 4
	})
	third := ask()
	free()
	if x, y, z := overlap(first), overlap(second), overlap(third); x != "0" || y != "10" || z != "4" {
		t.Errorf("predicted are %s, %s and after a removal %s blocks, want 0, 10 and 4", x, y, z)
	}
}
