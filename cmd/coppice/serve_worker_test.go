package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/events/zmq"
	"github.com/coppice-llm/coppice/fleet"
	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/internal/natstest"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// blockSet is an events.Sink that collects the blocks of one worker.
type blockSet struct {
	mu   sync.Mutex
	held map[kv.BlockHash]bool
	news chan struct{} // signals a change; has room for one
}

func newBlockSet() *blockSet {
	return &blockSet{held: map[kv.BlockHash]bool{}, news: make(chan struct{}, 1)}
}

func (s *blockSet) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	select {
	case s.news <- struct{}{}:
	default:
	}
}

func (s *blockSet) Store(_ kv.Rank, st events.Stored) (err error) {
	s.change(func() {
		if st.HasParent && !s.held[st.Parent] {
			err = events.ErrUnknownParent
			return
		}
		for _, b := range st.Blocks {
			s.held[b.Hash] = true
		}
	})
	return err
}

func (s *blockSet) Remove(_ kv.Rank, _ kv.Tier, hashes []kv.BlockHash) {
	s.change(func() {
		for _, h := range hashes {
			delete(s.held, h)
		}
	})
}

func (s *blockSet) Clear(kv.Rank)  { s.change(func() { clear(s.held) }) }
func (s *blockSet) Forget(kv.Rank) {}

func (s *blockSet) Replace(r kv.Rank, dump []events.Stored) int {
	s.Clear(r)
	for _, st := range dump {
		_ = s.Store(r, st) // a refused one shows as a missing block in until
	}
	return 0
}

// until waits for n blocks to be held. The test's timeout is the limit.
func (s *blockSet) until(t *testing.T, n int) {
	t.Helper()
	for {
		s.mu.Lock()
		got := len(s.held)
		s.mu.Unlock()
		if got == n {
			return
		}
		select {
		case <-s.news:
		case <-time.After(patience):
			t.Fatalf("readers have %d blocks, want %d", got, n)
		}
	}
}

// workerProcess is a process of coppice serve that publishes events.
type workerProcess struct {
	*testing.T
	cmd   *exec.Cmd
	lines *bufio.Reader
	url   string
}

func startWorkerProcess(t *testing.T, args ...string) *workerProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"serve", "--addr", "127.0.0.1:0", "--backend", "sim", "--profile", "h200", "--no-page", "--api-key", "very-secret"}, args...)...)
	cmd.Env = append(os.Environ(), "COPPICE_TEST_MAIN=1")
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	w := &workerProcess{T: t, cmd: cmd, lines: bufio.NewReader(out)}
	for seen := ""; w.url == ""; {
		line, err := w.lines.ReadString('\n')
		if seen += line; err != nil {
			t.Fatalf("%v after %s", err, seen)
		}
		if m := serverGreets.FindStringSubmatch(line); m != nil {
			w.url = m[1]
		}
	}
	go io.Copy(io.Discard, w.lines)
	return w
}

// do sends a request that must get status 200. Any goroutine may call it, so it reports a
// failure without ending the test.
func (w *workerProcess) do(method, path, body string) string {
	w.Helper()
	req, err := http.NewRequest(method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.Error(err)
		return ""
	}
	req.Header.Set("Authorization", "Bearer very-secret")
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		w.Error(err)
		return ""
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 {
		w.Errorf("%s %s: %s %s %v", method, path, res.Status, data, err)
	}
	return string(data)
}

// load sends requests that share prefixes, some at a time.
func (w *workerProcess) load(requests int) {
	w.Helper()
	var clients sync.WaitGroup
	for c := range 4 {
		clients.Go(func() {
			for i := c; i < requests; i += 4 {
				prompt := strings.Repeat(fmt.Sprintf("story %d. ", i%5), 20) + strings.Repeat(fmt.Sprintf("chapter %d. ", i), 10)
				w.do("POST", "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":20,"ignore_eos":true}`, prompt))
			}
		})
	}
	clients.Wait()
}

// blocks waits until nothing runs and returns the number of whole blocks of this size, in tokens,
// in the tree. A block whose tokens are in several nodes counts once, for the node in which it
// ends.
func (w *workerProcess) blocks(size int) int {
	w.Helper()
	for {
		var st struct{ Running, Waiting int }
		if err := json.Unmarshal([]byte(w.do("GET", "/v1/cache/stats", "")), &st); err != nil {
			w.Fatal(err)
		}
		if st.Running+st.Waiting == 0 {
			break
		}
		runtime.Gosched()
	}
	var tree struct {
		Nodes     []struct{ Start, Tokens int }
		Truncated int
	}
	if err := json.Unmarshal([]byte(w.do("GET", "/v1/cache/tree", "")), &tree); err != nil || tree.Truncated > 0 {
		w.Fatalf("%v, %d nodes hidden", err, tree.Truncated)
	}
	n := 0
	for _, node := range tree.Nodes {
		n += (node.Start+node.Tokens)/size - node.Start/size
	}
	return n
}

// TestServePublish checks that a reader of a server's events has the same blocks as the
// server, over either transport, during evictions, after a flush and after the end.
func TestServePublish(t *testing.T) {
	t.Parallel()
	broker, err := natstest.Start(natstest.Config{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	for _, tc := range []struct {
		name   string
		args   []string
		source func(c *card.Card) events.Source
	}{
		{"zmq", []string{"--publish", "zmq://127.0.0.1:0", "--page-tokens", "4"}, func(c *card.Card) events.Source {
			return zmq.NewSource(zmq.SourceConfig{Endpoint: fmt.Sprintf("tcp://127.0.0.1:%d", c.ZMQ.Port),
				ReplayEndpoint: fmt.Sprintf("tcp://127.0.0.1:%d", c.ZMQ.ReplayPort), Topic: c.ZMQ.Topic})
		}},
		{"nats", []string{"--publish", broker.URL() + "?prefix=kv-test", "--array-events"}, func(c *card.Card) events.Source {
			src, err := nats.NewSource(nats.Config{URL: broker.URL(), Worker: c.Name, Prefix: c.NATS.Prefix, Retry: time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			return src
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { published(t, broker.URL(), tc.args, tc.source) })
	}
}

// published starts a worker with the arguments args and follows its events through load, evictions
// and a flush to its end. source returns where a worker with the card c publishes; brokerURL is
// the URL of the NATS server.
func published(t *testing.T, brokerURL string, args []string, source func(c *card.Card) events.Source) {
	const blockTokens = 32
	watcher, err := nats.NewWatcher(nats.WatcherConfig{Config: nats.Config{URL: brokerURL, Prefix: "kv-test"}})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	w := startWorkerProcess(t, append([]string{"--name", "worker-1", "--block-tokens", "32", "--kv-tokens", "4096"}, args...)...)
	text := w.do("GET", card.Path, "")
	c, err := card.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "worker-1" || c.URL != w.url || len(c.Models) != 1 || c.Models[0] != "demo" || !c.Keyed || c.BlockTokens != blockTokens ||
		c.PoolTokens != 4096 || c.StepTokens != 2048 || c.MaxRunning < 1 || c.MaxModelTokens < 1 || c.Epoch == 0 || c.Profile == nil || (c.ZMQ == nil) == (c.NATS == nil) {
		t.Errorf("%s", text)
	}
	if c.NATS != nil {
		if got := <-watcher.Changes(); got.Name != "worker-1" || string(got.Payload) != text {
			t.Errorf("registered %s %s", got.Name, got.Payload)
		}
	}
	w.load(10)
	sink := newBlockSet()
	sub, err := events.NewSubscriber(events.SubscriberConfig{BlockTokens: blockTokens, Grace: time.Millisecond}, sink)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	if err := sub.Add(kv.Rank{Worker: kv.WorkerID(c.ID())}, source(c), events.Follow{}); err != nil {
		t.Fatal(err)
	}
	sink.until(t, w.blocks(blockTokens)) // the blocks from before it connected
	w.load(60)
	n := w.blocks(blockTokens)
	sink.until(t, n)
	publishedFigures(t, w.do("GET", "/metrics", ""), n)
	w.do("POST", "/v1/cache/flush", "")
	sink.until(t, w.blocks(blockTokens))
	w.load(5)
	sink.until(t, w.blocks(blockTokens))
	if n := sub.Counts(); n.Malformed+n.OrphanBlocks+n.UnknownWorker+n.Gaps > 0 {
		t.Errorf("%v", n)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if c.NATS != nil {
		if got := <-watcher.Changes(); got.Name != "worker-1" || !got.Gone() {
			t.Errorf("%s was not told to be gone: %s", got.Name, got.Payload)
		}
	}
	sink.until(t, 0)
	if err := w.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// publishedFigures checks the metrics of a worker that holds this many blocks and has evicted
// some.
func publishedFigures(t *testing.T, metrics string, blocks int) {
	t.Helper()
	for _, want := range []string{fmt.Sprintf(`coppice_events_held_blocks{model_name="demo"} %d`, blocks), `coppice_events_lost_total{model_name="demo"} 0`} {
		if !strings.Contains(metrics, "\n"+want+"\n") {
			t.Errorf("no %s in %s", want, regexp.MustCompile(`(?m)^coppice_events_.*$`).FindAllString(metrics, -1))
		}
	}
	if blocks == 0 || !regexp.MustCompile(`coppice_evicted_tokens_total\{[^}]*\} [1-9]`).MatchString(metrics) {
		t.Errorf("%d blocks, nothing was evicted", blocks)
	}
}

// TestServeWithoutPublish checks that a server without --publish has a card and makes no
// events.
func TestServeWithoutPublish(t *testing.T) {
	t.Parallel()
	w := startWorkerProcess(t, "--advertise", "http://other:99", "--kv-tokens", "4096", "--pool", "fast")
	c, err := card.Parse([]byte(w.do("GET", card.Path, "")))
	if err != nil || c.URL != "http://other:99" || c.Pool != "fast" || c.ZMQ != nil || c.NATS != nil || c.BlockTokens != 0 || c.Epoch == 0 || c.PoolTokens != 4096 {
		t.Errorf("%+v, %v", c, err)
	}
	if strings.Contains(w.do("GET", "/metrics", ""), "coppice_events_") {
		t.Error("there are figures of events")
	}
}

// TestPublishPortTaken checks that an error names a port in use before anything is served.
func TestPublishPortTaken(t *testing.T) {
	taken := httptest.NewServer(nil)
	defer taken.Close()
	at := strings.TrimPrefix(taken.URL, "http://")
	refused(t, []string{"--publish", "PUB", at, "in use"}, "serve", "--addr", "127.0.0.1:0", "--backend", "sim", "--publish", "zmq://"+at+"?replay=0")
}

// request makes a node compute a new prompt of this length, different for each seed.
func request(t *testing.T, node *coppice.Node, seed, tokens int) {
	t.Helper()
	prompt := make([]kv.Token, tokens)
	for i := range prompt {
		prompt[i] = kv.Token(2 + (seed*131+i*7+seed*i)%500)
	}
	prompt[0], prompt[1] = kv.Token(2+seed%500), kv.Token(2+seed/500%500)
	for _, err := range node.Generate(t.Context(), coppice.Request{Tokens: prompt, MaxTokens: 2}) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestWorkerEndsWithItsNode checks that publishing ends with the node, and that readers learn
// that all blocks are gone.
func TestWorkerEndsWithItsNode(t *testing.T) {
	defer leaks.Check(t, goleak.IgnoreCurrent())
	backend, err := sim.Open(sim.Config{Pages: 4096, Vocab: 512})
	if err != nil {
		t.Fatal(err)
	}
	node, err := coppice.Open(coppice.Config{Backend: backend, Scheduler: scheduler.Config{Events: true, BlockTokens: 16}})
	if err != nil {
		t.Fatal(err)
	}
	w, err := fleet.Join(node, fleet.Config{Publish: []string{"zmq://127.0.0.1:0"}, URL: "http://127.0.0.1:1", Name: "w", Models: []string{"m"}})
	if err != nil {
		t.Fatal(err)
	}
	sink := newBlockSet()
	sub, err := events.NewSubscriber(events.SubscriberConfig{BlockTokens: 16, Grace: time.Millisecond}, sink)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	if err := sub.Add(kv.Rank{Worker: 1}, zmq.NewSource(zmq.SourceConfig{Endpoint: fmt.Sprintf("tcp://127.0.0.1:%d", w.Card().ZMQ.Port),
		ReplayEndpoint: fmt.Sprintf("tcp://127.0.0.1:%d", w.Card().ZMQ.ReplayPort)}), events.Follow{}); err != nil {
		t.Fatal(err)
	}
	for n := range 10 {
		request(t, node, n, 40)
	}
	sink.until(t, 20) // two whole blocks of each
	if err := node.FlushCache(t.Context()); err != nil {
		t.Fatal(err)
	}
	sink.until(t, 0)
	request(t, node, 10, 40)
	sink.until(t, 2)
	if m := w.Metrics(); m.HeldBlocks != 2 || m.Lost > 0 {
		t.Errorf("%v", m)
	}
	if err := node.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	sink.until(t, 0)
}
