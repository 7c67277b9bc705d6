package events

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/events/eventlog"
	"github.com/coppice-llm/coppice/events/wire"
)

// PublisherConfig configures a [Publisher]. The zero value works.
type PublisherConfig struct {
	DP   uint32 // data-parallel rank, sent with every batch
	Form wire.Form

	// Epoch distinguishes this publisher from its predecessors and must be higher than theirs.
	// Default: the start time in nanoseconds.
	Epoch uint64

	// Heartbeat is the time without events after which an empty batch is appended to the log, so
	// that readers notice the loss of the last batch. Default 1 s. Below 0: never.
	Heartbeat time.Duration
}

// Publisher sends the batches of a log over transports, and answers readers that missed some
// batches. It never waits for a reader.
type Publisher struct {
	cfg        PublisherConfig
	log        *eventlog.Log
	transports []Transport
	ctx        context.Context
	cancel     context.CancelFunc
	done       chan struct{} // closed when the goroutine has ended
	closing    sync.Once

	mu      sync.Mutex
	metrics PublisherMetrics
	pending *dump         // snapshot that was requested and is not begun; nil: none
	dumping chan struct{} // capacity 1: held while a snapshot is made
}

// dump is a snapshot for which several readers wait.
type dump struct {
	done chan struct{}
	snap Snapshot
	err  error
}

// NewPublisher starts the transports and sends the batches that are appended to the log from now
// on. Earlier batches can be replayed. The Publisher owns the transports. If a transport fails
// to start, all are closed.
func NewPublisher(cfg PublisherConfig, log *eventlog.Log, transports ...Transport) (*Publisher, error) {
	if cfg.Epoch == 0 {
		cfg.Epoch = uint64(time.Now().UnixNano())
	}
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, time.Second)
	p := &Publisher{cfg: cfg, log: log, transports: transports, done: make(chan struct{}), dumping: make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	_, next := log.Kept()
	var err error
	for _, t := range transports {
		if err == nil {
			err = t.Start(p)
		}
	}
	if err != nil {
		close(p.done)
		return nil, errors.Join(err, p.Close())
	}
	go p.run(next)
	return p, nil
}

// Close sends the batches that the log has already, then ends the goroutine and closes the
// transports. The log stays open. A second call returns ErrClosed.
func (p *Publisher) Close() error {
	err := ErrClosed
	p.closing.Do(func() {
		p.cancel()
		<-p.done
		err = nil
		for _, t := range p.transports {
			err = errors.Join(err, t.Close())
		}
	})
	return err
}

// Done returns a channel that is closed when the log has ended and all its batches are sent, or
// when the Publisher is closed.
func (p *Publisher) Done() <-chan struct{} { return p.done }

// run sends batches, starting with number next, and heartbeats in pauses. If the log has dropped
// batches that were not sent, it continues with the oldest kept one; readers see the gap.
func (p *Publisher) run(next uint64) {
	defer close(p.done)
	out := newEncoder(p.cfg.Form, p.cfg.DP)
	for {
		batches, err := p.read(next)
		switch { // by identity: the error with which a log ends may wrap anything
		case err == errPause:
			if p.log.Beat(next) {
				p.count(func(m *PublisherMetrics) { m.Heartbeats++ })
			}
		case err == eventlog.ErrLagged:
			first, _ := p.log.Kept()
			p.count(func(m *PublisherMetrics) { m.Lost += first - next })
			next = first
		case err != nil:
			return
		}
		for i := range batches {
			p.send(Message{Epoch: p.cfg.Epoch, Seq: batches[i].Seq, Payload: out.message(&batches[i])})
			next = batches[i].Seq + 1
		}
	}
}

// errPause is read's error if no batch came in the time of a heartbeat.
var errPause = errors.New("events: a pause")

// read returns batches of the log, starting with number next. It waits for them, at most for the
// time of a heartbeat.
func (p *Publisher) read(next uint64) ([]eventlog.Batch, error) {
	ctx := p.ctx
	if p.cfg.Heartbeat > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, p.cfg.Heartbeat, errPause)
		defer cancel()
	}
	return p.log.Read(ctx, next)
}

// send counts a message and then gives it to the transports, so that a reader of the
// metrics that has received a message finds it counted.
func (p *Publisher) send(m Message) {
	p.count(func(c *PublisherMetrics) {
		c.Batches++
		c.Bytes += uint64(len(m.Payload))
	})
	for _, t := range p.transports {
		if t.Send(m) != nil {
			p.count(func(c *PublisherMetrics) { c.SendErrors++ })
		}
	}
}

// Metrics returns the current counts.
func (p *Publisher) Metrics() PublisherMetrics {
	p.mu.Lock()
	m := p.metrics
	p.mu.Unlock()
	events, held, next := p.log.Figures()
	m.Events, m.HeldBlocks, m.NextSeq = events, uint64(max(0, held)), next
	return m
}

// Epoch implements [History].
func (p *Publisher) Epoch() uint64 { return p.cfg.Epoch }

// Replay implements [History].
func (p *Publisher) Replay(from uint64) iter.Seq[Message] {
	return func(yield func(Message) bool) {
		first, next := p.log.Kept()
		out := newEncoder(p.cfg.Form, p.cfg.DP)
		for from = max(from, first); from < next; {
			batches, err := p.log.Read(p.ctx, from)
			if err != nil { // dropped meanwhile: the reader asks again, or for a snapshot
				return
			}
			for i := range batches {
				if b := &batches[i]; b.Seq >= next || !yield(Message{Epoch: p.cfg.Epoch, Seq: b.Seq, Payload: out.message(b)}) {
					return
				}
			}
			from += uint64(len(batches))
		}
	}
}

// Snapshot implements [History]. Making a snapshot walks the whole cache between two steps. So
// readers that ask while one is being made share the next one.
func (p *Publisher) Snapshot(ctx context.Context) (Snapshot, error) {
	p.mu.Lock()
	d := p.pending
	if d == nil {
		d = &dump{done: make(chan struct{})}
		p.pending = d
	}
	p.mu.Unlock()
	select {
	case p.dumping <- struct{}{}:
		p.make(d)
		<-p.dumping
	case <-d.done:
	case <-ctx.Done():
		return Snapshot{}, ctx.Err()
	}
	return d.snap, d.err
}

// make makes snapshot d, unless another reader has begun it meanwhile.
func (p *Publisher) make(d *dump) {
	p.mu.Lock()
	mine := p.pending == d
	if mine {
		p.pending = nil
	}
	p.mu.Unlock()
	if !mine {
		return
	}
	defer close(d.done)
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	contents, next, err := p.log.Snapshot(ctx)
	if err != nil {
		if d.err = err; p.ctx.Err() != nil {
			d.err = ErrClosed
		}
		return
	}
	d.snap = Snapshot{Epoch: p.cfg.Epoch, Next: next}
	out := newEncoder(p.cfg.Form, p.cfg.DP)
	for i := range contents {
		d.snap.Batches = append(d.snap.Batches, out.message(&contents[i]))
	}
	p.count(func(m *PublisherMetrics) { m.Snapshots++ })
}

// count calls change with the metrics, under the mutex.
func (p *Publisher) count(change func(*PublisherMetrics)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.metrics)
}
