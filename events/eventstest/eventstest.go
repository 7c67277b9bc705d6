// Package eventstest owns parts that the tests of transports share: a cache that makes
// events, and a sink that is plainly right. It is never part of a program.
package eventstest

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/eventlog"
	"github.com/coppice-llm/coppice/kv"
)

// BlockTokens is the size of all blocks here.
const BlockTokens = 16

// Set is a [events.Sink] of one rank: the hashes that it holds.
type Set struct {
	mu      sync.Mutex
	held    map[kv.BlockHash]bool
	news    chan struct{} // capacity 1
	changes int
}

// NewSet returns an empty Set.
func NewSet() *Set { return &Set{held: make(map[kv.BlockHash]bool), news: make(chan struct{}, 1)} }

func (s *Set) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// Store implements [events.Sink].
func (s *Set) Store(_ kv.Rank, st events.Stored) (err error) {
	s.change(func() {
		if st.Named {
			return // the set knows no tiers
		}
		if st.HasParent && !s.held[st.Parent] {
			err = events.ErrUnknownParent
			return
		}
		s.changes += len(st.Blocks)
		for _, b := range st.Blocks {
			s.held[b.Hash] = true
		}
	})
	return err
}

// Remove implements [events.Sink].
func (s *Set) Remove(_ kv.Rank, _ kv.Tier, hashes []kv.BlockHash) {
	s.change(func() {
		s.changes += len(hashes)
		for _, h := range hashes {
			delete(s.held, h)
		}
	})
}

// Clear implements [events.Sink].
func (s *Set) Clear(kv.Rank) { s.change(func() { clear(s.held) }) }

// Replace implements [events.Sink].
func (s *Set) Replace(_ kv.Rank, dump []events.Stored) int {
	s.change(func() {
		clear(s.held)
		for _, st := range dump {
			for _, b := range st.Blocks {
				s.held[b.Hash] = true
			}
		}
	})
	return 0
}

// Forget implements [events.Sink].
func (s *Set) Forget(kv.Rank) {}

// Until waits until the set equals want. It has no time limit of its own.
func (s *Set) Until(want map[kv.BlockHash]bool) {
	s.wait(func() bool { return maps.Equal(s.held, want) })
}

// UntilChanges waits until n blocks were stored or removed, not counting dumps.
func (s *Set) UntilChanges(n int) { s.wait(func() bool { return s.changes >= n }) }

func (s *Set) wait(is func() bool) {
	for {
		s.mu.Lock()
		done := is()
		s.mu.Unlock()
		if done {
			return
		}
		<-s.news
	}
}

// Cache stands for a worker's cache: each Step changes it and returns the events.
type Cache struct {
	Held map[kv.BlockHash]bool // after the last Step
	Next kv.Token              // token of the last block; the next block has the one after it
	last []kv.Block
}

// NewCache returns an empty Cache.
func NewCache() *Cache { return &Cache{Held: make(map[kv.BlockHash]bool)} }

// Step stores a new sequence of blocks and removes the last block of the sequence before
// it.
func (c *Cache) Step(blocks int) []kv.Event {
	var evs []kv.Event
	if n := len(c.last); n > 0 {
		evs = append(evs, kv.Event{Kind: kv.Removed, Hashes: []kv.BlockHash{c.last[n-1].Hash}})
		delete(c.Held, c.last[n-1].Hash)
	}
	ev := kv.Event{Kind: kv.Stored}
	hasher := kv.NewHasher(kv.Namespace{}, BlockTokens)
	for range blocks {
		c.Next++
		tokens := slices.Repeat([]kv.Token{c.Next}, BlockTokens)
		hash, local := hasher.Next(tokens)
		ev.Blocks = append(ev.Blocks, kv.Block{Hash: hash, Local: local, Tokens: tokens})
		c.Held[hash] = true
	}
	c.last = ev.Blocks
	return append(evs, ev)
}

// Publisher publishes a cache of which only the events are given.
type Publisher struct {
	*events.Publisher
	log *eventlog.Log

	mu    sync.Mutex
	order []*held // in the order of the blocks' first events
	at    map[kv.BlockHash]*held
}

// held is a block as of its last event.
type held struct {
	ev    kv.Event // of this block alone
	tiers uint8    // one bit per tier
}

// NewPublisher starts a Publisher of an empty cache.
func NewPublisher(cfg events.PublisherConfig, transports ...events.Transport) (*Publisher, error) {
	p := &Publisher{at: map[kv.BlockHash]*held{}}
	var err error
	if p.log, err = eventlog.New(eventlog.Config{}, p.dump); err != nil {
		return nil, err
	}
	p.Publisher, err = events.NewPublisher(cfg, p.log, transports...)
	return p, err
}

// Publish applies changes to the cache and publishes them.
func (p *Publisher) Publish(evs []kv.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ev := range evs {
		switch ev.Kind {
		case kv.Stored:
			one := ev
			for _, b := range ev.Blocks {
				one.Blocks = []kv.Block{b}
				h := p.at[b.Hash]
				if h == nil {
					h = &held{ev: one}
					p.at[b.Hash] = h
					p.order = append(p.order, h)
				}
				h.tiers |= 1 << ev.Tier
				one.Parent, one.HasParent, one.PublicParent = b.Hash, true, false
			}
		case kv.Removed:
			for _, hash := range ev.Hashes {
				if h := p.at[hash]; h != nil {
					if h.tiers &^= 1 << ev.Tier; h.tiers == 0 {
						delete(p.at, hash)
					}
				}
			}
		default:
			clear(p.at)
			p.order = nil
		}
	}
	p.log.Append(evs)
}

// dump returns all blocks, parents before children. It goes over the blocks repeatedly until
// each one follows its parent.
func (p *Publisher) dump(context.Context) (stored []kv.Event, next uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	told := map[kv.BlockHash]bool{}
	for more := true; more; {
		more = false
		for _, h := range p.order {
			hash := h.ev.Blocks[0].Hash
			if told[hash] || p.at[hash] != h || h.ev.HasParent && !told[h.ev.Parent] {
				continue
			}
			told[hash], more = true, true
			for tier := range kv.Tier(kv.Tiers) {
				if h.tiers&(1<<tier) != 0 {
					ev := h.ev
					ev.Tier = tier
					stored = append(stored, ev)
				}
			}
		}
	}
	_, next = p.log.Kept()
	return stored, next, nil
}
