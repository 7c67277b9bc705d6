package scheduler

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/tiering"
)

// Found says what a tier below the device has, as Contents or a Probe of its store tell:
// parents first. Extents that are known are ignored.
func (s *Scheduler) Found(tier kv.Tier, xs []mempool.Extent) {}

// Gone says that extents are in a tier no more, for another reason than a Drop of the
// scheduler: Done.Gone of its store.
func (s *Scheduler) Gone(tier kv.Tier, keys []mempool.Key) {}

// Copied says that the device's pages of a Write are read: they may be overwritten without
// naming the move in Batch.After. It comes before the Moved of the same number, or not at all.
func (s *Scheduler) Copied(now time.Duration, id tiering.MoveID) {}

// Flush begins the last writes: what is cached goes to disk, as far as it comes by until.
// No request may be added any more. Call Next, and tell it of moves, while Flushing.
func (s *Scheduler) Flush(now, until time.Duration) {}

// Flushing reports whether moves of a Flush are due or in flight.
func (s *Scheduler) Flushing() bool { return false }
