package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// nano is a generated model for all tests.
var nano string

func TestMain(m *testing.M) {
	tmp, err := os.MkdirTemp("", "coppice-server-")
	if err != nil {
		panic(err)
	}
	nano = filepath.Join(tmp, "nano")
	if err := random.Generate(nano, random.Spec{Preset: random.Nano, Seed: 1}); err != nil {
		panic(err)
	}
	if os.Getenv(childVariable) != "" {
		err := child()
		os.RemoveAll(tmp)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	os.RemoveAll(tmp)
	if code == 0 {
		if err := leaks.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// bed is a server with a node and a client.
type bed struct {
	testing.TB
	node    *coppice.Node
	srv     *Server
	tok     *tokenizer.Tokenizer
	address string
	url     string
	key     string // sent with each request, if not empty
	session string // header X-Session-Id of requests
	client  *http.Client
	sim     *sim.Backend
	served  chan error
	paths   map[string]described
}

// chatTemplate is simple and shows all its inputs.
const chatTemplate = `{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`

// setup holds the parts that a test may change.
type setup struct {
	Server Config
	Node   coppice.Config
	CPU    cpu.Config
	Sim    *sim.Config // a simulated device instead of the CPU
	Fails  bool        // make the node fail
	// Tokenizer, if set, is used in place of the model's, with a simulated device that samples what
	// Script says.
	Tokenizer *tokenizer.Tokenizer
	Script    *script

	Listener net.Listener // instead of a TCP port
}

func start(t testing.TB, with setup) *bed {
	t.Helper()
	b := &bed{TB: t, served: make(chan error, 1), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	m, err := model.Open(nano)
	b.ok(err)
	defer m.Close()
	b.tok = m.Tokenizer()
	var backend engine.Backend
	with.Node.EOS = m.Config().EOS
	switch {
	case with.Tokenizer != nil:
		b.tok = with.Tokenizer
		with.Node.EOS = nil // the tokenizer's
		b.sim, err = sim.Open(sim.Config{Vocab: b.tok.VocabSize(), MaxRows: 16})
		backend = &scripted{b.sim, with.Script}
	case with.Sim != nil:
		cfg := *with.Sim
		cfg.Vocab = m.Config().Vocab
		b.sim, err = sim.Open(cfg)
		backend = b.sim
	default:
		if with.CPU.KVTokens == 0 {
			with.CPU.KVTokens = 8192
		}
		with.CPU.Threads = 1
		backend, err = cpu.Open(m, with.CPU)
	}
	b.ok(err)
	with.Node.Backend, with.Node.Tokenizer = backend, b.tok
	if with.Node.Scheduler.StepTokens == 0 {
		with.Node.Scheduler.StepTokens = 128
	}
	b.node, err = coppice.Open(with.Node)
	b.ok(err)
	t.Cleanup(func() {
		if err := b.node.Close(); (err != nil) != with.Fails {
			t.Errorf("the node ended with %v", err)
		}
	})
	template, err := chat.NewNamed(map[string]string{"default": chatTemplate}, nil, chat.Limits{})
	b.ok(err)
	with.Server.Node, with.Server.Model = b.node, "nano"
	if with.Server.Template == nil {
		with.Server.Template = template
	}
	b.srv, err = New(with.Server)
	b.ok(err)
	b.paths, _ = readDescribed(t, b.srv.fixed.document)
	l := with.Listener
	if l == nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
		b.ok(err)
	}
	b.address = l.Addr().String()
	b.url = "http://" + b.address
	go func() { b.served <- b.srv.Serve(l) }()
	t.Cleanup(func() {
		b.client.CloseIdleConnections()
		b.srv.Close()
		if err := <-b.served; err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bed) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// received is a response with its body read.
type received struct {
	*http.Response
	body []byte
}

// do sends a request with a JSON body, or none if body is "".
func (b *bed) do(method, path, body string) received {
	b.Helper()
	a, err := b.try(context.Background(), method, path, body)
	b.ok(err)
	return a
}

func (b *bed) try(ctx context.Context, method, path, body string) (received, error) {
	req, err := http.NewRequestWithContext(ctx, method, b.url+path, strings.NewReader(body))
	if err != nil {
		return received{}, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if b.key != "" {
		req.Header.Set("Authorization", "Bearer "+b.key)
	}
	if b.session != "" {
		req.Header.Set("X-Session-Id", b.session)
	}
	res, err := b.client.Do(req)
	if err != nil {
		return received{}, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	b.documented(method, req.URL.Path, res)
	return received{res, data}, err
}

// reply is an answer of either endpoint, or a chunk of one, or an error.
type reply struct {
	ID      string
	Object  string
	Model   string
	Choices []struct {
		Index        int
		Text         string
		Message      struct{ Role, Content string }
		Delta        struct{ Role, Content string }
		FinishReason string          `json:"finish_reason"`
		Logprobs     json.RawMessage `json:"logprobs"`
		TokenIDs     []int           `json:"token_ids"`
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		Drafts struct {
			Accepted int `json:"accepted_prediction_tokens"`
			Rejected int `json:"rejected_prediction_tokens"`
		} `json:"completion_tokens_details"`
	}
	Error *struct{ Message, Type, Param, Code string }
}

func (b *bed) decode(data []byte) *reply {
	b.Helper()
	var r reply
	if err := json.Unmarshal(data, &r); err != nil {
		b.Fatalf("%v in %q", err, data)
	}
	return &r
}

// ask posts a request that must get status 200.
func (b *bed) ask(path, body string) *reply {
	b.Helper()
	a := b.do("POST", path, body)
	if a.StatusCode != 200 {
		b.Fatalf("%s %s: %s %s", path, body, a.Status, a.body)
	}
	return b.decode(a.body)
}

// refused sends a request that must be refused with this status and error code, and returns the
// answer.
func (b *bed) refused(method, path, body string, status int, code string) received {
	b.Helper()
	a := b.do(method, path, body)
	if a.StatusCode != status {
		b.Fatalf("%s %s %.100s: %s %s, want %d", method, path, body, a.Status, a.body, status)
	}
	if e := b.decode(a.body).Error; e == nil || e.Code != code || e.Message == "" || e.Type == "" {
		b.Errorf("%s %s %.100s: %s, want code %s", method, path, body, a.body, code)
	}
	return a
}

// chunksOf reads a stream to its end: its chunks, and whether [DONE] came last.
func chunksOf(data []byte) (chunks []*reply, done bool, err error) {
	for event := range bytes.SplitSeq(data, []byte("\n\n")) {
		if len(event) == 0 {
			continue
		}
		text, ok := bytes.CutPrefix(event, []byte("data: "))
		if !ok || done {
			return nil, false, fmt.Errorf("event %q", event)
		}
		if string(text) == "[DONE]" {
			done = true
			continue
		}
		r := &reply{}
		if err := json.Unmarshal(text, r); err != nil {
			return nil, false, fmt.Errorf("%w in %q", err, text)
		}
		chunks = append(chunks, r)
	}
	return chunks, done, nil
}

// streamed posts a request and reads the stream.
func (b *bed) streamed(path, body string) []*reply {
	b.Helper()
	a := b.do("POST", path, body)
	if a.StatusCode != 200 || a.Header.Get("Content-Type") != "text/event-stream" {
		b.Fatalf("%s %s: %s %s", path, body, a.Status, a.body)
	}
	chunks, done, err := chunksOf(a.body)
	b.ok(err)
	if !done {
		b.Fatalf("no [DONE] in %s", a.body)
	}
	return chunks
}

func (b *bed) stats() coppice.Stats {
	b.Helper()
	st, err := b.node.Stats(context.Background())
	b.ok(err)
	return st
}

// until polls the node's figures until so returns true for them. It fails after two minutes.
func (b *bed) until(so func(*coppice.Stats) bool) {
	b.Helper()
	for end := time.Now().Add(2 * time.Minute); ; {
		st := b.stats()
		if so(&st) {
			return
		}
		if time.Now().After(end) {
			b.Fatalf("the condition does not hold:\n%v\ntenants %+v", st.Scheduler, st.Tenants)
		}
		if b.Context().Err() != nil {
			b.Fatal("the test is over")
		}
		time.Sleep(100 * time.Microsecond) // poll interval
	}
}

// unused returns the bytes that open requests hold of the node's memory: all but those of the watch for broken prefixes.
func (b *bed) unused() int64 { return b.srv.memory.Used() - int64(b.srv.breaks.Bytes()) }

// quiet waits until no request is open, and checks that no page has leaked.
func (b *bed) quiet() {
	b.Helper()
	var quiet coppice.Stats // a single check is not enough: a request of a disconnected client may be read only now
	b.until(func(s *coppice.Stats) bool {
		quiet = *s
		return s.Scheduler.Running+s.Scheduler.Waiting == 0 && s.Scheduler.HeldPages == 0 && s.Scheduler.Cache.ProtectedPages == 0 && !slices.ContainsFunc(s.Tenants, func(u scheduler.TenantUsage) bool { return u.Running+u.Waiting > 0 })
	})
	if quiet.LeakedPages != 0 {
		b.Errorf("%d pages lost", quiet.LeakedPages)
	}
}
