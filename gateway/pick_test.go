package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// pickRequest is a request as a proxy passes it on.
func pickRequest(t *testing.T, method, path, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://models.example"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func completion(tokens []kv.Token, rest string) string {
	prompt, _ := json.Marshal(tokens)
	return fmt.Sprintf(`{"prompt":%s%s}`, prompt, rest)
}

// pick picks a worker for a completion.
func (s *stand) pick(body string, wants Wants) (*Pick, *Answer) {
	s.t.Helper()
	return s.Pick(pickRequest(s.t, "POST", "/v1/completions", body), wants)
}

// answers plays a whole answer of the worker.
func (k *Pick) answers(text string) http.Header {
	h := http.Header{"Content-Type": {"application/json"}}
	k.Begin(200, h, false, "")
	k.Pass([]byte(text), true)
	k.End()
	return h
}

// TestPick checks that a picked request holds its place until its answer has ended, and counts like one that the gateway sends.
func TestPick(t *testing.T) {
	a := newWorker(t, "a", true, nil)
	s := newStand(t, Config{}, a)
	s.ready(1)
	a.holds(run(0, 16))
	s.until("the events", func() bool { return s.worker("a").Ranks[0].HeldBlocks == 4 })
	k, refused := s.pick(completion(run(0, 40), `,"max_tokens":3,"stream":true`), Wants{})
	if refused != nil {
		t.Fatalf("%d %s", refused.Status, refused.Body)
	}
	if k.Worker().Host != strings.TrimPrefix(a.http.URL, "http://") || !strings.HasPrefix(string(k.Body()), `{"prompt":[0,1,`) || len(k.Fallbacks()) != 0 {
		t.Errorf("%v, fallbacks %v, body %s", k.Worker(), k.Fallbacks(), k.Body())
	}
	if l := s.dispatch.Loads()[0]; l.Requests != 1 || l.PrefillTokens != 24 {
		t.Errorf("the load is %+v", l)
	}
	h := http.Header{"Content-Type": {"text/event-stream"}}
	k.Begin(200, h, false, "")
	if h.Get(headerWorker) != "a" || h.Get(headerOverlap) != "4" || h.Get(headerBlocks) != "10" || h.Get(headerAttempts) != "1" {
		t.Errorf("header %v", h)
	}
	if got := string(k.Pass([]byte("data: 1\n\nda"), false)); got != "data: 1\n\n" {
		t.Errorf("forwards %q", got)
	}
	if l := s.dispatch.Loads()[0]; l.Requests != 1 || l.PrefillTokens != 0 {
		t.Errorf("after the first token: %+v", l)
	}
	if got := string(k.Pass([]byte("ta: {\"cached_tokens\":16}\n\ndata: [DONE]\n\n"), true)); got != "data: {\"cached_tokens\":16}\n\ndata: [DONE]\n\n" {
		t.Errorf("forwards %q", got)
	}
	s.idle()
	k.End()
	k.End()
	s.idle()
	if _, _, recent := s.metrics.recent.Read(time.Now()); len(recent) != 1 || recent[0].Status != 200 || recent[0].Worker != "a" || recent[0].CachedTokens == nil || *recent[0].CachedTokens != 16 {
		t.Errorf("recent %+v", recent)
	}
	if n := s.open.Count(); n != 0 {
		t.Errorf("%d requests are open", n)
	}
}

// TestPickRepeatable checks that a pick may be repeated if the gateway itself would repeat it.
func TestPickRepeatable(t *testing.T) {
	s := newStand(t, Config{}, newWorker(t, "a", false, nil))
	s.ready(1)
	never := newStand(t, Config{Repeats: -1}, newWorker(t, "a", false, nil))
	never.ready(1)
	for _, tc := range repeated {
		for _, at := range []*stand{s, never} {
			k, refused := at.Pick(pickRequest(t, "POST", tc.path, tc.body), Wants{})
			if refused != nil {
				t.Errorf("%s %s: %d %s", tc.path, tc.body, refused.Status, refused.Body)
				continue
			}
			if want := tc.repeated && at == s; k.Repeatable() != want {
				t.Errorf("%s %s: may be repeated %v, want %v", tc.path, tc.body, !want, want)
			}
			k.End()
		}
	}
}

// TestPickGivesBack checks each way in which a picked request can end early.
func TestPickGivesBack(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	s := newStand(t, Config{}, a)
	s.ready(1)
	for name, plays := range map[string]func(k *Pick){
		"nothing":       func(*Pick) {},
		"header":        func(k *Pick) { k.Begin(200, http.Header{}, false, "") },
		"half":          func(k *Pick) { k.Begin(200, http.Header{}, false, ""); k.Pass([]byte("{"), false) },
		"no body":       func(k *Pick) { k.Begin(204, http.Header{}, true, "") },
		"unknown proxy": func(k *Pick) { k.Begin(200, http.Header{}, false, "192.0.2.1:80"); k.Pass(nil, true) },
		"after its end": func(k *Pick) { k.Begin(200, http.Header{}, true, ""); k.Pass([]byte("x"), true) },
		"twice":         func(k *Pick) { k.Begin(200, http.Header{}, true, ""); k.Begin(200, http.Header{}, true, "") },
	} {
		k, refused := s.pick(completion(run(0, 40), ""), Wants{})
		if refused != nil {
			t.Fatalf("%s: %d %s", name, refused.Status, refused.Body)
		}
		plays(k)
		k.End()
		s.idle()
		if n := s.open.Count(); n != 0 {
			t.Errorf("%s: %d requests are open", name, n)
		}
		s.attempts.mu.Lock()
		if n := len(s.attempts.at); n != 0 {
			t.Errorf("%s: %d workers have attempts", name, n)
		}
		s.attempts.mu.Unlock()
	}
}

// TestPickAnswers checks what the gateway answers itself.
func TestPickAnswers(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	s := newStand(t, Config{MaxBodyBytes: 1000, QueueTimeout: time.Millisecond, Tenant: func(r *http.Request) (string, bool, error) {
		if r.Header.Get("Authorization") == "Bearer wrong" {
			return "", false, errors.New("who")
		}
		return "", true, nil
	}}, a)
	s.ready(1)
	for _, tc := range []struct {
		method, path, body string
		wants              Wants
		status             int
		text               string
	}{
		{"GET", "/v1/models", "", Wants{}, 200, `"id":"m"`},
		{"GET", "/v1/models/none", "", Wants{}, 404, "none"},
		{"GET", "/health", "", Wants{}, 200, "ok"},
		{"GET", "/v1/completions", "", Wants{}, 405, "method_not_allowed"},
		{"POST", "/v1/none", "{}", Wants{}, 404, "unknown_url"},
		{"GET", "/metrics", "", Wants{}, 404, "unknown_url"},
		{"GET", "/v1/fleet", "", Wants{}, 404, "unknown_url"},
		{"PUT", "/v1/fleet/weights", "{}", Wants{}, 404, "unknown_url"},
		{"GET", "/", "", Wants{}, 404, "unknown_url"},
		{"GET", "/page/page.js", "", Wants{}, 404, "unknown_url"},
		{"POST", "/v1/completions", `{"prompt":[1],"model":"x"}`, Wants{}, 404, "model_not_found"},
		{"POST", "/v1/completions", `{"prompt":`, Wants{}, 400, "invalid_json"},
		{"POST", "/v1/completions", strings.Repeat(" ", 1001), Wants{}, 413, "1000"},
		{"POST", "/v1/completions", `{"prompt":[1]}`, Wants{Among: []string{}}, 503, "none of the endpoints"},
		{"POST", "/v1/completions", `{"prompt":[1]}`, Wants{Among: []string{"192.0.2.1:80"}}, 503, "none of the endpoints"},
		{"POST", "/v1/completions", `{"prompt":[1]}`, Wants{Edit: func([]byte) ([]byte, error) { return nil, badBody(errors.New("edited")) }}, 400, "edited"},
		{"POST", "/v1/completions", `{"prompt":[1],"model":"x"}`, Wants{Edit: func(b []byte) ([]byte, error) { return []byte(`{"prompt":[1],"model":"y"}`), nil }}, 404, `\"y\"`},
	} {
		k, answer := s.Pick(pickRequest(t, tc.method, tc.path, tc.body), tc.wants)
		if k != nil || answer.Status != tc.status || !strings.Contains(string(answer.Body), tc.text) {
			t.Errorf("%s %s %.30s: %+v, %+v", tc.method, tc.path, tc.body, k, answer)
		}
		s.idle()
	}
	r := pickRequest(t, "POST", "/v1/completions", `{"prompt":[1]}`)
	r.Header.Set("Authorization", "Bearer wrong")
	if k, answer := s.Pick(r, Wants{}); k != nil || answer.Status != 500 {
		t.Errorf("a wrong key: %+v", answer)
	}
}

// TestPickWaits checks that a request for which all workers are busy waits, ends with its context, and is refused when the queue is full.
func TestPickWaits(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	a.card.MaxRunning = 1
	s := newStand(t, Config{Router: router.Config{MaxQueued: 1}}, a)
	s.ready(1)
	first, _ := s.pick(completion(run(0, 4), ""), Wants{})
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan bool)
	go func() {
		k, _ := s.Pick(pickRequest(t, "POST", "/v1/completions", completion(run(0, 4), "")).WithContext(ctx), Wants{})
		ended <- k == nil
	}()
	waits := func(n int) func() bool {
		return func() bool { m, _ := s.dispatch.Metrics(); return m.Waiting == n }
	}
	s.until("one waits", waits(1))
	if k, answer := s.pick(completion(run(0, 4), ""), Wants{}); k != nil || answer.Status != 429 || answer.Header.Get("Retry-After") != "1" {
		t.Errorf("a full queue: %+v", answer)
	}
	leave()
	if !<-ended {
		t.Error("a request that has left was given a worker")
	}
	s.until("none waits", waits(0))
	go func() {
		k, _ := s.pick(completion(run(0, 4), ""), Wants{})
		k.End()
		ended <- true
	}()
	s.until("one waits", waits(1))
	first.answers("{}")
	<-ended
	s.idle()
}

// TestPickAmong checks the restriction to some workers, and that fallbacks are the others, the best first.
func TestPickAmong(t *testing.T) {
	workers := make([]*worker, 4)
	host := func(i int) string { return strings.TrimPrefix(workers[i].http.URL, "http://") }
	for i := range workers {
		workers[i] = newWorker(t, string(rune('a'+i)), true, nil)
	}
	s := newStand(t, Config{}, workers...)
	s.ready(4)
	for i, w := range workers {
		w.holds(run(0, 40*i))
		s.until("the events", func() bool { return s.worker(w.name).Ranks[0].HeldBlocks == 10*i })
	}
	for _, tc := range []struct {
		wants Wants
		want  []int
	}{
		{Wants{}, []int{3}},
		{Wants{Fallbacks: 2}, []int{3, 2, 1}},
		{Wants{Fallbacks: 9}, []int{3, 2, 1, 0}},
		{Wants{Among: []string{host(1), host(2), "192.0.2.1:80"}, Fallbacks: 9}, []int{2, 1}},
		{Wants{Among: []string{host(0)}, Fallbacks: 1}, []int{0}},
	} {
		k, refused := s.pick(completion(run(0, 160), ""), tc.wants)
		if refused != nil {
			t.Fatalf("%+v: %s", tc.wants, refused.Body)
		}
		got := append([]string{k.Worker().Host}, k.Fallbacks()...)
		want := []string{}
		for _, i := range tc.want {
			want = append(want, host(i))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v: %v, want %v", tc.wants, got, want)
		}
		k.End()
		s.idle()
	}

	// A proxy that falls back to another worker moves the reservation.
	k, _ := s.pick(completion(run(0, 160), ""), Wants{Fallbacks: 2})
	h := http.Header{}
	k.Begin(200, h, false, k.Fallbacks()[1])
	if h.Get(headerWorker) != "b" || h.Get(headerAttempts) != "2" || h.Get(headerOverlap) != "10" {
		t.Errorf("header %v", h)
	}
	for _, l := range s.dispatch.Loads() {
		if busy := s.members.Summary().ByID[l.Worker.Worker].Name() == "b"; (l.Requests == 1) != busy {
			t.Errorf("load %+v", l)
		}
	}
	k.Pass([]byte("{}"), true)
	k.End()
	s.idle()
}

// TestPicksAreTheGateways checks that Pick chooses as the gateway does for the requests that it sends itself: the same load, with up to
// three requests open, gives the same workers.
func TestPicksAreTheGateways(t *testing.T) {
	for _, policy := range router.Policies() {
		t.Run(policy.String(), func(t *testing.T) {
			open := 3
			if policy == router.CostLatency {
				open = 1 // its costs fall with time while requests are open
			}
			sent := playLoad(t, policy, open, func(s *stand, workers []*worker) func(body string) (worker string, end func()) {
				type call struct {
					worker string
					goOn   chan struct{}
				}
				asked := make(chan call)
				for _, w := range workers {
					w.does(func(rw http.ResponseWriter, r *http.Request) {
						c := call{w.name, make(chan struct{})}
						asked <- c
						<-c.goOn
						io.WriteString(rw, "{}")
					})
				}
				return func(body string) (string, func()) {
					done := make(chan reply, 1)
					go func() { done <- s.post(t.Context(), "/v1/completions", body) }()
					c := <-asked
					return c.worker, func() { close(c.goOn); <-done }
				}
			})
			picked := playLoad(t, policy, open, func(s *stand, _ []*worker) func(body string) (worker string, end func()) {
				return func(body string) (string, func()) {
					k, refused := s.pick(body, Wants{})
					if refused != nil {
						t.Fatalf("%d %s", refused.Status, refused.Body)
					}
					name := k.p.member.Name()
					return name, func() { k.answers("{}") }
				}
			})
			if !slices.Equal(sent, picked) {
				t.Errorf("the gateway chooses\n%v, and picks\n%v", sent, picked)
			}
			if slices.Equal(sent[:40], slices.Repeat(sent[:1], 40)) {
				t.Error("one worker got all: the test shows nothing")
			}
		})
	}
}

// playLoad sends 60 prompts of five families to four workers, of which open are under way at a time, and returns the chosen workers.
func playLoad(t *testing.T, policy router.Policy, open int, with func(*stand, []*worker) func(body string) (string, func())) (names []string) {
	workers := make([]*worker, 4)
	for i := range workers {
		workers[i] = newWorker(t, string(rune('a'+i)), false, nil)
	}
	s := newStand(t, Config{Router: router.Config{Policy: policy, Seed: 7}}, workers...)
	s.ready(4)
	send := with(s, workers)
	var ends []func()
	for i := range 60 {
		family, length := i*i%5, 20+i*37%50
		name, end := send(completion(append(run(1000*family, 20+4*(i%3)), run(100*i, length)...), `,"max_tokens":5`))
		names = append(names, name)
		if ends = append(ends, end); len(ends) == open {
			for _, end := range ends {
				end()
			}
			ends = nil
			s.idle()
		}
	}
	for _, end := range ends {
		end()
	}
	s.idle()
	return names
}
