package actors

import (
	"context"
	"errors"

	"github.com/coppice-llm/coppice/kv"
)

// ErrLagged ends a subscription whose reader was too slow, or one that asked for
// events that are not kept any more: what it missed can't be had from here.
var ErrLagged = errors.New("actors: events lost")

// eventBacklog is how many batches a subscriber may be behind.
const eventBacklog = 256

// Subscription is a reader of cache events in order and without gaps. It belongs
// to one goroutine.
type Subscription struct {
	sys     *System
	batches chan []kv.Event
	batch   []kv.Event
	closed  bool // by its reader
	lagged  bool // written before batches is closed
}

// Next waits for the next event. It fails with ErrLagged after a gap, with the
// cause of the end after the last event, or with ctx's error.
func (s *Subscription) Next(ctx context.Context) (kv.Event, error) {
	for len(s.batch) == 0 {
		select {
		case batch, ok := <-s.batches:
			switch {
			case ok:
				s.batch = batch
			case s.lagged:
				return kv.Event{}, ErrLagged
			case s.closed:
				return kv.Event{}, ErrClosed
			default:
				return kv.Event{}, s.sys.cause
			}
		case <-ctx.Done():
			return kv.Event{}, context.Cause(ctx)
		}
	}
	e := s.batch[0]
	s.batch = s.batch[1:]
	return e, nil
}

// Close gives the subscription up.
func (s *Subscription) Close() {
	s.closed = true
	s.sys.events.tell(&unsubscribe{s})
}

// Subscribe reads cache events from sequence number from on, older ones out of
// the ring. They flow only if Config.Scheduler.Events is set.
func (s *System) Subscribe(ctx context.Context, from uint64) (*Subscription, error) {
	if !s.cfg.Scheduler.Events {
		return nil, errors.New("actors: events are off, set Scheduler.Events")
	}
	reply := make(chan *Subscription, 1)
	s.events.tell(&subscribe{from, reply})
	select {
	case sub := <-reply:
		sub.sys = s
		return sub, nil
	case <-ctx.Done():
		s.events.tell(&unsubscribeReply{reply})
		return nil, context.Cause(ctx)
	case <-s.ended:
		return nil, s.cause
	}
}

// eventsActor numbers events, keeps the last ones and fans them out.
type eventsActor struct {
	next uint64     // Seq of the next event
	ring []kv.Event // event i is at i % len
	subs map[*Subscription]bool
}

func newEventsActor(ring int) *eventsActor {
	return &eventsActor{ring: make([]kv.Event, 0, ring), subs: make(map[*Subscription]bool)}
}

func (a *eventsActor) receive(self *process, message any) {
	switch m := message.(type) {
	case *publish:
		a.publish(m.events)
	case *subscribe:
		m.reply <- a.subscribe(m.from)
	case *unsubscribe:
		a.drop(m.sub, false)
	case *unsubscribeReply:
		a.drop(<-m.reply, false) // put there before this message was sent
	case *shutdown:
		self.quit()
	default:
		unknown(m)
	}
}

func (a *eventsActor) publish(events []kv.Event) {
	for i := range events {
		events[i].Seq = a.next
		if len(a.ring) < cap(a.ring) {
			a.ring = append(a.ring, events[i])
		} else {
			a.ring[a.next%uint64(cap(a.ring))] = events[i]
		}
		a.next++
	}
	for sub := range a.subs {
		select {
		case sub.batches <- events:
		default:
			a.drop(sub, true) // rather a clear gap than a scheduler that waits
		}
	}
}

func (a *eventsActor) subscribe(from uint64) *Subscription {
	sub := &Subscription{batches: make(chan []kv.Event, eventBacklog)}
	first := a.next - uint64(len(a.ring))
	if from < first || from > a.next {
		sub.lagged = true
		close(sub.batches)
		return sub
	}
	var kept []kv.Event
	for seq := from; seq < a.next; seq++ {
		kept = append(kept, a.ring[seq%uint64(cap(a.ring))])
	}
	if len(kept) > 0 {
		sub.batches <- kept
	}
	a.subs[sub] = true
	return sub
}

func (a *eventsActor) drop(sub *Subscription, lagged bool) {
	if a.subs[sub] {
		delete(a.subs, sub)
		sub.lagged = lagged
		close(sub.batches)
	}
}

// release lets readers see the end.
func (a *eventsActor) release() {
	for sub := range a.subs {
		a.drop(sub, false)
	}
}
