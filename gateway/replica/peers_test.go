package replica

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/router"
)

func newPeers(silence time.Duration) *peers {
	return &peers{silence: silence, most: 3, all: map[router.ReplicaID]*peer{}, left: map[router.ReplicaID]uint64{}}
}

// TestPeerNumbers: the missing events reach from the first lost one to the last. A snapshot ends
// the gap as far as it goes.
func TestPeerNumbers(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		p, x := newPeers(time.Minute), &peer{}
		lost, next := []uint64{}, uint64(1)
		for range 60 {
			from := max(1, next-rng.Uint64N(min(next, 4))) // some arrive again
			for range rng.IntN(3) * rng.IntN(3) {
				lost = append(lost, next)
				next++
				from = next
			}
			next = max(next, from+1+rng.Uint64N(6))
			p.take(x, from, next)
			if seq := rng.Uint64N(next); rng.IntN(8) == 0 && x.wants(seq) {
				p.caughtUp(x, seq, false)
				lost = slices.DeleteFunc(lost, func(n uint64) bool { return n <= seq })
			}
			want := uint64(0)
			if len(lost) > 0 {
				want = lost[len(lost)-1] + 1 - lost[0]
			}
			// A snapshot between two lost events leaves a gap that begins right after it.
			if x.top != next-1 || x.wanted != (len(lost) > 0) || x.missing() < want || len(lost) == 0 && x.missing() > 0 {
				t.Fatalf("seed %d: %+v misses %d, want %d, next %d", seed, x, x.missing(), want, next)
			}
		}
	}
}

// TestPeersSettle: when a peer is asked, and when it is lost.
func TestPeersSettle(t *testing.T) {
	p := newPeers(time.Minute)
	now := time.Unix(1000, 0)
	asked, lost := 0, 0
	settle := func(after time.Duration) time.Duration {
		now = now.Add(after)
		return p.settle(now, func(*peer) { asked++ }, func(*peer) { lost++ }).Sub(now)
	}
	say := func(kind wireKind, seq uint64, events int) *peer {
		t.Helper()
		x, v := p.receive(now, &message{kind: kind, replica: 7, epoch: 1, seq: seq, events: make([]router.Event, events)})
		if v != apply {
			t.Fatal(v)
		}
		return x
	}
	x := say(wireEvents, 1, 3)
	if d := settle(0); d != time.Minute || asked != 0 {
		t.Fatal(d, asked)
	}
	say(wireEvents, 6, 2) // 4 and 5 are lost
	say(wireHere, 9, 0)   // the last batch is lost
	if d := settle(0); d != askEvery || asked != 1 || p.counts.Gaps != 1 || x.missing() != 6 {
		t.Fatal(d, asked, x.missing())
	}
	if d := settle(askEvery / 2); d != askEvery/2 || asked != 1 {
		t.Fatal(d, asked)
	}
	if d := settle(askEvery / 2); d != askEvery || asked != 2 {
		t.Fatal(d, asked)
	}
	if x.wants(3) || !x.wants(8) {
		t.Error("of what use a snapshot is")
	}
	p.caughtUp(x, 8, false) // made before event 9
	if settle(askEvery); asked != 3 || x.missing() != 1 {
		t.Fatal(asked)
	}
	p.caughtUp(x, 9, true)
	settle(0)
	if d := settle(refusedEvery); asked != 4 {
		t.Fatal(d, asked)
	}
	p.caughtUp(x, 9, false)
	if settle(refusedEvery); asked != 4 {
		t.Fatal(asked)
	}
	p.want(true)
	if settle(0); asked != 5 || x.wants(8) || !x.wants(9) {
		t.Fatal(asked)
	}
	p.caughtUp(x, 9, false)
	if settle(time.Minute); lost != 1 || len(p.all) != 0 || p.counts.Lost != 1 {
		t.Fatal(lost)
	}
	say(wireHere, 9, 0)
	if _, v := p.receive(now, &message{kind: wireGoodbye, replica: 7, epoch: 1}); v != forget {
		t.Error(v)
	}
	if _, v := p.receive(now, &message{kind: wireHere, replica: 7, epoch: 1}); v != ignore || len(p.all) != 0 {
		t.Error(v)
	}
}

// TestPeerRestarts: a router that said goodbye and starts again with its ID is accepted. Late
// messages of its earlier process, goodbyes included, do it no harm.
func TestPeerRestarts(t *testing.T) {
	p := newPeers(time.Minute)
	for i, step := range []struct {
		kind  wireKind
		epoch uint64
		want  verdict
	}{
		{wireHere, 1, apply}, {wireGoodbye, 1, forget}, {wireHere, 1, ignore}, {wireHere, 2, apply},
		{wireHere, 1, ignore}, {wireGoodbye, 1, ignore}, {wireHere, 2, apply}, {wireHere, 3, apply}, {wireGoodbye, 2, ignore},
	} {
		if _, v := p.receive(time.Unix(1000, 0), &message{kind: step.kind, replica: 7, epoch: step.epoch}); v != step.want {
			t.Errorf("step %d: %d, want %d", i, v, step.want)
		}
	}
	if x := p.all[7]; x == nil || x.epoch != 3 {
		t.Errorf("%+v", x)
	}
}

// TestSnapshotPieces: pieces in order, and duplicates, gaps, two snapshots at a time, and limits.
func TestSnapshotPieces(t *testing.T) {
	p := newPeers(time.Minute)
	x := &peer{id: 1}
	p.all[1] = x
	piece := func(seq uint64, i, n, bytes int) *router.Snapshot {
		return p.collect(x, &message{seq: seq, lastID: seq, piece: i, pieces: n, events: make([]router.Event, 2)}, bytes)
	}
	for _, step := range []struct {
		seq        uint64
		i, n, want int
	}{
		{5, 0, 1, 2}, {5, 0, 3, 0}, {5, 2, 3, 0}, {5, 1, 3, 0}, {5, 1, 3, 0}, {4, 1, 2, 0}, {5, 2, 3, 6}, {5, 2, 3, 0},
		{6, 0, 2, 0}, {6, 0, 2, 0}, {7, 1, 2, 0}, {7, 0, 2, 0}, {6, 1, 2, 0}, {7, 1, 2, 4},
	} {
		got := 0
		if s := piece(step.seq, step.i, step.n, 10); s != nil {
			got = len(s.Events)
			if s.Seq != step.seq || s.LastID != step.seq {
				t.Errorf("%+v: %+v", step, s)
			}
		}
		if got != step.want {
			t.Errorf("%+v: %d events", step, got)
		}
	}
	if p.held != 0 {
		t.Errorf("%d bytes held", p.held)
	}
	piece(8, 0, 2, mostHeld)
	if p.held != mostHeld || piece(8, 1, 2, 1) != nil || p.held != 0 || p.counts.Overflows != 1 {
		t.Errorf("%d bytes held, %+v", p.held, p.counts)
	}
	piece(9, 0, 2, 100)
	p.drop(1)
	if p.held != 0 {
		t.Errorf("%d bytes held", p.held)
	}
}

// TestHeldIsMemory: a piece of an incomplete snapshot counts with the memory of its events, which
// may be ten times its length.
func TestHeldIsMemory(t *testing.T) {
	r, x := &Replicas{peers: *newPeers(time.Minute)}, &peer{id: 1, wanted: true}
	r.peers.all[1] = x
	sent := message{kind: wireSnapshot, replica: 1, blockTokens: 4, pieces: 2, events: make([]router.Event, batchEvents)}
	payload := appendMessage(nil, &sent)
	var m message
	if err := r.dec.decode(payload, &m); err != nil {
		t.Fatal(err)
	}
	r.take(time.Time{}, x, &m, len(payload))
	if least := batchEvents * int(reflect.TypeFor[router.Event]().Size()); len(x.snapshot.Events) != batchEvents || r.peers.held < least {
		t.Errorf("%d bytes held for a message of %d, whose events take %d", r.peers.held, len(payload), least)
	}
	r.peers.drop(1)
	if r.peers.held != 0 {
		t.Errorf("%d bytes held", r.peers.held)
	}
}
