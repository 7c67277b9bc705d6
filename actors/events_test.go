package actors

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

func events(n int) []kv.Event {
	batch := make([]kv.Event, n)
	for i := range batch {
		batch[i] = kv.Event{Kind: kv.Removed}
	}
	return batch
}

// read takes what is there for a subscription, without waiting.
func read(sub *Subscription) (seqs []uint64, closed bool) {
	for {
		select {
		case batch, ok := <-sub.batches:
			if !ok {
				return seqs, true
			}
			for _, e := range batch {
				seqs = append(seqs, e.Seq)
			}
		default:
			return seqs, false
		}
	}
}

func TestEventsAreNumberedWithoutGaps(t *testing.T) {
	a := newEventsActor(10)
	first := a.subscribe(0)
	a.publish(events(3))
	late := a.subscribe(1)
	a.publish(events(4))
	for name, sub := range map[string]*Subscription{"first": first, "late": late} {
		seqs, _ := read(sub)
		from := map[string]uint64{"first": 0, "late": 1}[name]
		for i, seq := range seqs {
			if seq != from+uint64(i) {
				t.Errorf("%s: event %d has number %d", name, i, seq)
			}
		}
		if len(seqs) != 7-int(from) {
			t.Errorf("%s reads %d events", name, len(seqs))
		}
	}
}

func TestRingKeepsTheLast(t *testing.T) {
	a := newEventsActor(10)
	a.publish(events(7))
	a.publish(events(8)) // 5 to 14 are kept
	if seqs, _ := read(a.subscribe(5)); len(seqs) != 10 || seqs[0] != 5 || seqs[9] != 14 {
		t.Errorf("from 5 on: %v", seqs)
	}
	for _, from := range []uint64{4, 16} {
		if sub := a.subscribe(from); !sub.lagged {
			t.Errorf("a subscription from %d is given what is not there", from)
		}
	}
	if sub := a.subscribe(15); sub.lagged {
		t.Error("the next event can't be subscribed to")
	}
}

func TestSlowReaderIsCutOff(t *testing.T) {
	a := newEventsActor(10)
	slow := a.subscribe(0)
	for range eventBacklog + 1 {
		a.publish(events(1))
	}
	seqs, closed := read(slow)
	if len(seqs) != eventBacklog || !closed || !slow.lagged || len(a.subs) != 0 {
		t.Errorf("%d events, closed %v, lagged %v, %d subscribers left", len(seqs), closed, slow.lagged, len(a.subs))
	}
}

func TestSubscriptionEndsWithTheSystem(t *testing.T) {
	s := start(t, Config{Scheduler: scheduler.Config{Events: true}}, cpu.Config{PageTokens: 4})
	sub, err := s.Subscribe(patience(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	drain(t, open(t, s, Request{Prompt: prompt, MaxTokens: 2, IgnoreEOS: true}))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for {
		e, err := sub.Next(patience(t))
		if err != nil {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("the last event is followed by %v", err)
			}
			break
		}
		kinds = append(kinds, e.Kind.String())
	}
	if got := strings.Join(kinds, " "); !strings.HasPrefix(got, "stored") || !strings.HasSuffix(got, "cleared") {
		t.Errorf("events: %s", got)
	}
	if _, err := s.Subscribe(context.Background(), 0); !errors.Is(err, ErrClosed) {
		t.Errorf("subscribing after the end: %v", err)
	}
}

func TestSubscribeNeedsEvents(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	if _, err := s.Subscribe(patience(t), 0); err == nil || !strings.Contains(err.Error(), "Scheduler.Events") {
		t.Errorf("events are off: %v", err)
	}
}
