package sim

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-llm/coppice/engine"
)

// TestLiveInABubble runs the real-time mode on synctest's clock.
func TestLiveInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := ProfileByName("h200")
		if err != nil {
			t.Fatal(err)
		}
		b, err := Open(Config{Profile: p, PageTokens: 4, Pages: 32})
		if err != nil {
			t.Fatal(err)
		}
		listed := engine.Listed(b)
		batch := rows(prefill(0, tokens(1, 10), 0, 1, 2))
		step, host := p.Step(&batch, b.pageBytes), p.Host(1)
		begin := time.Now()
		var waiters sync.WaitGroup
		for seq := range uint64(2) {
			next := batch
			next.Seq = seq + 1
			ticket, err := listed.Submit(&next)
			if err != nil {
				t.Fatal(err)
			}
			waiters.Go(func() {
				<-ticket.Done()
				if took, want := time.Since(begin), host+step*time.Duration(seq+1); took != want {
					t.Errorf("batch %d took %v, want %v", seq+1, took, want)
				}
				if _, err := ticket.Result(); err != nil {
					t.Error(err)
				}
			})
		}
		if _, err := b.Submit(&engine.Batch{Seq: 3}); !errors.Is(err, engine.ErrBusy) {
			t.Errorf("a third batch: %v, want ErrBusy", err)
		}
		waiters.Wait()
		last := batch
		last.Seq = 3
		ticket, err := listed.Submit(&last)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := ticket.Result(); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("a pending ticket after Close: %v", err)
		}
	})
}

// TestLiveConcurrent uses tickets from many goroutines at once, for the race detector.
func TestLiveConcurrent(t *testing.T) {
	b, err := Open(Config{PageTokens: 4, Pages: 32, MaxInflight: 4})
	if err != nil {
		t.Fatal(err)
	}
	want := b.Expect(tokens(1, 10), engine.SamplingParams{}, 1, nil)[0]
	listed := engine.Listed(b)
	var waiters sync.WaitGroup
	for seq := uint64(1); seq <= 300; {
		batch := rows(prefill(0, tokens(1, 10), 0, 1, 2))
		batch.Seq = seq
		ticket, err := listed.Submit(&batch)
		if errors.Is(err, engine.ErrBusy) {
			waiters.Wait()
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		seq++
		for range 2 {
			waiters.Go(func() {
				if res, err := ticket.Result(); err == nil && res.Out[0].Token != want {
					t.Errorf("token %d, want %d", res.Out[0].Token, want)
				}
				<-ticket.Done()
				res, err := ticket.Result()
				if errors.Is(err, engine.ErrClosed) {
					return // the last ones, by the Close below
				}
				if err != nil || res.Out[0].Token != want || b.Info().Name != "sim" {
					t.Errorf("%+v, %v, want token %d", res, err, want)
				}
			})
		}
	}
	waiters.Go(func() { b.Close() })
	b.Close()
	waiters.Wait()
}

// TestCloseInVirtualTime leaves no pending event.
func TestCloseInVirtualTime(t *testing.T) {
	d := newBed(t, Config{})
	ticket := d.submit(rows(prefill(0, tokens(1, 3), 0)))
	if err := errors.Join(d.b.Close(), d.b.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := ticket.Result(); !errors.Is(err, engine.ErrClosed) || d.clock.Len() != 0 {
		t.Errorf("ticket: %v, %d events pending", err, d.clock.Len())
	}
	<-ticket.Done()
	if _, err := d.b.Submit(&engine.Batch{Seq: 2}); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("Submit: %v", err)
	}
}
