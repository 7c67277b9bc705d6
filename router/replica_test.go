package router

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

func replica(t testing.TB, id ReplicaID, epoch uint64, change func(*Config)) *Router {
	cfg := Config{BlockTokens: 4, Policy: CostLatency, Replica: id, Epoch: epoch, Seed: uint64(id)}
	if change != nil {
		change(&cfg)
	}
	return newRouter(t, cfg, make([]WorkerSpec, 4)...)
}

// snapshotOf returns the snapshot of a router, made at once.
func snapshotOf(r *Router) (s Snapshot) {
	r.Snapshot(0, len(r.slab), &s)
	return s
}

// life adds, progresses and ends requests at a router, and returns its events with copies
// of their hashes.
func life(t testing.TB, r *Router, rng *rand.Rand, active *[]Reservation, calls int) (events []Event) {
	for range calls {
		switch k := rng.IntN(6); {
		case k < 3 || len(*active) == 0:
			req := Request{PromptTokens: 1 + rng.IntN(80), Overlaps: []Overlap{{Worker: worker1(rng.IntN(4)), Device: rng.IntN(9)}}}
			for range rng.IntN(1 + req.PromptTokens/4) {
				req.Hashes = append(req.Hashes, kv.BlockHash(1+rng.IntN(3)))
			}
			*active = append(*active, selected(t, r, r.now, req).Reservation)
		case k < 5:
			r.Progress(r.now+second, (*active)[rng.IntN(len(*active))], rng.IntN(40), rng.IntN(2)*rng.IntN(30))
		default:
			i := rng.IntN(len(*active))
			r.Release(r.now, (*active)[i])
			*active = slices.Delete(*active, i, i+1)
		}
		for _, ev := range r.Drain(nil) {
			ev.Hashes = slices.Clone(ev.Hashes)
			events = append(events, ev)
		}
	}
	return events
}

// sameLoads compares a replica's loads with the routers that it has received events from.
// It leaves out figures that are not sent: outputs between events, and progress of
// prompts.
func sameLoads(t testing.TB, heard *Router, tellers ...*Router) {
	t.Helper()
	if err := heard.Check(); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		got := loadOf(t, heard, worker1(i))
		requests, prefilling, blocks := 0, 0, map[string]bool{}
		for _, r := range tellers {
			l := loadOf(t, r, worker1(i))
			requests += l.Requests
			prefilling += l.Prefilling
			for at := r.ages.head; at != none; at = r.slab[at].links[byAge].next {
				if e := &r.slab[at]; e.peer == ownPeer && r.workers[e.slot].id == worker1(i) {
					for _, p := range prefixes(r.tree.prefix(e.end)) {
						blocks[p] = true
					}
				}
			}
		}
		if got.Requests != requests || got.Prefilling != prefilling || heard.workers[i].hashed != len(blocks) {
			t.Fatalf("worker %d: %d requests, %d prefilling, %d hashed blocks; the routers have %d, %d, %d",
				i, got.Requests, got.Prefilling, heard.workers[i].hashed, requests, prefilling, len(blocks))
		}
	}
}

// TestReplicasAgree: events in any order, some twice, leave the same load.
func TestReplicasAgree(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 11))
		a, b, c := replica(t, 1, 1, nil), replica(t, 2, 1, nil), replica(t, 3, 1, nil)
		var activeA, activeB []Reservation
		events := append(life(t, a, rng, &activeA, 150), life(t, b, rng, &activeB, 150)...)
		for _, ev := range slices.Clone(events) {
			if rng.IntN(4) == 0 {
				events = append(events, ev)
			}
		}
		rng.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		for i := range events {
			if v := c.Apply(c.now, &events[i]); v == Rejected {
				t.Fatalf("%+v is rejected", events[i])
			}
		}
		sameLoads(t, c, a, b)
		c.Forget(0, 1)
		sameLoads(t, c, b)
		c.Forget(0, 2)
		c.Forget(0, 2)
		if m := c.Metrics(); m.Active != 0 || len(c.Peers(nil)) != 0 || c.remote.Len() != 0 || c.tombstones.Len() != 0 {
			t.Fatalf("%d reservations, %d remote, %d tombstones are left", m.Active, c.remote.Len(), c.tombstones.Len())
		}
	}
}

// TestSnapshotHealsLoss: with a third of the events lost, a snapshot that was made in parts
// repairs the state, and later events apply on top.
func TestSnapshotHealsLoss(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 12))
		a, c := replica(t, 1, 1, nil), replica(t, 3, 1, func(cfg *Config) { cfg.MaxBuried = 8 })
		var active []Reservation
		lost := false
		for _, ev := range life(t, a, rng, &active, 200) {
			if rng.IntN(3) == 0 {
				lost = true
				continue
			}
			c.Apply(c.now, &ev)
		}
		var snapshot Snapshot
		var later []Event
		for from, more := 0, true; more; more = from > 0 { // made in parts, and life goes on between them
			from = a.Snapshot(from, 10, &snapshot)
			later = append(later, life(t, a, rng, &active, 5)...)
		}
		later = append(later, life(t, a, rng, &active, 50)...)
		some := len(later) / 2
		for i := range later[:some] { // some overtake the snapshot
			c.Apply(c.now, &later[i])
		}
		if _, v := c.ApplySnapshot(c.now, &snapshot, nil); v != Applied || !lost {
			t.Fatal(v, lost)
		}
		for i := range later[some:] {
			c.Apply(c.now, &later[some+i])
		}
		if seed%2 == 0 { // releases that overtook it may have been forgotten, with 8 tombstones
			again := snapshotOf(a)
			c.ApplySnapshot(c.now, &again, nil)
			sameLoads(t, c, a)
		}
		if p := c.Peers(nil); len(p) != 1 || p[0].Reservations > len(active)+some {
			t.Fatalf("%+v, %d active", p, len(active))
		}
	}
}

// TestSnapshotPartsAreBounded: long prompts end a part of a snapshot early.
func TestSnapshotPartsAreBounded(t *testing.T) {
	a, long := replica(t, 1, 1, nil), make([]kv.BlockHash, 2000)
	for i := range long {
		long[i] = kv.BlockHash(i + 1)
	}
	for range 7 {
		selected(t, a, 0, Request{PromptTokens: 4 * len(long), Hashes: long})
	}
	var s Snapshot
	from := 0
	for _, want := range []int{3, 6, 0} { // three reservations have more than 5120 blocks
		if from = a.Snapshot(from, 10, &s); from != want {
			t.Errorf("a part ends at %d, want %d", from, want)
		}
	}
	if len(s.Events) != 7 {
		t.Errorf("%d events", len(s.Events))
	}
}

func TestEpochs(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 13))
	before, after, c := replica(t, 1, 100, nil), replica(t, 1, 200, nil), replica(t, 3, 1, nil)
	var a, b []Reservation
	old, young := life(t, before, rng, &a, 60), life(t, after, rng, &b, 60)
	for i := range old {
		c.Apply(0, &old[i])
	}
	sameLoads(t, c, before)
	for i := range young {
		c.Apply(0, &young[i])
	}
	sameLoads(t, c, after)
	for i := range old { // from before the restart
		if v := c.Apply(0, &old[i]); v != Stale {
			t.Fatalf("%+v is %v", old[i], v)
		}
	}
	stale := snapshotOf(before)
	if _, v := c.ApplySnapshot(0, &stale, nil); v != Stale {
		t.Errorf("a snapshot from before the restart is %v", v)
	}
	sameLoads(t, c, after)
}

func TestVerdicts(t *testing.T) {
	c := replica(t, 3, 1, func(cfg *Config) { cfg.MaxPeers, cfg.MaxActive = 2, 2 })
	made := Event{Replica: 1, Epoch: 1, Seq: 1, Kind: Reserved, ID: 1, Worker: worker1(0), PromptTokens: 8, UncachedTokens: 4, Hashes: hashes(1, 2)}
	with := func(change func(*Event)) *Event {
		ev := made
		change(&ev)
		return &ev
	}
	for _, tc := range []struct {
		name string
		ev   *Event
		want Verdict
	}{
		{"first", &made, Made},
		{"again", &made, Duplicate},
		{"own", with(func(e *Event) { e.Replica = 3 }), Stale},
		{"no replica", with(func(e *Event) { e.Replica = 0 }), Rejected},
		{"no number", with(func(e *Event) { e.Seq = 0 }), Rejected},
		{"no reservation", with(func(e *Event) { e.ID = 0 }), Rejected},
		{"unknown kind", with(func(e *Event) { e.Kind = 7 }), Rejected},
		{"unknown worker", with(func(e *Event) { e.ID, e.Worker = 2, kv.Rank{Worker: 99} }), Rejected},
		{"no prompt", with(func(e *Event) { e.ID, e.PromptTokens = 2, 0 }), Rejected},
		{"huge prompt", with(func(e *Event) { e.ID, e.PromptTokens = 2, MaxPromptTokens+1 }), Rejected},
		{"more to compute than there is", with(func(e *Event) { e.ID, e.UncachedTokens = 2, 9 }), Rejected},
		{"more hashes than blocks", with(func(e *Event) { e.ID, e.Hashes = 2, hashes(1, 2, 3) }), Rejected},
		{"negative blocks", with(func(e *Event) { e.ID, e.UnsharedBlocks = 2, -1 }), Rejected},
		{"negative progress", with(func(e *Event) { e.ComputedTokens = -1 }), Rejected},
		{"early progress", with(func(e *Event) { e.Kind, e.ID, e.OutputTokens = Progressed, 5, 9 }), Early},
		{"what it was about", with(func(e *Event) { e.ID = 5 }), Made},
		{"beyond MaxActive", with(func(e *Event) { e.ID = 6 }), Rejected},
		{"its end", with(func(e *Event) { e.Kind, e.ID = Released, 1 }), Applied},
		{"its end again", with(func(e *Event) { e.Kind, e.ID = Released, 1 }), Duplicate},
		{"it comes back", &made, Stale},
		{"progress after its end", with(func(e *Event) { e.Kind = Progressed }), Stale},
		{"early end", with(func(e *Event) { e.Kind, e.ID = Released, 9 }), Early},
		{"what has ended", with(func(e *Event) { e.ID = 9 }), Stale},
		{"a second replica", with(func(e *Event) { e.Replica = 8 }), Made},
		{"a third of two", with(func(e *Event) { e.Replica = 9 }), Rejected},
	} {
		if got := c.Apply(0, tc.ev); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
		if err := c.Check(); err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
	}
	if l := loadOf(t, c, worker1(0)); l.Requests != 2 || l.Prefilling != 1 || l.ContextTokens != 8+9+8 {
		t.Errorf("%+v", l)
	}
	// Reservations of a replica end with their worker, and expire.
	c.Leave(0, worker1(0), nil)
	if m := c.Metrics(); m.Active != 0 || c.remote.Len() != 0 {
		t.Errorf("%+v", m)
	}
	ev := *with(func(e *Event) { e.ID, e.Worker = 20, worker1(1) })
	if v := c.Apply(0, &ev); v != Made {
		t.Fatal(v)
	}
	if got := c.Expire(time.Hour, nil); len(got) != 1 || got[0] != (Expired{Worker: worker1(1)}) {
		t.Errorf("%v expired", got)
	}
}

func TestJournalIsBounded(t *testing.T) {
	a, c := replica(t, 1, 1, func(cfg *Config) { cfg.MaxJournal = 10 }), replica(t, 3, 1, nil)
	for range 25 {
		selected(t, a, 0, Request{PromptTokens: 8, Hashes: hashes(1, 2)})
	}
	events := a.Drain(nil)
	if len(events) > 10 || a.Metrics().JournalLost != 25-uint64(len(events)) {
		t.Fatalf("%d events, %+v", len(events), a.Metrics())
	}
	for i := range events {
		if len(events[i].Hashes) != 2 {
			t.Errorf("%+v", events[i])
		}
		c.Apply(0, &events[i])
	}
	s := snapshotOf(a)
	c.ApplySnapshot(0, &s, nil)
	sameLoads(t, c, a)
	// Hashes stay valid until the next Drain.
	selected(t, a, 0, Request{PromptTokens: 8, Hashes: hashes(5, 6)})
	events = a.Drain(nil)
	selected(t, a, 0, Request{PromptTokens: 8, Hashes: hashes(7, 8)})
	if got := events[0].Hashes; !slices.Equal(got, hashes(5, 6)) {
		t.Errorf("%v", got)
	}
	if got := a.Drain(nil); !slices.Equal(got[0].Hashes, hashes(7, 8)) {
		t.Errorf("%v", got)
	}
	alone := newRouter(t, Config{}, WorkerSpec{})
	selected(t, alone, 0, Request{PromptTokens: 8})
	if got := alone.Drain(nil); got != nil {
		t.Errorf("events without replicas: %v", got)
	}
}

func FuzzApply(f *testing.F) {
	f.Add([]byte{1, 1, 0, 1, 0, 8, 4, 2, 1, 2, 2, 1, 5, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		c := replica(t, 3, 1, func(cfg *Config) {
			cfg.MaxPeers, cfg.MaxActive, cfg.MaxBuried = 2, 5, 3
			cfg.SessionTTL, cfg.MaxSessions = 10, 3
		})
		take := func() uint64 {
			if len(script) == 0 {
				return 0
			}
			b := script[0]
			script = script[1:]
			return uint64(b)
		}
		for len(script) > 0 {
			ev := Event{
				Replica: ReplicaID(take() % 4), Epoch: take() % 3, Seq: take(), Kind: EventKind(take() % 4), ID: take() % 8, Worker: worker1(int(take() % 5)),
				PromptTokens: int(take()%40) - 1, UncachedTokens: int(take() % 40), OutputTokens: int(take()%9) - 1, UnsharedBlocks: int(take() % 4),
			}
			if k := take(); k%3 == 0 {
				ev.Session, ev.Stamp, ev.Nowhere = 1+take()%5, take()<<(k/4), k%2 == 0
			}
			for range take() % 4 {
				ev.Hashes = append(ev.Hashes, kv.BlockHash(take()%3))
			}
			if take()%10 == 0 {
				s := Snapshot{Replica: ev.Replica, Epoch: ev.Epoch, Seq: ev.Seq, LastID: take() % 8, Events: []Event{ev}}
				c.ApplySnapshot(0, &s, nil)
			}
			if take()%10 == 0 {
				c.ApplyClaims(0, []Claim{{Session: take() % 6, Stamp: take(), Replica: ReplicaID(take() % 5), Worker: ev.Worker, Nowhere: ev.Nowhere, Age: time.Duration(take() % 12)}})
				c.advance(time.Duration(take() % 20))
			}
			c.Apply(0, &ev)
			if err := c.Check(); err != nil {
				t.Fatal(err)
			}
		}
		remote := 0
		for at := c.ages.head; at != none; at = c.slab[at].links[byAge].next {
			remote++
		}
		if remote != c.remote.Len() {
			t.Fatalf("%d reservations of replicas, %d known", remote, c.remote.Len())
		}
	})
}
