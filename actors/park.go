package actors

import (
	"context"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/scheduler"
)

// Park writes the KV of a prefix to a lower tier and frees its pages on the device: see scheduler.Park. It waits for the end of the
// writes. If ctx ends first, what is written stays, and Park returns the cause. The caller must not change tokens.
func (s *System) Park(ctx context.Context, ns kv.Namespace, tokens []kv.Token, public int) (scheduler.Parked, error) {
	reply := make(chan scheduler.Parked, 1)
	var id scheduler.ParkID // set and read by the scheduler's goroutine
	s.scheduler.tell(&look{func(a *schedulerActor) {
		a.parks.last++
		id = a.parks.last
		if err := a.core.Park(s.now(), id, ns, tokens, public); err != nil {
			reply <- scheduler.Parked{Err: err}
			return
		}
		a.parks.await(id, reply)
	}})
	select {
	case p := <-reply:
		return p, p.Err
	case <-ctx.Done():
		s.scheduler.tell(&look{func(a *schedulerActor) {
			a.core.Unpark(id)
			delete(a.parks.waiting, id)
		}})
		return scheduler.Parked{}, context.Cause(ctx)
	case <-s.ended:
		return scheduler.Parked{}, s.cause
	}
}

// parking holds the calls of Park that wait for their end.
type parking struct {
	last    scheduler.ParkID
	waiting map[scheduler.ParkID]chan<- scheduler.Parked
}

func (p *parking) await(id scheduler.ParkID, reply chan<- scheduler.Parked) {
	if p.waiting == nil {
		p.waiting = map[scheduler.ParkID]chan<- scheduler.Parked{}
	}
	p.waiting[id] = reply
}

// unparked answers the callers of Park whose writes have ended.
func (a *schedulerActor) unparked() {
	for _, p := range a.core.Unparked(nil) {
		if reply, waits := a.parks.waiting[p.ID]; waits {
			reply <- p
			delete(a.parks.waiting, p.ID)
		}
	}
}

// Notes returns where notes are kept that outlive the process: in the fastest tier that does; nil if there is none.
func (s *System) Notes() mempool.Notes {
	if s.tiers == nil {
		return nil
	}
	for _, store := range s.tiers.watched {
		if store == nil {
			continue
		}
		if at, ok := store.Store.(mempool.Noter); ok && at.Notes() != nil {
			return at.Notes()
		}
	}
	return nil
}

// Stops reports whether a token ends an output, unless the request ignores it.
func (s *System) Stops(t kv.Token) bool { return slices.Contains(s.cfg.EOS, t) }

// RestoreSession makes a session known to the scheduler: see scheduler.RestoreSession. The caller must not change tokens.
func (s *System) RestoreSession(ctx context.Context, ref scheduler.SessionRef, tokens []kv.Token, public int) error {
	err, failed := Ask(ctx, s, func(core *scheduler.Scheduler, _ time.Duration) error {
		return core.RestoreSession(ref, tokens, public)
	})
	if failed != nil {
		return failed
	}
	return err
}
