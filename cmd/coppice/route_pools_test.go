package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway"
	"github.com/coppice-llm/coppice/router"
)

// helpPools returns the example file of the help text.
func helpPools(t *testing.T) string {
	t.Helper()
	text := regexp.MustCompile(`(?s)\{"mode".*?\}\]\}\}`).FindString(helpOf("route"))
	if text == "" {
		t.Fatal("the help shows no file of pools")
	}
	return text
}

// TestRoutePoolsRefuses checks that every message names the flag or file, and the valid
// values.
func TestRoutePoolsRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		writeFile(t, path, text)
		return path
	}
	good := file("good", helpPools(t))
	disagg := file("disagg", `{"num_prefill_pools": 1, "num_decode_pools": 1, "prefill_pool_dynamo_namespaces": ["p"], "decode_pool_dynamo_namespaces": ["d"],
		"prefill_pool_selection_strategy": {"ttft_min_ms": 0, "ttft_max_ms": 1, "ttft_resolution": 1, "isl_min": 0, "isl_max": 1, "isl_resolution": 1, "prefill_pool_mapping": [[0]]},
		"decode_pool_selection_strategy": {"itl_min_ms": 0, "itl_max_ms": 1, "itl_resolution": 1, "context_length_min": 0, "context_length_max": 1, "context_length_resolution": 1, "decode_pool_mapping": [[0]]}}`)
	twice := file("twice", strings.ReplaceAll(helpPools(t), "cheap", "fast"))
	short := file("short", strings.Replace(helpPools(t), `[[1], [0]]`, `[[1]]`, 1))
	for _, tc := range []struct {
		args string
		want []string
	}{
		{"--buckets 0", []string{"--buckets is 0, want 1 to 64"}},
		{"--buckets 65", []string{"--buckets is 65"}},
		{"--buckets=-2", []string{"--buckets is -2"}},
		{"--buckets 2 --pools " + good, []string{"--pools and --buckets exclude each other"}},
		{"--stage prefix", []string{"--stage needs --buckets"}},
		{"--buckets 2 --stage best", []string{"--stage", "best", "prefix"}},
		{"--prefix-blocks 0", []string{"--prefix-blocks is 0, want 1 to"}},
		{"--default-ttft-ms 5", []string{"need --pools"}},
		{"--default-itl-ms NaN --pools " + good, []string{"--default-itl-ms is NaN, want 0 to 1e12"}},
		{"--default-itl-ms=-1 --pools " + good, []string{"--default-itl-ms is -1"}},
		{"--pools " + dir + "/missing", []string{"--pools " + dir + "/missing: no such file"}},
		{"--pools " + dir, []string{"--pools " + dir}},
		{"--pools " + file("empty", ""), []string{"--pools", "empty: the file is empty; want the JSON"}},
		{"--pools " + file("broken", "{\n \"mode\": \"agg\",\n nonsense\n}"), []string{"--pools", "broken: line 3 is not JSON: invalid character 'n'"}},
		{"--pools " + file("other", `{"pools": ["a"]}`), []string{"--pools", `other: unknown field "pools"; want the JSON`}},
		{"--pools " + disagg, []string{"--pools " + disagg, `"mode" is disagg`, "does not split", `want "mode": "agg"`}},
		{"--pools " + short, []string{"--pools " + short, "agg_pool_mapping rows (1)"}},
		{"--pools " + twice, []string{`called "fast" as another one is`}},
	} {
		args := append([]string{"route", "--addr", "127.0.0.1:0", "--worker", "http://127.0.0.1:1"}, strings.Fields(tc.args)...)
		_, stderr, ok := command(t, args...)
		for _, want := range tc.want {
			if ok || !strings.Contains(stderr, want) {
				t.Errorf("%s: ok %v, printed %s, want %q", tc.args, ok, stderr[max(0, len(stderr)-300):], want)
			}
		}
	}
	refused(t, []string{"--pool: ", "a,b c"}, "serve", "--addr", "nowhere:at:all", "--pool", "a,b c")
}

// TestRoutePools checks the gateway's configuration from flags and file, and the warnings
// about old names.
func TestRoutePools(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pools.json")
	writeFile(t, path, "\ufeff"+strings.Replace(helpPools(t), "ttft_min_ms", "ttft_min", 1))
	core, logs := observer.New(zapcore.WarnLevel)
	ttft := 250.0
	c := &routeCmd{Worker: []string{"http://a"}, serverFlags: serverFlags{MaxBody: 2, MaxBodies: 3}, poolFlags: poolFlags{Pools: path, DefaultTTFT: &ttft, PrefixBlocks: 7}}
	cfg, err := c.gateway(t.Context(), nil, nil, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	if p := cfg.Pools; p == nil || fmt.Sprint(p.Aggregated.Names) != "[cheap fast]" || !p.PriorityRetry || *p.DefaultTTFT != 250 || p.DefaultITL != nil || cfg.Router.PrefixBlocks != 7 {
		t.Errorf("%+v", cfg.Pools)
	}
	if n := logs.Len(); n != 1 || !strings.Contains(fmt.Sprint(logs.All()[0].ContextMap()), "ttft_min_ms") {
		t.Errorf("%d warnings: %v", n, logs.All())
	}
	c = &routeCmd{Worker: []string{"http://a"}, serverFlags: serverFlags{MaxBody: 2, MaxBodies: 3}, poolFlags: poolFlags{Buckets: 4, Stage: router.ByPrefix, PrefixBlocks: 64}}
	if cfg, err = c.gateway(t.Context(), nil, nil, zap.NewNop()); err != nil || cfg.Buckets != 4 || cfg.Stage != router.ByPrefix || cfg.Router.PrefixBlocks != 64 || cfg.Pools != nil {
		t.Errorf("%+v, %v", cfg, err)
	}
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}

// TestRoutePooledWorkers checks that the example of the help routes by targets, with pools of
// workers given by the file and by their own cards.
func TestRoutePooledWorkers(t *testing.T) {
	t.Parallel()
	worker := func(name, pool string) string {
		c := card.Card{Name: name, Models: []string{"m"}, Pool: pool}
		mux := http.NewServeMux()
		mux.HandleFunc("GET "+card.Path, func(w http.ResponseWriter, r *http.Request) { w.Write(c.Append(nil)) })
		mux.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
		mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("{}")) })
		s := httptest.NewServer(mux)
		t.Cleanup(s.Close)
		return s.URL
	}
	path := filepath.Join(t.TempDir(), "pools.json")
	writeFile(t, path, helpPools(t))
	c := &routeCmd{serverFlags: serverFlags{MaxBody: 1 << 20, MaxBodies: 1 << 20}, WorkersFile: "w.json", poolFlags: poolFlags{Pools: path, PrefixBlocks: 4}}
	file := fmt.Sprintf(`{"workers": [{"url": %q, "pool": "cheap"}, {"url": %q}, {"url": %q}]}`, worker("a", "fast"), worker("b", "fast"), worker("c", ""))
	cfg, err := c.gateway(t.Context(), nil, []byte(file), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	until(t, "two workers and a misfit", func() string {
		states := map[string]int{}
		for _, w := range g.Fleet().Workers {
			states[w.State]++
		}
		if states["healthy"] != 2 || states["refused"] != 1 {
			return fmt.Sprint(states)
		}
		return ""
	})
	for header, want := range map[string]string{"": "a", "100": "b", "900": "a"} {
		until(t, "an answer of "+want, func() string { // the status shows healthy a moment before routing uses it
			r := httptest.NewRequest("POST", "http://localhost/v1/completions", strings.NewReader(`{"prompt":[1,2],"model":"m"}`))
			if header != "" {
				r.Header.Set("x-coppice-ttft-ms", header)
			}
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			if w.Code == 200 && w.Header().Get("X-Coppice-Worker") != want {
				t.Fatalf("TTFT target %q went to %s in %s, want %s", header, w.Header().Get("X-Coppice-Worker"), w.Header().Get("X-Coppice-Pool"), want)
			}
			if w.Code != 200 {
				return w.Body.String()
			}
			return ""
		})
	}
	text, err := json.Marshal(g.Fleet())
	if err != nil || !strings.Contains(string(text), `"pool":"cheap"`) || !strings.Contains(string(text), "give it one of") {
		t.Errorf("%s, %v", text, err)
	}
}

// TestRoutePoolsFile checks that the file is applied when it changes, and that a bad one, such
// as a half-written file, changes nothing and is logged once.
func TestRoutePoolsFile(t *testing.T) {
	t.Parallel()
	w := newOtherMake(t)
	path := filepath.Join(t.TempDir(), "pools.json")
	put := func(text string) { // atomically: otherwise each partial state would be logged
		t.Helper()
		writeFile(t, path+".new", text)
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	put(helpPools(t))
	core, logs := observer.New(zapcore.InfoLevel)
	log := zap.New(core)
	ttft := 250.0
	c := &routeCmd{serverFlags: serverFlags{MaxBody: 2, MaxBodies: 3}, WorkersFile: "w.json", ProbeEvery: 10 * time.Millisecond, poolFlags: poolFlags{Pools: path, DefaultTTFT: &ttft, PrefixBlocks: 4}}
	cfg, err := c.gateway(t.Context(), nil, []byte(fmt.Sprintf(`{"workers": [{"url": %q, "pool": "quick"}]}`, w.URL)), log)
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		c.watchedPools(g, log).run(ctx, log)
	}()
	defer func() { cancel(); <-watched }()
	state := func(want string) {
		t.Helper()
		until(t, want, func() string {
			if got := g.Fleet().Workers[0]; got.State != want {
				return got.State + " " + got.Error
			}
			return ""
		})
	}
	told := func(what string, n int) {
		t.Helper()
		until(t, what, func() string {
			if got := logs.FilterMessage("pools' file " + what).Len(); got != n {
				return fmt.Sprint(logs.All())
			}
			return ""
		})
	}
	state("refused")
	more := strings.ReplaceAll(helpPools(t), `"fast"`, `"quick"`)
	put(more[:len(more)/2])
	told("not loaded", 1)
	state("refused")
	put(more)
	told("loaded", 1)
	state("healthy")
	put(strings.ReplaceAll(more, `"cheap"`, `"quick"`))
	told("not loaded", 2)
	state("healthy")
	put(more) // the contents applied already
	put(helpPools(t))
	told("loaded", 2)
	state("refused")
	if p, err := c.parse(c.poolsText, log); err != nil || *p.DefaultTTFT != 250 {
		t.Errorf("%v, %v", p, err)
	}
}
