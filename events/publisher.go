package events

import (
	"context"
	"errors"
	"iter"
	"math/bits"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/events/wire"
	"github.com/coppice-llm/coppice/kv"
)

// Publisher tells the world what one rank's cache holds. Its goroutine does all
// the work; Publish only hands over.
type Publisher struct {
	cfg        PublisherConfig
	transports []Transport

	mu      sync.Mutex
	queue   [][]kv.Event
	queued  int  // events in queue
	lost    bool // before queue, events were dropped
	closed  bool
	metrics PublisherMetrics // as of the last batch

	wake      chan struct{}      // of one place: there is something in queue
	snapshots chan chan Snapshot // answered by the goroutine
	done      chan struct{}      // closed when the goroutine has ended
	ring      *ring

	// The goroutine's.
	held     held
	out      batchBuilder
	counts   PublisherMetrics
	next     uint64
	said     time.Time // when the last batch was sent
	began    time.Time // when the one that waits, if there is one, began to
	snapshot Snapshot  // as of now if its Epoch is set
}

// NewPublisher starts the transports, which are its own from then on, and the
// goroutine. On an error nothing is left running.
func NewPublisher(cfg PublisherConfig, transports ...Transport) (*Publisher, error) {
	cfg = cfg.WithDefaults()
	p := &Publisher{cfg: cfg, transports: transports, wake: make(chan struct{}, 1),
		snapshots: make(chan chan Snapshot), done: make(chan struct{}), ring: newRing(cfg.RingBatches, cfg.RingBytes)}
	p.held = held{blocks: make(map[kv.BlockHash]heldBlock), limit: cfg.HeldBlocks, size: cfg.BlockTokens, metrics: &p.counts, out: &p.out}
	err := cfg.Validate()
	for _, t := range transports {
		if err == nil {
			err = t.Start(p)
		}
	}
	if err != nil {
		for _, t := range transports {
			err = errors.Join(err, t.Close())
		}
		return nil, err
	}
	go p.run()
	return p, nil
}

// Publish hands events over, in order. They and the slice are the publisher's
// from then on; nothing of them may change. It never waits: false says that too
// many were waiting, so that these are lost and a gap will be announced.
// Blocks of another size than BlockTokens are refused and counted.
func (p *Publisher) Publish(events []kv.Event) bool {
	if len(events) == 0 {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if p.queued+len(events) > p.cfg.QueueEvents {
		p.gap(p.queued + len(events))
		return false
	}
	p.queue = append(p.queue, events)
	p.queued += len(events)
	p.signal()
	return true
}

// Gap says that the caller has lost events. Readers are told by AllBlocksCleared;
// what is stored from now on below blocks that they don't know any more is kept
// from them until those are stored again.
func (p *Publisher) Gap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gap(p.queued)
}

func (p *Publisher) gap(lost int) {
	p.queue, p.queued, p.lost = nil, 0, true
	p.metrics.LostEvents += uint64(lost)
	p.signal()
}

func (p *Publisher) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Follow publishes a stream, such as a node's Events, until it ends, and returns
// its error; nil if it just ended. After an error events may have been lost, so
// a gap is announced.
func (p *Publisher) Follow(stream iter.Seq2[kv.Event, error]) error {
	for ev, err := range stream {
		if err != nil {
			p.Gap()
			return err
		}
		p.Publish([]kv.Event{ev})
	}
	return nil
}

// Close sends what waits, then ends the goroutine and the transports.
func (p *Publisher) Close() error {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.signal()
	p.mu.Unlock()
	<-p.done
	if !first {
		return ErrClosed
	}
	var err error
	for _, t := range p.transports {
		err = errors.Join(err, t.Close())
	}
	return err
}

// Epoch is the publisher's, as in its snapshots.
func (p *Publisher) Epoch() uint64 { return p.cfg.Epoch }

// Replay implements [History].
func (p *Publisher) Replay(dst []Message, from uint64) []Message { return p.ring.since(dst, from) }

// Snapshot implements [History].
func (p *Publisher) Snapshot(ctx context.Context) (Snapshot, error) {
	reply := make(chan Snapshot, 1)
	select {
	case p.snapshots <- reply:
		return <-reply, nil
	case <-p.done:
		return Snapshot{}, ErrClosed
	case <-ctx.Done():
		return Snapshot{}, ctx.Err()
	}
}

// Metrics is as of the last batch.
func (p *Publisher) Metrics() PublisherMetrics {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.metrics
}

func (p *Publisher) run() {
	defer close(p.done)
	p.said = time.Now()
	timer := time.NewTimer(p.pause())
	defer timer.Stop()
	for {
		select {
		case <-p.wake:
			waited := !p.out.empty()
			closed := p.take()
			if closed || p.cfg.FlushEvery == 0 {
				p.flush()
			}
			if closed {
				p.share()
				return
			}
			if !waited { // else it keeps its time
				p.began = time.Now()
			}
		case reply := <-p.snapshots:
			p.take() // what was published before is in it
			p.flush()
			reply <- p.makeSnapshot()
		case <-timer.C:
			if p.out.empty() && p.cfg.Heartbeat > 0 {
				p.counts.Heartbeats++
				p.send()
			} else {
				p.flush()
			}
		}
		timer.Reset(p.pause())
	}
}

// pause is how long nothing needs to be done. Only what is sent puts the heartbeat off:
// what a busy cache does may be nothing to readers.
func (p *Publisher) pause() time.Duration {
	pause := time.Hour
	if p.cfg.Heartbeat > 0 {
		pause = time.Until(p.said.Add(p.cfg.Heartbeat))
	}
	if !p.out.empty() {
		pause = min(pause, time.Until(p.began.Add(p.cfg.FlushEvery)))
	}
	return max(0, pause)
}

// take applies all that waits, and tells whether the publisher is closed.
func (p *Publisher) take() (closed bool) {
	p.mu.Lock()
	queue, lost, closed := p.queue, p.lost, p.closed
	p.queue, p.queued, p.lost = nil, 0, false
	p.mu.Unlock()
	if lost {
		p.restart()
	}
	for _, events := range queue {
		for i := range events {
			p.counts.Events++
			p.apply(events[i])
		}
	}
	return closed
}

// apply takes an event in pieces that the batch has room for. A block may be an event of
// its own; what follows on a piece is one event with it.
func (p *Publisher) apply(ev kv.Event) {
	for {
		rest := ev
		room := min(p.cfg.BatchBlocks-p.out.blocks, p.cfg.BatchEvents-len(p.out.batch.Events))
		ev.Blocks = ev.Blocks[:min(len(ev.Blocks), room)]
		ev.Hashes = ev.Hashes[:min(len(ev.Hashes), room)]
		rest.Blocks, rest.Hashes = rest.Blocks[len(ev.Blocks):], rest.Hashes[len(ev.Hashes):]
		if !p.held.apply(&ev) {
			p.restart()
		}
		if len(p.out.batch.Events) >= p.cfg.BatchEvents || p.out.blocks >= p.cfg.BatchBlocks {
			p.flush()
		}
		if len(rest.Blocks) == 0 && len(rest.Hashes) == 0 {
			return
		}
		if n := len(ev.Blocks); n > 0 {
			rest.Parent, rest.HasParent = ev.Blocks[n-1].Hash, true
		}
		ev = rest
	}
}

// restart makes a gap known.
func (p *Publisher) restart() {
	p.counts.Gaps++
	p.held.clear()
}

func (p *Publisher) flush() {
	if !p.out.empty() {
		p.send()
	}
}

// send numbers what has been gathered, be it nothing, and gives it away.
func (p *Publisher) send() {
	p.snapshot = Snapshot{}
	m := Message{Epoch: p.cfg.Epoch, Seq: p.next, Payload: p.encode()}
	p.next++
	p.said = time.Now()
	// First the ring and the figures, then the world: who sees a message can have it
	// replayed, and finds it counted.
	p.ring.push(m)
	p.counts.Batches++
	p.counts.Bytes += uint64(len(m.Payload))
	p.share()
	for _, t := range p.transports {
		if t.Send(m) != nil {
			p.counts.SendErrors++
			p.share()
		}
	}
}

// encode empties the builder into a payload of its own.
func (p *Publisher) encode() []byte {
	b := &p.out.batch
	b.Time = float64(time.Now().UnixMicro()) / 1e6
	b.Rank, b.HasRank = p.cfg.DP, true
	payload := wire.AppendBatch(make([]byte, 0, 64+len(b.Events)*192+len(p.out.hashes)*9+len(p.out.tokens)*5), b, p.cfg.Form)
	p.out.reset()
	return payload
}

func (p *Publisher) share() {
	p.counts.HeldBlocks, p.counts.NextSeq = uint64(len(p.held.blocks)), p.next
	p.mu.Lock()
	p.counts.LostEvents = p.metrics.LostEvents
	p.metrics = p.counts
	p.mu.Unlock()
}

// makeSnapshot needs an empty builder. Each block comes in its fastest tier
// first, so that all parents are known before other tiers are told.
func (p *Publisher) makeSnapshot() Snapshot {
	if p.snapshot.Epoch != 0 {
		return p.snapshot
	}
	s := Snapshot{Epoch: p.cfg.Epoch, Next: p.next}
	blocks := p.held.ordered()
	add := func(tier kv.Tier, b *heldBlock) {
		p.out.store(tier, b)
		if p.out.blocks >= p.cfg.BatchBlocks || len(p.out.batch.Events) >= p.cfg.BatchEvents {
			s.Batches = append(s.Batches, p.encode())
		}
	}
	for i := range blocks {
		add(kv.Tier(bits.TrailingZeros8(blocks[i].tiers)), &blocks[i])
	}
	for tier := range kv.Tier(len(media)) {
		for i := range blocks {
			if t := blocks[i].tiers; t&(1<<tier) != 0 && bits.TrailingZeros8(t) != int(tier) {
				add(tier, &blocks[i])
			}
		}
	}
	if !p.out.empty() {
		s.Batches = append(s.Batches, p.encode())
	}
	p.counts.Snapshots++
	p.snapshot = s
	p.share()
	return s
}
