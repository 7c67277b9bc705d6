package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coppice-llm/coppice/router"
)

// begins reports that the request has entered a plan.
func begins(rw http.ResponseWriter) {
	rw.Header().Set(headerPhase, phaseRunning)
	rw.WriteHeader(http.StatusEarlyHints)
	rw.Header().Del(headerPhase)
}

// newForeign starts a worker without a card.
func newForeign(t *testing.T, name string) *worker {
	w := newWorker(t, name, false, nil)
	w.mu.Lock()
	w.foreign = true
	w.mu.Unlock()
	return w
}

// TestProgressMoves: a request moves to another worker only while its worker has not begun. TestRepeats has the rest.
func TestProgressMoves(t *testing.T) {
	breaks := func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}
	says := func(status int, code string) http.HandlerFunc {
		return func(rw http.ResponseWriter, r *http.Request) {
			rw.WriteHeader(status)
			fmt.Fprintf(rw, `{"error":{"message":"no","code":%q}}`, code)
		}
	}
	after := func(f http.HandlerFunc) http.HandlerFunc {
		return func(rw http.ResponseWriter, r *http.Request) {
			begins(rw)
			f(rw, r)
		}
	}
	const ok = 200
	for _, c := range []struct {
		name        string
		fails       http.HandlerFunc
		own, others int // status for the client, with Coppice workers and with others
		says        string
	}{
		{"breaks before", breaks, ok, 502, "may have begun"},
		{"breaks after", after(breaks), 502, 502, "began"},
		{"429", says(429, "full"), ok, ok, ""},
		{"503", says(503, "server_busy"), ok, ok, ""},
		{"503 after", after(says(503, "shutting_down")), 503, 503, "shutting_down"},
		{"503 device_failed", says(503, "device_failed"), 503, 503, "device_failed"},
		{"502", says(502, "x"), ok, 502, ""},
		{"500", says(500, "x"), 500, 500, ""},
	} {
		for _, own := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/own=%v", c.name, own), func(t *testing.T) {
				var a, b *worker
				want := c.own
				if own {
					a, b = newWorker(t, "a", false, nil), newWorker(t, "b", false, nil)
				} else {
					a, b, want = newForeign(t, "a"), newForeign(t, "b"), c.others
				}
				s := newStand(t, Config{ProbeEvery: time.Hour, Repeats: -1}, a, b)
				s.ready(2)
				var asked atomic.Int32
				for _, w := range []*worker{a, b} {
					w.does(func(rw http.ResponseWriter, r *http.Request) {
						if got := r.Header.Get(headerProgress) == progressInterim; got != own {
							t.Errorf("asked for progress: %v", got)
						}
						if asked.Add(1) == 1 {
							c.fails(rw, r)
						} else {
							w.complete(rw, r)
						}
					})
				}
				r := s.ask(t.Context(), run(0, 40), `,"max_tokens":2`)
				attempts := int32(1)
				if want == ok {
					attempts = 2
				}
				if r.StatusCode != want || asked.Load() != attempts || !strings.Contains(r.text, c.says) && want != ok {
					t.Errorf("%s after %d attempts, want %d after %d: %s", r.Status, asked.Load(), want, attempts, r.text)
				}
				s.idle()
			})
		}
	}
}

// TestPoison: a request that crashes the worker that computes it crashes only 1 + Repeats of three, even
// if the client's header lets a transport retry by itself.
func TestPoison(t *testing.T) {
	for _, tc := range []struct {
		header  string
		repeats int
	}{{"", -1}, {"Idempotency-Key", -1}, {"", 0}, {"Idempotency-Key", 0}} {
		header, crashes := tc.header, 1
		if tc.repeats == 0 { // the default
			crashes = 2
		}
		var workers []*worker
		var dead atomic.Int32
		for i := range 3 {
			w := newWorker(t, fmt.Sprint("w", i), false, nil)
			w.does(func(rw http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if !strings.Contains(string(body), "666") {
					io.WriteString(rw, "{}")
					return
				}
				begins(rw)
				dead.Add(1)
				w.http.Listener.Close() // as if the process had died, also for open connections
				w.sick.Store(true)
				panic(http.ErrAbortHandler)
			})
			workers = append(workers, w)
		}
		s := newStand(t, Config{ProbeEvery: 10 * time.Millisecond, Retries: 5, Repeats: tc.repeats}, workers...)
		s.ready(3)
		for i := range 9 { // to have idle connections
			s.ask(t.Context(), run(1000*i, 8), ``)
		}
		r, err := http.NewRequest("POST", s.url+"/v1/completions", strings.NewReader(`{"prompt":[666,666,666,666]}`))
		if err != nil {
			t.Fatal(err)
		}
		if header != "" {
			r.Header.Set(header, "once")
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if int(dead.Load()) != crashes || res.StatusCode != 502 || !strings.Contains(string(text), "so no other worker was tried") {
			t.Errorf("%q: %d of 3 workers are dead, want %d: %s %s", header, dead.Load(), crashes, res.Status, text)
		}
		s.until("they are lost", func() bool { return s.members.Summary().Ready == 3-crashes })
		if r := s.ask(t.Context(), run(0, 8), ``); r.StatusCode != 200 {
			t.Errorf("a bystander after it: %s %s", r.Status, r.text)
		}
		s.idle()
	}
}

// TestAskedAgain: once each worker has failed a request, and none has begun it, the ones that failed first are asked
// again, because they may have recovered, until the retries are used up.
func TestAskedAgain(t *testing.T) {
	const failures = 4
	for _, retries := range []int{failures, failures - 1} {
		var workers []*worker
		var asked, last atomic.Int32
		for i := range 3 {
			w := newWorker(t, fmt.Sprint("w", i), false, nil)
			w.does(func(rw http.ResponseWriter, r *http.Request) {
				if last.Swap(int32(i+1)) == int32(i+1) {
					t.Errorf("w%d is asked twice in a row", i)
				}
				if asked.Add(1) <= failures {
					io.Copy(io.Discard, r.Body)
					panic(http.ErrAbortHandler)
				}
				w.complete(rw, r)
			})
			workers = append(workers, w)
		}
		s := newStand(t, Config{ProbeEvery: time.Hour, Retries: retries}, workers...)
		s.ready(3)
		want := map[bool]int{true: 200, false: 502}[retries == failures]
		if r := s.ask(t.Context(), run(0, 40), `,"max_tokens":2`); r.StatusCode != want || int(asked.Load()) != retries+1 {
			t.Errorf("%s after %d attempts, want %d after %d: %s", r.Status, asked.Load(), want, retries+1, r.text)
		}
		s.idle()
	}
}

// TestLateAskedAgain: a request that two late workers have not begun goes back to the first once that one has recovered, while
// the second, asked last, is lost.
func TestLateAskedAgain(t *testing.T) {
	a, b := newWorker(t, "a", true, nil), newWorker(t, "b", true, nil)
	s := newStand(t, Config{StallAfter: time.Millisecond, Retries: 5, ProbeEvery: time.Hour}, a, b)
	s.ready(2)
	a.holds(run(0, 4000)) // a is asked first
	s.until("the events", func() bool { return s.worker("a").Ranks[0].HeldBlocks == 1000 })
	for _, w := range []*worker{a, b} {
		var asked atomic.Int32
		w.does(func(rw http.ResponseWriter, r *http.Request) {
			if asked.Add(1) == 1 {
				io.Copy(io.Discard, r.Body)
				<-r.Context().Done() // taken back
				return
			}
			if w == b {
				t.Error("b is asked again, although it is lost")
			}
			w.complete(rw, r)
		})
	}
	done := make(chan reply, 1)
	go func() { done <- s.ask(t.Context(), run(0, 4000), `,"max_tokens":2`) }()
	for {
		select {
		case r := <-done:
			if r.StatusCode != 200 || r.worker() != "a" {
				t.Errorf("%s by %q: %s", r.Status, r.worker(), r.text)
			}
			return
		default:
			s.dispatch.Tick()
			for _, l := range s.dispatch.Loads() {
				switch m := s.members.Summary().ByID[l.Worker.Worker]; {
				case m == nil || b.requests() == 0:
				case m.Name() == "a":
					s.dispatch.SetHealth(l.Worker, router.Healthy) // as an answered probe does
				default:
					s.dispatch.SetHealth(l.Worker, router.Lost)
				}
			}
			s.cancelUnbegun(s.dispatch.Loads())
		}
	}
}

// TestInterimResponses: a client gets interim responses only if it asks for them.
func TestInterimResponses(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	s := newStand(t, Config{}, a)
	s.ready(1)
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		begins(rw)
		a.complete(rw, r)
	})
	for _, wants := range []bool{false, true} {
		var phases []string
		ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				phases = append(phases, fmt.Sprint(code, h.Get(headerPhase)))
				return nil
			},
		})
		r, err := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/completions", strings.NewReader(`{"prompt":[1,2,3],"max_tokens":3}`))
		if err != nil {
			t.Fatal(err)
		}
		if wants {
			r.Header.Set(headerProgress, progressInterim)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if want := map[bool]string{false: "[]", true: "[103running]"}[wants]; res.StatusCode != 200 || fmt.Sprint(phases) != want {
			t.Errorf("asked for: %v; %s after %v", wants, res.Status, phases)
		}
	}
}

// TestLateWorker: a request at a worker that makes no progress moves to another one while its
// worker has not begun it.
func TestLateWorker(t *testing.T) {
	if from := lateWorker(t, false, time.Millisecond); from != "b" {
		t.Errorf("a request that a late worker has not begun is answered by %q", from)
	}
	from := ""
	for stall := time.Second; from != "a" && stall < long; stall *= 5 { // the worker has to report the beginning before it is late
		from = lateWorker(t, true, stall)
	}
	if from != "a" {
		t.Errorf("a request that a late worker has begun is answered by %q", from)
	}
}

// lateWorker makes worker a late with a request, which a has begun or not, and returns the name of the
// worker that answers.
func lateWorker(t *testing.T, began bool, stall time.Duration) string {
	t.Helper()
	a, b := newWorker(t, "a", true, nil), newWorker(t, "b", true, nil)
	s := newStand(t, Config{StallAfter: stall, Retries: 1}, a, b) // b, which may be late too, keeps it
	s.ready(2)
	a.holds(run(0, 4000))
	s.until("the events", func() bool { return s.worker("a").Ranks[0].HeldBlocks == 1000 })
	goOn := make(chan struct{})
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if began {
			begins(rw)
		}
		select {
		case <-r.Context().Done():
		case <-goOn:
			io.WriteString(rw, "{}")
		}
	})
	done, over := make(chan reply, 1), make(chan struct{})
	go func() {
		done <- s.ask(t.Context(), run(0, 4000), `,"max_tokens":2,"stream":true`)
		close(over)
	}()
	go func() { // an answered probe ends a's lateness once a has lost its only request
		for !began {
			select {
			case <-over:
				return
			default:
				for _, l := range s.dispatch.Loads() {
					s.dispatch.SetHealth(l.Worker, router.Healthy)
				}
			}
		}
	}()
	s.until("a is late", func() bool {
		for _, l := range s.dispatch.Loads() {
			if l.Stalled {
				return true
			}
		}
		s.dispatch.Tick() // as time goes by
		return false
	})
	if began {
		s.cancelUnbegun(s.dispatch.Loads())
		close(goOn)
	}
	r := <-done
	if r.StatusCode != 200 {
		t.Errorf("begun %v: %s from %q: %s", began, r.Status, r.worker(), r.text)
	}
	s.idle()
	return r.worker()
}

// TestBrokenAfterDone: a stream that has sent [DONE] is complete, even if the connection breaks
// before it is closed.
func TestBrokenAfterDone(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	s := newStand(t, Config{Registry: prometheus.NewRegistry()}, a)
	s.ready(1)
	for _, end := range []string{"\n\n", "\r\n\r\n"} {
		a.does(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "text/event-stream")
			for _, part := range []string{"data: {}\n\nda", "ta: [DO", "NE]" + end} {
				io.WriteString(rw, part)
				rw.(http.Flusher).Flush()
			}
			panic(http.ErrAbortHandler)
		})
		if r := s.ask(t.Context(), run(0, 8), `,"max_tokens":9,"stream":true`); r.err != nil || r.text != "data: {}\n\ndata: [DONE]"+end {
			t.Errorf("%v: %q", r.err, r.text)
		}
	}
	s.idle()
	if n := s.value("broken_answers_total"); n != 0 {
		t.Errorf("%v answers count as broken", n)
	}
}
