package eventstest

import (
	"context"
	"sync"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/eventlog"
	"github.com/coppice-llm/coppice/kv"
)

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
	p.log = eventlog.New(eventlog.Config{}, p.dump)
	var err error
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
