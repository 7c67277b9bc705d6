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
	"github.com/coppice-llm/coppice/scheduler/internal/planted"
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
// returns the end. public is the Request.PublicTokens of requests with the prefix. What no tier has is not written: it is computed when a request needs it. The tokens
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
	to := s.tiers.safest()
	if n := len(s.tiers.parks.open); n >= maxParks {
		return fmt.Errorf("%w: %d prefixes are being parked", ErrQueueFull, n)
	}
	size := s.info.PageTokens
	p := &park{id: id, key: key, to: to, until: now + parkPatience}
	p.extents = s.tiers.layout.AppendExtents(nil, ns, tokens[:len(tokens)/size*size], nil)
	p.tries = make([]uint8, len(p.extents))
	s.tiers.parks.open = append(s.tiers.parks.open, p)
	s.tiers.stepParks(now)
	s.verify()
	return nil
}

// Unpark gives up a park, if it has not ended. What is written stays.
func (s *Scheduler) Unpark(id ParkID) {
	if s.tiers != nil {
		s.tiers.parks.open = slices.DeleteFunc(s.tiers.parks.open, func(p *park) bool { return p.id == id })
	}
}

// Unparked appends the parks that have ended since the last call.
func (s *Scheduler) Unparked(dst []Parked) []Parked {
	if s.tiers != nil {
		dst = append(dst, s.tiers.parks.ended...)
		s.tiers.parks.ended = s.tiers.parks.ended[:0]
	}
	return dst
}

// safest returns the fastest tier that outlives the process, or host memory if there is none.
func (t *tiers) safest() kv.Tier {
	for to := kv.TierDisk; int(to) < kv.Tiers; to++ {
		if t.book.Has(to) {
			return to
		}
	}
	return kv.TierHost
}

// parks are the prefixes on their way to a tier.
type parks struct {
	open  []*park
	ended []Parked
}

// nextPark returns the time at which the first open park may fail.
func (t *tiers) nextPark() (at time.Duration, some bool) {
	if t == nil {
		return 0, false
	}
	for _, x := range t.parks.open {
		if !some || x.until < at {
			at, some = x.until, true
		}
	}
	return at, some
}

// stepParks asks the book for the next writes of all parks, and ends those that have all they can get.
func (t *tiers) stepParks(now time.Duration) {
	if t == nil || len(t.parks.open) == 0 {
		return
	}
	kept := t.parks.open[:0]
	for _, p := range t.parks.open {
		over, err := t.advance(now, p)
		if !over {
			kept = append(kept, p)
			continue
		}
		t.endPark(p, err)
	}
	clear(t.parks.open[len(kept):])
	t.parks.open = kept
	t.begun()
}

// advance asks for the writes of p that are due. It reports whether p is over.
func (t *tiers) advance(now time.Duration, p *park) (over bool, err error) {
	if t.fault == planted.ParkEarly {
		p.saved = len(p.extents)
		return true, nil
	}
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
func (t *tiers) endPark(p *park, err error) {
	e := Parked{ID: p.id, Tier: p.to, Err: err}
	if p.saved > 0 {
		last := &p.extents[p.saved-1]
		e.Tokens = last.Start + len(last.Tokens)
	}
	if err == nil && t.fault != planted.KeepParked {
		t.room.reclaimAs(t.room.cache.Drop(p.key, t.room.freed[:0]), tiering.Forgotten)
	}
	t.parks.ended = append(t.parks.ended, e)
}

// dropParks ends all parks with an error.
func (t *tiers) dropParks(err error) {
	for _, p := range t.parks.open {
		t.endPark(p, err)
	}
	t.parks.open = nil
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
