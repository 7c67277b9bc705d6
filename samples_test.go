package coppice_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// Each sample has one ending, whatever its reason; the loop ends with the last one.
func TestSamplesEndOneByOne(t *testing.T) {
	node := open(t, coppice.Config{Scheduler: scheduler.Config{MaxInflight: 2}})
	for _, tc := range []struct {
		name string
		req  coppice.Request
		want error
	}{
		{"length", coppice.Request{MaxTokens: 9}, nil},
		{"out of time", coppice.Request{MaxTokens: 3000, Timeout: time.Millisecond}, coppice.ErrDeadline},
		{"refused", coppice.Request{MaxTokens: 1 << 20}, coppice.ErrPromptTooLong},
	} {
		tc.req.Prompt, tc.req.IgnoreEOS, tc.req.Samples, tc.req.Timeline = "Light", true, 4, true
		endings, final := make([]int, 4), 0
		for piece, err := range node.Generate(context.Background(), tc.req) {
			if piece.Ending == nil {
				if err != nil {
					t.Fatalf("%s: an error without an ending: %v", tc.name, err)
				}
				continue
			}
			endings[piece.Sample]++
			if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
				t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
			}
			if err == nil && len(piece.Ending.Timeline) == 0 {
				t.Errorf("%s: no timeline", tc.name)
			}
			if piece.Final {
				final++
			}
		}
		for i, n := range endings {
			if n != 1 || final != 1 {
				t.Errorf("%s: sample %d has %d endings, %d final pieces", tc.name, i, n, final)
			}
		}
	}
	idle(t, node)
}

// Leaving the loop at the ending of one sample aborts the others.
func TestLeavingAtAnEndingAborts(t *testing.T) {
	node, h := openHeld(t, coppice.Config{})
	h.outputs(500)
	first := make([]kv.Token, 0, 9)
	req := coppice.Request{Prompt: "Light", MaxTokens: 800, IgnoreEOS: true, Samples: 3, Sampling: engine.SamplingParams{Temperature: 1, Seed: 2}}
	for piece, err := range node.Generate(context.Background(), req) {
		if err != nil {
			t.Fatal(err)
		}
		if piece.Sample == 0 {
			first = append(first, piece.Tokens...)
		}
		if len(first) > 3 {
			break
		}
	}
	h.outputs(noLimit) // they are aborted, and end with the current step
	idle(t, node)
	if st, _ := node.Stats(context.Background()); st.Scheduler.Endings[coppice.Abort] != 3 || len(st.Tenants) != 0 {
		t.Errorf("tenants %v, endings:\n%v", st.Tenants, st.Scheduler)
	}
}

// Waiting lists the waiting samples, and Stats counts them per tenant.
func TestWaiting(t *testing.T) {
	node, h := openHeld(t, coppice.Config{Scheduler: scheduler.Config{MaxRunning: 1}})
	h.outputs(1000)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, err := range node.Generate(ctx, coppice.Request{Prompt: "Light", MaxTokens: 3000, IgnoreEOS: true, Tenant: "a"}) {
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan error, 1)
		wctx, giveUp := context.WithCancel(ctx)
		go func() {
			for _, err := range node.Generate(wctx, coppice.Request{Prompt: "Light", MaxTokens: 1, Tenant: "b"}) {
				second <- err
			}
			close(second)
		}()
		for {
			waits, err := node.Waiting(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if len(waits) == 0 {
				continue
			}
			if w := waits[0]; len(waits) != 1 || w.Request != 2 || w.Cause != scheduler.AwaitsSlot {
				t.Errorf("%v", waits)
			}
			break
		}
		st, err := node.Stats(ctx)
		if err != nil || len(st.Tenants) != 2 || st.Tenants[0].Running != 1 || st.Tenants[1] != (scheduler.TenantUsage{Tenant: "b", Waiting: 1}) {
			t.Errorf("tenants %+v, %v", st.Tenants, err)
		}
		giveUp()
		if err := <-second; !errors.Is(err, context.Canceled) {
			t.Errorf("the second ended with %v", err)
		}
		<-second
		break
	}
	h.outputs(noLimit)
	idle(t, node)
}
