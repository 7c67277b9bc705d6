package dispatch

import (
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// reservedEvent returns another router's reservation of two blocks.
func reservedEvent(seq, id uint64, w kv.Rank, untold bool) router.Event {
	return router.Event{
		Replica: 2, Epoch: 1, Seq: seq, ID: id, Worker: w, PromptTokens: 8, UncachedTokens: 8, Untold: untold,
		Hashes: []kv.BlockHash{kv.BlockHash(10 * id), kv.BlockHash(10*id + 1)},
	}
}

func wantGuesses(t *testing.T, d *Dispatcher, what string, guesses, promised int) {
	t.Helper()
	if m, n := d.Metrics(); n != guesses || m.Promised != promised {
		t.Errorf("%s: %d guesses and %d predictions, want %d and %d", what, n, m.Promised, guesses, promised)
	}
}

// TestGuessesOfReplicasEnd: no guess is made from a replica's reservation whose worker is lost
// or has left, nor from a duplicate, a late event after the release, or a snapshot taken because
// a worker left.
func TestGuessesOfReplicasEnd(t *testing.T) {
	d, blind, seen := newDispatcher(t, router.Config{Replica: 1, Epoch: 1, Predict: true}), kv.Rank{Worker: 1}, kv.Rank{Worker: 2}
	join := func(w kv.Rank) {
		if err := d.Join(w, &card.Card{}, w == blind); err != nil {
			t.Fatal(err)
		}
	}
	join(blind)
	join(seen)
	seq := uint64(0)
	made := func(id uint64, w kv.Rank, untold bool) router.Event {
		seq++
		return reservedEvent(seq, id, w, untold)
	}
	want := func(what string, guesses, promised int) { t.Helper(); wantGuesses(t, d, what, guesses, promised) }
	d.ApplyEvents([]router.Event{made(9, blind, false)})
	want("of one that has just joined", 2, 2)
	d.SetHealth(blind, router.Lost)
	want("which is lost", 0, 0)
	d.SetHealth(seen, router.Lost)
	ofLost := made(1, seen, false)
	if d.ApplyEvents([]router.Event{ofLost}) != 0 {
		t.Error("refused")
	}
	want("of a lost worker", 0, 2) // it has the request if it comes back
	d.SetHealth(seen, router.Healthy)
	d.SetHealth(blind, router.Healthy)
	d.ApplyEvents([]router.Event{ofLost})
	want("of one that was lost, again", 0, 2)
	events := []router.Event{made(2, seen, false), made(3, seen, true), made(4, blind, false), made(5, seen, false)}
	if d.ApplyEvents(events) != 0 {
		t.Error("refused")
	}
	want("told", 4, 8)
	d.Leave(seen)
	want("left", 2, 2)
	late := made(6, seen, true)
	if n := d.ApplyEvents(append(events, late)); n != 1 {
		t.Errorf("%d refused", n)
	}
	join(seen)
	d.SetHealth(seen, router.Healthy)
	d.ApplyEvents(events)
	want("of one that has left, again", 2, 2)
	ofSnapshot := func(events ...router.Event) *router.Snapshot {
		return &router.Snapshot{Replica: 2, Epoch: 1, Seq: seq, LastID: 100, Events: events}
	}
	if d.ApplySnapshot(ofSnapshot(events[2], late), true) != 0 {
		t.Error("refused")
	}
	want("reset", 2, 2)
	other, bytes, more := made(7, seen, false), made(17, seen, true), made(27, blind, false)
	if d.ApplySnapshot(ofSnapshot(events[2], late, other, bytes, more), false) != 0 {
		t.Error("refused")
	}
	want("in a snapshot", 6, 6)
	end := made(8, seen, false)
	released := router.Event{Replica: 2, Epoch: 1, Seq: seq + 1, ID: 8, Kind: router.Released}
	d.ApplyEvents([]router.Event{released, end, end})
	want("after its release", 6, 6)
	hostile := made(9, seen, false)
	hostile.Hashes = []kv.BlockHash{5, 5}
	d.ApplyEvents([]router.Event{hostile})
	if err := d.router.Check(); err != nil {
		t.Error(err)
	}
}

// TestSnapshotIsShortenedByPart: each part of a snapshot is shortened before the next one is read.
func TestSnapshotIsShortenedByPart(t *testing.T) {
	d := newDispatcher(t, router.Config{Replica: 1, Epoch: 1})
	if err := d.Join(kv.Rank{Worker: 1}, &card.Card{}, false); err != nil {
		t.Fatal(err)
	}
	d.SetHealth(kv.Rank{Worker: 1}, router.Healthy)
	const n = reservationsAtOnce + 9
	for range n {
		d.With(func(r *router.Router, now time.Duration) {
			if _, err := r.Select(now, &router.Request{PromptTokens: 64, Hashes: []kv.BlockHash{1, 2}}); err != nil {
				t.Fatal(err)
			}
		})
	}
	var parts []int
	events, s := d.Snapshot(nil, func(part []router.Event) {
		parts = append(parts, len(part))
		for i := range part {
			if len(part[i].Hashes) != 2 {
				t.Fatalf("an event has %d hashes", len(part[i].Hashes))
			}
			part[i].Hashes = nil
		}
	})
	if !slices.Equal(parts, []int{reservationsAtOnce, 9}) || len(events) != n || len(s.Events) != n || s.Events[0].Hashes != nil {
		t.Errorf("parts %v, %d events, %d in the snapshot", parts, len(events), len(s.Events))
	}
}
