package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// TestBucketsByPrefix: prompts of one kind stay in one bucket and go only to its workers;
// without workers there, they go to the next bucket.
func TestBucketsByPrefix(t *testing.T) {
	var workers []*worker
	for i := range 6 {
		workers = append(workers, pooledWorker(t, fmt.Sprintf("w%d", i), "whatever"))
	}
	s := newStand(t, Config{Buckets: 3, Stage: router.ByPrefix, Router: router.Config{Policy: router.CostRoundRobin, PrefixBlocks: 2}}, workers...)
	s.chosen(6)
	pools := s.poolsOf()
	sizes := map[string]int{}
	for _, pool := range pools {
		sizes[pool]++
	}
	if fmt.Sprint(sizes) != "map[bucket-0:2 bucket-1:2 bucket-2:2]" {
		t.Fatalf("%v", pools)
	}
	used := map[string]bool{}
	bucketOf := func(kind int) string {
		t.Helper()
		seen := map[string]bool{}
		bucket := ""
		for i := range 4 { // round robin: both workers of the bucket get requests
			r := s.ask(t.Context(), append(run(1000*kind, 2*blockTokens), run(90000+i*50, 40)...), ``)
			if r.StatusCode != 200 || bucket != "" && r.pool() != bucket || pools[r.worker()] != r.pool() {
				t.Fatalf("kind %d went to %q in %q after %q: %s", kind, r.worker(), r.pool(), bucket, r.text)
			}
			bucket = r.pool()
			seen[r.worker()] = true
		}
		if len(seen) != 2 {
			t.Errorf("kind %d went to %v", kind, seen)
		}
		return bucket
	}
	for kind := range 24 {
		used[bucketOf(kind)] = true
	}
	if len(used) != 3 {
		t.Errorf("24 kinds are in %v", used)
	}
	home := bucketOf(0)
	for _, w := range workers {
		if pools[w.name] == home {
			w.draining.Store(true)
		}
	}
	s.chosen(4)
	next := fmt.Sprintf("bucket-%d", (int(home[len(home)-1]-'0')+1)%3)
	if got := bucketOf(0); got != next {
		t.Errorf("without workers in %s, %s was chosen, want %s", home, got, next)
	}
	explained := s.wish("/v1/fleet/explain", body(40, "")).text
	if !strings.Contains(explained, "pool bucket-") || !strings.Contains(explained, "by the hash of block 2 of the prompt") {
		t.Errorf("explained as %s", explained)
	}
	s.idle()
}

// TestBucketsByTurn: buckets take turns, except for sessions, which stay in theirs. Explain does
// not advance the turn.
func TestBucketsByTurn(t *testing.T) {
	var workers []*worker
	for i := range 4 {
		workers = append(workers, newWorker(t, fmt.Sprintf("w%d", i), false, nil))
	}
	s := newStand(t, Config{Buckets: 4, Router: router.Config{SessionTTL: time.Hour}}, workers...)
	s.chosen(4)
	for i := range 8 {
		if text := s.wish("/v1/fleet/explain", body(8, "")).text; !strings.Contains(text, fmt.Sprintf("pool bucket-%d: it is its turn", i%4)) {
			t.Fatalf("explained as %s", text)
		}
		if r := s.ask(t.Context(), run(0, 8), ""); r.pool() != fmt.Sprintf("bucket-%d", i%4) {
			t.Errorf("turn %d is %q's", i, r.pool())
		}
	}
	session := func() string { return s.wish("/v1/completions", body(8, ""), "X-Session-Id: me").worker() }
	first := session()
	for range 5 {
		s.ask(t.Context(), run(0, 8), "")
		if got := session(); got != first {
			t.Errorf("the session went to %s, then %s", first, got)
		}
	}
	if text := s.wish("/v1/fleet/explain", body(8, ""), "X-Session-Id: me").text; !strings.Contains(text, "the session's worker is there") {
		t.Errorf("explained as %s", text)
	}
	s.idle()
}

// TestBucketsAlike: two gateways that see the same workers divide them equally, in whatever
// order they came, so the same prompt goes to the same bucket.
func TestBucketsAlike(t *testing.T) {
	var workers []*worker
	for i := range 9 {
		workers = append(workers, newWorker(t, fmt.Sprintf("w%d", i), false, nil))
	}
	cfg := Config{Buckets: 4, Stage: router.ByPrefix}
	a := newStand(t, cfg, workers...)
	b := newStand(t, cfg, workers[5])
	b.chosen(1)
	var given []members.WorkerConfig
	for _, w := range slices.Backward(workers) {
		given = append(given, members.WorkerConfig{URL: w.http.URL})
	}
	if err := b.SetWorkers(given[:4]); err != nil { // w5 leaves and comes back
		t.Fatal(err)
	}
	b.chosen(4)
	if err := b.SetWorkers(given); err != nil {
		t.Fatal(err)
	}
	a.chosen(9)
	b.chosen(9)
	if x, y := fmt.Sprint(a.poolsOf()), fmt.Sprint(b.poolsOf()); x != y {
		t.Errorf("one deals %s, the other %s", x, y)
	}
	for kind := range 8 {
		prompt := run(1000*kind, 40)
		if x, y := a.ask(t.Context(), prompt, "").pool(), b.ask(t.Context(), prompt, "").pool(); x != y || x == "" {
			t.Errorf("kind %d goes to %q and %q", kind, x, y)
		}
	}
}

// TestBucketPlaces: a worker that is lost for a moment keeps its place. One that stays away
// loses it, and the workers are divided again.
func TestBucketPlaces(t *testing.T) {
	var workers []*worker
	for i := range 8 {
		workers = append(workers, newWorker(t, fmt.Sprintf("w%d", i), false, nil))
	}
	s := newStand(t, Config{Buckets: 4}, workers...)
	s.chosen(8)
	before := s.poolsOf()
	workers[3].sick.Store(true)
	s.until("one is lost", func() bool { return s.worker("w3").State == "lost" })
	s.chosen(7)
	s.redeal(s.members.Summary(), time.Now().Add(2*time.Minute/2))
	if after := s.poolsOf(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("a worker was lost for a moment: %v became %v", before, after)
	}
	later := time.Now().Add(2 * 2 * time.Minute)
	s.redeal(s.members.Summary(), later)
	after := s.poolsOf()
	sizes := map[string]int{}
	for name, pool := range after {
		if name != "w3" {
			sizes[pool]++
		}
	}
	if after["w3"] != "" || len(sizes) != 4 || slices.Max([]int{sizes["bucket-0"], sizes["bucket-1"], sizes["bucket-2"]}) != 2 || sizes["bucket-3"] != 1 {
		t.Errorf("it stayed away: %v", after)
	}
	workers[3].sick.Store(false)
	s.until("it is back", func() bool { return s.worker("w3").State == "healthy" })
	s.until("as before", func() bool { return fmt.Sprint(s.poolsOf()) == fmt.Sprint(before) })
	// Each bucket still gets requests.
	s.chosen(8)
	for range 8 {
		if r := s.ask(t.Context(), []kv.Token{1, 2}, ""); r.StatusCode != 200 {
			t.Errorf("%s %s", r.Status, r.text)
		}
	}
}

// TestBucketsJoinMeanwhile: a worker that joins while others are about to be dealt again keeps its
// bucket.
func TestBucketsJoinMeanwhile(t *testing.T) {
	a, b, c := newWorker(t, "a", false, nil), newWorker(t, "b", false, nil), newWorker(t, "c", false, nil)
	s := newStand(t, Config{Buckets: 2}, a, c)
	s.chosen(2)
	if err := s.SetWorkers([]members.WorkerConfig{{URL: a.http.URL}}); err != nil {
		t.Fatal(err)
	}
	s.chosen(1)
	left, before := time.Now(), s.members.Summary()
	if err := s.SetWorkers([]members.WorkerConfig{{URL: a.http.URL}, {URL: b.http.URL}}); err != nil {
		t.Fatal(err)
	}
	s.chosen(2)
	s.redeal(before, left.Add(2*time.Minute)) // c has been away for long
	if pools := s.poolsOf(); len(pools) != 2 || pools["a"] == "" || pools["b"] == "" {
		t.Errorf("the buckets are %v", pools)
	}
}
