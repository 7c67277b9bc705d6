package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/radixcache"
)

// ErrNoTier is the error of Park without tiers below the device.
var ErrNoTier = errors.New("scheduler: there is no tier below the device")

// ErrParkFailed reports that a tier did not take all that was to be parked: it has no room, or fails.
var ErrParkFailed = errors.New("scheduler: the tier did not take the KV")

const (
	maxParks = 1 << 8 // open at a time: each step looks at all of them
	// parkTries is how often the write of an extent is begun. parkPatience is how long a park may make no progress: as
	// long as one write may take.
	parkTries    = 2
	parkPatience = 10 * time.Second
)

// ParkID numbers calls of Park; the caller chooses it and never reuses it.
type ParkID uint64

// Parked is the end of a Park.
type Parked struct {
	ID     ParkID
	Tokens int     // of the prefix that the tier has: whole pages
	Tier   kv.Tier // which has them
	Err    error
}

// park is a prefix on its way to a tier.
type park struct {
	id      ParkID
	key     radixcache.Key
	to      kv.Tier
	extents []mempool.Extent
	tries   []uint8 // writes begun, by extent
	saved   int     // extents[:saved] are in the tier
	until   time.Duration
}

// Park begins to write the KV of a prefix to the fastest tier that outlives the process, or to host memory if there is
// none. When all of it is there, pages of the device that hold the prefix and that nothing else uses are freed, and Unparked
// returns the end. public is the Request.PublicTokens of requests with the prefix. What no tier has any more is not written: it is computed when a request needs it. The tokens
// belong to the scheduler from now on. Errors: ErrNoCache, ErrNoTier, ErrInvalid for a token outside the vocabulary, ErrQueueFull.
func (s *Scheduler) Park(now time.Duration, id ParkID, ns kv.Namespace, tokens []kv.Token, public int) error {
	key, err := s.prefixes.key(&s.info, ns, tokens)
	if err != nil {
		return err
	}
	key.PublicTokens = min(public, len(tokens))
	if s.tiers == nil {
		return ErrNoTier
	}
	to, ok := s.tiers.book.Safest()
	if !ok {
		return ErrNoTier
	}
	if len(s.parks.open) >= maxParks {
		return fmt.Errorf("%w: %d prefixes are being parked", ErrQueueFull, len(s.parks.open))
	}
	size := s.info.PageTokens
	p := &park{id: id, key: key, to: to, until: now + parkPatience}
	p.extents = s.tiers.layout.AppendExtents(nil, ns, tokens[:len(tokens)/size*size], nil)
	p.tries = make([]uint8, len(p.extents))
	s.parks.open = append(s.parks.open, p)
	s.stepParks(now)
	s.verify()
	return nil
}

// Unpark gives up a park, if it has not ended. What is written stays.
func (s *Scheduler) Unpark(id ParkID) {
	s.parks.open = slices.DeleteFunc(s.parks.open, func(p *park) bool { return p.id == id })
}

// Unparked appends the parks that have ended since the last call.
func (s *Scheduler) Unparked(dst []Parked) []Parked {
	dst = append(dst, s.parks.ended...)
	s.parks.ended = s.parks.ended[:0]
	return dst
}

// parks are the prefixes on their way to a tier.
type parks struct {
	open  []*park
	ended []Parked
}

// next returns the time at which the first open park may fail.
func (p *parks) next() (at time.Duration, some bool) {
	for _, x := range p.open {
		if !some || x.until < at {
			at, some = x.until, true
		}
	}
	return at, some
}

// stepParks asks the book for the next writes of all parks, and ends those that have all they can get.
func (s *Scheduler) stepParks(now time.Duration) {
	if len(s.parks.open) == 0 {
		return
	}
	kept := s.parks.open[:0]
	for _, p := range s.parks.open {
		over, err := s.tiers.advance(now, p)
		if !over {
			kept = append(kept, p)
			continue
		}
		s.endPark(p, err)
	}
	clear(s.parks.open[len(kept):])
	s.parks.open = kept
	s.tiers.begun()
}

// advance asks for the writes of p that are due. It reports whether p is over.
func (t *tiers) advance(now time.Duration, p *park) (over bool, err error) {
	for i := p.saved; i < len(p.extents); i++ {
		x := &p.extents[i]
		switch t.book.Save(now, x.Key, p.to) {
		case tiering.Saved:
			if i == p.saved {
				p.saved, p.until = i+1, now+parkPatience
			}
			continue
		case tiering.Unsaved:
			if i == p.saved {
				return true, t.complete(now, p, p.saved)
			}
		case tiering.Orphaned:
			if i == p.saved {
				return true, fmt.Errorf("%w: tier %s has room for a part of it", ErrParkFailed, p.to)
			}
		case tiering.Coming:
			continue
		case tiering.Begun:
			if p.tries[i]++; p.tries[i] > parkTries {
				return true, fmt.Errorf("%w: the write of token %d to tier %s fails", ErrParkFailed, x.Start, p.to)
			}
			continue
		}
		break // no room yet
	}
	if p.saved == len(p.extents) {
		return true, t.complete(now, p, p.saved)
	}
	if now >= p.until {
		return true, fmt.Errorf("%w: tier %s has had no room for %v", ErrParkFailed, p.to, parkPatience)
	}
	return false, nil
}

// complete returns nil if the tier still has the first n extents of p: a small one may have dropped some of them to make room for others.
func (t *tiers) complete(now time.Duration, p *park, n int) error {
	for p.saved = 0; p.saved < n; p.saved++ {
		if t.book.Save(now, p.extents[p.saved].Key, p.to) != tiering.Saved {
			return fmt.Errorf("%w: tier %s has room for %d of %d extents", ErrParkFailed, p.to, p.saved, n)
		}
	}
	return nil
}

// endPark ends a park. If it succeeded, the prefix leaves the device.
func (s *Scheduler) endPark(p *park, err error) {
	e := Parked{ID: p.id, Tier: p.to, Err: err}
	if p.saved > 0 {
		last := &p.extents[p.saved-1]
		e.Tokens = last.Start + len(last.Tokens)
	}
	if err == nil {
		s.room.reclaimAs(s.cache.Drop(p.key, s.room.freed[:0]), tiering.Forgotten)
	}
	s.parks.ended = append(s.parks.ended, e)
}

// dropParks ends all parks with an error.
func (s *Scheduler) dropParks(err error) {
	for _, p := range s.parks.open {
		s.endPark(p, err)
	}
	s.parks.open = nil
}

// RestoreSession makes a session known whose last turn left the given tokens, for example before a restart, so that hints find
// it. The tokens belong to the scheduler from now on. Errors: ErrNoCache, ErrInvalid.
func (s *Scheduler) RestoreSession(ref SessionRef, tokens []kv.Token, public int) error {
	if _, err := s.prefixes.key(&s.info, ref.Namespace, tokens); err != nil {
		return err
	}
	if err := ref.validate(); err != nil {
		return err
	}
	x := s.useSession(ref)
	s.sessions.remember(x, tokens)
	x.public, x.media = min(public, len(tokens)), nil
	s.verify()
	return nil
}
