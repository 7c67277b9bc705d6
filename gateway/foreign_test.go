package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/zmq"
	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/kv"
)

// telling is a worker that answers and publishes as vLLM or SGLang do.
type telling struct {
	t       *testing.T
	http    *httptest.Server
	answers map[string]string // by path
	mu      sync.Mutex
	asked   map[string]int // by path
}

// foreignRank is a publisher with history.
type foreignRank struct {
	*zmq.Sender
	mu   sync.Mutex
	sent []events.Message
}

func (r *foreignRank) Replay(from uint64) iter.Seq[events.Message] {
	return func(yield func(events.Message) bool) {
		r.mu.Lock()
		all := r.sent
		r.mu.Unlock()
		for _, m := range all {
			if m.Seq >= from && !yield(m) {
				return
			}
		}
	}
}

func (r *foreignRank) Snapshot(context.Context) (s events.Snapshot, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Next = uint64(len(r.sent))
	for _, m := range r.sent {
		s.Batches = append(s.Batches, m.Payload)
	}
	return s, nil
}

func (r *foreignRank) Epoch() uint64 { return 0 }

// publish sends a batch of events in SGLang's or vLLM's older form, arrays.
func (r *foreignRank) publish(t *testing.T, all ...[]any) {
	t.Helper()
	payload, err := msgpack.Marshal([]any{1.0, all, nil})
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	m := events.Message{Seq: uint64(len(r.sent)), Payload: payload}
	r.sent = append(r.sent, m)
	r.mu.Unlock()
	if err := r.Send(m); err != nil {
		t.Fatal(err)
	}
}

// breaksOff stands for an answer: the worker closes the connection without one.
const breaksOff = "breaks off"

// newTelling starts a worker with these answers by path besides the list of models.
func newTelling(t *testing.T, answers map[string]string) *telling {
	t.Helper()
	w := &telling{t: t, answers: map[string]string{"/v1/models": `{"data":[{"id":"m"}]}`, "/health": "", "/v1/completions": "{}"}, asked: map[string]int{}}
	for path, text := range answers {
		w.answers[path] = text
	}
	w.http = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asked[r.URL.Path]++
		switch text, ok := w.answers[r.URL.Path]; {
		case text == breaksOff:
			panic(http.ErrAbortHandler)
		case ok:
			io.WriteString(rw, text)
		default:
			http.NotFound(rw, r)
		}
	}))
	t.Cleanup(w.http.Close)
	return w
}

// says sets the answer at a path.
func (w *telling) says(path, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[path] = text
}

// rank starts the publisher of a rank.
func (w *telling) rank(cfg zmq.SenderConfig) *foreignRank {
	w.t.Helper()
	r := &foreignRank{Sender: zmq.NewSender(cfg)}
	if err := r.Start(r); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { r.Close() })
	return r
}

// listens is rank with free ports.
func (w *telling) listens(topic string) *foreignRank {
	return w.rank(zmq.SenderConfig{Endpoint: "tcp://127.0.0.1:0", ReplayEndpoint: "tcp://127.0.0.1:0", Bind: true, Topic: topic})
}

// source returns vLLM's description of a rank.
func (r *foreignRank) source(rank int, topic string) string {
	port := func(a net.Addr) int { return a.(*net.TCPAddr).Port }
	return fmt.Sprintf(`{"data_parallel_rank":%d,"endpoint":"tcp://*:%d","replay_endpoint":"tcp://0.0.0.0:%d","topic":%q}`, rank, port(r.Addr()), port(r.ReplayAddr()), topic)
}

// config returns vLLM 0.32's description of a rank, its KVEventsConfig.
func (r *foreignRank) config(topic string) string {
	port := func(a net.Addr) int { return a.(*net.TCPAddr).Port }
	return fmt.Sprintf(`{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:%d","replay_endpoint":"tcp://*:%d","buffer_steps":10000,"hwm":100000,"max_queue_size":100000,"topic":%q}`,
		port(r.Addr()), port(r.ReplayAddr()), topic)
}

// stored is a BlockStored of whole blocks of this many tokens, whose names begin with name.
func stored(name int, tokens []kv.Token, size int, medium string, more ...any) []any {
	var names []uint64
	for i := range len(tokens) / size {
		names = append(names, uint64(name+i))
	}
	return append([]any{"BlockStored", names, nil, tokens[:len(names)*size], size, nil, medium}, more...)
}

func (s *stand) holding(url string, blocks ...int) {
	s.t.Helper()
	s.until(fmt.Sprintf("%v blocks", blocks), func() bool {
		for _, w := range s.Fleet().Workers {
			if w.URL == url {
				for i, want := range blocks {
					if len(w.Ranks) != len(blocks) || w.Ranks[i].HeldBlocks != want {
						return false
					}
				}
				return true
			}
		}
		return false
	})
}

// TestWorkersThatTell: vLLM and SGLang say where their events are, how many ranks they have and how long their blocks
// are. The gateway needs nothing but their URL.
func TestWorkersThatTell(t *testing.T) {
	const size = 2 * blockTokens
	vllm := func(t *testing.T, by32 bool) {
		w := newTelling(t, map[string]string{"/metrics": "# HELP vllm:cache_config_info x\nvllm:cache_config_info{block_size=\"8\",cache_dtype=\"auto\",num_gpu_blocks=\"100\",engine=\"0\"} 1.0\n"})
		zero, one := w.listens("T"), w.listens("T")
		w.says("/kv_event_sources", "["+one.source(1, "T")+","+zero.source(0, "T")+"]")
		if by32 { // the form of vLLM 0.32
			w.says("/kv_event_sources", fmt.Sprintf(`{"1":%s,"0":%s}`, one.config("T"), zero.config("T")))
		}
		s := newStand(t, Config{NoPredict: true, Workers: []members.WorkerConfig{{URL: w.http.URL}}})
		zero.publish(t, stored(100, run(0, 40), size, "GPU"))
		one.publish(t, stored(100, run(5000, 80), size, "GPU"))
		s.holding(w.http.URL, 10, 20)
		s.overlaps(map[string][2]int{ // whole blocks of the worker, and never the last token
			"its prompt and one token": {41, 10}, "its prompt": {40, 8}, "a block less": {32, 6}, "half a block more than one": {12, 2}, "a block": {8, 0},
		})
		if c := s.members.All()[0].Status().Card; c.PoolTokens != 800 || c.HitTokens != size {
			t.Errorf("%+v", c)
		}
		// It is started again, with other ports and one rank.
		again := w.listens("")
		w.says("/kv_event_sources", "["+again.source(0, "")+"]")
		again.publish(t, stored(100, run(0, 24), size, "GPU"))
		s.holding(w.http.URL, 6)
	}
	t.Run("vLLM 0.32", func(t *testing.T) { vllm(t, true) })
	t.Run("vLLM", func(t *testing.T) { vllm(t, false) })
	t.Run("SGLang", func(t *testing.T) {
		w := newTelling(t, nil)
		r := w.listens("kv")
		config, _ := json.Marshal(fmt.Sprintf(`{"publisher":"zmq","replay_endpoint":"tcp://*:%d"}`, r.ReplayAddr().(*net.TCPAddr).Port))
		w.says("/server_info", fmt.Sprintf(`{"page_size":8,"max_total_num_tokens":4000,"kv_events_config":%s,"kv_events":{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":%d,"topic":"kv","block_size":8,"dp_size":1}}`,
			config, r.Addr().(*net.TCPAddr).Port))
		s := newStand(t, Config{NoPredict: true, Workers: []members.WorkerConfig{{URL: w.http.URL}}})
		r.publish(t, stored(100, run(0, 40), size, "GPU"))
		s.holding(w.http.URL, 10)
		s.overlaps(map[string][2]int{"its prompt and one token": {41, 10}, "its prompt": {40, 8}})
		if c := s.members.All()[0].Status().Card; c.PoolTokens != 4000 || c.HitTokens != size {
			t.Errorf("%+v", c)
		}
	})
	for name, answers := range map[string]map[string]string{
		"nothing":         {},
		"no sources":      {"/kv_event_sources": breaksOff},
		"no metrics":      {"/metrics": breaksOff},
		"no information":  {"/server_info": breaksOff},
		"pages":           {"/kv_event_sources": "<html>", "/metrics": "<html>", "/server_info": "<html>"},
		"null publisher":  {"/kv_event_sources": `{"0":{"enable_kv_cache_events":false,"publisher":"null","endpoint":"tcp://*:5557","replay_endpoint":null,"topic":""}}`},
		"render only":     {"/kv_event_sources": "{}"},
		"no publisher":    {"/kv_event_sources": "[]", "/server_info": `{"kv_events":null}`},
		"nonsense":        {"/kv_event_sources": `[{"endpoint":7}]`, "/metrics": cacheLine(`block_size="-1",num_gpu_blocks="x"`), "/server_info": `{"kv_events":{"publisher":"zmq","endpoint_port_base":70000,"dp_size":3}}`},
		"other transport": {"/kv_event_sources": `[{"endpoint":"ipc:///tmp/x"}]`, "/server_info": `{"kv_events":{"publisher":"null","endpoint_port_base":5557}}`},
		"many":            {"/kv_event_sources": "[" + strings.Repeat(`{"endpoint":"tcp://*:1"},`, 2000) + `{"endpoint":"tcp://*:1"}]`, "/metrics": cacheLine(`block_size="99999999999"`)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTelling(t, answers)
			s := newStand(t, Config{Workers: []members.WorkerConfig{{URL: w.http.URL}}})
			s.ready(1)
			if got := s.Fleet().Workers[0]; got.Mode != "approximate" || len(got.Ranks) != 1 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestWorkersThatBreakOff: some servers close the connection at a path that they do not know, or while they are busy. The
// gateway keeps what such a worker said before, and hears when it says something else.
func TestWorkersThatBreakOff(t *testing.T) {
	const size = 2 * blockTokens
	w := newTelling(t, map[string]string{"/metrics": cacheLine(`block_size="8",num_gpu_blocks="100"`)})
	r := w.listens("")
	w.says("/kv_event_sources", "["+r.source(0, "")+"]")
	s := newStand(t, Config{NoPredict: true, Workers: []members.WorkerConfig{{URL: w.http.URL}}})
	r.publish(t, stored(100, run(0, 40), size, "GPU"))
	s.holding(w.http.URL, 10)
	for _, paths := range [][]string{{"/kv_event_sources"}, {"/metrics"}, {"/kv_event_sources", "/metrics", "/server_info"}} {
		before := map[string]string{}
		for _, path := range paths {
			before[path] = w.answers[path]
			w.says(path, breaksOff)
		}
		asked := w.count(paths[0])
		s.until("the worker was asked again", func() bool { return w.count(paths[0]) >= asked+2 })
		if got, c := s.Fleet().Workers[0], s.members.All()[0].Status().Card; got.State != "healthy" || got.Mode != "events" || got.Ranks[0].HeldBlocks != 10 || c.HitTokens != size || c.PoolTokens != 800 {
			t.Errorf("%v break off: %+v, %+v", paths, got, c)
		}
		for path, text := range before {
			w.says(path, text)
		}
	}
	again := w.listens("")
	w.says("/kv_event_sources", "["+again.source(0, "")+"]")
	again.publish(t, stored(100, run(0, 24), size, "GPU"))
	s.holding(w.http.URL, 6)
}

// count returns how often a path was asked for.
func (w *telling) count(path string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[path]
}

func cacheLine(labels string) string { return "vllm:cache_config_info{" + labels + "} 1\n" }

// overlaps asks for the first tokens of run(0, …), as many as the first number of a case, which must overlap by as many
// blocks as the second one.
func (s *stand) overlaps(cases map[string][2]int) {
	s.t.Helper()
	for name, c := range cases {
		if r := s.ask(s.t.Context(), run(0, c[0]), ``); r.Header.Get(headerOverlap) != strconv.Itoa(c[1]) {
			s.t.Errorf("%s: %q blocks of %d tokens, want %d", name, r.Header.Get(headerOverlap), c[0], c[1])
		}
	}
}

// TestSaltedBlocksOfOthers: what a salted request left in SGLang's cache or in vLLM's is found with the same salt, and
// no other request learns of it. Blocks without a salt are found by all, but where tenants have keys only an admin learns how many.
func TestSaltedBlocksOfOthers(t *testing.T) {
	salts := PromptConfig{ForeignNamespace: func(_, salt string) kv.Namespace { return kv.Namespace{Salt: salt} }}
	digits := strings.Repeat("0123456789abcdef", 4)
	w := newTelling(t, nil)
	r := w.listens("")
	w.says("/kv_event_sources", "["+r.source(0, "")+"]")
	at := []members.WorkerConfig{{URL: w.http.URL}}
	tenant := func(r *http.Request) (string, bool, error) { return r.Header.Get("X-Tenant"), false, nil }
	open, keyed := newStand(t, Config{NoPredict: true, Workers: at, Prompt: salts}), newStand(t, Config{NoPredict: true, Workers: at, Prompt: salts, Tenant: tenant})
	r.publish(t,
		stored(100, run(0, 40), blockTokens, "GPU", map[string]any{"cache_salt": "mine"}),
		stored(200, run(1000, 40), blockTokens, "GPU", nil, append([]any{[]any{digits}}, make([]any, 9)...)),
		stored(300, run(2000, 40), blockTokens, "GPU"),
		stored(400, run(3000, 40), blockTokens, "EXTERNAL", map[string]any{"cache_salt": "mine"}))
	for _, c := range []struct {
		prompt      int
		salt        string
		open, keyed string
	}{
		{0, "", "0", ""}, {0, "mine", "10", "10"}, {0, "other", "0", "0"}, {0, digits, "0", "0"},
		{1000, "", "0", ""}, {1000, digits, "10", "10"}, {1000, "mine", "0", "0"},
		{2000, "", "10", ""}, {2000, "mine", "0", "0"},
		{3000, "", "0", ""}, {3000, "mine", "10", "10"},
	} {
		rest := ""
		if c.salt != "" {
			rest = fmt.Sprintf(`,"cache_salt":%q`, c.salt)
		}
		for s, want := range map[*stand]string{open: c.open, keyed: c.keyed} {
			s.holding(w.http.URL, 40)
			if r := s.ask(t.Context(), append(run(c.prompt, 40), 7), rest); r.StatusCode != 200 || r.Header.Get(headerOverlap) != want {
				t.Errorf("%+v: %s, %q blocks, want %q", c, r.Status, r.Header.Get(headerOverlap), want)
			}
		}
	}
}

// TestPublishersThatConnect: several workers connect to one port of the gateway and are told apart by their topics. One
// that takes another's topic harms only itself.
func TestPublishersThatConnect(t *testing.T) {
	a, b := newTelling(t, nil), newTelling(t, nil)
	pod := func(w *telling) string { return strings.TrimPrefix(w.http.URL, "http://") }
	s := newStand(t, Config{NoPredict: true, Bind: &Bind{Host: "127.0.0.1"}, Workers: []members.WorkerConfig{{URL: a.http.URL}, {URL: b.http.URL, Name: "pod-b"}}})
	s.until("both workers have answered", func() bool { return s.members.Summary().Ready == 2 }) // and wait for their publishers
	at := "tcp://" + s.members.BindAddr().String()
	ofA := a.rank(zmq.SenderConfig{Endpoint: at, Topic: "kv@" + pod(a) + "@m"})
	ofB := b.rank(zmq.SenderConfig{Endpoint: at, Topic: "kv@pod-b@m"})
	n := 0
	both := func() bool {
		n++
		ofA.publish(t, stored(100, run(0, 40), blockTokens, "GPU"))
		ofB.publish(t, stored(100, run(5000, 80), blockTokens, "GPU"))
		return s.at2(a.http.URL) == 10 && s.at2(b.http.URL) == 20
	}
	s.until("the blocks of both", both)
	liar := b.rank(zmq.SenderConfig{Endpoint: at, Topic: "kv@" + pod(a) + "@m"})
	s.until("the liar is refused", func() bool {
		liar.publish(t, []any{"AllBlocksCleared"})
		c, _ := s.members.BoundCounts()
		return c.Taken > 0
	})
	before, _ := s.members.BoundCounts()
	unknown := b.rank(zmq.SenderConfig{Endpoint: at, Topic: "kv@unknown@m"})
	s.until("an unknown topic", func() bool {
		unknown.publish(t, []any{"AllBlocksCleared"})
		c, _ := s.members.BoundCounts()
		return c.NoWorker > before.NoWorker
	})
	if s.at2(a.http.URL) != 10 || s.at2(b.http.URL) != 20 {
		t.Errorf("%+v", s.Fleet().Workers)
	}
	if counts := s.eventCounts(); counts["bound_taken"] == 0 || counts["bound_connections"] < 4 {
		t.Errorf("%v", counts)
	}
}

// at2 returns the blocks that a worker's first rank holds.
func (s *stand) at2(url string) int {
	for _, w := range s.Fleet().Workers {
		if w.URL == url && len(w.Ranks) > 0 {
			return w.Ranks[0].HeldBlocks
		}
	}
	return -1
}
