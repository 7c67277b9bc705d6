package eventlog

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
)

// ErrLagged is returned by Read for a number whose batch the log no longer keeps, or for one
// beyond the next batch.
var ErrLagged = errors.New("eventlog: the log no longer keeps these batches")

// Batch has the changes of a cache in one step.
type Batch struct {
	Seq    uint64 // from 0, without gaps
	Time   time.Time
	Events []kv.Event // shared and immutable; empty in a heartbeat
}

// Config bounds a Log. The zero value works.
type Config struct {
	// Bounds of the kept batches together. An empty batch counts as one event.
	KeepEvents int `default:"1<<16" min:"1" max:"1<<30"`  // Default: 65536.
	KeepBytes  int `default:"64<<20" min:"1" max:"1<<40"` // Default: 64 MiB.

	// Bounds of one batch on the wire.
	BatchEvents int `default:"128" min:"1" max:"1<<14"` // Default: 128, Dynamo's limit.
	BatchBlocks int `min:"0" max:"1<<18"`               // Default: as many as fit into 512 KiB on the wire, at most 4096. NATS takes 1 MiB.
}

// WithDefaults returns a copy in which zero fields have their defaults, except
// BatchBlocks.
func (c Config) WithDefaults() Config { return bounds.Fill(c) }

// Validate reports every field that is out of bounds. It expects defaults to be filled in.
func (c Config) Validate() error { return bounds.Check("eventlog", c) }

// Dump returns Stored events for all blocks of a cache, parents first. next is the number of the
// first batch whose changes are not in them. Block.Local may be 0.
type Dump func(context.Context) (stored []kv.Event, next uint64, err error)

// Log numbers the events of one cache in batches without gaps, and keeps the last ones.
// It never waits for a reader. Its methods are safe for concurrent use, except that one
// goroutine calls Append.
type Log struct {
	cfg  Config
	dump Dump

	mu      sync.Mutex
	batches []Batch // the kept batches
	next    uint64
	events  int // in batches; an empty one counts as 1
	bytes   int
	held    int           // blocks stored and not removed, counted in each tier
	total   uint64        // events appended
	grown   chan struct{} // closed when a batch is added or the log ends; nil if no reader waits
	ended   error
}

// New returns an empty log of the cache that dump reads. Errors are those of Validate.
func New(cfg Config, dump Dump) (*Log, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Log{cfg: cfg, dump: dump}, nil
}

// Append adds the events of one step as one or more batches and wakes readers. The log owns the
// slice afterwards. After Close it does nothing.
func (l *Log) Append(events []kv.Event) {
	if len(events) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(events) > 0 && l.ended == nil {
		var batch []kv.Event
		batch, events = l.cut(events)
		l.push(batch)
	}
}

// Beat appends an empty batch with number next. If batch next exists already or the log has
// ended, it does nothing and returns false. Without an empty batch a reader could not notice the
// loss of the last batch before a pause.
func (l *Log) Beat(next uint64) (beaten bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil || l.next != next {
		return false
	}
	l.push(nil)
	return true
}

// Close ends the log when its cache is gone. Readers first get the remaining batches, the last
// of which clears the cache if it held blocks. Then Read fails with cause.
func (l *Log) Close(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return
	}
	if l.held > 0 {
		l.push([]kv.Event{{Kind: kv.Cleared}})
	}
	l.ended = cause
	l.wake()
}

// push appends a batch of events. While there are more batches than KeepEvents or KeepBytes
// allow, it drops the oldest one, but never the new one.
func (l *Log) push(events []kv.Event) {
	for i := range events {
		ev := &events[i]
		ev.Seq = l.next
		switch ev.Kind {
		case kv.Stored:
			l.held += len(ev.Blocks)
		case kv.Removed:
			l.held -= len(ev.Hashes)
		case kv.Cleared:
			l.held = 0
		}
	}
	b := Batch{Seq: l.next, Time: time.Now(), Events: events}
	l.batches = append(l.batches, b)
	l.next++
	l.total += uint64(len(events))
	l.events += max(1, len(events))
	l.bytes += b.bytes()
	for len(l.batches) > 1 && (l.events > l.cfg.KeepEvents || l.bytes > l.cfg.KeepBytes) {
		old := &l.batches[0]
		l.events -= max(1, len(old.Events))
		l.bytes -= old.bytes()
		*old = Batch{} // frees the events; the slice's array is replaced only when it is full
		l.batches = l.batches[1:]
	}
	l.wake()
}

// wake wakes all waiting readers.
func (l *Log) wake() {
	if l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
}

// bytes estimates a batch's memory: 160 bytes per event and 64 per block, plus its
// tokens, media and hashes.
func (b *Batch) bytes() int {
	n := 64
	for i := range b.Events {
		ev := &b.Events[i]
		n += 160 + 8*len(ev.Hashes)
		for j := range ev.Blocks {
			n += 64 + 4*len(ev.Blocks[j].Tokens) + 8*len(ev.Blocks[j].Media)
		}
	}
	return n
}

// cut divides events into the next batch and the rest. An event that is too long for one batch
// is split; the parent of its second part is the last block of its first part.
func (l *Log) cut(events []kv.Event) (batch, rest []kv.Event) {
	runs, blocks := l.cfg.BatchEvents, 0
	for i := range events {
		ev := &events[i]
		limit := l.batchBlocks(ev)
		n, k := fit(ev, runs, limit-blocks)
		if n == len(ev.Blocks)+len(ev.Hashes) && k > 0 {
			runs -= k
			blocks += n
			continue
		}
		if i > 0 {
			return events[:i:i], events[i:]
		}
		head, tail := *ev, *ev
		if ev.Kind == kv.Stored {
			head.Blocks, tail.Blocks = ev.Blocks[:n], ev.Blocks[n:]
			tail.Parent, tail.HasParent, tail.PublicParent = ev.Blocks[n-1].Hash, true, false
		} else {
			head.Hashes, tail.Hashes = ev.Hashes[:n], ev.Hashes[n:]
		}
		rest = slices.Clone(events)
		rest[0] = tail
		return []kv.Event{head}, rest
	}
	return events, nil
}

// batchBlocks returns the most blocks that a batch may have if its blocks are as large as those
// of ev. On the wire a token takes at most 5 bytes and a hash 9: a block of 16 tokens takes 89
// bytes, and 4,096 blocks take 356 KiB.
func (l *Log) batchBlocks(ev *kv.Event) int {
	switch {
	case l.cfg.BatchBlocks > 0:
		return l.cfg.BatchBlocks
	case len(ev.Blocks) == 0:
		return 4096
	default:
		return max(1, min(4096, 512<<10/(9+5*len(ev.Blocks[0].Tokens))))
	}
}

// fit returns in n how many blocks or hashes of ev, from the first on, fit into a batch that has
// room for this number of runs and blocks. used is the number of runs that they take.
// Consecutive blocks without media are one run; each block with media, or that names its salt,
// is a run of its own.
func fit(ev *kv.Event, runs, blocks int) (n, used int) {
	if runs == 0 {
		return 0, 0
	}
	if ev.Kind != kv.Stored {
		return min(len(ev.Hashes), max(blocks, 0)), 1
	}
	plain := false
	for i := range ev.Blocks {
		follows := plain
		plain = len(ev.Blocks[i].Media) == 0 && !(i == 0 && ev.NamesSalt())
		if !(plain && follows) {
			used++
		}
		if i >= blocks || used > runs {
			return i, used
		}
	}
	return len(ev.Blocks), max(used, 1)
}

// readBatches is the largest number of batches that one Read returns.
const readBatches = 64

// Read returns 1 to 64 batches, starting with number from. If that batch does not exist yet, it
// waits for it. It fails with ErrLagged, with the cause of ctx's end or, after the last batch,
// with the cause given to Close.
func (l *Log) Read(ctx context.Context, from uint64) ([]Batch, error) {
	for {
		batches, grown, err := l.since(from)
		if len(batches) > 0 || err != nil {
			return batches, err
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// since returns what Read would return now. If there is nothing yet, it returns a channel that
// is closed when there may be something.
func (l *Log) since(from uint64) ([]Batch, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.next - uint64(len(l.batches))
	switch {
	case from < first || from > l.next:
		return nil, nil, ErrLagged
	case from < l.next:
		kept := l.batches[from-first:]
		return slices.Clone(kept[:min(len(kept), readBatches)]), nil, nil
	case l.ended != nil:
		return nil, nil, l.ended
	}
	if l.grown == nil {
		l.grown = make(chan struct{})
	}
	return nil, l.grown, nil
}

// Kept returns the numbers of the kept batches: first to next-1.
func (l *Log) Kept() (first, next uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next - uint64(len(l.batches)), l.next
}

// Figures returns the number of events appended so far, the number of blocks stored and not
// removed, and the number of the next batch.
func (l *Log) Figures() (events uint64, held int, next uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total, l.held, l.next
}

// Snapshot returns the contents of the cache as batches without numbers: a snapshot travels as ordinary batches do, so
// each keeps within the limits of one. next is the number of the first batch whose changes are not in them.
func (l *Log) Snapshot(ctx context.Context) (batches []Batch, next uint64, err error) {
	stored, next, err := l.dump(ctx)
	if err != nil {
		return nil, 0, err
	}
	now := time.Now()
	for len(stored) > 0 {
		var batch []kv.Event
		batch, stored = l.cut(stored)
		batches = append(batches, Batch{Time: now, Events: batch})
	}
	return batches, next, nil
}
