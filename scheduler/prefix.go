package scheduler

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// ErrNoCache answers what needs the cache where Config.DisableCache is set.
var ErrNoCache = errors.New("scheduler: the cache is off")

// FlushCache forgets all prefixes, as after new weights: nothing that is cached now is
// found any more. Running requests keep what they have, but share it with no later
// request.
func (s *Scheduler) FlushCache() {
	if s.cache == nil {
		return
	}
	if s.tiers != nil {
		s.tiers.clear()
		s.fetches.stop()
	}
	s.cache.Flush()
	// Or it would go bit by bit, as others need room.
	s.room.reclaim(s.cache.Evict(s.cache.Stats().EvictablePages, s.room.freed[:0]))
	for _, r := range s.running.prefilling {
		s.queue.release(r, r.done, true)
	}
	s.verify()
}

// PinPrefix keeps the whole pages of a prefix in the cache for d, or with 0 until
// UnpinPrefix; again, it gives a new time. It fails with ErrNoCache,
// radixcache.ErrNotCached, or radixcache.ErrPinBudget beyond Config.PinnedTokens.
func (s *Scheduler) PinPrefix(now time.Duration, ns kv.Namespace, tokens []kv.Token, d time.Duration) error {
	key, err := s.prefix(ns, tokens)
	if err != nil {
		return err
	}
	if d < 0 {
		return fmt.Errorf("%w: a prefix can't be pinned for %v, want 0 (for good) or more", ErrInvalid, d)
	}
	until := time.Duration(0)
	if d > 0 {
		until = max(now+d, 0) // the sum overflows where a time is as good as none
	}
	s.prefixes.expire(now)
	err = s.cache.PinPrefix(key, until)
	s.verify()
	return err
}

// UnpinPrefix lets a prefix go that is pinned; it fails with radixcache.ErrNotCached
// if it is not.
func (s *Scheduler) UnpinPrefix(ns kv.Namespace, tokens []kv.Token) error {
	key, err := s.prefix(ns, tokens)
	if err != nil {
		return err
	}
	err = s.cache.UnpinPrefix(key)
	s.verify()
	return err
}

func (s *Scheduler) prefix(ns kv.Namespace, tokens []kv.Token) (radixcache.Key, error) {
	if s.cache == nil {
		return radixcache.Key{}, ErrNoCache
	}
	if i := foreign(&s.info, tokens); i >= 0 {
		return radixcache.Key{}, fmt.Errorf("%w: token %d is %d, the vocabulary has %d", ErrInvalid, i, tokens[i], s.info.Vocab)
	}
	return radixcache.Key{Namespace: ns, Tokens: tokens}, nil
}

// HitRates appends the share of prompt tokens that caches of other sizes, in tokens,
// would have found so far; nothing without Config.CurveSamples.
func (s *Scheduler) HitRates(capacityTokens []int, dst []float64) []float64 {
	if s.cache == nil {
		return dst
	}
	return s.cache.HitRates(capacityTokens, dst)
}
