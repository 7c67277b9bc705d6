package gateway

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/events/card"
)

// TestByEvents: a prompt goes to the worker whose events said that it has it.
func TestByEvents(t *testing.T) {
	a, b := newWorker(t, "a", true, nil), newWorker(t, "b", true, nil)
	s := newStand(t, Config{PredictTTL: -1}, a, b)
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
	s.idle()
	if f := s.Fleet(); f.Workers[0].Mode != "events" || f.Workers[1].Mode != "events" || f.BlockTokens != blockTokens {
		t.Errorf("%+v", f)
	}
}

// TestSilentEvents: what a worker held is not believed when its events do not come any more,
// though the connection stands.
func TestSilentEvents(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	a.beats("tcp://127.0.0.1:0", "tcp://127.0.0.1:0", blockTokens, -1)
	a.holds(run(0, 40))
	s := newStand(t, Config{EventSilence: 20 * time.Millisecond}, a)
	s.until("its silence is noticed", func() bool {
		w, counts := s.worker("a"), s.subscriber.Counts()
		return counts.Snapshots > 0 && w.State == "healthy" && w.Mode == "waiting" && w.Ranks[0].HeldBlocks == 0
	})
	a.holds(run(100, 40)) // it lives
	s.until("it is believed again", func() bool { return s.subscriber.Counts().Snapshots > 1 })
}

// TestEventsOfAnotherTopic: where nothing comes as the topic is another, somebody is told.
func TestEventsOfAnotherTopic(t *testing.T) {
	a := newWorker(t, "a", true, func(c *card.Card) { c.ZMQ.Topic = "kv@nobody" })
	s := newStand(t, Config{quiet: time.Millisecond}, a)
	s.until("it is told", func() bool {
		a.holds(run(0, 40))
		found := s.logs.FilterMessageSnippet("nothing comes of the worker's topic, but of another")
		return found.Len() == 1 && strings.Contains(fmt.Sprint(found.All()[0].ContextMap()), `rank 0: a message has come under ""`)
	})
}

// TestByGuess: workers without events are taken to hold what was sent to them.
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

// TestTooLongPrompts: what a worker can only refuse is not guessed to be there, and takes no
// room from what is.
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

// TestSiblings: who comes together with the same new prefix finds each other, though no
// event has told of it.
func TestSiblings(t *testing.T) {
	a, b := newWorker(t, "a", true, nil), newWorker(t, "b", true, nil)
	s := newStand(t, Config{PredictTTL: long}, a, b)
	s.ready(2)
	first := ""
	for i := range 6 {
		r := s.ask(t.Context(), append(run(0, 4000), run(90000+8*i, 8)...), `,"max_tokens":1`)
		if first == "" {
			first = r.worker()
		}
		if r.worker() != first {
			t.Errorf("sibling %d went to %s, the first to %s", i, r.worker(), first)
		}
	}
}
