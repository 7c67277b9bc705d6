package router

import (
	"errors"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// TestAmong checks the restriction of a request to some workers, also while it waits, and its limits.
func TestAmong(t *testing.T) {
	r := newRouter(t, Config{MaxWorkers: 5}, WorkerSpec{MaxRequests: 1}, WorkerSpec{MaxRequests: 1}, WorkerSpec{MaxRequests: 1})
	a, b, c := worker1(0), worker1(1), worker1(2)
	for _, tc := range []struct {
		among []kv.WorkerID
		want  []kv.Rank
	}{
		{nil, []kv.Rank{a, b, c}},
		{[]kv.WorkerID{}, nil},
		{[]kv.WorkerID{77}, nil},
		{[]kv.WorkerID{b.Worker}, []kv.Rank{b}},
		{[]kv.WorkerID{a.Worker, c.Worker, 77}, []kv.Rank{a, c}},
	} {
		e, err := r.Explain(0, &Request{PromptTokens: 1, Among: tc.among})
		var got []kv.Rank
		for _, x := range e.Candidates {
			got = append(got, x.Worker)
		}
		if !slices.Equal(got, tc.want) || errors.Is(err, ErrNoWorkers) != (tc.want == nil) {
			t.Errorf("among %v: %v, %v, want %v", tc.among, got, err, tc.want)
		}
	}

	da := selected(t, r, 0, Request{PromptTokens: 1, Among: []kv.WorkerID{a.Worker}})
	one := Request{PromptTokens: 1, Among: []kv.WorkerID{a.Worker}}
	if _, err := r.Select(0, &one); !errors.Is(err, ErrBusy) {
		t.Errorf("its only worker is busy, others are not: %v", err)
	}
	waits, err := r.Wait(0, &one)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, ok := r.Next(0); ok {
		t.Error("it goes to a worker that is not among its workers")
	}
	r.Release(0, da.Reservation)
	if ticket, _, ok := r.Next(0); !ok || ticket != waits {
		t.Errorf("%v goes, want %v", ticket, waits)
	}
	if d, err := r.Take(0, waits, nil); err != nil || d.Worker != a {
		t.Errorf("%+v, %v", d, err)
	}

	for n, refused := range map[int]bool{4: false, 5: false, 6: true} {
		if _, err := r.Explain(0, &Request{PromptTokens: 1, Among: make([]kv.WorkerID, n)}); errors.Is(err, ErrRequest) != refused {
			t.Errorf("among %d: %v", n, err)
		}
	}
	if _, err := r.Explain(0, &Request{PromptTokens: 1, Among: []kv.WorkerID{2, 1}}); !errors.Is(err, ErrRequest) {
		t.Errorf("in no order: %v", err)
	}
}
