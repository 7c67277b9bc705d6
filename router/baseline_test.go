package router

import (
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

func TestRoundRobin(t *testing.T) {
	r := newRouter(t, Config{Policy: CostRoundRobin}, make([]WorkerSpec, 3)...)
	var got []kv.Rank
	for i := range 9 {
		d := selected(t, r, 0, Request{PromptTokens: 16 * (1 + i%4)})
		got = append(got, d.Worker)
	}
	want := []kv.Rank{worker1(0), worker1(1), worker1(2)}
	if want = append(want, append(want, want...)...); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

func TestPrefixHash(t *testing.T) {
	const workers, prefixes = 8, 4000
	r := newRouter(t, Config{Policy: CostPrefixHash, PrefixBlocks: 2}, make([]WorkerSpec, workers)...)
	place := func(h ...int) kv.Rank {
		d := selected(t, r, 0, Request{PromptTokens: 16 * len(h), Hashes: hashes(h...)})
		r.Release(0, d.Reservation)
		return d.Worker
	}
	counts := map[kv.Rank]int{}
	before := map[int]kv.Rank{}
	for i := range prefixes {
		w := place(2*i, 2*i+1)
		counts[w]++
		before[i] = w
		if place(2*i, 2*i+1, i) != w || i < 100 && place(2*i, 2*i+1, -i, i) != w {
			t.Fatalf("prompt %d with a tail goes elsewhere", i)
		}
	}
	for w, n := range counts {
		if n < prefixes/workers*8/10 || n > prefixes/workers*12/10 {
			t.Errorf("worker %v has %d of %d prefixes", w, n, prefixes)
		}
	}
	r.Leave(0, worker1(3), nil)
	for i := range prefixes {
		if w := place(2*i, 2*i+1); w != before[i] && before[i] != worker1(3) {
			t.Fatalf("prefix %d moved from %v to %v", i, before[i], w)
		}
	}
}

func TestSessions(t *testing.T) {
	r := newRouter(t, Config{Policy: CostLeastLoaded, SessionTTL: 60 * second, MaxSessions: 2, BusyFactor: 1}, make([]WorkerSpec, 2)...)
	ask := func(now time.Duration, session uint64) Decision {
		return selected(t, r, now, Request{PromptTokens: 100, Session: session})
	}
	a := ask(0, 1)
	for i := range 3 {
		if d := ask(time.Duration(i)*50*second, 1); d.Worker != a.Worker || d.Reason != BySession {
			t.Errorf("the session is at %v, got %+v", a.Worker, d)
		}
	}
	if d := ask(159*second, 1); d.Reason != BySession {
		t.Errorf("used 59 s ago: %+v", d)
	}
	if d := ask(219*second, 1); d.Reason == BySession || d.Worker == a.Worker {
		t.Errorf("used 60 s ago, and the other has less: %+v", d)
	}
	if d := ask(219*second, 0); d.Reason == BySession {
		t.Errorf("no session: %+v", d)
	}

	// With room for two sessions, the third replaces the least recently used one.
	ask(220*second, 2)
	ask(221*second, 1)
	ask(222*second, 3)
	if d := ask(223*second, 1); d.Reason != BySession {
		t.Errorf("the session used last but one: %+v", d)
	}
	if d := ask(223*second, 2); d.Reason == BySession {
		t.Errorf("a third session of two: %+v", d)
	}

	// The session of a lost or busy worker moves.
	d := ask(224*second, 5)
	if err := r.SetHealth(224*second, d.Worker, Lost); err != nil {
		t.Fatal(err)
	}
	if got := ask(224*second, 5); got.Worker == d.Worker {
		t.Errorf("%v is lost", got.Worker)
	}
}

func TestRollbackTakesTheSessionBack(t *testing.T) {
	r := newRouter(t, Config{Policy: CostLeastLoaded, SessionTTL: 60 * second}, make([]WorkerSpec, 2)...)
	req := Request{PromptTokens: 1, Session: 7}
	d := selected(t, r, 0, req)
	if !r.Rollback(0, d.Reservation) || r.Rollback(0, d.Reservation) || r.Release(0, d.Reservation) {
		t.Error("a rollback is not true exactly once")
	}
	if d = selected(t, r, 0, req); d.Reason == BySession {
		t.Errorf("after a rollback: %+v", d)
	}
	req.Avoid = []kv.Rank{d.Worker}
	away := selected(t, r, 0, req)
	req.Avoid = nil
	r.Rollback(0, away.Reservation)
	if got := selected(t, r, 0, req); got.Worker != d.Worker || got.Reason != BySession {
		t.Errorf("the worker before the rollback is %v, got %+v", d.Worker, got)
	}
	// A late rollback does not undo a later claim.
	req.Avoid = []kv.Rank{d.Worker}
	away = selected(t, r, 0, req)
	req.Avoid = nil
	kept := selected(t, r, 0, req)
	r.Rollback(0, away.Reservation)
	if got := selected(t, r, 0, req); kept.Worker != away.Worker || got.Worker != kept.Worker {
		t.Errorf("%v after %v", got.Worker, kept.Worker)
	}
}

// TestReport: a report replaces the prediction; later reservations count on top of it.
func TestReport(t *testing.T) {
	r := newRouter(t, Config{Policy: Cost2025}, WorkerSpec{TotalBlocks: 100}, WorkerSpec{TotalBlocks: 100})
	terms := func() (all [2][maxTerms]float64) {
		e, err := r.Explain(0, &Request{PromptTokens: 16})
		if err != nil {
			t.Fatal(err)
		}
		return [2][maxTerms]float64{e.Candidates[0].Terms, e.Candidates[1].Terms}
	}
	a, b := worker1(0), worker1(1)
	selected(t, r, 0, Request{PromptTokens: 48, Hashes: hashes(1, 2, 3), Pinned: &a})
	if got, want := terms(), ([2][maxTerms]float64{{0, 0.03, 1}, {}}); got != want {
		t.Errorf("predicted %v, want %v", got, want)
	}
	if err := r.Report(0, b, Usage{UsedBlocks: 50, Waiting: 4}); err != nil {
		t.Fatal(err)
	}
	if got, want := terms(), ([2][maxTerms]float64{{0, 0.03, 0.25}, {0, 0.5, 1}}); got != want {
		t.Errorf("reported %v, want %v", got, want)
	}
	d := selected(t, r, 0, Request{PromptTokens: 48, Hashes: hashes(1, 2, 3), Pinned: &b})
	if got, want := terms(), ([2][maxTerms]float64{{0, 0.03, 0.2}, {0, 0.53, 1}}); got != want {
		t.Errorf("with one more %v, want %v", got, want)
	}
	r.Release(0, d.Reservation)
	if got := terms(); got[1][1] != 0.5 {
		t.Errorf("its blocks are still there: %v", got)
	}
	for _, bad := range []Usage{{UsedBlocks: -1}, {Waiting: -1}, {Waiting: maxCount + 1}} {
		if err := r.Report(0, a, bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
