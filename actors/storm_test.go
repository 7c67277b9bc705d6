package actors

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// TestStorm: many callers, random aborts, and an end at a random moment, by Close from several
// goroutines or by the death of any actor.
func TestStorm(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	for seed := range uint64(30) {
		storm(t, seed)
		if t.Failed() {
			t.Logf("seed %d", seed)
			break
		}
	}
	leaks.Check(t, ignore)
}

func storm(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	cfg := Config{
		Backend: backend(t, cpu.Config{KVTokens: 128 << rng.IntN(4), PageTokens: 1 << rng.IntN(5)}), Tokenizer: nano.Tokenizer(),
		MaxRequests: 4 + rng.IntN(20),
		Scheduler: scheduler.Config{Events: rng.IntN(2) == 0, Policy: scheduler.Policies()[rng.IntN(len(scheduler.Policies()))], StepTokens: 1 << rng.IntN(8), MaxRunning: 1 + rng.IntN(8),
			MaxInflight: 1 + rng.IntN(2), Tenant: scheduler.TenantConfig{MaxRunning: rng.IntN(3)}},
	}
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx := patience(t)
	var callers sync.WaitGroup
	for c := range 8 {
		rng := rand.New(rand.NewPCG(seed, uint64(c)))
		callers.Go(func() {
			for {
				req := Request{Tokens: []kv.Token{1}, Prompt: prompt[:1+rng.IntN(70)], MaxTokens: 1 + rng.IntN(30), Tenant: "ab"[c%2 : c%2+1]}
				if rng.IntN(3) == 0 {
					req.Samples = 1 + rng.IntN(4)
				}
				if rng.IntN(4) == 0 {
					req.Timeout = time.Duration(rng.IntN(20_000_000))
				}
				if rng.IntN(4) == 0 {
					req.QueueTimeout = time.Duration(rng.IntN(5_000_000))
				}
				if rng.IntN(4) == 0 {
					req.Format = matching(strings.Repeat("[a-z]{1,9} ", 1+rng.IntN(12)))
				}
				stream, err := s.Open(req)
				if errors.Is(err, scheduler.ErrQueueFull) {
					time.Sleep(time.Millisecond)
					continue
				}
				if err != nil {
					return
				}
				var mine sync.WaitGroup
				if rng.IntN(3) == 0 {
					mine.Go(func() { stream.Abort(nil) })
					mine.Go(func() { stream.Abort(errors.New("twice")) })
				}
				cctx, cancel := context.WithCancel(ctx)
				if rng.IntN(4) == 0 {
					mine.Go(cancel)
				}
				endings, tokens := 0, make([]int, max(req.Samples, 1))
				for {
					piece, err := stream.Next(cctx)
					if ctx.Err() != nil {
						t.Error("a stream hangs")
						cancel()
						return
					}
					tokens[piece.Sample] += len(piece.Tokens)
					if piece.Ending != nil {
						endings++
						if r := piece.Ending.Reason; (r == scheduler.Stop || r == scheduler.Length) && piece.Ending.OutputTokens != tokens[piece.Sample] {
							t.Errorf("%d tokens, bill %+v", tokens[piece.Sample], piece.Ending)
						}
						if piece.Final != (endings == len(tokens)) {
							t.Errorf("ending %d of %d, final: %v", endings, len(tokens), piece.Final)
						}
					}
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil && piece.Ending == nil {
						cctx = ctx
					}
				}
				if endings != len(tokens) {
					t.Errorf("%d endings of %d samples", endings, len(tokens))
				}
				mine.Wait()
				cancel()
			}
		})
	}
	if cfg.Scheduler.Events {
		callers.Go(func() {
			var next uint64
			for e, err := range s.Events(ctx, 0) {
				if err == nil && e.Seq != next && e.Seq != next+1 {
					t.Errorf("an event of batch %d follows one of %d", e.Seq, next)
				}
				next = e.Seq
			}
			if ctx.Err() != nil {
				t.Error("events hang")
			}
		})
	}
	callers.Go(func() {
		for {
			select {
			case <-s.ended:
				return
			default:
			}
			if _, err := s.Stats(ctx); ctx.Err() != nil {
				t.Errorf("stats: %v", err)
				return
			}
			if _, err := s.waiting(ctx); ctx.Err() != nil {
				t.Errorf("waiting: %v", err)
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
	kill := []*process{nil, nil, nil, s.scheduler, s.engine, s.pool, s.deliverer, s.workers[0], s.formats, s.compilers[0]}[rng.IntN(10)]
	if kill != nil {
		if rng.IntN(2) == 0 {
			kill.tell(&poison{})
		} else {
			kill.quit()
		}
		time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
	}
	for range 3 {
		callers.Go(func() {
			if err := s.Close(); err != nil && kill == nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	done := make(chan struct{})
	go func() { callers.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatalf("seed %d hangs", seed)
	}
}
