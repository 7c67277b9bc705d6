package router_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// A request goes to a worker, and the next one waits while all are busy.
func ExampleRouter() {
	r, err := router.New(router.Config{BlockTokens: 16})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Duration(0)
	if err := r.Join(now, kv.Rank{}, router.WorkerSpec{BlockTokens: 16, MaxRequests: 1}); err != nil {
		fmt.Println(err)
	}
	req := router.Request{PromptTokens: 4096, Overlaps: []router.Overlap{{Worker: kv.Rank{Worker: 0}, Device: 200}}}
	first, err := r.Select(now, &req)
	fmt.Println(first.Worker, first.Reason, err)
	_, err = r.Select(now, &req)
	fmt.Println(errors.Is(err, router.ErrBusy))

	ticket, err := r.Wait(now, &req)
	fmt.Println(r.Queued(), err)
	r.Progress(now+time.Second, first.Reservation, 896, 1)
	r.Release(now+2*time.Second, first.Reservation)
	second, err := r.Take(now+2*time.Second, ticket, req.Overlaps)
	fmt.Println(second.Worker, err)
	_, err = r.Take(now+2*time.Second, ticket, nil)
	fmt.Println(errors.Is(err, router.ErrTicket))
	// Output:
	// 0/0 cost <nil>
	// true
	// 1 <nil>
	// 0/0 <nil>
	// true
}

// The errors of workers that can't join.
func ExampleRouter_Join() {
	r, err := router.New(router.Config{BlockTokens: 16, MaxWorkers: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	a, b := kv.Rank{Worker: 1}, kv.Rank{Worker: 2}
	size := (*router.BlockSizeError)(nil)
	fmt.Println(errors.As(r.Join(0, a, router.WorkerSpec{BlockTokens: 32}), &size), size.Want)
	fmt.Println(errors.Is(r.Join(0, a, router.WorkerSpec{BlockTokens: 16, Models: make([]router.ModelID, router.MaxWorkerModels+1)}), router.ErrWorkerSpec))
	fmt.Println(r.Join(0, a, router.WorkerSpec{BlockTokens: 16}))
	fmt.Println(errors.Is(r.Join(0, b, router.WorkerSpec{BlockTokens: 16}), router.ErrWorkersFull))
	fmt.Println(errors.Is(r.SetHealth(0, b, router.Lost), router.ErrUnknownWorker))
	// Output:
	// true 16
	// true
	// <nil>
	// true
	// true
}
