package actors

import (
	"context"
	"errors"
	"iter"

	"github.com/coppice-llm/coppice/events/eventlog"
	"github.com/coppice-llm/coppice/kv"
)

// EventLog returns the log of cache events. It stays empty unless Config.Scheduler.Events is
// set.
func (s *System) EventLog() *eventlog.Log { return s.events }

// Events yields the cache events in order, beginning with those of the batch whose number
// is from, until ctx or the System ends. It yields [eventlog.ErrLagged] if that batch is no
// longer kept, and an error if Config.Scheduler.Events is not set.
func (s *System) Events(ctx context.Context, from uint64) iter.Seq2[kv.Event, error] {
	return func(yield func(kv.Event, error) bool) {
		if !s.cfg.Scheduler.Events {
			yield(kv.Event{}, errors.New("actors: events are off, set Scheduler.Events"))
			return
		}
		for {
			batches, err := s.events.Read(ctx, from)
			if err != nil {
				yield(kv.Event{}, err)
				return
			}
			for _, b := range batches {
				for _, ev := range b.Events {
					if !yield(ev, nil) {
						return
					}
				}
				from = b.Seq + 1
			}
		}
	}
}

// dump returns Stored events of the whole cache, and the number of the first batch that is
// not contained in them. It runs between two steps. It implements [eventlog.Dump].
func (s *System) dump(ctx context.Context) ([]kv.Event, uint64, error) {
	type held struct {
		stored []kv.Event
		next   uint64
	}
	h, err := ask(ctx, s, func(a *schedulerActor) held {
		a.announce()
		_, next := s.events.Kept()
		return held{a.core.Dump(nil), next}
	})
	return h.stored, h.next, err
}

// announce appends the cache's changes to the log.
func (a *schedulerActor) announce() { a.sys.events.Append(a.core.TakeEvents(nil)) }
