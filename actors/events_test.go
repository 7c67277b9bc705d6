package actors

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// Readers get all events in order, then the reason for their end.
func TestEventsEndWithTheSystem(t *testing.T) {
	s := start(t, Config{Scheduler: scheduler.Config{Events: true}}, cpu.Config{PageTokens: 4})
	drain(t, open(t, s, Request{Prompt: prompt, MaxTokens: 2, IgnoreEOS: true}))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	next := uint64(0)
	for e, err := range s.Events(patience(t), 0) {
		if err != nil {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("the last event is followed by %v", err)
			}
			break
		}
		if e.Seq != next && e.Seq != next+1 {
			t.Errorf("batch %d follows %d", e.Seq, next)
		}
		next = e.Seq
		kinds = append(kinds, e.Kind.String())
	}
	if got := strings.Join(kinds, " "); !strings.HasPrefix(got, "stored") || !strings.HasSuffix(got, "cleared") {
		t.Errorf("events: %s", got)
	}
}

// The events and a dump agree, and the dump's number is that of the next event batch.
func TestDumpEqualsEvents(t *testing.T) {
	s := start(t, Config{Scheduler: scheduler.Config{Events: true}}, cpu.Config{PageTokens: 4})
	for i := range 5 {
		drain(t, open(t, s, Request{Prompt: string(rune(65+i)) + prompt, MaxTokens: 2 + i, IgnoreEOS: true}))
	}
	stored, next, err := s.dump(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	hashes := func(evs []kv.Event, held map[kv.BlockHash]bool) map[kv.BlockHash]bool {
		for _, ev := range evs {
			if ev.HasParent && ev.Kind == kv.Stored && !held[ev.Parent] {
				t.Errorf("%+v is stored before its parent", ev)
			}
			for _, b := range ev.Blocks {
				held[b.Hash] = true
			}
			for _, h := range ev.Hashes {
				delete(held, h)
			}
		}
		return held
	}
	told := map[kv.BlockHash]bool{}
	for from := uint64(0); from < next; {
		batches, err := s.events.Read(patience(t), from)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range batches {
			if b.Seq < next {
				told = hashes(b.Events, told)
			}
			from = b.Seq + 1
		}
	}
	if held := hashes(stored, map[kv.BlockHash]bool{}); len(held) < 5 || !maps.Equal(held, told) {
		t.Errorf("the dump has %d blocks, the events %d", len(held), len(told))
	}
}

func TestEventsAreOff(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	for _, err := range s.Events(context.Background(), 0) {
		if err == nil || !strings.Contains(err.Error(), "Scheduler.Events") {
			t.Errorf("events are off: %v", err)
		}
	}
}
