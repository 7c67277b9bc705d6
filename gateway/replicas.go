package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/router"
)

// Replicas says how several gateways in front of the same workers tell each other what
// they have reserved, so that those who come at the same time do not find the same worker
// idle, and with it where sessions are and what workers will have of prompts. All have the
// same servers, prefix, topic, block size and Router.SessionTTL. The zero value works.
type Replicas struct {
	NATS  nats.Config // URL, Prefix, Retry, Credentials, CA and Options count
	Topic string      // routers; one for each fleet of those that share servers and prefix

	// Interval is between two messages of events, which are told at once where the last
	// ones were longer ago. Heartbeat is how often a gateway says that it is there, and
	// Silence after how long without a word its reservations are forgotten. Defaults 2 ms,
	// 1 s and 5 s.
	Interval, Heartbeat, Silence time.Duration

	between func(<-chan []byte) <-chan []byte // tests: what becomes of messages on their way
}

func (c Replicas) withDefaults() Replicas {
	if c.Topic == "" {
		c.Topic = "routers"
	}
	span := func(field *time.Duration, v time.Duration) {
		if *field == 0 {
			*field = v
		}
	}
	span(&c.Interval, 2*time.Millisecond)
	span(&c.Heartbeat, time.Second)
	span(&c.Silence, 5*time.Second)
	return c
}

func (c *Replicas) validate() error {
	var errs []error
	for _, f := range []struct {
		name      string
		v, lo, hi time.Duration
	}{{"Interval", c.Interval, 100 * time.Microsecond, time.Second}, {"Heartbeat", c.Heartbeat, time.Millisecond, time.Minute}, {"Silence", c.Silence, 2 * c.Heartbeat, time.Hour}} {
		if f.v < f.lo || f.v > f.hi {
			errs = append(errs, fmt.Errorf("gateway: Replicas.%s is %v, want %v to %v", f.name, f.v, f.lo, f.hi))
		}
	}
	return errors.Join(errs...)
}

// name gives a router its place among replicas.
func (c *Replicas) name(r *router.Config) {
	for r.Replica == 0 {
		r.Replica = router.ReplicaID(rand.Uint64())
	}
	if r.Epoch == 0 {
		r.Epoch = uint64(time.Now().UnixNano())
	}
}

// replicas tells the other gateways what the router reserves, and the router what they
// do. One goroutine does both; what it sends, it encodes outside of the chooser's mutex.
type replicas struct {
	cfg     Replicas
	self    router.ReplicaID
	epoch   uint64
	chooser *chooser
	bus     *nats.Bus
	in      <-chan []byte
	log     *zap.Logger
	ctx     context.Context
	stop    context.CancelFunc
	wait    sync.WaitGroup
	mute    atomic.Bool // tests: it says nothing any more, not even goodbye

	mu        sync.Mutex // of all below: the goroutine has it but while it waits
	peers     peers
	dec       decoder
	events    []router.Event
	out       []byte
	own       ledger
	told      time.Time
	here      time.Time // of the last heartbeat
	answered  time.Time
	owed      bool // a snapshot
	estranged bool // it was warned of another block size
}

func newReplicas(g *Gateway, cfg Replicas) (*replicas, error) {
	r := &replicas{cfg: cfg, self: g.cfg.Router.Replica, epoch: g.cfg.Router.Epoch, chooser: g.chooser, log: g.log}
	r.own.open = map[uint64]*router.Event{}
	r.peers = peers{silence: cfg.Silence, most: g.cfg.Router.MaxPeers, all: map[router.ReplicaID]*peer{}}
	var err error
	if r.bus, err = nats.NewBus(nats.BusConfig{Config: g.toldOf(cfg.NATS, "replicas"), Topic: cfg.Topic}); err != nil {
		return nil, err
	}
	if err := g.cfg.Registry.Register(&replicaCollector{r}); err != nil {
		return nil, errors.Join(err, r.bus.Close())
	}
	if r.in = r.bus.Messages(); cfg.between != nil {
		r.in = cfg.between(r.in)
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.wait.Go(r.run)
	return r, nil
}

// close says goodbye and ends. It may be called again.
func (r *replicas) close() error {
	r.stop()
	r.wait.Wait()
	err := r.bus.Close()
	for range r.in { // it is closed
	}
	return err
}

func (r *replicas) run() {
	drain, clock := time.NewTimer(time.Hour), time.NewTimer(0)
	drain.Stop()
	defer drain.Stop()
	defer clock.Stop()
	pending := false
	for {
		select {
		case <-r.ctx.Done():
			r.locked(func() { r.send(&message{kind: wireGoodbye}) })
			return
		case <-r.chooser.news:
			if !pending {
				pending = true
				drain.Reset(max(0, time.Until(r.told.Add(r.cfg.Interval))))
			}
		case <-drain.C:
			pending = false
			r.locked(r.tell)
		case <-r.bus.Up():
			r.locked(func() { r.send(&message{kind: wireAsk, seq: r.own.seq}) })
		case <-r.chooser.joined:
			r.locked(func() { r.peers.want(r.chooser.hasLeft()) })
			clock.Reset(0)
		case payload := <-r.in:
			r.locked(func() {
				if r.hear(time.Now(), payload) {
					clock.Reset(0)
				}
			})
		case <-clock.C:
			r.locked(func() { clock.Reset(max(0, time.Until(r.settle(time.Now())))) })
		}
	}
}

func (r *replicas) locked(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// send has the others hear a message; one that gets lost shows by the numbers of the next.
func (r *replicas) send(m *message) {
	if r.mute.Load() || !r.bus.Connected() {
		return
	}
	m.replica, m.epoch, m.blockTokens = r.self, r.epoch, r.chooser.blockTokens
	r.out = appendMessage(r.out[:0], m)
	if r.bus.Send(r.out) == nil {
		r.peers.counts.SentEvents += uint64(len(m.events))
	}
}

// tell fetches the router's events and sends them.
func (r *replicas) tell() {
	r.told = time.Now()
	r.events = r.chooser.drainEvents(r.events[:0])
	r.tellEvents()
}

func (r *replicas) tellEvents() {
	events := r.events
	if len(events) == 0 {
		return
	}
	r.shorten(events)
	for i := range events {
		r.own.note(&events[i])
	}
	most := min(batchBytes, r.bus.MaxMessage())
	for len(events) > 0 {
		n := fitting(events, most)
		for i := 1; i < n; i++ {
			if events[i].Seq != events[0].Seq+uint64(i) {
				n = i // the journal has lost some
			}
		}
		r.send(&message{kind: wireEvents, seq: events[0].Seq, events: events[:n]})
		events = events[n:]
	}
	clear(r.events) // of hashes
	r.events = r.events[:0]
}

// mend writes the ledger anew when the router's journal has lost events.
func (r *replicas) mend() {
	if !r.own.torn {
		return
	}
	var s router.Snapshot
	r.events, s = r.chooser.snapshot(r.events[:0])
	r.tellEvents()
	r.shorten(s.Events)
	r.own.rewrite(&s)
}

// shorten has each event fit into a message.
func (r *replicas) shorten(events []router.Event) {
	most := min(eventHashes, max(0, (r.bus.MaxMessage()-messageHead-eventOverhead)/hashBytes))
	for i := range events {
		if ev := &events[i]; len(ev.Hashes) > most {
			r.peers.counts.ShortenedEvents++
			shorten(ev, most)
		}
	}
}

// answerEvery is the least time between two snapshots, whoever asks.
const answerEvery = 200 * time.Millisecond

// mostClaims bounds what a snapshot tells of sessions, those that were used last. 3 MiB.
const mostClaims = 1 << 16

// answer sends all that is reserved, and what there is to be told of sessions, to all.
func (r *replicas) answer() {
	r.tell() // what it tells is in the snapshot, and what comes later is not
	r.mend()
	all := r.own.snapshot(r.events[:0])
	claims := r.chooser.claims(nil)
	slices.SortFunc(claims, func(a, b router.Claim) int { return cmp.Compare(b.Age, a.Age) })
	claims = claims[max(0, len(claims)-mostClaims):]
	var parts []message
	most := min(pieceBytes, r.bus.MaxMessage())
	for rest := all; len(rest) > 0; {
		n := fitting(rest, most)
		parts = append(parts, message{events: rest[:n]})
		rest = rest[n:]
	}
	for part := range slices.Chunk(claims, max(1, (most-messageHead)/claimBytes)) {
		parts = append(parts, message{claims: part})
	}
	if len(parts) == 0 {
		parts = append(parts, message{}) // that nothing is reserved is news too
	}
	if len(parts) > maxPieces {
		r.log.Warn("too much is reserved for a snapshot", zap.Int("pieces", len(parts)))
		return
	}
	sent := r.peers.counts.SentEvents
	for i := range parts {
		m := &parts[i]
		m.kind, m.seq, m.lastID, m.piece, m.pieces = wireSnapshot, r.own.seq, r.own.lastID, i, len(parts)
		r.send(m)
	}
	r.peers.counts.SentEvents = sent
	r.peers.counts.SentSnapshots++
	clear(all)
	r.events = all[:0]
}

// settle does what is due, and returns when something will be again.
func (r *replicas) settle(now time.Time) time.Time {
	if !now.Before(r.here.Add(r.cfg.Heartbeat)) {
		r.tell()
		r.mend()
		r.send(&message{kind: wireHere, seq: r.own.seq})
		r.here = now
	}
	next := r.here.Add(r.cfg.Heartbeat)
	ask := func(p *peer) { r.send(&message{kind: wireAsk, whom: p.id, seq: r.own.seq}) }
	lost := func(p *peer) {
		r.log.Warn("another gateway has fallen silent", p.field())
		r.bury(p)
	}
	if t := r.peers.settle(now, ask, lost); t.Before(next) {
		next = t
	}
	if due := r.answered.Add(answerEvery); r.owed && !now.Before(due) {
		r.answer()
		r.owed, r.answered = false, now
	} else if r.owed && due.Before(next) {
		next = due
	}
	return next
}

// bury forgets a gateway that is gone. What it claimed, those who know of it tell from now
// on, and at once: others may have missed it, or have come after it fell silent, and would
// ask nobody for it.
func (r *replicas) bury(p *peer) {
	r.chooser.forget(p.id)
	r.owed = true
}

// hear takes one message; true: something may be due.
func (r *replicas) hear(now time.Time, payload []byte) bool {
	c := &r.peers.counts
	var m message
	switch err := r.dec.decode(payload, &m); {
	case errors.Is(err, errVersion):
		if c.Versions++; c.Versions == 1 {
			r.log.Error("another gateway is of another version, so neither knows what the other reserves: start both from the same release")
		}
		return false
	case err != nil:
		c.Malformed++
		return false
	}
	if m.replica == r.self {
		c.Own++
		return false
	}
	if m.blockTokens != r.chooser.blockTokens {
		if c.Foreign++; !r.estranged {
			r.estranged = true
			r.log.Error("another gateway has blocks of another size, so neither knows what the other reserves: start both with the same --block-tokens",
				zap.Int("its", m.blockTokens), zap.Int("ours", r.chooser.blockTokens))
		}
		return false
	}
	known, was := len(r.peers.all), r.peers.all[m.replica]
	p, v := r.peers.hear(now, &m)
	switch {
	case v == passOver:
		return false
	case v == forget:
		if p != nil {
			r.log.Info("another gateway has left", p.field())
			r.bury(p)
		}
		return r.owed
	case len(r.peers.all) > known:
		r.log.Info("another gateway", p.field())
	case p != was:
		r.log.Info("another gateway has restarted", p.field())
		r.bury(was) // it has nothing yet, and may say so by no event
	}
	r.take(now, p, &m, payload)
	return r.owed || !p.behind.IsZero()
}

// take does what a message says.
func (r *replicas) take(now time.Time, p *peer, m *message, payload []byte) {
	switch m.kind {
	case wireAsk:
		r.owed = r.owed || m.whom == 0 || m.whom == r.self
	case wireEvents:
		r.peers.counts.ReceivedEvents += uint64(len(m.events))
		for i := range m.events {
			if ev := &m.events[i]; ev.Session != 0 && r.doubts(now, ev.Stamp) {
				ev.Session, ev.Stamp = 0, 0
			}
		}
		if r.chooser.apply(m.events, all) > 0 && !p.refused {
			p.refused = true
			p.asked = now // it would be refused again
		}
	case wireSnapshot:
		// Claims count in whatever order they come, and whoever asked for them.
		r.chooser.applyClaims(slices.DeleteFunc(m.claims, func(c router.Claim) bool { return r.doubts(now, c.Stamp) }))
		if !p.wants(m.seq) {
			return
		}
		if all := r.peers.collect(p, m, payload); all != nil {
			r.takeSnapshot(now, p, all)
		}
	}
}

// takeSnapshot has the router take one whose pieces have all come.
func (r *replicas) takeSnapshot(now time.Time, p *peer, all [][]byte) {
	var s router.Snapshot
	for _, payload := range all {
		var d decoder // its events must stay
		var m message
		if d.decode(payload, &m) != nil {
			return // it was decoded before
		}
		s.Replica, s.Epoch, s.Seq, s.LastID = m.replica, m.epoch, m.seq, m.lastID
		s.Events = append(s.Events, m.events...)
	}
	refused := r.chooser.applySnapshot(&s, p.anew)
	r.peers.caughtUp(now, p, s.Seq, refused > 0)
}

// clockSkew is by how much the clocks of gateways may differ at most.
const clockSkew = time.Hour

// doubts tells whether a claim is of the future, and counts it: it would outweigh all
// others until then.
func (r *replicas) doubts(now time.Time, stamp uint64) bool {
	if stamp <= uint64(now.Add(clockSkew).UnixNano()) {
		return false
	}
	r.peers.counts.Doubted++
	return true
}

func (p *peer) field() zap.Field { return zap.String("replica", replicaName(p.id)) }

func replicaName(id router.ReplicaID) string { return strconv.FormatUint(uint64(id), 16) }
