package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway/internal/global"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// two returns two pools: requests with a TTFT target below 100 ms go to the second, others to
// the first and then to the second, which is faster.
func two(t *testing.T, first, second string) *global.Config {
	t.Helper()
	c, _, err := global.Parse([]byte(fmt.Sprintf(`{"mode": "agg", "num_agg_pools": 2, "agg_pool_dynamo_namespaces": [%q, %q], "agg_pool_priorities": [1, 0],
		"enable_priority_retry": true, "agg_pool_selection_strategy": {"ttft_min_ms": 0, "ttft_max_ms": 200, "ttft_resolution": 2,
			"itl_min_ms": 0, "itl_max_ms": 100, "itl_resolution": 1, "agg_pool_mapping": [[1], [0]]}}`, first, second)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestPoolsReplaced: new pools apply from the next request on. Workers of a pool that only moves in
// the list are unaffected, and a request keeps the pools it started with.
func TestPoolsReplaced(t *testing.T) {
	one := func(c *card.Card) { c.Pool, c.MaxRunning = "slow", 1 }
	slow, fast, quick := newWorker(t, "s", false, one), pooledWorker(t, "f", "fast"), pooledWorker(t, "q", "quick")
	s := newStand(t, Config{Pools: two(t, "slow", "fast"), QueueTimeout: time.Hour}, slow, fast, quick)
	states := func(want string) {
		t.Helper()
		s.until(want, func() bool {
			text := ""
			for _, w := range []*worker{slow, fast, quick} {
				text += s.at(w).State + " "
			}
			return text == want+" "
		})
	}
	states("healthy healthy refused")
	goOn := make(chan struct{})
	slow.does(func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-goOn
		io.WriteString(rw, "{}")
	})
	runs, waits := make(chan reply, 1), make(chan reply, 1)
	go func() { runs <- s.wish("/v1/completions", body(8, "")) }()
	s.until("it runs", func() bool { return slow.requests() == 1 })
	go func() { waits <- s.wish("/v1/completions", body(8, "")) }()
	s.until("it waits", func() bool { m, _ := s.dispatch.Metrics(); return m.Waiting == 1 })
	s.refusesPools()
	if r := s.wish("/v1/completions", body(8, ""), "X-Coppice-TTFT-Ms: 50"); r.worker() != "f" || r.pool() != "fast" {
		t.Errorf("%s by %q in %q", r.Status, r.worker(), r.pool())
	}
	if err := s.SetPools(two(t, "fast", "quick")); err != nil {
		t.Fatal(err)
	}
	if r := <-waits; r.worker() != "f" || r.pool() != "fast" {
		t.Errorf("who waited for a pool that is no more: %s by %q in %q", r.Status, r.worker(), r.pool())
	}
	states("refused healthy healthy")
	s.chosen(2)
	for header, want := range map[string]string{"X-None: 1": "f fast", "X-Coppice-TTFT-Ms: 50": "q quick"} {
		if r := s.wish("/v1/completions", body(8, ""), header); r.worker()+" "+r.pool() != want {
			t.Errorf("%s: %s by %q in %q, want %s", header, r.Status, r.worker(), r.pool(), want)
		}
	}
	close(goOn)
	if r := <-runs; r.StatusCode != 200 || r.worker() != "s" || r.pool() != "slow" {
		t.Errorf("who was under way: %s by %q in %q", r.Status, r.worker(), r.pool())
	}
	if s.logs.FilterMessage("worker refused").FilterField(zap.String("worker", "f")).Len() != 0 || s.series("pool_workers", "quick") != 1 || s.series("pool_workers", "slow") != 0 {
		t.Errorf("%v", s.logs.All())
	}
	if err := s.SetPools(two(t, "slow", "quick")); err != nil {
		t.Fatal(err)
	}
	states("healthy refused healthy")
	s.idle()
	loads := s.dispatch.Loads()
	if len(loads) != 3 {
		t.Errorf("%d workers are known to the router", len(loads))
	}
	for _, l := range loads {
		if l.Worker.Worker == kv.WorkerID(card.IDOf("f")) && l.Health != router.Lost {
			t.Errorf("f is %v", l.Health)
		}
	}
}

// refusesPools checks that invalid pools change nothing.
func (s *stand) refusesPools() {
	t := s.t
	t.Helper()
	split := *two(t, "a", "b")
	split.AggregatedStrategy = nil
	for want, c := range map[string]*global.Config{"nil": nil, "missing agg_pool_selection_strategy": &split, "as another one is": two(t, "same", "same")} {
		if err := s.SetPools(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := newStand(t, Config{}).SetPools(two(t, "slow", "fast")); err == nil || !strings.Contains(err.Error(), "made without Pools") {
		t.Error(err)
	}
}
