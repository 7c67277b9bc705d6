package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine/sim"
)

// TestDrainUnderLoad: every request before, during and after the start of the shutdown gets a
// whole answer or a clear error.
func TestDrainUnderLoad(t *testing.T) {
	for _, patient := range []bool{true, false} {
		t.Run(fmt.Sprintf("patient=%v", patient), func(t *testing.T) {
			device := &sim.Config{Pages: 4096, MaxSlots: 64, MaxRows: 64}
			if !patient {
				device = slow()
				device.MaxSlots, device.MaxRows = 64, 64
			}
			b := start(t, setup{Sim: device})
			var clients sync.WaitGroup
			var mu sync.Mutex
			seen := map[string]int{}
			for c := range 24 {
				clients.Go(func() {
					for i := 0; ; i++ {
						what, err := b.drainedAnswer(t.Context(), c%2 == 0)
						mu.Lock()
						seen[what]++
						mu.Unlock()
						if err != nil {
							t.Errorf("client %d, request %d: %v", c, i, err)
						}
						if what != "whole" {
							return
						}
					}
				})
			}
			b.until(func(s *coppice.Stats) bool {
				return s.Scheduler.Running+s.Scheduler.Waiting > 8 && (!patient || s.Scheduler.Requests > 100)
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if !patient {
				cancel()
			}
			err := b.srv.Shutdown(ctx)
			clients.Wait()
			if patient != (err == nil) || !patient && !errors.Is(err, context.Canceled) {
				t.Errorf("Shutdown: %v", err)
			}
			b.quiet()
			t.Logf("%v", seen)
			if !patient && seen["ended"] == 0 {
				t.Error("no request was ended: nothing was tested")
			}
		})
	}
}

// drainedAnswer sends a request, streamed if stream is true, and classifies the result: "whole";
// "ended" if an error about the shutdown ended the answer; "refused" if such an error refused the
// request; or "closed" if there is no server. Any other result is an error.
func (b *bed) drainedAnswer(ctx context.Context, stream bool) (string, error) {
	a, err := b.try(ctx, "POST", "/v1/completions", fmt.Sprintf(`{"prompt":"What is light?","max_tokens":30,"ignore_eos":true,"stream":%v}`, stream))
	switch {
	case err != nil && a.Response == nil:
		return "closed", nil // no part of it was accepted
	case err != nil:
		return "broken", fmt.Errorf("broken off: %w after %q", err, a.body)
	case a.StatusCode == 503:
		if !strings.Contains(string(a.body), `"shutting_down"`) || a.Header.Get("Retry-After") == "" {
			return "wrong", fmt.Errorf("%s %s", a.Status, a.body)
		}
		if strings.Contains(string(a.body), "has stopped this request") {
			return "ended", nil
		}
		return "refused", nil
	case a.StatusCode != 200:
		return "wrong", fmt.Errorf("%s %s", a.Status, a.body)
	case !stream:
		if r := b.decode(a.body); r.Usage.Completion != 30 {
			return "wrong", fmt.Errorf("%s", a.body)
		}
		return "whole", nil
	}
	chunks, done, err := chunksOf(a.body)
	if err != nil {
		return "wrong", err
	}
	if done {
		return "whole", nil
	}
	if len(chunks) == 0 || chunks[len(chunks)-1].Error == nil || chunks[len(chunks)-1].Error.Code != "shutting_down" {
		return "wrong", fmt.Errorf("a stream ends with %q", a.body)
	}
	return "ended", nil
}

// TestDraining: which requests are refused while others still run.
func TestDraining(t *testing.T) {
	b := start(t, setup{Sim: slow(), Server: Config{Page: true}})
	release := b.hold(1)
	b.until(func(s *coppice.Stats) bool { return s.Scheduler.Running == 1 })
	down := make(chan error, 1)
	go func() { down <- b.srv.Shutdown(context.Background()) }()
	b.until(func(*coppice.Stats) bool { return b.srv.Draining() })
	for path, status := range map[string]int{"/ready": 503, "/health": 200, "/metrics": 200, "/v1/cache/stats": 200} {
		if a := b.do("GET", path, ""); a.StatusCode != status {
			t.Errorf("%s: %s %s, want %d", path, a.Status, a.body, status)
		} else if !a.Close {
			t.Errorf("%s: the connection is kept", path)
		}
	}
	b.refused("POST", "/v1/completions", `{"prompt":"x"}`, 503, "shutting_down")
	select {
	case err := <-down:
		t.Errorf("Shutdown did not wait: %v", err)
	default:
	}
	release()
	b.ok(<-down)
}

// TestNothingToDrain: without running requests, none is reported as ended, even with no time
// left.
func TestNothingToDrain(t *testing.T) {
	b := start(t, setup{Sim: slow()})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 40 {
		srv, err := New(Config{Node: b.node, Model: "nano"})
		b.ok(err)
		b.ok(srv.Shutdown(ctx))
	}
}

// TestClose ends everything at once, page watchers included.
func TestClose(t *testing.T) {
	t.Parallel()
	b := start(t, setup{Sim: slow(), Server: Config{Page: true}})
	release := b.hold(2)
	defer release()
	res, err := b.client.Get(b.url + "/v1/view/stream")
	b.ok(err)
	defer res.Body.Close()
	b.until(func(s *coppice.Stats) bool { return s.Scheduler.Running == 2 })
	b.ok(b.srv.Close())
	io.Copy(io.Discard, res.Body)
	b.quiet()
}

// TestDeviceFailure: current and later requests get an error, and health checks fail.
func TestDeviceFailure(t *testing.T) {
	t.Parallel()
	device := slow()
	device.Faults.Device = func(seq uint64) error {
		if seq < 3 {
			return nil
		}
		return errors.New("it burns")
	}
	b := start(t, setup{Sim: device, Fails: true})
	a := b.do("POST", "/v1/completions", `{"prompt":"x","max_tokens":20,"ignore_eos":true,"stream":true}`)
	chunks, done, err := chunksOf(a.body)
	if a.StatusCode == 503 { // the device failed before the first token was written
		if !strings.Contains(string(a.body), "device_failed") {
			t.Errorf("%s: %s", a.Status, a.body)
		}
	} else if err != nil || done || len(chunks) == 0 || chunks[len(chunks)-1].Error == nil || chunks[len(chunks)-1].Error.Code != "device_failed" {
		t.Errorf("%v: the stream ends with %s", err, a.body)
	}
	b.refused("POST", "/v1/completions", `{"prompt":"x"}`, 503, "device_failed")
	for _, path := range []string{"/health", "/ready"} {
		b.refused("GET", path, "", 503, "device_failed")
	}
	if a := b.do("GET", "/metrics", ""); !strings.Contains(string(a.body), `coppice_up{model_name="nano"} 0`) || strings.Contains(string(a.body), `"internal_error"`) {
		t.Errorf("metrics say %s", a.body)
	}
}
