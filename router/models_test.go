package router

import (
	"errors"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

func serve(models ...ModelID) WorkerSpec { return WorkerSpec{MaxRequests: 1, Models: models} }

func TestModels(t *testing.T) {
	r := newRouter(t, Config{Policy: CostLeastLoaded}, serve(1), serve(2, 3, 2), serve())
	a, b, c := worker1(0), worker1(1), worker1(2)
	could := func(req Request) (all []kv.Rank) {
		e, err := r.Explain(0, &req)
		if err != nil && !errors.Is(err, ErrNoWorkers) {
			t.Fatal(err)
		}
		for _, x := range e.Candidates {
			all = append(all, x.Worker)
		}
		return all
	}
	for _, tc := range []struct {
		req  Request
		want []kv.Rank
	}{
		{Request{}, []kv.Rank{a, b, c}},
		{Request{Model: 1}, []kv.Rank{a}},
		{Request{Model: 2}, []kv.Rank{b}},
		{Request{Model: 3}, []kv.Rank{b}},
		{Request{Model: 4}, nil},
		{Request{Model: 3, Avoid: []kv.Rank{b, a}}, nil},
		{Request{Model: 1, Pinned: &b}, nil},
		{Request{Model: 2, Pinned: &b}, []kv.Rank{b}},
	} {
		tc.req.PromptTokens = 1
		if got := could(tc.req); !slices.Equal(got, tc.want) {
			t.Errorf("%+v could go to %v, want %v", tc.req, got, tc.want)
		}
	}

	// A request whose workers are busy waits beside an idle worker of another model. One for a
	// model without workers, or pinned to a worker without its model, is refused instead.
	d := selected(t, r, 0, Request{PromptTokens: 1, Model: 2})
	for _, tc := range []struct {
		req  Request
		want error
	}{
		{Request{Model: 3}, ErrBusy},
		{Request{Model: 4}, ErrNoWorkers},
		{Request{Model: 1, Pinned: &b}, ErrNoWorkers},
		{Request{Model: 2, Pinned: &b}, ErrBusy},
		{Request{Model: 2, Avoid: []kv.Rank{b, b}}, ErrNoWorkers},
		{Request{Model: 2, Avoid: []kv.Rank{a, a}}, ErrBusy},
	} {
		tc.req.PromptTokens = 1
		if _, err := r.Select(0, &tc.req); !errors.Is(err, tc.want) {
			t.Errorf("%+v: %v, want %v", tc.req, err, tc.want)
		}
		if _, err := r.Wait(0, &tc.req); errors.Is(err, ErrNoWorkers) != errors.Is(tc.want, ErrNoWorkers) {
			t.Errorf("%+v waits: %v", tc.req, err)
		}
	}
	if _, _, ok := r.Next(0); ok {
		t.Error("one goes though the only worker of its model is busy")
	}

	// After a worker joins again with other models, it serves these.
	other := serve(4)
	other.BlockTokens = 16
	if err := r.Join(0, b, other); err != nil {
		t.Fatal(err)
	}
	if ticket, req, ok := r.Next(0); !ok || req.Model != 3 {
		t.Errorf("model 3 has no worker left, next is %+v", req)
	} else if _, err := r.Take(0, ticket, nil); !errors.Is(err, ErrNoWorkers) {
		t.Error(err)
	}
	r.Release(0, d.Reservation)
	if got := could(Request{PromptTokens: 1, Model: 4}); !slices.Equal(got, []kv.Rank{b}) {
		t.Errorf("model 4 is served by %v", got)
	}
	r.Leave(0, b, nil)
	if got := could(Request{PromptTokens: 1, Model: 4}); got != nil {
		t.Errorf("model 4 is served by %v that left", got)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
}

func TestModelLimits(t *testing.T) {
	many := func(from, n int) (all []ModelID) {
		for i := range n {
			all = append(all, ModelID(from+i))
		}
		return all
	}
	r := newRouter(t, Config{MaxModels: MaxWorkerModels + 3})
	join := func(w int, models []ModelID) error {
		err := r.Join(0, worker1(w), WorkerSpec{BlockTokens: 16, Models: models})
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
		return err
	}
	for _, tc := range []struct {
		worker int
		models []ModelID
		ok     bool
	}{
		{0, many(1, MaxWorkerModels-1), true},
		{0, many(1, MaxWorkerModels), true},
		{0, many(1, MaxWorkerModels+1), false},
		{1, many(MaxWorkerModels, 4), true}, // the first is known
		{2, many(MaxWorkerModels+4, 1), false},
		{2, many(5, 10), true},
		{2, []ModelID{1, 0}, false},
	} {
		if err := join(tc.worker, tc.models); (err == nil) != tc.ok || err != nil && !errors.Is(err, ErrWorkerSpec) {
			t.Errorf("worker %d with %d models: %v", tc.worker, len(tc.models), err)
		}
	}
	r.Leave(0, worker1(0), nil)
	if err := join(3, many(9000, 100)); err != nil {
		t.Errorf("what one serves that left is free: %v", err)
	}
	mine := []ModelID{3, 1, 2}
	if err := join(3, mine); err != nil || !slices.Equal(mine, []ModelID{3, 1, 2}) {
		t.Errorf("the caller's list is %v: %v", mine, err)
	}

	for n := MaxAvoid - 1; n <= MaxAvoid+1; n++ {
		req := Request{PromptTokens: 1}
		for i := range n {
			req.Avoid = append(req.Avoid, worker1(100+i))
		}
		if _, err := r.Select(0, &req); errors.Is(err, ErrRequest) != (n > MaxAvoid) {
			t.Errorf("%d to be avoided: %v", n, err)
		}
	}
}

// TestLanesAreUsedAgain: there are as many lanes as models that wait at a time, however
// many pass.
func TestLanesAreUsedAgain(t *testing.T) {
	r := newRouter(t, Config{}, serve(1), serve(2), serve(3))
	for i := range 3 {
		selected(t, r, 0, Request{PromptTokens: 1, Model: ModelID(1 + i)})
	}
	for i := range 300 {
		req := Request{PromptTokens: 1, Model: ModelID(1 + i%3)}
		if i%7 == 0 {
			req.Pinned = &kv.Rank{Worker: kv.WorkerID(1 + i%3)}
		}
		ticket, err := r.Wait(0, &req)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			r.Cancel(ticket)
		}
	}
	if got := len(r.queue.lanes); got > 6 {
		t.Errorf("%d lanes for 3 models and 3 pins", got)
	}
}
