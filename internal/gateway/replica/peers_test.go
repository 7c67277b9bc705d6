package replica

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

func newPeers(silence time.Duration) *peers {
	return &peers{silence: silence, most: 3, all: map[router.ReplicaID]*peer{}}
}

// TestPeerNumbers: the missing events equal those of a plain set of numbers, while gaps are few.
func TestPeerNumbers(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		x := &peer{next: 1}
		here := map[uint64]bool{}
		for range 60 {
			from := x.next + rng.Uint64N(12)
			if rng.IntN(3) == 0 {
				from = 1 + rng.Uint64N(x.top+1)
			}
			to := from + 1 + rng.Uint64N(6)
			x.take(from, to)
			for s := from; s < to; s++ {
				here[s] = true
			}
			missing, next := uint64(0), uint64(1)
			for s := uint64(1); s <= x.top; s++ {
				if !here[s] {
					missing++
				}
			}
			for here[next] {
				next++
			}
			if len(x.later) == mostLater {
				break
			}
			if x.missing() != missing || x.next != next || !here[x.top] {
				t.Fatalf("seed %d: %+v misses %d, want %d, next %d", seed, x, x.missing(), missing, next)
			}
		}
	}
	x := &peer{next: 1}
	for i := range uint64(100) { // every second one
		x.take(2*i+2, 2*i+3)
	}
	if len(x.later) != mostLater || x.top != 200 {
		t.Errorf("%d ranges, up to %d", len(x.later), x.top)
	}
	x.take(1, 201)
	if x.missing() != 0 || x.next != 201 || len(x.later) != 0 {
		t.Errorf("%+v", x)
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
	say(wireEvents, 6, 2) // 4 and 5 are late
	if d := settle(0); d != patience || asked != 0 {
		t.Fatal(d, asked)
	}
	say(wireEvents, 4, 2)
	if d := settle(patience); d != time.Minute-patience || asked != 0 || p.counts.Gaps != 1 {
		t.Fatal(d, asked)
	}
	say(wireHere, 9, 0) // the last batch is lost
	if d := settle(patience); d != askEvery || asked != 1 {
		t.Fatal(d, asked)
	}
	if d := settle(askEvery / 2); d != askEvery/2 || asked != 1 {
		t.Fatal(d, asked)
	}
	if d := settle(askEvery / 2); d != askEvery || asked != 2 {
		t.Fatal(d, asked)
	}
	if x.wants(7) || !x.wants(8) {
		t.Error("of what use a snapshot is")
	}
	p.caughtUp(now, x, 8, false) // made before event 9
	if settle(askEvery); asked != 3 {
		t.Fatal(asked)
	}
	p.caughtUp(now, x, 9, true)
	settle(0)
	if d := settle(refusedEvery); asked != 4 {
		t.Fatal(d, asked)
	}
	p.caughtUp(now, x, 9, false)
	if settle(refusedEvery); asked != 4 {
		t.Fatal(asked)
	}
	p.want(true)
	if settle(0); asked != 5 || x.wants(8) || !x.wants(9) {
		t.Fatal(asked)
	}
	p.caughtUp(now, x, 9, false)
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

// TestSnapshotPieces: pieces in any order, duplicates, two snapshots at a time, and limits.
func TestSnapshotPieces(t *testing.T) {
	p := newPeers(time.Minute)
	x := &peer{id: 1, next: 1}
	p.all[1] = x
	piece := func(seq uint64, i, n, bytes int) [][]byte {
		return p.collect(x, &message{seq: seq, lastID: seq, piece: i, pieces: n}, make([]byte, bytes))
	}
	if all := piece(5, 0, 1, 10); len(all) != 1 || p.held != 0 {
		t.Errorf("%d pieces, %d bytes held", len(all), p.held)
	}
	for _, step := range []struct {
		seq        uint64
		i, n, want int
	}{{5, 2, 3, 0}, {5, 0, 3, 0}, {5, 0, 3, 0}, {4, 0, 2, 0}, {5, 1, 3, 3}, {6, 0, 2, 0}, {7, 0, 2, 0}, {6, 1, 2, 0}, {7, 1, 2, 2}} {
		if all := piece(step.seq, step.i, step.n, 10); len(all) != step.want {
			t.Errorf("%+v: %d pieces", step, len(all))
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

// stir makes and ends some reservations.
func stir(t *testing.T, rng *rand.Rand, r *router.Router, open []router.Reservation) []router.Reservation {
	t.Helper()
	for range rng.IntN(12) {
		if len(open) > 0 && rng.IntN(2) == 0 {
			at := rng.IntN(len(open))
			r.Progress(0, open[at], 1<<20, 1)
			if rng.IntN(2) == 0 {
				r.Release(0, open[at])
				open = slices.Delete(open, at, at+1)
			}
			continue
		}
		req := router.Request{PromptTokens: 80}
		for range rng.IntN(20) {
			req.Hashes = append(req.Hashes, kv.BlockHash(1+rng.IntN(3)))
		}
		d, err := r.Select(0, &req)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, d.Reservation)
	}
	return open
}

// agrees reports whether a ledger equals a router's snapshot.
func agrees(l *ledger, want *router.Snapshot) bool {
	got := l.snapshot(nil)
	slices.SortFunc(want.Events, func(a, b router.Event) int { return int(a.ID) - int(b.ID) })
	if len(got) != len(want.Events) || l.seq != want.Seq || l.lastID != want.LastID {
		return false
	}
	named := 0
	for i := range got {
		a, b := got[i], want.Events[i]
		named += len(a.Hashes)
		same := slices.Equal(a.Hashes, b.Hashes)
		if a.Seq, a.Hashes, b.Hashes = 0, nil, nil; !same || !reflect.DeepEqual(a, b) {
			return false
		}
	}
	return l.named == named
}

// TestLedger: the ledger equals the router's snapshot after any operations, and is rewritten
// when events were lost.
func TestLedger(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 4))
		cfg := router.Config{BlockTokens: 4, Replica: 1, Epoch: 1, Seed: seed}
		if seed%2 == 1 {
			cfg.MaxJournal = 5
		}
		r, err := router.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for id := range kv.WorkerID(3) {
			if err := r.Join(0, kv.Rank{Worker: id}, router.WorkerSpec{BlockTokens: 4}); err != nil {
				t.Fatal(err)
			}
		}
		l := ledger{open: map[uint64]*router.Event{}}
		var open []router.Reservation
		torn := false
		for i := range 40 {
			open = stir(t, rng, r, open)
			if i == 20 {
				r.Leave(0, kv.Rank{Worker: 1}, nil)
			}
			for _, ev := range r.Drain(nil) {
				l.note(&ev)
			}
			want := r.Snapshot()
			if l.torn {
				torn = true
				l.rewrite(&want)
				l.torn = false
			}
			if !agrees(&l, &want) {
				t.Fatalf("seed %d: got %+v, want %+v; named %d", seed, l.snapshot(nil), want, l.named)
			}
		}
		if torn != (cfg.MaxJournal == 5) {
			t.Fatalf("seed %d: torn %v", seed, torn)
		}
	}
	l := ledger{open: map[uint64]*router.Event{}, named: mostNamed - 3}
	l.note(&router.Event{Seq: 1, ID: 1, Hashes: make([]kv.BlockHash, 4)})
	l.note(&router.Event{Seq: 2, ID: 2, Hashes: make([]kv.BlockHash, 3)})
	if a, b := l.open[1], l.open[2]; len(a.Hashes) != 0 || a.UnsharedBlocks != 4 || len(b.Hashes) != 3 || l.shortened != 1 || l.named != mostNamed {
		t.Errorf("%+v %+v", a, b)
	}
}
