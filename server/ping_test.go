package server

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/sim"
)

// pingWire is a request for a stream of one API, and what its stream has.
type pingWire struct {
	path, body string
	begin      string // in the first bytes of a long prefill
	ping       string // in the bytes after them
	end        string // at the end of a whole stream
	fault      string // of a device that fails after the first bytes
	refused    string // of one that fails before
}

var pingWires = map[string]pingWire{
	"chat": {
		"/v1/chat/completions", `{"stream":true,"max_tokens":2,"messages":[{"role":"user","content":"What is light?"}]}`,
		": ping\n\n", ": ping\n\n", "data: [DONE]\n\n", `data: {"error":{"message":`, `{"error":{"message":`,
	},
	"completions": {
		"/v1/completions", `{"stream":true,"max_tokens":2,"prompt":["What is light?","What is air?"]}`,
		": ping\n\n", ": ping\n\n", "data: [DONE]\n\n", `data: {"error":{"message":`, `{"error":{"message":`,
	},
	"messages": {
		"/v1/messages", `{"stream":true,"max_tokens":2,"messages":[{"role":"user","content":"What is light?"}]}`,
		"event: message_start\n", "event: ping\n", "data: {\"type\":\"message_stop\"}\n\n", `event: error` + "\n" + `data: {"type":"error","error":{"type":"`, `{"type":"error","error":{"type":"`,
	},
	"responses": {
		"/v1/responses", `{"stream":true,"max_output_tokens":2,"input":"What is light?"}`,
		"event: response.in_progress\n", ": ping\n\n", "}\n\n", "event: response.failed\n", `{"error":{"message":`,
	},
	"ollama": {
		"/api/chat", `{"model":"nano","options":{"num_predict":2},"messages":[{"role":"user","content":"What is light?"}]}`,
		`"content":""},"done":false}` + "\n", `"content":""},"done":false}` + "\n", "}\n", `{"error":"`, `{"error":"`,
	},
	"generate": {
		"/api/generate", `{"model":"nano","options":{"num_predict":2},"prompt":"What is light?"}`,
		`"response":"","done":false}` + "\n", `"response":"","done":false}` + "\n", "}\n", `{"error":"`, `{"error":"`,
	},
}

// slowDevice is a simulated device whose batches wait for the gate, and then fail if broken is set.
type slowDevice struct {
	mu     sync.Mutex
	gate   chan struct{}
	broken error
}

func (d *slowDevice) batch(*engine.Batch) error {
	d.mu.Lock()
	gate := d.gate
	d.mu.Unlock()
	<-gate
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.broken
}

// hold closes the gate. The returned function opens it, and makes the device fail if err is not nil.
func (d *slowDevice) hold() (release func(err error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	gate := make(chan struct{})
	d.gate = gate
	var once sync.Once
	return func(err error) {
		once.Do(func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.broken = err
			close(gate)
		})
	}
}

func slowBed(t *testing.T, every time.Duration, fails bool) (*bed, *slowDevice) {
	open := make(chan struct{})
	close(open)
	d := &slowDevice{gate: open}
	cfg := &sim.Config{Pages: 1 << 10, MaxPositions: 512, Logits: true, Faults: sim.Faults{Batch: d.batch}}
	return start(t, setup{Server: Config{PingInterval: every}, Sim: cfg, Fails: fails}), d
}

// streamOf sends a request for a stream, and returns its body once the answer has begun.
func (b *bed) streamOf(w *pingWire) (*http.Response, *bufio.Reader) {
	b.Helper()
	req, err := http.NewRequest("POST", b.url+w.path, strings.NewReader(w.body))
	b.ok(err)
	req.Header.Set("Content-Type", "application/json")
	if w.path == "/v1/messages" {
		req.Header.Set("Anthropic-Version", "2023-06-01")
	}
	res, err := b.client.Do(req)
	b.ok(err)
	b.Cleanup(func() { res.Body.Close() })
	return res, bufio.NewReader(res.Body)
}

// readUntil reads lines up to the end of one that ends in text.
func readUntil(b *bed, r *bufio.Reader, text string) (all string) {
	b.Helper()
	for !strings.HasSuffix(all, text) {
		line, err := r.ReadString('\n')
		if all += line; err != nil {
			b.Fatalf("%v after %q, want %q", err, all, text)
		}
	}
	return all
}

// TestPings: while a prompt is computed, a stream of each API sends its beginning and then pings; what follows is the stream as always.
func TestPings(t *testing.T) {
	b, d := slowBed(t, time.Millisecond, false)
	for name, w := range pingWires {
		t.Run(name, func(t *testing.T) {
			release := d.hold()
			defer release(nil)
			res, r := b.streamOf(&w)
			said := readUntil(b, r, w.begin) + readUntil(b, r, w.ping) + readUntil(b, r, w.ping)
			if res.StatusCode != 200 {
				t.Errorf("%s %s", res.Status, said)
			}
			release(nil)
			rest, err := io.ReadAll(r)
			if err != nil || !strings.HasSuffix(string(rest), w.end) {
				t.Errorf("%v, %q, want it to end with %q", err, rest, w.end)
			}
			for _, once := range []string{"event: message_start", "event: response.created"} {
				if n := strings.Count(said+string(rest), once); n > 1 {
					t.Errorf("%d times %s", n, once)
				}
			}
		})
	}
	b.quiet()
}

// TestPingsOfTheQueue: a request that waits for a held device gets pings too.
func TestPingsOfTheQueue(t *testing.T) {
	b, d := slowBed(t, time.Millisecond, false)
	release := d.hold()
	defer release(nil)
	first, second := pingWires["chat"], pingWires["messages"]
	b.streamOf(&first)
	_, r := b.streamOf(&second)
	readUntil(b, r, second.ping)
	release(nil)
	if rest, err := io.ReadAll(r); err != nil || !strings.HasSuffix(string(rest), second.end) {
		t.Errorf("%v, %q", err, rest)
	}
}

// TestFaultAfterPings: an error after the first ping comes in the stream, in the form of the API; one before it is an HTTP status.
func TestFaultAfterPings(t *testing.T) {
	for name, w := range pingWires {
		t.Run(name, func(t *testing.T) {
			b, d := slowBed(t, time.Millisecond, true)
			release := d.hold()
			defer release(nil)
			_, r := b.streamOf(&w)
			readUntil(b, r, w.begin)
			release(errors.New("the device is gone"))
			rest, err := io.ReadAll(r)
			if err != nil || !strings.Contains(string(rest), w.fault) || strings.Contains(string(rest), "the device is gone") {
				t.Errorf("%v, %q, want %q", err, rest, w.fault)
			}
			b, d = slowBed(t, time.Hour, true)
			d.hold()(errors.New("the device is gone"))
			res, r := b.streamOf(&w)
			said, err := io.ReadAll(r)
			if err != nil || res.StatusCode != http.StatusServiceUnavailable || !strings.HasPrefix(string(said), w.refused) {
				t.Errorf("%s %v, %q, want %q", res.Status, err, said, w.refused)
			}
		})
	}
}

// TestPinger: a request in the queue waits three intervals for its first ping, a running one an interval, and each write puts the next
// one off.
func TestPinger(t *testing.T) {
	const every = time.Hour
	p := newPinger(every)
	defer p.timer.Stop()
	at := func(d time.Duration) time.Time { return p.since.Add(d) }
	if p.due(at(every)) || p.due(at(3*every-1)) || !p.due(at(3*every)) {
		t.Error("a request in the queue")
	}
	if p.due(at(every-1)) || !p.due(at(every)) {
		t.Error("the ping after the first one")
	}
	q := newPinger(every)
	defer q.timer.Stop()
	begun := q.since.Add(every / 2)
	if q.admitted(begun); q.due(begun.Add(every-1)) || !q.due(begun.Add(every)) {
		t.Error("a running request")
	}
	sent := begun.Add(every + every/2)
	if q.wrote(sent); q.due(sent.Add(every-1)) || !q.due(sent.Add(every)) {
		t.Error("after a write")
	}
}
