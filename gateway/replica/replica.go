package replica

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/gateway/internal/dispatch"
	"github.com/coppice-llm/coppice/router"
)

// Replicas publishes this router's reservations and applies those of the other routers.
type Replicas struct {
	cfg  Config
	self struct {
		id    router.ReplicaID
		epoch uint64
	}
	d   *dispatch.Dispatcher
	bus *nats.Bus
	in  <-chan []byte
	// news signals that there are events to publish, joined that a worker has joined. Both have
	// capacity 1.
	news, joined <-chan struct{}
	log          *zap.Logger
	ctx          context.Context
	stop         context.CancelFunc
	wait         sync.WaitGroup
	mute         atomic.Bool // in tests: send nothing more, not even the goodbye

	mu              sync.Mutex // guards the fields below; the goroutine holds it except while it waits
	peers           peers
	seq             uint64 // number of the last event that the router has made
	due             schedule
	dec             codec
	events          []router.Event // scratch
	out             []byte         // scratch
	warnedBlockSize bool           // a warning about a peer's block size was logged
}

// schedule holds when the last events (told), heartbeat (here) and snapshot (answered) were
// sent, and whether another router waits for a snapshot (asked).
type schedule struct {
	told, here, answered time.Time
	asked                bool
}

// Join connects d to the other routers until Close. If cfg.NATS has no Notify of its own, notify
// is called with an error while the connection has a problem, and with nil when it works again.
// The error is about c or the connection's configuration.
func (c Config) Join(d *dispatch.Dispatcher, log *zap.Logger, notify func(error)) (dispatch.Peers, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.NATS.Notify == nil {
		c.NATS.Notify = notify
	}
	bus, err := nats.NewBus(nats.BusConfig{Config: c.NATS, Topic: c.Topic})
	if err != nil {
		return nil, err
	}
	of := d.Router()
	r := &Replicas{cfg: c, d: d, bus: bus, in: bus.Messages(), log: log}
	r.self.id, r.self.epoch = of.Replica, of.Epoch
	r.peers = peers{silence: c.Silence, most: of.MaxPeers, all: map[router.ReplicaID]*peer{}, left: map[router.ReplicaID]uint64{}}
	if c.between != nil {
		r.in = c.between(r.in)
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.news, r.joined = d.News()
	r.wait.Go(r.run)
	return r, nil
}

// Close says goodbye to the peers and ends. It may be called again.
func (r *Replicas) Close() error {
	r.stop()
	r.wait.Wait()
	err := r.bus.Close()
	for range r.in { // drain it until it is closed
	}
	return err
}

// run sends and receives all messages, on a goroutine of its own, until Close.
func (r *Replicas) run() {
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
		case <-r.news:
			if !pending {
				pending = true
				drain.Reset(max(0, time.Until(r.due.told.Add(r.cfg.Interval))))
			}
		case <-drain.C:
			pending = false
			r.locked(r.publish)
		case <-r.bus.Up():
			r.locked(func() { r.send(&message{kind: wireAsk, seq: r.seq}) })
		case <-r.joined:
			r.locked(func() { r.peers.want(r.d.HasLeft()) })
			clock.Reset(0)
		case payload := <-r.in:
			r.locked(func() {
				if r.receive(time.Now(), payload) {
					clock.Reset(0)
				}
			})
		case <-clock.C:
			r.locked(func() { clock.Reset(max(0, time.Until(r.settle(time.Now())))) })
		}
	}
}

// locked calls f under the mutex.
func (r *Replicas) locked(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// send publishes m. If m is lost, its receivers notice a gap in the sequence numbers of later
// messages.
func (r *Replicas) send(m *message) {
	if r.mute.Load() || !r.bus.Connected() {
		return
	}
	m.replica, m.epoch, m.blockTokens = r.self.id, r.self.epoch, r.d.BlockTokens()
	r.out = appendMessage(r.out[:0], m)
	if r.bus.Send(r.out) == nil {
		r.peers.counts.SentEvents += uint64(len(m.events))
	}
}

// publish drains the router's events and publishes them.
func (r *Replicas) publish() {
	r.due.told = time.Now()
	r.d.With(func(d *router.Router, _ time.Duration) { r.events = d.Drain(r.events[:0]) })
	r.publishEvents()
}

// publishEvents publishes r.events, in messages of consecutive sequence numbers.
func (r *Replicas) publishEvents() {
	events := r.events
	if len(events) == 0 {
		return
	}
	r.seq = events[len(events)-1].Seq
	r.shorten(events, mostNamed)
	most := min(batchBytes, r.bus.MaxMessage())
	for len(events) > 0 {
		n := fitting(events, most)
		for i := 1; i < n; i++ {
			if events[i].Seq != events[0].Seq+uint64(i) {
				n = i // the journal lost events here
			}
		}
		r.send(&message{kind: wireEvents, seq: events[0].Seq, events: events[:n]})
		events = events[n:]
	}
	clear(r.events) // drop references to hashes
	r.events = r.events[:0]
}

// mostNamed bounds the hashes in a snapshot: 2 Mi hashes of 8 bytes are 16 MiB.
const mostNamed = 2 << 20

// shorten removes the last hashes of each event that has more of them than fit into a message, and
// all hashes of an event with which the events have more than room. It returns the room that is left.
func (r *Replicas) shorten(events []router.Event, room int) int {
	most := min(eventHashes, max(0, (r.bus.MaxMessage()-messageHead-eventOverhead)/hashBytes))
	for i := range events {
		ev := &events[i]
		keep := min(len(ev.Hashes), most)
		if keep > room {
			keep = 0
		}
		if room -= keep; keep < len(ev.Hashes) {
			r.peers.counts.ShortenedEvents++
			shorten(ev, keep)
		}
	}
	return room
}

// answerEvery is the least time between two snapshots, however many peers ask.
const answerEvery = 200 * time.Millisecond

// mostClaims bounds the sessions in a snapshot, the most recently used ones. At most about 3
// MiB.
const mostClaims = 1 << 16

// answer publishes a snapshot to all peers: the reservations and the claims on sessions.
func (r *Replicas) answer() {
	var s router.Snapshot
	room := mostNamed
	r.events, s = r.d.Snapshot(r.events[:0], func(part []router.Event) { room = r.shorten(part, room) })
	r.publishEvents() // before the snapshot, which includes them
	claims := r.d.Claims(nil)
	slices.SortFunc(claims, func(a, b router.Claim) int { return cmp.Compare(b.Age, a.Age) })
	claims = claims[max(0, len(claims)-mostClaims):]
	var parts []message
	most := min(pieceBytes, r.bus.MaxMessage())
	for rest := s.Events; len(rest) > 0; {
		n := fitting(rest, most)
		parts = append(parts, message{events: rest[:n]})
		rest = rest[n:]
	}
	for part := range slices.Chunk(claims, max(1, (most-messageHead)/claimBytes)) {
		parts = append(parts, message{claims: part})
	}
	if len(parts) == 0 {
		parts = append(parts, message{}) // an empty snapshot says that nothing is reserved
	}
	if len(parts) > maxPieces {
		r.log.Warn("too many reservations for a snapshot", zap.Int("pieces", len(parts)))
		return
	}
	sent := r.peers.counts.SentEvents
	for i := range parts {
		m := &parts[i]
		m.kind, m.seq, m.lastID, m.piece, m.pieces = wireSnapshot, s.Seq, s.LastID, i, len(parts)
		r.send(m)
	}
	r.peers.counts.SentEvents = sent
	r.peers.counts.SentSnapshots++
}

// settle sends what is due at now: a heartbeat, requests for snapshots, a snapshot. It also
// drops peers that are silent. It returns the time of the next call.
func (r *Replicas) settle(now time.Time) time.Time {
	if !now.Before(r.due.here.Add(r.cfg.Heartbeat)) {
		r.publish()
		r.send(&message{kind: wireHere, seq: r.seq})
		r.due.here = now
	}
	next := r.due.here.Add(r.cfg.Heartbeat)
	ask := func(p *peer) { r.send(&message{kind: wireAsk, addressee: p.id, seq: r.seq}) }
	lost := func(p *peer) {
		r.log.Warn("another gateway is silent and counts as gone", p.field())
		r.dropPeer(p)
	}
	if t := r.peers.settle(now, ask, lost); t.Before(next) {
		next = t
	}
	if due := r.due.answered.Add(answerEvery); r.due.asked && !now.Before(due) {
		r.answer()
		r.due.asked, r.due.answered = false, now
	} else if r.due.asked && due.Before(next) {
		next = due
	}
	return next
}

// dropPeer drops the reservations of p, a router that is gone, and makes a snapshot of this
// router due. The snapshot contains the claims on sessions that the lost router made. Other
// routers may have missed these claims, and can no longer ask the router that made them.
func (r *Replicas) dropPeer(p *peer) {
	r.d.Forget(p.id)
	r.due.asked = true
}

// receive decodes and applies one message, which arrived at now. It returns true if settle
// should be called soon.
func (r *Replicas) receive(now time.Time, payload []byte) bool {
	c := &r.peers.counts
	var m message
	switch err := r.dec.decode(payload, &m); {
	case errors.Is(err, errVersion):
		if c.Versions++; c.Versions == 1 {
			r.log.Error("another gateway has another version, so the two can't share reservations: start both from the same release")
		}
		return false
	case err != nil:
		c.Malformed++
		return false
	}
	if m.replica == r.self.id {
		c.Own++
		return false
	}
	if m.blockTokens != r.d.BlockTokens() {
		if c.Foreign++; !r.warnedBlockSize {
			r.warnedBlockSize = true
			r.log.Error("another gateway has another block size, so the two can't share reservations: start both with the same --block-tokens",
				zap.Int("its", m.blockTokens), zap.Int("ours", r.d.BlockTokens()))
		}
		return false
	}
	known, was := len(r.peers.all), r.peers.all[m.replica]
	p, v := r.peers.receive(now, &m)
	switch {
	case v == ignore:
		return false
	case v == forget:
		if p != nil {
			r.log.Info("another gateway has left", p.field())
			r.dropPeer(p)
		}
		return r.due.asked
	case len(r.peers.all) > known:
		r.log.Info("another gateway", p.field())
	case p != was:
		r.log.Info("another gateway has restarted", p.field())
		r.dropPeer(was) // the new process has no reservations yet, and may send no event to say so
	}
	r.take(now, p, &m, len(payload))
	return r.due.asked || p.wanted
}

// take applies the content of message m of peer p, which has this number of bytes.
func (r *Replicas) take(now time.Time, p *peer, m *message, bytes int) {
	switch m.kind {
	case wireAsk:
		r.due.asked = r.due.asked || m.addressee == 0 || m.addressee == r.self.id
	case wireEvents:
		r.peers.counts.ReceivedEvents += uint64(len(m.events))
		for i := range m.events {
			if ev := &m.events[i]; ev.Session != 0 && r.inFuture(now, ev.Stamp) {
				ev.Session, ev.Stamp = 0, 0
			}
		}
		if r.d.ApplyEvents(m.events) > 0 && !p.refused {
			p.refused = true
			p.asked = now // an immediate retry would be refused again
		}
	case wireSnapshot:
		// Claims carry stamps, so they may be applied in any order, requested or not.
		r.d.ApplyClaims(slices.DeleteFunc(m.claims, func(c router.Claim) bool { return r.inFuture(now, c.Stamp) }))
		if !p.wants(m.seq) {
			return
		}
		r.dec = codec{} // the snapshot keeps the memory of its events
		if s := r.peers.collect(p, m, bytes+len(m.events)*eventMemory); s != nil {
			r.peers.caughtUp(p, s.Seq, r.d.ApplySnapshot(s, p.reset) > 0)
		}
	}
}

// clockSkew is the largest tolerated difference between the clocks of routers.
const clockSkew = time.Hour

// inFuture reports whether a stamp is more than clockSkew after now, and counts such stamps. A
// claim with such a stamp must be ignored, because until that time it would win over all others.
func (r *Replicas) inFuture(now time.Time, stamp uint64) bool {
	if stamp <= uint64(now.Add(clockSkew).UnixNano()) {
		return false
	}
	r.peers.counts.Doubted++
	return true
}

func (p *peer) name() string { return strconv.FormatUint(uint64(p.id), 16) }

func (p *peer) field() zap.Field { return zap.String("replica", p.name()) }
