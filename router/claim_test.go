package router

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// keeping returns a replica with sessions of a minute.
func keeping(t testing.TB, id ReplicaID, epoch uint64) *Router {
	return replica(t, id, epoch, func(c *Config) { c.SessionTTL = 60 * second })
}

// told returns the events of r since the last call, with copies of their hashes.
func told(r *Router) []Event {
	events := r.Drain(nil)
	for i := range events {
		events[i].Hashes = slices.Clone(events[i].Hashes)
	}
	return events
}

// applyAll applies events and returns the verdict of the last one.
func applyAll(t testing.TB, r *Router, events ...Event) (v Verdict) {
	t.Helper()
	for i := range events {
		v = r.Apply(r.now, &events[i])
	}
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	return v
}

// place describes the claim on session id that router r knows: its worker, stamp and replica.
func place(r *Router, id uint64) string {
	at := r.sessions.index.get(key{a: id})
	if at == noEntry {
		return "unknown"
	}
	e := &r.sessions.entries[at]
	if e.nowhere {
		return fmt.Sprintf("nowhere, since %d of %d", e.stamp, e.by)
	}
	return fmt.Sprintf("%v, since %d of %d", e.worker, e.stamp, e.by)
}

// allClaims returns all claims of a router, read n entries at a time.
func allClaims(r *Router, n int) (claims []Claim) {
	for from, more := 0, true; more; more = from > 0 {
		claims, from = r.Claims(r.now, from, n, claims)
	}
	return claims
}

// TestSessionIsSharedByReplicas: a session stays at the worker of its last request,
// through whichever router, and returns to the previous worker after a rollback.
func TestSessionIsSharedByReplicas(t *testing.T) {
	a, b := keeping(t, 1, 1), keeping(t, 2, 1)
	ask := func(r *Router, avoid ...kv.Rank) Decision {
		return selected(t, r, r.now, Request{PromptTokens: 400, Session: 7, Avoid: avoid})
	}
	first := ask(a)
	applyAll(t, b, told(a)...)
	second := ask(b) // it is where the load is, so only the session leads there
	if second.Worker != first.Worker || second.Reason != BySession {
		t.Fatalf("%+v, then by another router %+v", first, second)
	}
	third := ask(b, first.Worker)
	fourth := ask(b, first.Worker, third.Worker)
	applyAll(t, a, told(b)...)
	if got := ask(a); got.Worker != fourth.Worker {
		t.Errorf("%v, want %v", got.Worker, fourth.Worker)
	} else if !a.Rollback(a.now, got.Reservation) || !b.Rollback(b.now, fourth.Reservation) {
		t.Error("not taken back")
	}
	applyAll(t, b, told(a)...)
	applyAll(t, a, told(b)...) // b took back what a's choice and its end had overruled
	for _, r := range []*Router{a, b} {
		if w, ok := r.sessions.get(r.now, 7); !ok || w != fourth.Worker {
			t.Errorf("%v %v, want %v", w, ok, fourth.Worker)
		}
	}
	if place(a, 7) != place(b, 7) {
		t.Errorf("%s and %s", place(a, 7), place(b, 7))
	}
}

// TestSessionIsTakenBackEverywhere: replicas undo the claim of a rolled back reservation,
// in whatever order and however often its events arrive.
func TestSessionIsTakenBackEverywhere(t *testing.T) {
	for _, before := range []bool{false, true} {
		a := keeping(t, 1, 1)
		var old Decision
		var events []Event
		if before {
			old = selected(t, a, 0, Request{PromptTokens: 4, Session: 7})
			events = told(a)
		}
		d := selected(t, a, 0, Request{PromptTokens: 4, Session: 7, Avoid: []kv.Rank{old.Worker}})
		a.Rollback(0, d.Reservation)
		events = append(events, told(a)...)
		for seed := range uint64(20) {
			rng := rand.New(rand.NewPCG(seed, 21))
			b := keeping(t, 2, 1)
			twice := append(slices.Clone(events), events...)
			rng.Shuffle(len(twice), func(i, j int) { twice[i], twice[j] = twice[j], twice[i] })
			applyAll(t, b, twice...)
			if w, ok := b.sessions.get(0, 7); ok != before || w != old.Worker || place(a, 7) != place(b, 7) {
				t.Fatalf("before %v: %s, want %s", before, place(b, 7), place(a, 7))
			}
		}
	}
}

// TestForgottenSessionsStayForgotten: a repeated claim does not restore a forgotten
// session. A claim that arrives first after its release does count.
func TestForgottenSessionsStayForgotten(t *testing.T) {
	a := keeping(t, 1, 1)
	d := selected(t, a, 0, Request{PromptTokens: 4, Session: 7})
	e := selected(t, a, 0, Request{PromptTokens: 4, Session: 8})
	a.Release(0, d.Reservation)
	made := told(a) // reserved 7, reserved 8, released 7
	b := keeping(t, 2, 1)
	applyAll(t, b, made...)
	if w, ok := b.sessions.get(0, 7); !ok || w != d.Worker {
		t.Fatalf("%v, want %v", w, d.Worker)
	}
	late := keeping(t, 3, 1)
	if v := applyAll(t, late, made[2], made[0]); v != Stale {
		t.Error(v)
	}
	if w, ok := late.sessions.get(0, 7); !ok || w != d.Worker {
		t.Errorf("late for its release: %s", place(late, 7))
	}
	for _, r := range []*Router{b, late} {
		r.advance(60 * second)
		selected(t, r, 60*second, Request{PromptTokens: 4, Session: 9}) // what is too old is thrown out
		applyAll(t, r, made...)
		applyAll(t, r, made[2], made[0])
		if _, ok := r.sessions.get(r.now, 7); ok || place(r, 7) != "unknown" {
			t.Errorf("it came back: %s", place(r, 7))
		}
	}
	// The same for a session forgotten because there were too many.
	few := replica(t, 4, 1, func(c *Config) { c.SessionTTL, c.MaxSessions = 60*second, 1 })
	applyAll(t, few, made...)
	applyAll(t, few, made...)
	if place(few, 7) != "unknown" || place(few, 8) != place(a, 8) {
		t.Errorf("%s, %s", place(few, 7), place(few, 8))
	}
	// A rolled back claim is not applied late if only its end is known.
	a.Rollback(0, selected(t, a, 0, Request{PromptTokens: 4, Session: 17}).Reservation)
	undone := told(a)
	few = replica(t, 4, 1, func(c *Config) { c.SessionTTL, c.MaxSessions = 60*second, 1 })
	applyAll(t, few, undone[1], made[1], undone[0])
	if place(few, 17) != "unknown" || place(few, 8) != place(a, 8) {
		t.Errorf("%s, %s", place(few, 17), place(few, 8))
	}
	// After its router is forgotten the sessions stay, because their workers stay.
	b.Forget(b.now, 1)
	few.Forget(0, 1)
	if w, ok := few.sessions.get(0, 8); !ok || w != e.Worker {
		t.Errorf("%v, want %v", w, e.Worker)
	}
	off := replica(t, 5, 1, nil)
	applyAll(t, off, made...)
	if off.ApplyClaims(0, allClaims(a, 10)) != 0 || off.sessions.index.Len() != 0 {
		t.Error("a router that does not look at sessions keeps them")
	}
}

// TestLaterClaimCounts: of two choices without knowledge of each other the later one
// wins, by the routers' clocks. A router that knows of a choice overrules it, however
// late the clock of the other router is.
func TestLaterClaimCounts(t *testing.T) {
	a, b := keeping(t, 1, 5000), keeping(t, 2, 1000)
	ask := func(r *Router, now time.Duration, w int) []Event {
		at := worker1(w)
		selected(t, r, now, Request{PromptTokens: 4, Session: 7, Pinned: &at})
		return told(r)
	}
	ofA, ofB := ask(a, 10, 0), ask(b, 4020, 1) // 5010 and 5020
	applyAll(t, a, ofB...)
	applyAll(t, b, ofA...)
	if place(a, 7) != place(b, 7) || place(a, 7) != fmt.Sprintf("%v, since 5020 of 2", worker1(1)) {
		t.Errorf("%s, %s", place(a, 7), place(b, 7))
	}
	ofA = ask(a, 11, 2)
	applyAll(t, b, ofA...)
	if place(a, 7) != place(b, 7) || place(a, 7) != fmt.Sprintf("%v, since 5021 of 1", worker1(2)) {
		t.Errorf("%s, %s", place(a, 7), place(b, 7))
	}
	a.sessions.stamp, b.sessions.stamp = 9000, 9000
	ofA, ofB = ask(a, 11, 0), ask(b, 4020, 3) // of the same time
	applyAll(t, b, ofA...)
	applyAll(t, a, ofB...)
	if place(a, 7) != place(b, 7) || place(a, 7) != fmt.Sprintf("%v, since 9001 of 2", worker1(3)) {
		t.Errorf("%s, %s", place(a, 7), place(b, 7))
	}
	mine := selected(t, a, 13, Request{PromptTokens: 4, Session: 8})
	at := worker1(2)
	if (kv.Rank{}) == at || mine.Worker == at {
		t.Fatal("another worker is meant")
	}
	a.ApplyClaims(13, []Claim{{Session: 8, Stamp: a.sessions.stamp, Replica: 2, Worker: at}})
	a.Rollback(13, mine.Reservation) // of the same stamp, and overruled
	if w, ok := a.sessions.get(13, 8); !ok || w != at {
		t.Errorf("%s", place(a, 8))
	}
	told(a)
	// A claim with the highest stamp does not make a later event invalid.
	a.sessions.stamp = MaxStamp
	if v := applyAll(t, b, ask(a, 12, 1)...); v != Made {
		t.Error(v)
	}
}

// TestClaimsAreTold: a router that starts late learns of idle sessions, with their age.
// It learns another router's sessions from that router, as long as that is present.
func TestClaimsAreTold(t *testing.T) {
	a, b := keeping(t, 1, 1), keeping(t, 2, 1)
	for i := range uint64(5) {
		d := selected(t, a, time.Duration(i)*second, Request{PromptTokens: 4, Session: 10 + i})
		a.Release(a.now, d.Reservation)
	}
	selected(t, b, 4*second, Request{PromptTokens: 4, Session: 20})
	b.Rollback(b.now, selected(t, b, 4*second, Request{PromptTokens: 4, Session: 21}).Reservation)
	applyAll(t, a, told(b)...)
	a.advance(50 * second)
	for n := 1; n < 9; n++ {
		if got := allClaims(a, n); len(got) != 5 || got[0].Age != 50*second || got[4].Age != 46*second {
			t.Fatalf("by %d: %+v", n, got)
		}
	}
	c := keeping(t, 3, 1)
	if n := c.ApplyClaims(0, allClaims(a, 3)); n != 0 || place(c, 10) != place(a, 10) || place(c, 20) != "unknown" {
		t.Errorf("%d refused, %s", n, place(c, 10))
	}
	a.Forget(a.now, 2)
	c.ApplyClaims(0, allClaims(a, 3))
	if place(c, 20) != place(b, 20) || place(c, 21) != place(b, 21) || c.Metrics().Claims != 7 {
		t.Errorf("%s, %s, %d", place(c, 20), place(c, 21), c.Metrics().Claims)
	}
	c.advance(10*second - 1)
	if _, ok := c.sessions.get(c.now, 10); !ok {
		t.Error("forgotten too early")
	}
	c.advance(10 * second)
	if _, ok := c.sessions.get(c.now, 10); ok {
		t.Error("it got older than it may")
	}
	if _, ok := c.sessions.get(c.now, 11); !ok {
		t.Error("forgotten too early")
	}
	a.advance(60 * second)
	if got := allClaims(a, 9); len(got) != 6 {
		t.Errorf("%+v", got)
	}
	// At the limits.
	few := replica(t, 4, 1, func(c *Config) { c.SessionTTL, c.MaxSessions = 60*second, 2 })
	claim := func(id uint64, age time.Duration) Claim {
		return Claim{Session: id, Stamp: id, Replica: 9, Worker: worker1(0), Age: age}
	}
	few.ApplyClaims(0, []Claim{claim(1, 5*second), claim(2, 4*second), claim(3, 6*second), claim(4, 3*second), claim(5, 60*second)})
	for id, want := range []bool{1: false, 2: true, 3: false, 4: true, 5: false} {
		if (place(few, uint64(id)) != "unknown") != want {
			t.Errorf("session %d: %s", id, place(few, uint64(id)))
		}
	}
	bad := []Claim{{Stamp: 1, Replica: 1}, {Session: 1, Replica: 1}, {Session: 1, Stamp: MaxStamp + 1, Replica: 1}, {Session: 1, Stamp: 1}, {Session: 1, Stamp: 1, Replica: 1, Age: -1}}
	if n := few.ApplyClaims(0, bad); n != len(bad) || few.Metrics().Rejected != uint64(n) {
		t.Errorf("%d refused", n)
	}
}

// TestClaimsOutliveARestart: a restarted router gets its earlier claims from the others,
// and not those that it has made since.
func TestClaimsOutliveARestart(t *testing.T) {
	before, after, b := keeping(t, 1, 1000), keeping(t, 1, 2000), keeping(t, 2, 1)
	selected(t, before, 5, Request{PromptTokens: 4, Session: 7})
	applyAll(t, b, told(before)...)
	if got := allClaims(b, 9); len(got) != 0 {
		t.Errorf("while it is there: %+v", got)
	}
	selected(t, after, 0, Request{PromptTokens: 4, Session: 8})
	applyAll(t, b, told(after)...)
	got := allClaims(b, 9)
	if len(got) != 1 || got[0].Session != 7 {
		t.Errorf("after its restart: %+v", got)
	}
	after.ApplyClaims(0, got)
	if place(after, 7) != place(before, 7) {
		t.Errorf("%s, it had claimed %s", place(after, 7), place(before, 7))
	}
}

// net is a set of routers with a network that may lose events.
type net struct {
	t        *testing.T
	rng      *rand.Rand
	routers  []*Router
	open     [][]Reservation
	under    [][]Event        // way to each
	latest   map[uint64]Claim // the naive model: of all that was ever claimed
	lossy    bool
	sessions uint64
}

func (n *net) step() {
	rng, i := n.rng, n.rng.IntN(len(n.routers))
	r := n.routers[i]
	now := r.now + time.Duration(rng.IntN(3))*time.Microsecond
	pick := func() Reservation {
		at := rng.IntN(len(n.open[i]))
		res := n.open[i][at]
		n.open[i] = slices.Delete(n.open[i], at, at+1)
		return res
	}
	switch k := rng.IntN(12); {
	case k < 4 || k < 7 && len(n.open[i]) == 0:
		req := Request{PromptTokens: 1 + rng.IntN(60), Session: rng.Uint64N(n.sessions)}
		if rng.IntN(3) == 0 {
			req.Avoid = []kv.Rank{worker1(rng.IntN(4))}
		}
		n.open[i] = append(n.open[i], selected(n.t, r, now, req).Reservation)
	case k < 6:
		r.Release(now, pick())
	case k == 6:
		r.Rollback(now, pick())
	case k == 7:
		r.SetHealth(now, worker1(rng.IntN(3)), Health(rng.IntN(3))) // the last one stays healthy, mostly
		r.SetHealth(now, worker1(3), Healthy)
		r.SetHealth(now, worker1(rng.IntN(3)), Healthy)
	case len(n.under[i]) > 0:
		at := rng.IntN(min(len(n.under[i]), 20))
		applyAll(n.t, r, n.under[i][at])
		if rng.IntN(4) > 0 { // or it comes again
			n.under[i] = slices.Delete(n.under[i], at, at+1)
		}
	}
	n.send(i)
}

func (n *net) send(from int) {
	for _, ev := range told(n.routers[from]) {
		if c := (Claim{Session: ev.Session, Stamp: ev.Stamp, Replica: ev.Replica, Worker: ev.Worker, Nowhere: ev.Nowhere}); c.Session != 0 {
			if old := n.latest[c.Session]; c.Stamp > old.Stamp || c.Stamp == old.Stamp && c.Replica > old.Replica {
				n.latest[c.Session] = c
			}
		}
		for to := range n.routers {
			if to != from && !(n.lossy && n.rng.IntN(4) == 0) {
				n.under[to] = append(n.under[to], ev)
			}
		}
	}
}

// heal exchanges all claims among all routers.
func (n *net) heal() {
	for i, from := range n.routers {
		s, claims := snapshotOf(from), allClaims(from, 1+n.rng.IntN(5))
		for to, r := range n.routers {
			if to == i {
				continue
			}
			if verdicts, v := r.ApplySnapshot(r.now, &s, nil); v != Applied || len(verdicts) != len(s.Events) {
				n.t.Fatal(v, verdicts)
			}
			if r.ApplyClaims(r.now, claims) != 0 {
				n.t.Fatal("claims are refused")
			}
		}
	}
}

// agree compares the routers with the model, and counts the sessions without a worker.
func (n *net) agree(seed uint64) (nowhere int) {
	n.t.Helper()
	for id, c := range n.latest {
		want := session{id: id, worker: c.Worker, nowhere: c.Nowhere, stamp: c.Stamp, by: c.Replica}
		if c.Nowhere {
			want.worker = kv.Rank{}
			nowhere++
		}
		for i, r := range n.routers {
			var got session
			if at := r.sessions.index.get(key{a: id}); at != noEntry {
				got = r.sessions.entries[at]
			}
			if got.touched, got.heapAt = 0, 0; got != want {
				n.t.Fatalf("seed %d, router %d: session %d is %+v, want %+v", seed, i, id, got, want)
			}
		}
	}
	for i, r := range n.routers {
		if err := r.Check(); err != nil || r.sessions.index.Len() != len(n.latest) {
			n.t.Fatalf("router %d has %d sessions of %d: %v", i, r.sessions.index.Len(), len(n.latest), err)
		}
	}
	return nowhere
}

// TestSessionsConverge: after events in any order, some of them twice, all routers have
// each session at the worker of the latest claim. With a quarter of the events lost, they
// agree after snapshots, and so does a router that received no event.
func TestSessionsConverge(t *testing.T) {
	moved, nowhere := 0, 0
	for seed := range uint64(120) {
		n := &net{t: t, rng: rand.New(rand.NewPCG(seed, 31)), latest: map[uint64]Claim{}, lossy: seed%2 == 1, sessions: []uint64{7, 7, 50}[seed%3]}
		for i := range 2 + int(seed/2%2) {
			n.routers = append(n.routers, keeping(t, ReplicaID(i+1), 1+n.rng.Uint64N(20_000)))
		}
		n.open, n.under = make([][]Reservation, len(n.routers)), make([][]Event, len(n.routers))
		for range 400 {
			n.step()
		}
		for i, r := range n.routers {
			n.rng.Shuffle(len(n.under[i]), func(a, b int) { n.under[i][a], n.under[i][b] = n.under[i][b], n.under[i][a] })
			applyAll(t, r, n.under[i]...)
		}
		if n.lossy {
			for _, r := range n.routers {
				if n.lossy = place(r, 1) != place(n.routers[0], 1); n.lossy {
					moved++
					break
				}
			}
			n.heal()
		}
		nowhere += n.agree(seed)
		n.routers = append(n.routers, keeping(t, 9, 1))
		n.heal()
		n.agree(seed)
	}
	if moved == 0 || nowhere == 0 {
		t.Errorf("the play is too easy: %d times they differed before snapshots, %d sessions are nowhere", moved, nowhere)
	}
}

// TestSessionsAreForgottenByAge: a claim that a replica made earlier counts from that time. It is
// forgotten before younger claims, both when it is too old and when the table is full.
func TestSessionsAreForgottenByAge(t *testing.T) {
	r := replica(t, 4, 1, func(c *Config) { c.SessionTTL, c.MaxSessions = 60*second, 3 })
	at := worker1(0)
	selected(t, r, 20*second, Request{PromptTokens: 8, Session: 1})
	r.ApplyClaims(50*second, []Claim{
		{Session: 2, Stamp: 900, Replica: 2, Worker: at, Age: 40 * second}, // made at 10 s
		{Session: 3, Stamp: 901, Replica: 2, Worker: at, Age: 45 * second}, // made at 5 s
	})
	selected(t, r, 55*second, Request{PromptTokens: 8, Session: 4}) // the table is full
	if places := place(r, 1) + place(r, 2) + place(r, 4); place(r, 3) != "unknown" || strings.Contains(places, "unknown") {
		t.Errorf("session 3 is at %s, the others at %s", place(r, 3), places)
	}
	selected(t, r, 71*second, Request{PromptTokens: 8, Session: 4}) // session 2 is 61 s old
	if place(r, 2) != "unknown" || place(r, 1) == "unknown" || r.sessions.index.Len() != 2 {
		t.Errorf("session 2 is at %s, session 1 at %s, %d are known", place(r, 2), place(r, 1), r.sessions.index.Len())
	}
}
