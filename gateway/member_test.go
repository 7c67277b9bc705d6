package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/events/bundle"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/tokenizer/tokenfile"
)

// TestWorkersComeAndGo covers SetWorkers and announcements.
func TestWorkersComeAndGo(t *testing.T) {
	a, b, c := newWorker(t, "a", true, nil), newWorker(t, "b", true, nil), newWorker(t, "c", true, nil)
	s := newStand(t, Config{}, a)
	s.ready(1)
	a.holds(run(0, 40))
	s.until("the events", func() bool { return s.worker("a").Ranks[0].HeldBlocks == 10 })
	if err := s.SetWorkers([]members.WorkerConfig{{URL: b.http.URL}}); err != nil {
		t.Fatal(err)
	}
	if s.worker("a").Name != "" || s.dispatch.Index().Held(kv.Rank{Worker: kv.WorkerID(card.IDOf("a"))}) != 0 && s.worker("b").Name == "" {
		t.Error("a has left and is there")
	}
	s.ready(1)
	c.card.URL = c.http.URL
	for range 3 {
		if err := s.members.Announce(&c.card); err != nil {
			t.Fatal(err)
		}
	}
	s.ready(2)
	seen := map[string]int{}
	for i := range 20 {
		seen[s.ask(t.Context(), run(i*100, 40), ``).worker()]++
	}
	if len(seen) != 2 || seen["b"] == 0 || seen["c"] == 0 {
		t.Errorf("answered by %v", seen)
	}
	if err := s.SetWorkers([]members.WorkerConfig{{URL: "127.0.0.1:80"}, {URL: b.http.URL}, {URL: b.http.URL}}); err == nil || !strings.Contains(err.Error(), "twice") || !strings.Contains(err.Error(), "http://host:port") {
		t.Error(err)
	}
	if len(s.Fleet().Workers) != 2 {
		t.Error("a bad list changed the fleet")
	}
	s.members.Gone("c", 0)
	if s.worker("c").Name != "" {
		t.Error("c said goodbye and is there")
	}
	if err := s.members.Announce(&card.Card{Name: "d"}); err == nil || !strings.Contains(err.Error(), "--advertise") {
		t.Error(err)
	}
}

// TestOneName: two workers with the same name would share one entry in the index.
func TestOneName(t *testing.T) {
	a, b := newWorker(t, "a", false, nil), newWorker(t, "a", false, nil)
	s := newStand(t, Config{}, a, b)
	s.until("one is refused", func() bool {
		states := map[string]int{}
		for _, w := range s.Fleet().Workers {
			states[w.State]++
		}
		return states["healthy"] == 1 && states["refused"] == 1
	})
}

// TestNothingStaysOfAWorkerThatLeft: a worker that left keeps neither its name nor its metrics,
// even if a request ends later.
func TestNothingStaysOfAWorkerThatLeft(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	many := newWorker(t, "many", false, func(c *card.Card) { c.Models = []string{"m", "one too many"} })
	s := newStand(t, Config{Router: router.Config{MaxModels: 1}}, a, many)
	s.ready(1)
	s.until("one can't join", func() bool { return s.at(many).State == "refused" })
	asked, goOn := make(chan struct{}), make(chan struct{})
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		close(asked)
		<-goOn
		a.complete(rw, r)
	})
	done := make(chan reply, 1)
	go func() { done <- s.ask(t.Context(), run(0, 8), `,"max_tokens":1`) }()
	<-asked
	if err := s.SetWorkers(nil); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	if r := <-done; r.StatusCode != 200 {
		t.Errorf("%s %s", r.Status, r.text)
	}
	s.until("the request is over", func() bool {
		return s.open.Count() == 0
	})
	if claims := len(s.members.Summary().ByID); claims != 0 {
		t.Errorf("%d names are taken", claims)
	}
	if _, sums, recent := s.metrics.recent.Read(time.Now()); len(sums) != 0 || len(recent) != 1 {
		t.Errorf("the page has %v, and %d requests", sums, len(recent))
	}
	families, err := s.cfg.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "worker" {
					t.Errorf("%s has %v", f.GetName(), m)
				}
			}
		}
	}
}

// TestRestart: blocks from before a worker's restart are not trusted.
func TestRestart(t *testing.T) {
	a, b := newWorker(t, "a", true, nil), newWorker(t, "b", true, nil)
	s := newStand(t, Config{NoPredict: true}, a, b)
	s.ready(2)
	a.holds(run(0, 400))
	s.until("the events", func() bool { return s.worker("a").Ranks[0].HeldBlocks == 100 })
	a.sick.Store(true)
	s.until("its entries are gone", func() bool {
		w := s.worker("a")
		return w.State == "lost" && w.Ranks[0].HeldBlocks == 0
	})
	a.sick.Store(false) // the same process: its state is recovered
	s.until("its entries are back", func() bool {
		w := s.worker("a")
		return w.State == "healthy" && w.Ranks[0].HeldBlocks == 100
	})
	pub, replay := a.card.ZMQ.Port, a.card.ZMQ.ReplayPort
	if err := a.pub.Close(); err != nil {
		t.Fatal(err)
	}
	a.publish(fmt.Sprintf("tcp://127.0.0.1:%d", pub), fmt.Sprintf("tcp://127.0.0.1:%d", replay), blockTokens)
	a.holds(run(7000, 40)) // another process with other blocks
	s.until("what the new one has", func() bool { return s.worker("a").Ranks[0].HeldBlocks == 10 })
	if r := s.ask(t.Context(), run(0, 400), ``); r.Header.Get(headerOverlap) != "0" {
		t.Errorf("%s is taken to have %s blocks of what is gone", r.worker(), r.Header.Get(headerOverlap))
	}
}

// TestForeign: a worker that is not Coppice has no card, and is described by its configuration
// and its list of models.
func TestForeign(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(rw http.ResponseWriter, r *http.Request) {
		io.WriteString(rw, `{"object":"list","data":[{"id":"base","max_model_len":4096,"parent":null},{"id":"adapter","parent":"base"}]}`)
	})
	ranks := make(chan string, 8)
	mux.HandleFunc("POST /v1/completions", func(rw http.ResponseWriter, r *http.Request) {
		ranks <- r.Header.Get(headerRank)
		io.WriteString(rw, "{}")
	})
	w := newWorker(t, "vllm", false, nil)
	w.http.Config.Handler = mux
	s := newStand(t, Config{Workers: []members.WorkerConfig{{URL: w.http.URL, Ranks: 2, PoolTokens: 1024}}})
	s.ready(1)
	if got := s.Fleet().Workers[0]; got.Mode != "approximate" || len(got.Ranks) != 2 || len(got.Models) != 2 {
		t.Errorf("%+v", got)
	}
	seen := map[string]bool{}
	for i := range 4 {
		if r := s.ask(t.Context(), run(i*1000, 400), `,"model":"adapter"`); r.StatusCode != 200 {
			t.Error(r.Status, r.text)
		}
		seen[<-ranks] = true
	}
	if !seen["0"] || !seen["1"] {
		t.Errorf("ranks asked: %v", seen)
	}
	// The same tokens under an adapter are a different prefix.
	s.ask(t.Context(), run(0, 400), `,"model":"base"`)
	<-ranks
	r := s.ask(t.Context(), run(50000, 400), `,"model":"base"`)
	<-ranks
	if again := s.ask(t.Context(), run(50000, 400), `,"model":"adapter"`); r.Header.Get(headerOverlap) != "0" || again.Header.Get(headerOverlap) != "0" {
		t.Errorf("overlaps are %s and %s", r.Header.Get(headerOverlap), again.Header.Get(headerOverlap))
	}
	<-ranks
}

// TestKeys: the gateway checks keys itself, also for its own endpoints.
func TestKeys(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	wrong := &conversation.Error{Status: 401, Code: "invalid_api_key", Message: "who are you?"}
	s := newStand(t, Config{Tenant: func(r *http.Request) (string, bool, error) {
		switch r.Header.Get("Authorization") {
		case "Bearer boss":
			return "boss", true, nil
		case "Bearer acme":
			return "acme", false, nil
		}
		return "", false, wrong
	}}, a)
	s.ready(1)
	get := func(method, path, key, body string) (int, string) {
		r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(text)
	}
	for _, tc := range []struct {
		method, path, key, body string
		want                    int
	}{
		{"POST", "/v1/completions", "", `{"prompt":[1]}`, 401}, {"POST", "/v1/completions", "acme", `{"prompt":[1]}`, 200},
		{"GET", "/v1/models", "", "", 401}, {"GET", "/v1/models", "acme", "", 200}, {"GET", "/v1/models/m", "acme", "", 200}, {"GET", "/v1/models/x/y", "acme", "", 404},
		{"GET", "/v1/fleet", "acme", "", 403}, {"GET", "/v1/fleet", "boss", "", 200},
		{"GET", "/health", "", "", 200}, {"GET", "/ready", "", "", 200}, {"GET", "/metrics", "", "", 200},
		{"PUT", "/v1/fleet/weights", "acme", `{"TTFT":2}`, 403}, {"PUT", "/v1/fleet/weights", "boss", `{"ttft":2}`, 200},
		{"PUT", "/v1/fleet/weights", "boss", `{"TTFT":-2}`, 400}, {"PUT", "/v1/fleet/weights", "boss", `{"weight":2}`, 400},
		{"POST", "/v1/fleet/explain", "boss", `{"prompt":[1,2,3,4,5]}`, 200}, {"GET", "/v1/cache/stats", "boss", "", 404}, {"DELETE", "/v1/models", "boss", "", 405},
	} {
		if got, text := get(tc.method, tc.path, tc.key, tc.body); got != tc.want {
			t.Errorf("%s %s as %q: %d %s, want %d", tc.method, tc.path, tc.key, got, text, tc.want)
		}
	}
	if w := s.dispatch.Weights(); w.TTFT != 2 || w.ITL != router.DefaultWeights().ITL {
		t.Errorf("weights are %+v", w)
	}
	if _, text := get("POST", "/v1/fleet/explain", "boss", `{"prompt":[1,2,3,4,5]}`); !strings.Contains(text, " is a at http") {
		t.Errorf("explained as %s", text)
	}
	text := ""
	for _, want := range []string{
		`coppice_router_workers{state="healthy"} 1`, `coppice_router_worker_mode{mode="approximate",worker="a"} 1`,
		`coppice_router_requests_total{status="200",worker="a"} 1`, `coppice_router_refused_total{code="invalid_api_key"} 2`,
		`coppice_router_overhead_seconds_count{stage="hash"} 1`, `coppice_router_events_total{what="gaps"} 0`,
	} {
		s.until("metrics have "+want, func() bool { // counted after the answer
			_, text = get("GET", "/metrics", "", "")
			return strings.Contains(text, want)
		})
	}
}

// TestSteer: an admin's request may choose its worker, or the weights.
func TestSteer(t *testing.T) {
	a, b := newWorker(t, "a", true, nil), newWorker(t, "b", true, nil)
	s := newStand(t, Config{NoPredict: true, Tenant: func(r *http.Request) (string, bool, error) {
		return "", r.Header.Get("Authorization") == "Bearer boss", nil
	}}, a, b)
	s.ready(2)
	a.holds(run(0, 400))
	s.until("the events", func() bool { return s.worker("a").Ranks[0].HeldBlocks == 100 })
	ask := func(key string, header, value string) (int, string, string) {
		t.Helper()
		tokens, _ := json.Marshal(run(0, 400))
		r, err := http.NewRequest("POST", s.url+"/v1/completions", strings.NewReader(fmt.Sprintf(`{"prompt":%s}`, tokens)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set(header, value)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return res.StatusCode, res.Header.Get(headerWorker), string(text)
	}
	for range 5 {
		if status, worker, text := ask("boss", headerPin, "b"); status != 200 || worker != "b" {
			t.Errorf("pinned to b: %d from %q, %s", status, worker, text)
		}
		if status, worker, text := ask("boss", headerWeights, "ttft=1, ITL=0"); status != 200 || worker != "a" {
			t.Errorf("%d from %q, %s", status, worker, text)
		}
	}
	for _, tc := range []struct {
		key, header, value string
		status             int
		want               string
	}{
		{"boss", headerPin, "c", 400, "no worker"}, {"boss", headerWeights, "speed=1", 400, "ttft"}, {"boss", headerWeights, "ttft=-1", 400, "TTFT"},
		{"boss", headerWeights, "ttft", 400, headerWeights}, {"other", headerPin, "b", 403, "admin"}, {"other", headerWeights, "ttft=1", 403, "admin"},
	} {
		if status, _, text := ask(tc.key, tc.header, tc.value); status != tc.status || !strings.Contains(text, tc.want) {
			t.Errorf("%s: %s as %s: %d %s", tc.header, tc.value, tc.key, status, text)
		}
	}
	s.idle()
}

// TestTakesTokenizer: without a configured model the gateway uses its workers' tokenizer, and
// refuses a worker with another one.
func TestTakesTokenizer(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join("..", "tokenizer", "testdata", "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte("{% for m in messages %}{{ m.content }}{% endfor %}"), 0o644); err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenfile.Open(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	says := func(c *card.Card) { c.Tokenizer = b.Digest }
	one, two := newWorker(t, "one", true, says), newWorker(t, "two", true, says)
	other := newWorker(t, "other", true, func(c *card.Card) { c.Tokenizer = "another" })
	for _, w := range []*worker{one, two} {
		w.does(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == card.TokenizerPath {
				rw.Write(b.Data)
				return
			}
			w.complete(rw, r)
		})
	}
	s := newStand(t, Config{NoPredict: true}, one, two)
	s.ready(2)
	if err := s.SetWorkers([]members.WorkerConfig{{URL: one.http.URL}, {URL: two.http.URL}, {URL: other.http.URL}}); err != nil {
		t.Fatal(err)
	}
	s.until("the other is refused", func() bool { return s.at(other).State == "refused" })
	if e := s.at(other).Error; !strings.Contains(e, "another tokenizer") {
		t.Error(e)
	}
	if s.Fleet().Prompts != "tokens" {
		t.Error("prompts are compared by ", s.Fleet().Prompts)
	}
	words := strings.Repeat("What is light, and what is it for? ", 40)
	tokens := tok.EncodePrompt(nil, words)
	two.holds(tokens)
	s.until("the events", func() bool { return s.worker("two").Ranks[0].HeldBlocks == len(tokens)/blockTokens })
	for path, body := range map[string]string{
		"/v1/completions":      fmt.Sprintf(`{"prompt":%q}`, words),
		"/v1/chat/completions": fmt.Sprintf(`{"messages":[{"role":"user","content":%q}]}`, words),
	} {
		r := s.post(t.Context(), path, body)
		if path == "/v1/chat/completions" && len(tok.Encode(nil, words)) != len(tokens) {
			continue // a beginning-of-text token makes all blocks differ
		}
		if r.StatusCode != 200 || r.worker() != "two" || r.Header.Get(headerOverlap) != r.Header.Get(headerBlocks) {
			t.Errorf("%s: %s from %s with %s of %s blocks: %s", path, r.Status, r.worker(), r.Header.Get(headerOverlap), r.Header.Get(headerBlocks), r.text)
		}
	}
}

// TestHostileClients: limits hold, and the errors explain them.
func TestHostileClients(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	s := newStand(t, Config{MaxBodyBytes: 10_000}, a)
	s.ready(1)
	for body, want := range map[string]int{
		`{"prompt":"` + strings.Repeat("x", 10_000) + `"}`: 413,
		`{"prompt":`:             400,
		``:                       400,
		`[]`:                     400,
		strings.Repeat("[", 500): 400,
	} {
		if r := s.post(t.Context(), "/v1/completions", body); r.StatusCode != want || !json.Valid([]byte(r.text)) {
			t.Errorf("%.30q: %s %s, want %d", body, r.Status, r.text, want)
		}
	}
	hurried := newStand(t, Config{ReadTimeout: 100 * time.Millisecond}, a)
	conn, err := net.Dial("tcp", strings.TrimPrefix(hurried.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"pro")
	text, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(text), "body_timeout") {
		t.Errorf("%v %s", err, text)
	}
	if a.requests() != 0 {
		t.Errorf("%d of them reached the worker", a.requests())
	}
	s.idle()
	hurried.idle()
}

// TestConfig: all faults are reported at once, by field.
func TestConfig(t *testing.T) {
	_, err := New(Config{
		Workers: []members.WorkerConfig{{URL: "x"}, {URL: "http://a", Name: "a b"}, {URL: "http://b", Ranks: -1}, {URL: "http://c", Replay: "tcp://c:1"}},
		Retries: 1, FailAfter: -1, MaxBodyBytes: -1, QueueTimeout: -1, Router: router.Config{MaxWorkers: -1},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`"x"`, `"a b"`, "Ranks is -1", "Replay is given", "FailAfter is -1", "MaxBodyBytes is -1", "QueueTimeout is -1ns", "MaxWorkers"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not mention %q", err, want)
		}
	}
	for _, n := range []int{1, 512, 1 << 16} { // whatever the router takes, the index's default size follows
		c := Config{Router: router.Config{MaxWorkers: n}}.WithDefaults()
		if err := c.Index.Validate(); err != nil {
			t.Errorf("%d workers: %v", n, err)
		}
	}
}
