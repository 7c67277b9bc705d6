package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/router"
)

// TestRetry: a request that no worker has begun to answer goes to the next one.
func TestRetry(t *testing.T) {
	cases := map[string]func(w *worker){
		"gone":       func(w *worker) { w.http.Listener.Close(); w.http.CloseClientConnections() },
		"breaks off": func(w *worker) { w.does(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }) },
		"header alone": func(w *worker) {
			w.does(func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Content-Type", "text/event-stream")
				rw.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			})
		},
		"draining": func(w *worker) { w.does(func(rw http.ResponseWriter, r *http.Request) { rw.WriteHeader(503) }) },
		"full":     func(w *worker) { w.does(func(rw http.ResponseWriter, r *http.Request) { rw.WriteHeader(429) }) },
	}
	for name, fails := range cases {
		t.Run(name, func(t *testing.T) {
			a, b := newWorker(t, "a", true, nil), newWorker(t, "b", true, nil)
			s := newStand(t, Config{ProbeEvery: time.Hour}, a, b) // only the request itself notices
			s.ready(2)
			a.holds(run(0, 4000))
			s.until("the events", func() bool { return s.worker("a").Ranks[0].HeldBlocks == 1000 })
			fails(a)
			r := s.ask(t.Context(), run(0, 4000), `,"max_tokens":2,"stream":true`)
			if r.StatusCode != 200 || r.worker() != "b" || r.Header.Get(headerAttempts) != "2" || !strings.HasSuffix(r.text, "[DONE]\n\n") {
				t.Errorf("%s from %q in %s attempts: %s", r.Status, r.worker(), r.Header.Get(headerAttempts), r.text)
			}
			s.idle()
		})
	}
}

// TestAllFail: workers are asked in turns until the retries are used up, and the client gets the reason.
func TestAllFail(t *testing.T) {
	a, b := newWorker(t, "a", false, nil), newWorker(t, "b", false, nil)
	s := newStand(t, Config{Retries: 5}, a, b)
	s.ready(2)
	for _, w := range []*worker{a, b} {
		w.does(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	}
	r := s.ask(t.Context(), run(0, 8), `,"max_tokens":2`)
	if r.StatusCode != 502 || !strings.Contains(r.text, "worker_failed") || a.requests() != 3 || b.requests() != 3 {
		t.Errorf("%s %s after %d and %d", r.Status, r.text, a.requests(), b.requests())
	}
	for _, w := range []*worker{a, b} {
		w.does(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(429) })
	}
	if r := s.ask(t.Context(), run(0, 8), `,"max_tokens":2`); r.StatusCode != 429 {
		t.Errorf("all are full: %s %s", r.Status, r.text)
	}
	s.idle()
}

// TestBrokenStream: an answer that has begun is not retried; the client gets an error event.
func TestBrokenStream(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	b := newWorker(t, "b", false, nil)
	breaks := func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(rw, "data: {\"token\":0}\n\n")
		rw.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	a.does(breaks)
	b.does(breaks)
	s := newStand(t, Config{}, a, b)
	s.ready(2)
	r := s.ask(t.Context(), run(0, 8), `,"max_tokens":9,"stream":true`)
	if r.err != nil || !strings.HasPrefix(r.text, "data: {\"token\":0}\n\ndata: {\"error\":{") || strings.Contains(r.text, "DONE") || a.requests()+b.requests() != 1 {
		t.Errorf("%v, %d requests: %s", r.err, a.requests()+b.requests(), r.text)
	}
	for _, w := range []*worker{a, b} {
		w.does(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Length", "100")
			io.WriteString(rw, "half")
			rw.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		})
	}
	if r := s.ask(t.Context(), run(0, 8), `,"max_tokens":9`); r.err == nil {
		t.Errorf("half of an answer was given for a whole one: %q", r.text)
	}
	s.idle()
}

// TestSeveralPrompts: a request of several prompts counts as the work of all.
func TestSeveralPrompts(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	s := newStand(t, Config{}, a)
	s.ready(1)
	for body, want := range map[string]int{
		`{"prompt":[1,2,3]}`:                                        3, // less than a block
		`{"prompt":[[1,2,3],[6,7,8],[2,3,4]]}`:                      9,
		`{"prompt":["01234567","01234567"]}`:                        4, // compared by bytes
		`{"prompt":[1,2,3],"n":3}`:                                  3,
		`{"prompt":[` + strings.Repeat("[1],", 999) + `[1]]}`:       1000,
		`{"prompt":[[1,2,3],[4]],"n":2147483647,"max_tokens":1000}`: 6,
	} {
		asked, goOn := make(chan struct{}), make(chan struct{})
		a.does(func(rw http.ResponseWriter, r *http.Request) {
			close(asked)
			<-goOn
			a.complete(rw, r)
		})
		done := make(chan reply, 1)
		go func() { done <- s.post(t.Context(), "/v1/completions", body) }()
		select {
		case <-asked:
		case r := <-done:
			t.Fatalf("%.60s: %s %s", body, r.Status, r.text)
		}
		if got := s.dispatch.Loads()[0].PrefillTokens; got != want {
			t.Errorf("%.60s: %d tokens are to be computed, want %d", body, got, want)
		}
		close(goOn)
		<-done
		s.idle()
	}
}

// TestErrorsPass: a worker's own errors are forwarded unchanged.
func TestErrorsPass(t *testing.T) {
	a, b := newWorker(t, "a", false, nil), newWorker(t, "b", false, nil)
	s := newStand(t, Config{}, a, b)
	s.ready(2)
	for _, status := range []int{400, 404, 422, 500} {
		for _, w := range []*worker{a, b} {
			w.does(func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("X-Its-Own", "yes")
				rw.WriteHeader(status)
				io.WriteString(rw, "its own words")
			})
		}
		r := s.ask(t.Context(), run(0, 8), ``)
		if r.StatusCode != status || r.text != "its own words" || r.Header.Get("X-Its-Own") != "yes" || r.Header.Get(headerAttempts) != "1" {
			t.Errorf("%d became %s: %s", status, r.Status, r.text)
		}
	}
}

// TestClientLeaves: the worker's request is cancelled, and no reservation remains.
func TestClientLeaves(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	left := make(chan struct{}, 1)
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		rw.Header().Set("Content-Type", "text/event-stream")
		for i := 0; r.Context().Err() == nil; i++ {
			fmt.Fprintf(rw, "data: {\"token\":%d}\n\n", i)
			rw.(http.Flusher).Flush()
			time.Sleep(time.Millisecond)
		}
		left <- struct{}{}
	})
	s := newStand(t, Config{}, a)
	s.ready(1)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/completions", strings.NewReader(`{"prompt":[1,2,3],"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	io.ReadFull(res.Body, make([]byte, 100))
	if l := s.dispatch.Loads(); l[0].Requests != 1 || l[0].PrefillTokens != 0 {
		t.Errorf("loads are %+v, want one request that decodes", l)
	}
	cancel()
	res.Body.Close()
	<-left
	s.idle()
}

// TestBlockSize: a worker with a block size that is no multiple of the gateway's gets no requests, and an error is logged.
func TestBlockSize(t *testing.T) {
	a := newWorker(t, "a", false, func(c *card.Card) { c.BlockTokens = 66 })
	s := newStand(t, Config{}, a)
	s.until("refusal", func() bool { return s.at(a).State == "refused" })
	if e := s.at(a).Error; !strings.Contains(e, "66") || !strings.Contains(e, "--block-tokens") {
		t.Errorf("the reason is %q", e)
	}
	if r := s.ask(t.Context(), run(0, 8), ``); r.StatusCode != 503 || !strings.Contains(r.text, "no_workers") || r.Header.Get("Retry-After") == "" {
		t.Errorf("%s %s", r.Status, r.text)
	}
	cards := func() int { a.mu.Lock(); defer a.mu.Unlock(); return a.cards }
	n := cards()
	s.until("it is asked again", func() bool { return cards() > n+2 })
	if s.logs.FilterMessage("worker refused").Len() != 1 {
		t.Errorf("the log has %v", s.logs.All())
	}
	// It restarts with the right block size.
	a.mu.Lock()
	a.card.BlockTokens, a.card.Epoch = blockTokens, 2
	a.mu.Unlock()
	s.ready(1)
	if r := s.ask(t.Context(), run(0, 8), ``); r.StatusCode != 200 {
		t.Errorf("%s %s", r.Status, r.text)
	}
}

// TestBlockSizeInEvents: the same if only the events show it. A multiple of the gateway's size is no other size.
func TestBlockSizeInEvents(t *testing.T) {
	a := newWorker(t, "a", true, nil)
	s := newStand(t, Config{}, a)
	s.ready(1)
	a.republish(2 * blockTokens)
	s.until("its blocks", func() bool { return s.worker("a").Ranks[0].HeldBlocks == 16 })
	a.republish(blockTokens + 2)
	s.until("refusal", func() bool { return s.worker("a").State == "refused" })
}

// TestHealth: a draining or failing worker gets no new requests until it recovers.
func TestHealth(t *testing.T) {
	a, b := newWorker(t, "a", false, nil), newWorker(t, "b", false, nil)
	s := newStand(t, Config{}, a, b)
	s.ready(2)
	for state, set := range map[string]func(bool){"draining": a.draining.Store, "lost": a.sick.Store} {
		set(true)
		s.until(state, func() bool { return s.worker("a").State == state })
		for range 5 {
			if r := s.ask(t.Context(), run(0, 8), ``); r.worker() != "b" {
				t.Errorf("a is %s and was asked", state)
			}
		}
		set(false)
		s.ready(2)
	}
}

// TestStatesAreTrue: a worker's reported state changes only after requests are routed
// accordingly.
func TestStatesAreTrue(t *testing.T) {
	a := newWorker(t, "a", true, nil)
	var s *stand
	said := make(chan string, 99)
	core, _ := observer.New(zapcore.InfoLevel)
	s = newStand(t, Config{Log: zap.New(core, zap.Hooks(func(e zapcore.Entry) error {
		if !strings.HasPrefix(e.Message, "worker ") {
			return nil
		}
		if f, l := s.Fleet(), s.dispatch.Loads(); len(f.Workers) == 1 && len(l) == 1 {
			said <- fmt.Sprint(f.Workers[0].State, " ", l[0].Health)
		}
		return nil
	}))})
	if err := s.SetWorkers([]members.WorkerConfig{{URL: a.http.URL}}); err != nil {
		t.Fatal(err)
	}
	next := func(want router.Health) {
		t.Helper()
		select {
		case got := <-said:
			if got != fmt.Sprint(want, " ", want) {
				t.Errorf("said to be, and is: %s, want %v", got, want)
			}
		case <-time.After(long):
			t.Fatalf("never %v", want)
		}
	}
	next(router.Healthy)
	a.draining.Store(true)
	next(router.Draining)
	a.draining.Store(false)
	next(router.Healthy)
	a.sick.Store(true)
	next(router.Lost)
	a.sick.Store(false)
	next(router.Healthy)
}

// TestModels: a request goes to a worker that serves its model.
func TestModels(t *testing.T) {
	a, b := newWorker(t, "a", false, nil), newWorker(t, "b", false, func(c *card.Card) { c.Models = []string{"other"} })
	s := newStand(t, Config{}, a, b)
	s.ready(2)
	for range 5 {
		if r := s.ask(t.Context(), run(0, 8), `,"model":"m"`); r.worker() != "a" {
			t.Errorf("m is answered by %s", r.worker())
		}
		if r := s.ask(t.Context(), run(0, 8), `,"model":"other"`); r.worker() != "b" {
			t.Errorf("other is answered by %s", r.worker())
		}
	}
	if r := s.ask(t.Context(), run(0, 8), `,"model":"none"`); r.StatusCode != 404 || !strings.Contains(r.text, "m, other") {
		t.Errorf("%s %s", r.Status, r.text)
	}
	res, err := http.Get(s.url + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if !strings.Contains(string(text), `"m"`) || !strings.Contains(string(text), `"other"`) {
		t.Errorf("%s", text)
	}
}

// TestBusy: while all workers are at their limit, requests wait for their turn.
func TestBusy(t *testing.T) {
	a := newWorker(t, "a", false, func(c *card.Card) { c.MaxRunning = 1 })
	gate := make(chan struct{})
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		<-gate
		a.complete(rw, r)
	})
	s := newStand(t, Config{}, a)
	s.ready(1)
	done := make(chan reply)
	for range 3 {
		go func() { done <- s.ask(t.Context(), run(0, 8), `,"max_tokens":1`) }()
	}
	s.until("one runs, two wait", func() bool {
		m, _ := s.dispatch.Metrics()
		return m.Active == 1 && m.Waiting == 2 && a.requests() == 1
	})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan reply)
	go func() { gone <- s.ask(ctx, run(0, 8), `,"max_tokens":1`) }()
	s.until("one more", func() bool { m, _ := s.dispatch.Metrics(); return m.Waiting == 3 })
	cancel()
	if r := <-gone; r.err == nil {
		t.Error("an answer to who has left")
	}
	s.until("it is out of the queue", func() bool { m, _ := s.dispatch.Metrics(); return m.Waiting == 2 })
	close(gate)
	for range 3 {
		if r := <-done; r.StatusCode != 200 {
			t.Errorf("%s %s", r.Status, r.text)
		}
	}
	s.idle()
}

// TestPatience: a request waits for a limited time, and not at all if no worker is left.
func TestPatience(t *testing.T) {
	a := newWorker(t, "a", false, func(c *card.Card) { c.MaxRunning = 1 })
	gate := make(chan struct{})
	a.does(func(rw http.ResponseWriter, r *http.Request) { <-gate; a.complete(rw, r) })
	s := newStand(t, Config{QueueTimeout: 20 * time.Millisecond}, a)
	s.ready(1)
	done := make(chan reply)
	go func() { done <- s.ask(t.Context(), run(0, 8), ``) }()
	s.until("it runs", func() bool { return a.requests() == 1 })
	if r := s.ask(t.Context(), run(0, 8), ``); r.StatusCode != 503 || !strings.Contains(r.text, "workers_busy") {
		t.Errorf("%s %s", r.Status, r.text)
	}
	s.cfg.QueueTimeout = time.Hour
	waits := make(chan reply)
	go func() { waits <- s.ask(t.Context(), run(0, 8), ``) }()
	s.until("it waits", func() bool { m, _ := s.dispatch.Metrics(); return m.Waiting == 1 })
	for _, m := range s.members.All() { // running requests are not cancelled for silence
		s.heard(m, time.Now().Add(time.Hour).UnixNano())
	}
	a.sick.Store(true)
	if r := <-waits; r.StatusCode != 503 || !strings.Contains(r.text, "no_workers") {
		t.Errorf("%s %s", r.Status, r.text)
	}
	close(gate)
	if r := <-done; r.StatusCode != 200 {
		t.Errorf("%s %s", r.Status, r.text)
	}
}

// TestDrain: Shutdown lets open requests finish, or ends them with an error.
func TestDrain(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	gate := make(chan struct{})
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(rw, "data: 1\n\n")
		rw.(http.Flusher).Flush()
		select {
		case <-gate:
		case <-r.Context().Done():
		}
		fmt.Fprint(rw, "data: [DONE]\n\n")
	})
	for _, patient := range []bool{true, false} {
		s := newStand(t, Config{}, a)
		s.ready(1)
		before := a.requests()
		done := make(chan reply)
		go func() { done <- s.ask(t.Context(), run(0, 8), `,"stream":true`) }()
		s.until("it runs", func() bool { return a.requests() == before+1 })
		ctx, cancel := context.WithCancel(t.Context())
		if !patient {
			cancel()
		}
		down := make(chan error)
		go func() { down <- s.Shutdown(ctx) }()
		s.until("draining", s.Draining)
		if patient {
			if r := s.ask(t.Context(), run(0, 8), ``); r.StatusCode != 503 || !strings.Contains(r.text, "shutting_down") {
				t.Errorf("%s %s", r.Status, r.text)
			}
			gate <- struct{}{}
		}
		r := <-done
		if patient != strings.HasSuffix(r.text, "[DONE]\n\n") || patient == strings.Contains(r.text, "shutting_down") {
			t.Errorf("patient %v: %v %s", patient, r.err, r.text)
		}
		if err := <-down; (err == nil) != patient {
			t.Errorf("patient %v: %v", patient, err)
		}
		cancel()
	}
}
