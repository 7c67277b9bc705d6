package dispatch

import (
	"testing"
	"time"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway/internal/residency"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/kvindex"
)

const blockTokens = 4

func newDispatcher(t *testing.T, r router.Config) *Dispatcher {
	t.Helper()
	r.BlockTokens = blockTokens
	d, err := New(Config{Router: r.WithDefaults(), GuessTTL: time.Minute, Index: residency.Config{Index: kvindex.ShardedConfig{Config: kvindex.Config{Holders: 4}}}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestGuessesOfManyWorkers: workers that left do not take room in the guesses.
func TestGuessesOfManyWorkers(t *testing.T) {
	d := newDispatcher(t, router.Config{Predict: true})
	tokens := make([]kv.Token, 10*blockTokens)
	for id := range kv.WorkerID(20) {
		w := kv.Rank{Worker: id + 1}
		blind := id%2 == 0
		if err := d.Join(w, &card.Card{}, blind); err != nil {
			t.Fatal(err)
		}
		d.SetHealth(w, router.Healthy)
		for _, want := range []int{0, 10} {
			a := Ask{Exact: true}
			a.SetPrompt(tokens, kv.Namespace{}, 0, blockTokens, nil)
			a.Request.PromptTokens = len(tokens)
			got, err := d.Choose(t.Context(), &a, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if got := got.Overlap.Blocks(); got != want {
				t.Errorf("worker %d is guessed to have %d blocks, want %d", w.Worker, got, want)
			}
			defer d.Release(got.Reservation) // its first token has not come
		}
		d.Leave(w)
	}
}

// TestEventsLive: a rank is blind while its events do not arrive; an unknown rank is ignored.
func TestEventsLive(t *testing.T) {
	d, w := newDispatcher(t, router.Config{}), kv.Rank{Worker: 1}
	d.SetEventsLive(w, false)
	if len(d.ranks) != 0 || d.Guesses(w) {
		t.Error("something is noted of a worker that is not there")
	}
	if err := d.Join(w, &card.Card{}, false); err != nil {
		t.Fatal(err)
	}
	for _, live := range []bool{false, true, false} {
		if d.SetEventsLive(w, live); d.Guesses(w) == live {
			t.Errorf("heard %v, blind %v", live, d.Guesses(w))
		}
	}
}
