package scheduler

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// ErrNoCache is returned by methods that need the cache if Config.DisableCache is set.
var ErrNoCache = errors.New("scheduler: the cache is off")

// FlushCache forgets all prefixes, as after new weights: no request finds what is cached
// now. Running requests keep their KV, but share it with no later request. Fetches end,
// lower tiers are emptied (those shared with other processes are only forgotten), and
// followers go back into their lanes.
func (s *Scheduler) FlushCache() {
	if s.cache == nil {
		return
	}
	if s.tiers != nil {
		s.tiers.dropParks(fmt.Errorf("%w: the cache was flushed", ErrParkFailed))
		s.tiers.clear()
		s.fetches.stop()
	}
	s.cache.Flush()
	// Evict all of it at once; otherwise useless pages would stay until others need room.
	s.room.reclaim(s.cache.Evict(s.cache.Stats().EvictablePages, s.room.freed[:0]))
	for _, r := range s.running.prefilling {
		s.queue.release(r, r.done, true)
	}
	s.verify()
}

// PinPrefix keeps the whole pages of a prefix in the cache for d, or until UnpinPrefix if
// d is 0. Pinning it again sets a new time. Errors: ErrNoCache; ErrInvalid for a negative
// d or a token outside the vocabulary; radixcache.ErrNotCached; radixcache.ErrPinBudget
// beyond Config.PinnedTokens.
func (s *Scheduler) PinPrefix(now time.Duration, ns kv.Namespace, tokens []kv.Token, d time.Duration) error {
	key, err := s.prefixes.key(&s.info, ns, tokens)
	if err != nil {
		return err
	}
	if d < 0 {
		return fmt.Errorf("%w: a pin of %v, want 0 (no limit) or more", ErrInvalid, d)
	}
	until := time.Duration(0)
	if d > 0 {
		until = max(now+d, 0) // a sum that overflows is negative; so long a time is as good as none
	}
	s.prefixes.expire(now)
	err = s.cache.PinPrefix(key, until)
	s.verify()
	return err
}

// UnpinPrefix ends the pin of a prefix. It returns radixcache.ErrNotCached if that prefix
// is not pinned, and ErrNoCache or ErrInvalid as PinPrefix does.
func (s *Scheduler) UnpinPrefix(ns kv.Namespace, tokens []kv.Token) error {
	key, err := s.prefixes.key(&s.info, ns, tokens)
	if err != nil {
		return err
	}
	err = s.cache.UnpinPrefix(key)
	s.room.keepQuotas()
	s.verify()
	return err
}

// key makes the cache key of the tokens under ns. It fails with ErrNoCache, or with
// ErrInvalid if a token is outside the vocabulary.
func (x *prefixes) key(info *engine.Info, ns kv.Namespace, tokens []kv.Token) (radixcache.Key, error) {
	if x.cache == nil {
		return radixcache.Key{}, ErrNoCache
	}
	if i := foreign(info, tokens); i >= 0 {
		return radixcache.Key{}, fmt.Errorf("%w: token %d is %d, the vocabulary has %d", ErrInvalid, i, tokens[i], info.Vocab)
	}
	return radixcache.Key{Namespace: ns, Tokens: tokens}, nil
}
