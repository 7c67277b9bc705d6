package server

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/scheduler"
)

var rewriteBattery = flag.Bool("rewrite-battery", false, "write testdata/battery.txt anew from what the server answers")

const batteryFile = "testdata/battery.txt"

// The bystander is a request of another tenant than the hostile requests'. No other request has
// its seed.
const (
	bystander     = `{"prompt":"A bystander asks what light is.","max_tokens":8,"ignore_eos":true,"return_token_ids":true,"seed":770077}`
	bystanderSeed = 770077
)

var batteryKeys = []Key{{Secret: "secret-of-a", Tenant: "a"}, {Secret: "secret-of-b", Tenant: "b"}, {Secret: "secret-of-root", Tenant: "root", Admin: true}}

// watched records for each batch of the device whether it has a row of the bystander, and can
// hold the device.
type watched struct {
	gate    atomic.Pointer[chan struct{}] // batches wait until it is closed; nil: they do not wait
	batches atomic.Int64                  // batches seen so far
	last    atomic.Int64                  // number of the last batch with the bystander

	client *http.Client // the bystander's

	slot engine.Slot // the bystander's; -1: none. On the device's goroutine.
}

func (w *watched) batch(b *engine.Batch) error {
	n := w.batches.Add(1)
	for _, bind := range b.Binds {
		switch {
		case bind.Sampling.Seed == bystanderSeed:
			w.slot = bind.Slot
		case bind.Slot == w.slot:
			w.slot = -1
		}
	}
	if w.slot >= 0 && slices.ContainsFunc(b.Rows, func(r engine.Row) bool { return r.Slot == w.slot }) {
		w.last.Store(n)
	}
	if gate := w.gate.Load(); gate != nil {
		<-*gate
	}
	return nil
}

// hold makes batches wait until the returned function is called.
func (w *watched) hold() (release func()) {
	gate := make(chan struct{})
	w.gate.Store(&gate)
	return func() { w.gate.Store(nil); close(gate) }
}

// batteryBed returns a small server with a simulated device, for a hostile tenant a and a tenant
// b.
func batteryBed(t testing.TB) (*bed, *watched) {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	w := &watched{slot: -1, client: &http.Client{Transport: transport}}
	limits := Config{
		Keys: batteryKeys, Page: true, Pprof: true, MaxBodyBytes: 1 << 19, MaxTokenizeBytes: 1 << 16, MaxHeaderBytes: 16 << 10,
	}
	cfg := &sim.Config{Pages: 1 << 14, MaxPositions: 512, Logits: true, Faults: sim.Faults{Batch: w.batch}}
	return start(t, setup{Server: limits, Sim: cfg, Node: coppice.Config{FormatTimeout: time.Minute, Scheduler: scheduler.Config{Policy: scheduler.DLPM, StepTokens: 256}}}), w
}

// send sends a hostile request and reads the answer.
func (h *hostileRequest) send(b *bed) (status int, header http.Header, body []byte, err error) {
	if h.raw != "" {
		return h.sendRaw(b)
	}
	method, path := h.method, h.path
	if method == "" {
		method = "POST"
	}
	if path == "" {
		path = "/v1/completions"
	}
	req, err := http.NewRequestWithContext(b.Context(), method, b.url+path, strings.NewReader(h.body))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer secret-of-a")
	client := *b.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	return res.StatusCode, res.Header, body, err
}

func (h *hostileRequest) sendRaw(b *bed) (status int, header http.Header, body []byte, err error) {
	conn, err := net.Dial("tcp", b.address)
	if err != nil {
		return 0, nil, nil, err
	}
	defer conn.Close()
	var sent sync.WaitGroup
	sent.Go(func() { io.WriteString(conn, h.raw) }) // the server may close before the end
	defer sent.Wait()
	defer conn.Close()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, nil, nil, err
	}
	body, err = io.ReadAll(res.Body)
	if err != nil && len(body) > 0 {
		err = nil // the server did not read the rest of the request
	}
	return res.StatusCode, res.Header, body, err
}

// outcome summarizes an answer as a line of the table. fault explains what is wrong with an answer
// that is an error without a code, a type and a message of a helpful length; "" if nothing is.
func outcome(status int, header http.Header, body []byte) (line string, fault string) {
	if status < 400 {
		return fmt.Sprint(status), ""
	}
	if !strings.HasPrefix(header.Get("Content-Type"), "application/json") { // net/http's own answer to invalid HTTP
		return fmt.Sprintf("%d %s", status, bytes.TrimSpace(body)), ""
	}
	var e struct {
		Error struct{ Message, Type, Param, Code string }
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return fmt.Sprint(status), err.Error()
	}
	e.Error.Code = cmp.Or(e.Error.Code, e.Error.Type) // not all APIs have codes
	if e.Error.Code == "" || e.Error.Type == "" || len(e.Error.Message) < 12 || len(e.Error.Message) > 2000 {
		fault = "says too little or too much"
	}
	message, _, _ := strings.Cut(e.Error.Message, "\n")
	return fmt.Sprintf("%d %s: %.200s", status, e.Error.Code, message), fault
}

// askBystander returns the bystander's tokens. It uses its own connections: on a shared one a
// request waits until the previous one has ended, which may be after its answer.
func (w *watched) askBystander(b *bed) ([]int, error) {
	req, err := http.NewRequestWithContext(b.Context(), "POST", b.url+"/v1/completions", strings.NewReader(bystander))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer secret-of-b")
	res, err := w.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var r reply
	if err := json.NewDecoder(res.Body).Decode(&r); err != nil || res.StatusCode != 200 || len(r.Choices) != 1 {
		return nil, fmt.Errorf("%s, %v, %+v", res.Status, err, r.Error)
	}
	return r.Choices[0].TokenIDs, nil
}

// TestBattery: each of some hundred hostile requests has the outcome in testdata/battery.txt: a
// status below 500 with a helpful error, or success. The bystander gets the same tokens as
// alone, and no request leaves state.
func TestBattery(t *testing.T) {
	b, w := batteryBed(t)
	want, err := w.askBystander(b)
	b.ok(err)
	if len(want) != 8 {
		t.Fatalf("the bystander has %v", want)
	}
	all := battery()
	if len(all) < 300 {
		t.Errorf("%d hostile requests, want at least 300", len(all))
	}
	names := map[string]bool{}
	var got strings.Builder
	for i := range all {
		h := &all[i]
		if names[h.name] {
			t.Errorf("two are called %s", h.name)
		}
		names[h.name] = true
		var wg sync.WaitGroup
		wg.Go(func() {
			if tokens, err := w.askBystander(b); err != nil || !slices.Equal(tokens, want) {
				t.Errorf("%s: the bystander has %v, %v, want %v", h.name, tokens, err, want)
			}
		})
		status, header, body, err := h.send(b)
		wg.Wait()
		if err != nil {
			t.Errorf("%s: %v", h.name, err)
			continue
		}
		line, fault := outcome(status, header, body)
		if status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported || fault != "" {
			t.Errorf("%s: %s %s", h.name, line, fault)
		}
		fmt.Fprintf(&got, "%s: %s\n", h.name, line)
	}
	b.client.CloseIdleConnections()
	w.client.CloseIdleConnections()
	b.quiet()
	b.until(func(*coppice.Stats) bool { return b.srv.metrics.conns.Load() == 0 })
	if n, m := b.srv.bodies.Load(), b.unused(); n != 0 || m != 0 {
		t.Errorf("%d bytes of bodies and %d of memory are held", n, m)
	}
	compareBattery(t, got.String())
}

// compareBattery compares the outcomes with the file.
func compareBattery(t *testing.T, got string) {
	t.Helper()
	if *rewriteBattery {
		if err := errorsOf(os.MkdirAll("testdata", 0o755), os.WriteFile(batteryFile, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(batteryFile)
	if err != nil {
		t.Fatal(err)
	}
	want, lines := strings.Split(string(text), "\n"), strings.Split(got, "\n")
	for i := range max(len(want), len(lines)) {
		var a, b string
		if i < len(lines) {
			a = lines[i]
		}
		if i < len(want) {
			b = want[i]
		}
		if a != b {
			t.Errorf("line %d of %s: got\n%s\nwant\n%s\n(go test ./server -run TestBattery -rewrite-battery rewrites it)", i+1, batteryFile, a, b)
		}
	}
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestBatterySteps: next to an earlier hostile request, the bystander needs at most two device
// steps more than alone. This holds with fair shares (DLPM); first come, first served makes it
// wait for all earlier prompts.
func TestBatterySteps(t *testing.T) {
	b, w := batteryBed(t)
	steps := func(h *hostileRequest) int {
		release := w.hold()
		var wg sync.WaitGroup
		var answered atomic.Bool
		if h != nil {
			wg.Go(func() {
				defer answered.Store(true)
				if _, _, _, err := h.send(b); err != nil {
					t.Errorf("%s: %v", h.name, err)
				}
			})
			b.until(func(s *coppice.Stats) bool { return answered.Load() || opened(s, "a") })
		}
		before := w.batches.Load()
		wg.Go(func() {
			if _, err := w.askBystander(b); err != nil {
				t.Errorf("the bystander: %v", err)
			}
		})
		b.until(func(s *coppice.Stats) bool { return opened(s, "b") })
		release()
		wg.Wait()
		b.quiet()
		return int(w.last.Load() - before)
	}
	steps(nil) // cache its prompt
	alone := steps(nil)
	if alone < 8 {
		t.Fatalf("alone it takes %d steps", alone)
	}
	most, worst := 0, ""
	for _, h := range battery() {
		if h.raw != "" { // it never reaches the device
			continue
		}
		n := steps(&h)
		if n > alone+2 {
			t.Errorf("next to %q the bystander takes %d steps, alone %d", h.name, n, alone)
		}
		if n > most {
			most, worst = n, h.name
		}
	}
	t.Logf("alone the bystander takes %d steps, next to the worst (%s) %d", alone, worst, most)
}

// opened reports whether the scheduler has a request of a tenant.
func opened(s *coppice.Stats, tenant string) bool {
	return slices.ContainsFunc(s.Tenants, func(u scheduler.TenantUsage) bool { return u.Tenant == tenant && u.Running+u.Waiting > 0 })
}

// BenchmarkBystander measures the bystander's wall time alone, and next to hostile requests of
// one kind sent continuously on two connections.
func BenchmarkBystander(b *testing.B) {
	kinds := map[string][]hostileRequest{"alone": nil}
	for _, h := range battery() {
		kind, _, ok := strings.Cut(h.name, ":")
		if !ok {
			kind = "fields"
		}
		if h.raw == "" {
			kinds[kind] = append(kinds[kind], h)
		}
	}
	names := []string{"alone"}
	for kind := range kinds {
		if kind != "alone" {
			names = append(names, kind)
		}
	}
	slices.Sort(names[1:])
	for _, kind := range names {
		b.Run("beside="+strings.ReplaceAll(kind, " ", "-"), func(b *testing.B) {
			s, w := batteryBed(b)
			ctx, stop := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			for at := range min(2, len(kinds[kind])) {
				wg.Go(func() {
					for i := at; ctx.Err() == nil; i++ {
						kinds[kind][i%len(kinds[kind])].send(s)
					}
				})
			}
			for b.Loop() {
				if _, err := w.askBystander(s); err != nil {
					b.Error(err)
				}
			}
			stop()
			wg.Wait()
		})
	}
}
