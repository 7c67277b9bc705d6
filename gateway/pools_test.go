package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway/internal/global"
	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/router"
)

// grid returns the pools slow, fast and long. Prompts of at least 500 tokens go to long; others
// with a TTFT target below 100 ms, or a priority of at least 10, to fast. fast is faster than
// long, long faster than slow.
func grid(t *testing.T, retry bool) *global.Config {
	t.Helper()
	c, _, err := global.Parse([]byte(fmt.Sprintf(`{"mode": "agg", "num_agg_pools": 3, "agg_pool_dynamo_namespaces": ["slow", "fast", "long"],
		"agg_pool_priorities": [3, 1, 2], "enable_priority_retry": %v,
		"agg_pool_selection_strategy": {"ttft_min_ms": 0, "ttft_max_ms": 200, "ttft_resolution": 2, "itl_min_ms": 0, "itl_max_ms": 100, "itl_resolution": 2,
			"isl_min": 0, "isl_max": 1000, "isl_resolution": 2, "agg_pool_mapping": [[[1, 1], [1, 0]], [[2, 2], [2, 2]]],
			"priority_overrides": [{"min": 10, "max": 99, "target": 1}]}}`, retry)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pooledWorker starts a worker whose card names a pool.
func pooledWorker(t *testing.T, name, pool string) *worker {
	return newWorker(t, name, false, func(c *card.Card) { c.Pool = pool })
}

// chosen waits until n workers may be chosen, each in its pool.
func (s *stand) chosen(n int) {
	s.t.Helper()
	s.until("workers in the router", func() bool {
		healthy := 0
		for _, l := range s.dispatch.Loads() {
			if l.Health == router.Healthy {
				healthy++
			}
		}
		return healthy == n && s.members.Summary().Ready == n
	})
}

// poolsOf returns the pools in /v1/fleet, by worker.
func (s *stand) poolsOf() map[string]string {
	all := map[string]string{}
	for _, w := range s.Fleet().Workers {
		all[w.Name] = w.Pool
	}
	return all
}

// wish sends a request with headers, each "name: value".
func (s *stand) wish(path, body string, headers ...string) reply {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), "POST", s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return reply{res, string(text), err}
}

func (r reply) pool() string { return r.Header.Get(headerPool) }

// series returns one of the gateway's metrics, 0 if it does not exist.
func (s *stand) series(name, pool string) float64 {
	s.t.Helper()
	families, err := s.cfg.Registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "coppice_router_"+name && len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == pool {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

func body(tokens int, rest string) string {
	prompt, _ := json.Marshal(run(0, tokens))
	return fmt.Sprintf(`{"prompt":%s,"max_tokens":2,"model":"m"%s}`, prompt, rest)
}

func nvext(router, hints string) string {
	return fmt.Sprintf(`,"nvext":{"router":{%s},"agent_hints":{%s}}`, router, hints)
}

// targets are requests and their expected pools.
var targets = []struct {
	tokens  int
	rest    string
	headers []string
	want    string // a pool, or a part of the error message
}{
	{8, ``, nil, "slow"}, // the middle of both axes
	{8, ``, []string{"x-coppice-ttft-ms: 99.5"}, "fast"},
	{8, ``, []string{"X-Coppice-TTFT-Ms: 0"}, "fast"},
	{8, ``, []string{"X-Coppice-TTFT-Ms: 1e300"}, "slow"},
	{8, ``, []string{"X-Coppice-ITL-Ms: 10"}, "fast"},
	{8, ``, []string{"X-Coppice-ITL-Ms:  60 "}, "slow"},
	{499, ``, nil, "slow"},
	{500, ``, nil, "long"},
	{8, nvext(`"ttft_target":20`, ``), nil, "fast"},
	{8, nvext(`"itl_target":20`, ``), nil, "fast"},
	{8, nvext(`"ttft_target":20`, ``), []string{"X-Coppice-TTFT-Ms: 150"}, "slow"}, // headers take precedence
	{8, nvext(``, `"priority":10`), nil, "fast"},
	{500, `,"priority":99`, nil, "fast"},
	{8, `,"priority":100`, nil, "slow"},
	{8, ``, []string{"X-Coppice-TTFT-Ms: NaN"}, `\"NaN\", want a number of milliseconds`},
	{8, ``, []string{"X-Coppice-TTFT-Ms: -1"}, `\"-1\", want a number of milliseconds`},
	{8, ``, []string{"X-Coppice-TTFT-Ms: -0.0"}, "fast"},
	{8, ``, []string{"X-Coppice-ITL-Ms: Inf"}, `X-Coppice-ITL-Ms: it is \"Inf\"`},
	{8, ``, []string{"X-Coppice-ITL-Ms: 1e999"}, `\"1e999\", want a number`},
	{8, ``, []string{"X-Coppice-ITL-Ms: 20ms"}, `\"20ms\", want a number`},
	{8, ``, []string{"X-Coppice-ITL-Ms: "}, `\"\", want a number`},
	{8, ``, []string{"X-Coppice-ITL-Ms: " + strings.Repeat("9", 4000)}, `want a number`},
	{8, ``, []string{"X-Coppice-ITL-Ms: 5", "X-Coppice-ITL-Ms: 5"}, "given twice"},
	{8, nvext(`"ttft_target":"quick"`, ``), nil, `nvext.router.ttft_target: it is`},
	{8, nvext(`"ttft_target":-5`, ``), nil, `nvext.router.ttft_target: it is \"-5\"`},
	{8, nvext(`"itl_target":{}`, ``), nil, `nvext.router.itl_target`},
	{8, `,"priority":1.5`, nil, `priority: it is \"1.5\", want an integer`},
	{8, `,"priority":"high"`, nil, `priority: it is`},
	{8, nvext(``, `"priority":99999999999`), nil, `priority: it is`},
}

// TestPoolByTargets: the grid chooses by the prompt's length and the targets in headers and
// body; invalid targets are refused with a helpful message.
func TestPoolByTargets(t *testing.T) {
	s := newStand(t, Config{Pools: grid(t, false)}, pooledWorker(t, "s", "slow"), pooledWorker(t, "f", "fast"), pooledWorker(t, "l", "long"))
	s.chosen(3)
	for _, tc := range targets {
		r := s.wish("/v1/completions", body(tc.tokens, tc.rest), tc.headers...)
		switch {
		case r.StatusCode == 200:
			if r.pool() != tc.want || r.worker() != tc.want[:1] {
				t.Errorf("%d tokens %s %.60q went to %s in %q, want pool %s", tc.tokens, tc.rest, tc.headers, r.worker(), r.pool(), tc.want)
			}
		case r.StatusCode != 400 || !strings.Contains(r.text, tc.want) || len(r.text) > 400:
			t.Errorf("%d tokens %s %.60q: %s %s, want %s", tc.tokens, tc.rest, tc.headers, r.Status, r.text, tc.want)
		}
	}
	// A request without a prompt goes to any pool, and the answer names it.
	if r := s.post(t.Context(), "/tokenize", `{"model":"m","prompt":"x"}`); r.StatusCode != 200 || r.pool() == "" || r.pool()[:1] != r.worker() {
		t.Errorf("tokenize: %s in pool %q by %q", r.Status, r.pool(), r.worker())
	}
	// So does a pinned request.
	if r := s.wish("/v1/completions", body(8, ""), "X-Coppice-Pin: l"); r.worker() != "l" || r.pool() != "long" {
		t.Errorf("pinned: %s in pool %q by %q", r.Status, r.pool(), r.worker())
	}
	s.until("all counted", func() bool { return s.series("pool_requests_total", "long") == 2 })
	if n := s.series("pool_workers", "fast"); n != 1 {
		t.Errorf("pool fast has %v workers", n)
	}
	explained := s.wish("/v1/fleet/explain", body(8, `,"priority":3`), "X-Coppice-TTFT-Ms: 50").text
	if !strings.Contains(explained, "pool fast: 8 prompt tokens, TTFT target 50 ms, ITL target not given, priority 3\n") || !strings.Contains(explained, "is f at http") || strings.Contains(explained, "is s at") {
		t.Errorf("explained as %s", explained)
	}
	if got, want := s.poolsOf(), "map[f:fast l:long s:slow]"; fmt.Sprint(got) != want || s.Fleet().Pools != "3 by length and targets" {
		t.Errorf("%v, %s", got, s.Fleet().Pools)
	}
	s.idle()
}

// TestPoolRefusesWorkers: workers of unknown pools are refused with the reason; the workers'
// file takes precedence over a card.
func TestPoolRefusesWorkers(t *testing.T) {
	none, other, given := pooledWorker(t, "none", ""), pooledWorker(t, "other", "quick"), pooledWorker(t, "given", "slow")
	s := newStand(t, Config{Pools: grid(t, false), Workers: []members.WorkerConfig{{URL: given.http.URL, Pool: "fast"}}}, none, other)
	s.chosen(1)
	s.until("the misfits are refused", func() bool { return s.at(none).State == "refused" && s.at(other).State == "refused" })
	if e := s.at(none).Error; !strings.Contains(e, "has no pool") || !strings.Contains(e, "--pool") || !strings.Contains(e, `"slow" "fast" "long"`) {
		t.Error(e)
	}
	if e := s.at(other).Error; !strings.Contains(e, `pool "quick"`) {
		t.Error(e)
	}
	if p := s.worker("given").Pool; p != "fast" {
		t.Errorf("the given pool is %q", p)
	}
	// It restarts with a known pool.
	other.mu.Lock()
	other.card.Pool, other.card.Epoch = "slow", 2
	other.mu.Unlock()
	s.chosen(2)
	if r := s.wish("/v1/completions", body(8, "")); r.worker() != "other" || r.pool() != "slow" {
		t.Errorf("%s by %q in %q", r.Status, r.worker(), r.pool())
	}
}

// TestPoolWithoutWorkers: if no worker can serve a request, the error names the pool; faster pools are
// tried only if the file allows it.
func TestPoolWithoutWorkers(t *testing.T) {
	for _, retry := range []bool{false, true} {
		t.Run(fmt.Sprint("retry=", retry), func(t *testing.T) {
			long := newWorker(t, "l", false, func(c *card.Card) { c.Pool, c.Models = "long", []string{"m", "n"} })
			s := newStand(t, Config{Pools: grid(t, retry)}, pooledWorker(t, "f", "fast"), long)
			s.chosen(2)
			for _, tc := range []struct {
				body, header string
				with         string // the answering worker with retry
			}{
				{body(8, ""), "X-None: 1", "l"},                 // slow is empty: long is next
				{`{"prompt":[1,2],"model":"n"}`, "X-N: 1", "l"}, // long serves n
				{`{"prompt":[1,2],"model":"n"}`, "X-Coppice-TTFT-Ms: 1", ""},
			} {
				r := s.wish("/v1/completions", tc.body, tc.header)
				want := `pool \"slow\"`
				if tc.with == "" {
					want = `pool \"fast\"`
				}
				if retry && tc.with != "" {
					if r.worker() != tc.with || r.pool() != "long" {
						t.Errorf("%s: %s by %q in %q", tc.header, r.Status, r.worker(), r.pool())
					}
				} else if r.StatusCode != 503 || !strings.Contains(r.text, want) || !strings.Contains(r.text, "no_workers") || r.Header.Get("Retry-After") == "" {
					t.Errorf("%s: %s %s, want one of %s", tc.header, r.Status, r.text, want)
				}
				explained := s.wish("/v1/fleet/explain", tc.body, tc.header)
				if ok := explained.StatusCode == 200; ok != (r.StatusCode == 200) || ok && !strings.Contains(explained.text, "no worker there can take it, so pool long\nif that fails: fast\n") {
					t.Errorf("explained as %s", explained.text)
				}
			}
			if retry {
				s.until("moves counted", func() bool { return s.series("pool_moves_total", "slow") == 2 })
			}
			s.idle()
		})
	}
}

// TestPoolRetry: a request that fails before its first output moves to faster pools, from slow
// to fast, within the gateway's retries; without PriorityRetry, to other workers of its pool.
func TestPoolRetry(t *testing.T) {
	fail := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	full := func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(429) }
	for _, tc := range []struct {
		name    string
		retry   bool
		retries int
		slow    http.HandlerFunc
		long    http.HandlerFunc
		status  int
		pool    string
		tries   string
	}{
		{"through all", true, 2, fail, fail, 200, "fast", "3"},
		{"to the next", true, 2, full, nil, 200, "long", "2"},
		{"as often as may be", true, 1, fail, fail, 502, "", ""},
		{"not without it", false, 2, fail, nil, 502, "", ""},
		{"full passes", false, 2, full, nil, 429, "slow", "1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			slow, long, fast := pooledWorker(t, "s", "slow"), pooledWorker(t, "l", "long"), pooledWorker(t, "f", "fast")
			s := newStand(t, Config{Pools: grid(t, tc.retry), Retries: tc.retries, ProbeEvery: time.Hour}, slow, long, fast)
			s.chosen(3)
			slow.does(tc.slow)
			long.does(tc.long)
			r := s.wish("/v1/completions", body(8, ""))
			if r.StatusCode != tc.status || r.pool() != tc.pool || r.Header.Get(headerAttempts) != tc.tries {
				t.Errorf("%s in %q after %q attempts: %s", r.Status, r.pool(), r.Header.Get(headerAttempts), r.text)
			}
			if !tc.retry && long.requests()+fast.requests() != 0 {
				t.Error("another pool was asked")
			}
			s.idle()
		})
	}
	t.Run("to a faster pool before its own", func(t *testing.T) {
		a, b := pooledWorker(t, "s1", "slow"), pooledWorker(t, "s2", "slow")
		s := newStand(t, Config{Pools: grid(t, true)}, a, b, pooledWorker(t, "f", "fast"))
		s.chosen(3)
		a.does(fail)
		b.does(fail)
		if r := s.wish("/v1/completions", body(8, "")); r.pool() != "fast" || r.Header.Get(headerAttempts) != "2" || a.requests()+b.requests() != 1 {
			t.Errorf("%s in %q after %q attempts, %d of them in its own pool", r.Status, r.pool(), r.Header.Get(headerAttempts), a.requests()+b.requests())
		}
	})
	t.Run("in its own pool", func(t *testing.T) {
		a, b := pooledWorker(t, "s1", "slow"), pooledWorker(t, "s2", "slow")
		s := newStand(t, Config{Pools: grid(t, false)}, a, b, pooledWorker(t, "f", "fast"))
		s.chosen(3)
		a.does(fail)
		b.does(full)
		for range 2 { // either may be first
			before := b.requests()
			if r := s.wish("/v1/completions", body(8, "")); r.StatusCode != 429 {
				t.Errorf("%s by %q", r.Status, r.worker())
			}
			if n := b.requests() - before; n != 1 && n != 2 { // twice if a, which fails, comes second
				t.Errorf("asked %d times", n)
			}
		}
		if a.requests() != 2 {
			t.Errorf("asked %d times", a.requests())
		}
	})
}

// TestPoolIsWaitedFor: a request waits for its busy pool even if others are idle. When its
// waiting time is over, it moves to a faster pool if that is allowed.
func TestPoolIsWaitedFor(t *testing.T) {
	for _, retry := range []bool{false, true} {
		t.Run(fmt.Sprint("retry=", retry), func(t *testing.T) {
			slow := newWorker(t, "s", false, func(c *card.Card) { c.Pool, c.MaxRunning = "slow", 1 })
			held, free := make(chan struct{}, 2), make(chan struct{})
			t.Cleanup(func() { // unblock the workers if the test fails early
				select {
				case <-free:
				default:
					close(free)
				}
			})
			slow.does(func(rw http.ResponseWriter, r *http.Request) {
				held <- struct{}{}
				<-free
				slow.complete(rw, r)
			})
			cfg := Config{Pools: grid(t, retry), QueueTimeout: time.Hour}
			if retry {
				cfg.QueueTimeout = time.Millisecond
			}
			s := newStand(t, cfg, slow, pooledWorker(t, "f", "fast"), pooledWorker(t, "l", "long"))
			s.chosen(3)
			answers := make(chan reply, 2)
			ask := func() { answers <- s.ask(context.WithoutCancel(t.Context()), run(0, 8), `,"max_tokens":1`) }
			go ask()
			select {
			case <-held:
			case r := <-answers:
				t.Fatalf("%s: %s", r.Status, r.text)
			}
			go ask()
			if retry {
				if r := <-answers; r.StatusCode != 200 || r.worker() != "l" {
					t.Errorf("%s by %q: %s", r.Status, r.worker(), r.text)
				}
				close(free)
			} else {
				s.until("one waits", func() bool { m, _ := s.dispatch.Metrics(); return m.Waiting == 1 })
				close(free)
				if r := <-answers; r.worker() != "s" {
					t.Errorf("%s by %q", r.Status, r.worker())
				}
			}
			if r := <-answers; r.worker() != "s" {
				t.Errorf("%s by %q", r.Status, r.worker())
			}
			s.idle()
		})
	}
}

// TestPoolConfig: all faults are reported at once; without pools nothing about pools is shown.
func TestPoolConfig(t *testing.T) {
	odd := *grid(t, false)
	odd.Aggregated.Names = []string{"a b", "x", "x"}
	for want, cfg := range map[string]Config{
		"Buckets is 65, want 1 to 64": {Buckets: router.MaxBuckets + 1},
		"Buckets is -1":               {Buckets: -1},
		"both Pools and Buckets":      {Buckets: 2, Pools: grid(t, false)},
		"missing agg_pool_selection":  {Pools: &global.Config{}},
		"called \"x\" as another":     {Pools: &odd},
		"pool 0: card: invalid":       {Pools: &odd},
		"the pool's name is":          {Workers: []members.WorkerConfig{{URL: "http://a:1", Pool: "p q"}}},
	} {
		if g, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
			if g != nil {
				g.Close()
			}
		}
	}
	s := newStand(t, Config{}, pooledWorker(t, "a", "fast"))
	s.chosen(1)
	r := s.wish("/v1/completions", body(8, `,"priority":"odd"`), "X-Coppice-TTFT-Ms: NaN")
	if r.StatusCode != 200 || r.pool() != "" {
		t.Errorf("without pools: %s %s in %q", r.Status, r.text, r.pool())
	}
	text, _ := json.Marshal(s.Fleet())
	if !strings.Contains(string(text), `"pool":"fast"`) || strings.Contains(string(text), `"pools"`) {
		t.Errorf("%s", text)
	}
	families, err := s.cfg.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.Contains(f.GetName(), "router_pool_") {
			t.Errorf("there are series %s", f.GetName())
		}
	}
}
