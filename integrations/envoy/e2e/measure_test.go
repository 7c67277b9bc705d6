package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// delayed starts a worker that reads each request, and answers it after a fixed time.
func delayed(t *testing.T, name string, after time.Duration) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"data":[{"id":"m"}]}`) })
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		time.Sleep(after)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"worker":%q,"usage":{"prompt_tokens":8000,"completion_tokens":4}}`, name)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// words returns n words of a text that is always the same for a seed.
func words(n int, seed uint64) string {
	random := rand.New(rand.NewPCG(4, seed))
	list := strings.Fields("the of a router cache prefix token block worker request tree light green river paper window answer question number simple early morning letter garden because without through under every")
	var b strings.Builder
	for range n {
		b.WriteString(list[random.IntN(len(list))])
		b.WriteByte(' ')
	}
	return b.String()
}

// chat returns a turn of one of eight conversations of about 8,000 tokens: a long beginning, and a new question.
func chat(i int) string {
	messages := []map[string]string{{"role": "system", "content": words(7600, uint64(i%8))}, {"role": "user", "content": words(60, uint64(1000+i))}}
	text, _ := json.Marshal(map[string]any{"messages": messages, "max_tokens": 4})
	return string(text)
}

// withoutFilter removes the external processing from a configuration of Envoy, and with it what names endpoints.
func withoutFilter(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	skipping := false
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "- name: envoy.filters.http.ext_proc") {
			skipping = true
		}
		if strings.Contains(line, "- name: envoy.filters.http.router") {
			skipping = false
		}
		if !skipping {
			kept = append(kept, line)
		}
	}
	if err := os.WriteFile(path, []byte(strings.Join(kept, "")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// quantile returns the q-quantile of x.
func quantile(x []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(x))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// TestHitRate plays one load behind coppice route and behind Envoy: the share of cached prompt tokens is the same within 1 %.
func TestHitRate(t *testing.T) {
	if !*measure {
		t.Skip("needs -measure")
	}
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	// 60 prefixes of 1,600 tokens, 96,000 in all, from four clients: workers that keep 20,000 each must evict.
	rate := func(url string) float64 {
		var cached, all int
		var mu sync.Mutex
		var wait sync.WaitGroup
		for c := range 4 {
			wait.Go(func() {
				random := rand.New(rand.NewPCG(7, uint64(c)))
				for range *rounds {
					r := post(url, "/v1/completions", prompt(random.IntN(60)+60*random.IntN(1<<20), 60, 1600, 4, false))
					var a struct {
						Usage struct {
							Prompt  int `json:"prompt_tokens"`
							Details struct {
								Cached int `json:"cached_tokens"`
							} `json:"prompt_tokens_details"`
						} `json:"usage"`
					}
					if err := json.Unmarshal([]byte(r.text), &a); err != nil || r.status != 200 {
						t.Errorf("%d %v %s", r.status, err, r.text)
						return
					}
					mu.Lock()
					cached, all = cached+a.Usage.Details.Cached, all+a.Usage.Prompt
					mu.Unlock()
				}
			})
		}
		wait.Wait()
		return float64(cached) / float64(max(1, all))
	}
	s := newStand(t, nil, []string{"--kv-tokens", "20000"}, nil)
	behind := rate(s.exact)
	s = newStand(t, nil, []string{"--kv-tokens", "20000"}, nil) // workers with empty caches
	at := fmt.Sprintf("127.0.0.1:%d", ports(t, 1)[0])
	run(t, filepath.Join(dir, "coppice"), "route", "--addr", at, "--worker", strings.Join(s.urls, ","), "--probe-every", "200ms", "--no-page")
	until(t, "coppice route", func() bool {
		var f fleet
		r, err := client.Get("http://" + at + "/v1/fleet")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		json.NewDecoder(r.Body).Decode(&f)
		n := 0
		for _, w := range f.Workers {
			if w.State == "healthy" && w.Mode == "events" {
				n++
			}
		}
		return n == 3
	})
	direct := rate("http://" + at)
	t.Logf("cached share of prompt tokens: %.4f behind Envoy, %.4f behind coppice route", behind, direct)
	if d := behind - direct; d > 0.01 || d < -0.01 {
		t.Errorf("they differ by %.4f", d)
	}
}

// TestOverhead compares Envoy with coppice-epp to Envoy's round robin, and to a picker that does nothing. Each request goes to all three
// in turns: workers that answer after a fixed time, prompts of 8,000 tokens.
func TestOverhead(t *testing.T) {
	if !*measure {
		t.Skip("needs -measure")
	}
	var urls []string
	for i := range 3 {
		urls = append(urls, delayed(t, fmt.Sprint("w", i), 20*time.Millisecond))
	}
	flags := []string{"--events", "none"}
	if *tokenizer != "" {
		flags = append(flags, "--model", *tokenizer)
	}
	s := newStand(t, urls, nil, flags)
	_, plain := s.another(9, false)
	nothing := s.doesNothing(urls[0])
	kinds := map[string]func(i int) (path, body string){
		"token ids": func(i int) (string, string) {
			return "/v1/completions", prompt(i, 1<<30, 8000-40, 4, false)
		},
	}
	if *tokenizer != "" {
		kinds["a conversation's next turn"] = func(i int) (string, string) {
			return "/v1/chat/completions", chat(i)
		}
	}
	for kind, next := range kinds {
		for _, clients := range []int{1, 4} {
			took := turns(t, []string{plain, nothing, s.exact}, clients, next)
			least, more := make([]float64, len(took)), make([]float64, len(took))
			for i, of := range took {
				least[i], more[i] = of[1]-of[0], of[2]-of[0]
			}
			t.Logf("%s, clients=%d: over round robin, a picker that does nothing takes p50 %.2f ms more, p90 %.2f; coppice-epp p50 %.2f ms, p90 %.2f",
				kind, clients, quantile(least, .5), quantile(least, .9), quantile(more, .5), quantile(more, .9))
		}
	}
}

// turns has clients send each request to all URLs, each time in another order, and returns the milliseconds that each answer took. The
// first tenth fills caches and connections and does not count.
func turns(t *testing.T, urls []string, clients int, next func(i int) (path, body string)) (all [][]float64) {
	t.Helper()
	type request struct{ path, body string }
	requests := make([]request, *rounds) // made before: it takes longer than what is measured
	for i := range requests {
		requests[i].path, requests[i].body = next(i)
	}
	var mu sync.Mutex
	var wait sync.WaitGroup
	for c := range clients {
		wait.Go(func() {
			for i := c; i < len(requests); i += clients {
				took := make([]float64, len(urls))
				for turn := range urls {
					to := (turn + i/clients) % len(urls)
					began := time.Now()
					if r := post(urls[to], requests[i].path, requests[i].body); r.status != 200 {
						t.Errorf("%d %v %s", r.status, r.err, r.text)
						return
					}
					took[to] = time.Since(began).Seconds() * 1e3
				}
				if i >= len(requests)/10 {
					mu.Lock()
					all = append(all, took)
					mu.Unlock()
				}
			}
		})
	}
	wait.Wait()
	return all
}

// another starts a further Envoy on the documented configuration, with the picker at a port, and returns the URLs of its two listeners. Without
// picker its filter is off.
func (s *stand) another(picker int, filter bool) (exact, open string) {
	s.t.Helper()
	at := ports(s.t, 2)
	path := configure(s.t, map[int]int{9002: picker, 10000: at[0], 10001: at[1], 8081: s.port(0), 8082: s.port(1), 8083: s.port(2)})
	if !filter {
		withoutFilter(s.t, path)
	}
	run(s.t, *envoyPath, "-c", path, "--concurrency", "2", "--use-dynamic-base-id", "--log-level", "warning")
	exact, open = fmt.Sprintf("http://127.0.0.1:%d", at[0]), fmt.Sprintf("http://127.0.0.1:%d", at[1])
	until(s.t, "the other Envoy", func() bool {
		r, err := http.Get(open + "/ready")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == 200
	})
	return exact, open
}

// doesNothing starts an Envoy whose picker names one worker without a look at the request, and passes all bytes on. What it takes more
// than Envoy's round robin is the price of the protocol.
func (s *stand) doesNothing(worker string) string {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	g := grpc.NewServer()
	extprocv3.RegisterExternalProcessorServer(g, nothing(strings.TrimPrefix(worker, "http://")))
	probes := health.NewServer()
	probes.SetServingStatus("liveness", healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(g, probes)
	go g.Serve(l)
	s.t.Cleanup(g.Stop)
	exact, _ := s.another(l.Addr().(*net.TCPAddr).Port, true)
	return exact
}

// nothing is a picker that always names the same endpoint.
type nothing string

// Process implements extprocv3.ExternalProcessorServer.
func (n nothing) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	headers := func() *extprocv3.HeadersResponse {
		return &extprocv3.HeadersResponse{Response: &extprocv3.CommonResponse{HeaderMutation: &extprocv3.HeaderMutation{
			SetHeaders: []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "x-gateway-destination-endpoint", RawValue: []byte(n)}}},
		}}}
	}
	part := func(b []byte) *extprocv3.BodyResponse {
		return &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
			Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: &extprocv3.StreamedBodyResponse{Body: b, EndOfStream: true}},
		}}}
	}
	var request, answer []byte
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		var all []*extprocv3.ProcessingResponse
		switch of := m.Request.(type) {
		case *extprocv3.ProcessingRequest_RequestHeaders:
			if of.RequestHeaders.EndOfStream {
				all = append(all, &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: headers()}})
			}
		case *extprocv3.ProcessingRequest_RequestBody:
			if request = append(request, of.RequestBody.Body...); of.RequestBody.EndOfStream {
				all = append(all, &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: headers()}},
					&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: part(request)}})
			}
		case *extprocv3.ProcessingRequest_ResponseHeaders:
			all = append(all, &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}}})
		case *extprocv3.ProcessingRequest_ResponseBody:
			if answer = append(answer, of.ResponseBody.Body...); of.ResponseBody.EndOfStream {
				all = append(all, &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: part(answer)}})
			}
		}
		for _, m := range all {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
	}
}
