package extproc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	extprocfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/coppice-llm/coppice/gateway"
	"github.com/coppice-llm/coppice/router"
)

const completions, ask = "/v1/completions", `{"prompt":[1,2,3,4,5,6,7,8,9],"max_tokens":2}`

// whole checks the answer to a request that was let go, and returns what was seen.
func whole(t *testing.T, e *envoy, err error) *seen {
	t.Helper()
	s := e.read()
	if err != nil || s.fault != "" || s.immediate != 0 || s.destination == "" || s.metadata != s.destination {
		t.Errorf("%v, fault %q, status %d %s, destination %q, in metadata %q", err, s.fault, s.immediate, s.text, s.destination, s.metadata)
	}
	return s
}

// TestCompletion plays a request and its answer in parts, as a stream.
func TestCompletion(t *testing.T) {
	f := newFleet(t, 1, nil)
	s := f.server(nil)
	var held int
	parts := []*extprocv3.ProcessingRequest{
		head("POST", completions, false, "content-type", "application/json", "content-length", "45"), bodyPart(ask[:10], false), bodyPart("", false), bodyPart(ask[10:], true),
		answerHead("200", false, "content-type", "text/event-stream"), answerPart("data: {\"a\":1}\n\nda", false), answerPart("ta: [DONE]\n\n", true),
	}
	next := sends(io.EOF, parts...)
	e := &envoy{ctx: t.Context(), next: func() (*extprocv3.ProcessingRequest, error) {
		m, err := next()
		if m.GetResponseHeaders() != nil {
			held = f.busy()
		}
		return m, err
	}}
	got := whole(t, e, s.Process(e))
	if got.destination != f.hosts[0] || got.body.String() != ask || !got.bodyEnds || got.set["content-length"] != fmt.Sprint(len(ask)) {
		t.Errorf("to %s: %s, ends %v, headers %v", got.destination, got.body.String(), got.bodyEnds, got.set)
	}
	if got.answer["x-coppice-worker"] != "a" || got.answer["x-coppice-prompt-blocks"] != "2" || got.answerBody.String() != "data: {\"a\":1}\n\ndata: [DONE]\n\n" || !got.answerEnds {
		t.Errorf("headers %v, answer %q, ends %v", got.answer, got.answerBody.String(), got.answerEnds)
	}
	if _, ok := got.answer["content-type"]; ok {
		t.Errorf("a header of the worker's is set again: %v", got.answer)
	}
	if held != 1 || f.busy() != 0 {
		t.Errorf("%d places were held, %d are still", held, f.busy())
	}
}

// TestForms plays the forms that requests and answers can have.
func TestForms(t *testing.T) {
	f := newFleet(t, 3, nil)
	s := f.server(func(c *Config) {
		c.Priority = func(name string) (int, bool) { return -7, name == "batch" }
		c.WritePriority = true
	})
	list := func(hosts ...string) (all []any) {
		for _, h := range hosts {
			all = append(all, h)
		}
		return all
	}
	hint := func(value any) *extprocv3.ProcessingRequest {
		return with(head("POST", completions, false), metadataSubset, keySubset, value)
	}
	for _, tc := range []struct {
		name   string
		first  *extprocv3.ProcessingRequest
		rest   []*extprocv3.ProcessingRequest
		status int    // of an immediate response; 0: the request goes to a worker
		text   string // in the immediate response, or the worker's body
		to     string // "": any worker
		trails bool
	}{
		{name: "no hint", first: head("POST", completions, false), text: ask},
		{name: "a list", first: hint(list(f.hosts[1])), text: ask, to: f.hosts[1]},
		{name: "a string", first: hint("192.0.2.1:80, " + f.hosts[2] + ","), text: ask, to: f.hosts[2]},
		{name: "null", first: hint(nil), text: ask},
		{name: "an empty list", first: hint(list()), status: 503, text: "none of the endpoints"},
		{name: "an empty string", first: hint(""), status: 503, text: "none of the endpoints"},
		{name: "others' endpoints", first: hint(list("192.0.2.1:80")), status: 503, text: "none of the endpoints"},
		{name: "a number", first: hint(7), status: 503, text: "none of the endpoints"},
		{name: "numbers", first: hint([]any{7, true}), status: 503, text: "none of the endpoints"},
		{name: "models", first: head("GET", "/v1/models", true), rest: []*extprocv3.ProcessingRequest{}, status: 200, text: `"id":"m"`},
		{name: "for operators", first: head("GET", "/metrics", true), rest: []*extprocv3.ProcessingRequest{}, status: 404, text: "unknown_url"},
		{name: "unknown", first: head("POST", "/v2/x", false), status: 404, text: "unknown_url"},
		{name: "wrong method", first: head("GET", completions, true), rest: []*extprocv3.ProcessingRequest{}, status: 405, text: "POST"},
		{name: "no path", first: head("POST", "", false), status: 400, text: "method and path"},
		{name: "a strange path", first: head("POST", "models", false), status: 400, text: "method and path"},
		{name: "no JSON", first: head("POST", completions, false), rest: []*extprocv3.ProcessingRequest{bodyPart("hello", true)}, status: 400, text: "invalid_json"},
		{name: "no body at all", first: head("POST", completions, true), rest: []*extprocv3.ProcessingRequest{}, status: 400, text: "invalid_json"},
		{name: "an empty body", first: head("POST", "/tokenize", false), rest: []*extprocv3.ProcessingRequest{bodyPart("", true)}, text: ""},
		{name: "trailers", first: head("POST", completions, false), rest: []*extprocv3.ProcessingRequest{bodyPart(ask, false), trailers()}, text: ask, trails: true},
		{name: "trailers alone", first: head("POST", "/tokenize", false), rest: []*extprocv3.ProcessingRequest{trailers()}, text: "", trails: true},
		{name: "rewrite", first: head("POST", completions, false, headerModel, "m"), rest: []*extprocv3.ProcessingRequest{bodyPart(`{"model":"alias","prompt":[1]}`, true)},
			text: `{"model":"m","prompt":[1]}`},
		{name: "rewrite to an unknown one", first: head("POST", completions, false, headerModel, "other"), status: 404, text: "other"},
		{name: "priority", first: head("POST", completions, false, headerObjective, "batch"), rest: []*extprocv3.ProcessingRequest{bodyPart(`{ }`, true)}, text: `{"priority":-7 }`},
		{name: "unknown objective", first: head("POST", completions, false, headerObjective, "x"), text: ask},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rest := tc.rest
			if rest == nil {
				rest = []*extprocv3.ProcessingRequest{bodyPart(ask, true)}
			}
			if tc.status == 0 {
				rest = append(rest, answerHead("200", false), answerPart("{}", false), answerTrailers())
			}
			e, err := s.play(t, append([]*extprocv3.ProcessingRequest{tc.first}, rest...)...)
			if tc.status != 0 {
				if got := e.read(); err != nil || got.fault != "" || got.immediate != tc.status || !strings.Contains(got.text, tc.text) || got.set != nil {
					t.Errorf("%v, fault %q, status %d, want %d: %s", err, got.fault, got.immediate, tc.status, got.text)
				}
			} else {
				got := whole(t, e, err)
				if got.body.String() != tc.text || tc.to != "" && got.destination != tc.to || got.trailers != tc.trails || got.bodyEnds == tc.trails {
					t.Errorf("to %s: %s, ends %v, trailers %v", got.destination, got.body.String(), got.bodyEnds, got.trailers)
				}
				if length, ok := got.set["content-length"]; ok == tc.trails || ok && length != fmt.Sprint(len(tc.text)) {
					t.Errorf("content-length is %q", length)
				}
				if got.answerBody.String() != "{}" || !got.answerTrail || got.answerEnds {
					t.Errorf("answer %q, trailers %v", got.answerBody.String(), got.answerTrail)
				}
			}
			if n := f.busy(); n != 0 {
				t.Errorf("%d places are held", n)
			}
		})
	}
}

// TestFallbacks checks the list of endpoints, and that the reservation follows the endpoint that Envoy says has served.
func TestFallbacks(t *testing.T) {
	f := newFleet(t, 3, nil)
	s := f.server(func(c *Config) { c.Fallbacks = 5 })
	served := ""
	next := sends(io.EOF, head("POST", completions, false), bodyPart(ask, true))
	var e *envoy
	e = &envoy{ctx: t.Context(), next: func() (*extprocv3.ProcessingRequest, error) {
		m, err := next()
		if err != nil && served == "" {
			served = strings.Split(e.read().destination, ",")[2]
			next = sends(io.EOF, with(answerHead("200", false), metadataDestination, keyServed, served), answerPart("{}", true))
			return next()
		}
		return m, err
	}}
	got := whole(t, e, s.Process(e))
	if n := len(strings.Split(got.destination, ",")); n != 3 {
		t.Errorf("%d endpoints: %s", n, got.destination)
	}
	for i, host := range f.hosts {
		if host == served && got.answer["x-coppice-worker"] != string(rune('a'+i)) {
			t.Errorf("%s served, and the answer names %s", served, got.answer["x-coppice-worker"])
		}
	}
	if got.answer["x-coppice-attempts"] != "2" || f.busy() != 0 {
		t.Errorf("headers %v, %d places are held", got.answer, f.busy())
	}
}

// TestFallbacksOfAFilter checks the number of fallbacks that a filter asks for in its metadata.
func TestFallbacksOfAFilter(t *testing.T) {
	f := newFleet(t, 3, nil)
	s := f.server(func(c *Config) { c.Fallbacks = 1 })
	for text, want := range map[string]int{"0": 1, "2": 3, "99": 3, "-1": 1, "many": 2, "": 2} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(metadataFallbacks, text))
		e := &envoy{ctx: ctx, next: sends(io.EOF, head("POST", completions, false), bodyPart(ask, true), answerHead("200", true))}
		if got := whole(t, e, s.Process(e)); len(strings.Split(got.destination, ",")) != want {
			t.Errorf("%q: %s, want %d endpoints", text, got.destination, want)
		}
	}
}

// TestRetries checks that Envoy may repeat a request whose worker fails only if there is a fallback and the request is safe to repeat.
func TestRetries(t *testing.T) {
	f := newFleet(t, 2, nil)
	s := f.server(nil)
	for _, tc := range []struct{ fallbacks, body, want string }{
		{"1", ask, "reset"},
		{"0", ask, ""},
		{"1", `{"prompt":[1],"max_tokens":2,"store":true}`, ""},
	} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(metadataFallbacks, tc.fallbacks))
		e := &envoy{ctx: ctx, next: sends(io.EOF, head("POST", completions, false), bodyPart(tc.body, true), answerHead("200", true))}
		if got := whole(t, e, s.Process(e)); got.set[headerRetryOn] != tc.want {
			t.Errorf("%s, %s fallbacks: %q, want %q", tc.body, tc.fallbacks, got.set[headerRetryOn], tc.want)
		}
	}
}

// TestConformanceHeaders checks the headers of the extension's conformance tests, which other servers ignore.
func TestConformanceHeaders(t *testing.T) {
	f := newFleet(t, 3, nil)
	host, _, _ := strings.Cut(f.hosts[0], ":")
	for selection, want := range map[string]string{f.hosts[2]: f.hosts[2], host: "", "192.0.2.1": "none"} {
		s := f.server(func(c *Config) { c.Conformance = true })
		e, err := s.play(t, head("POST", completions, false, headerSelection, selection), bodyPart(ask, true),
			with(answerHead("200", true), metadataDestination, keyServed, f.hosts[2]))
		got := e.read()
		if want == "none" {
			if got.immediate != 503 {
				t.Errorf("%s: to %s", selection, got.destination)
			}
			continue
		}
		if err != nil || want != "" && got.destination != want || got.answer[headerServed] != f.hosts[2] {
			t.Errorf("%s: %v, to %s, headers %v", selection, err, got.destination, got.answer)
		}
	}
	e, err := f.server(nil).play(t, head("POST", completions, false, headerSelection, "192.0.2.1"), bodyPart(ask, true), answerHead("200", true))
	whole(t, e, err)
}

// TestViolations checks that a stream which breaks the protocol ends with an error and gives its place back.
func TestViolations(t *testing.T) {
	f := newFleet(t, 1, nil)
	s := f.server(nil)
	h, b := head("POST", completions, false), bodyPart(ask, true)
	modes := func(request, response extprocfilterv3.ProcessingMode_BodySendMode) *extprocv3.ProcessingRequest {
		m := head("POST", completions, false)
		m.ProtocolConfig = &extprocv3.ProtocolConfiguration{RequestBodyMode: request, ResponseBodyMode: response}
		return m
	}
	const duplex, buffered = extprocfilterv3.ProcessingMode_FULL_DUPLEX_STREAMED, extprocfilterv3.ProcessingMode_BUFFERED
	for name, tc := range map[string]struct {
		all  []*extprocv3.ProcessingRequest
		want codes.Code
	}{
		"nothing":                  {nil, codes.OK},
		"no headers":               {[]*extprocv3.ProcessingRequest{b}, codes.InvalidArgument},
		"an empty message":         {[]*extprocv3.ProcessingRequest{{}}, codes.InvalidArgument},
		"headers twice":            {[]*extprocv3.ProcessingRequest{h, h}, codes.InvalidArgument},
		"an answer in the body":    {[]*extprocv3.ProcessingRequest{h, answerHead("200", true)}, codes.InvalidArgument},
		"a body after its end":     {[]*extprocv3.ProcessingRequest{h, b, b}, codes.InvalidArgument},
		"an answer's body first":   {[]*extprocv3.ProcessingRequest{h, b, answerPart("x", true)}, codes.InvalidArgument},
		"the answer twice":         {[]*extprocv3.ProcessingRequest{h, b, answerHead("200", false), answerHead("200", false)}, codes.InvalidArgument},
		"an answer after its end":  {[]*extprocv3.ProcessingRequest{h, b, answerHead("200", true), answerPart("x", true)}, codes.InvalidArgument},
		"trailers after the body":  {[]*extprocv3.ProcessingRequest{h, b, answerHead("200", false), trailers()}, codes.InvalidArgument},
		"buffered requests":        {[]*extprocv3.ProcessingRequest{modes(buffered, duplex)}, codes.FailedPrecondition},
		"no bodies of answers":     {[]*extprocv3.ProcessingRequest{modes(duplex, extprocfilterv3.ProcessingMode_NONE)}, codes.FailedPrecondition},
		"the right modes":          {[]*extprocv3.ProcessingRequest{modes(duplex, duplex), b, answerHead("200", true)}, codes.OK},
		"gone after the headers":   {[]*extprocv3.ProcessingRequest{h}, codes.OK},
		"gone in the body":         {[]*extprocv3.ProcessingRequest{h, bodyPart(ask[:9], false)}, codes.OK},
		"gone before the answer":   {[]*extprocv3.ProcessingRequest{h, b}, codes.OK},
		"gone in the answer":       {[]*extprocv3.ProcessingRequest{h, b, answerHead("200", false), answerPart("x", false)}, codes.OK},
		"a status that is no text": {[]*extprocv3.ProcessingRequest{h, b, answerHead("many", true)}, codes.OK},
	} {
		e, err := s.play(t, tc.all...)
		if status.Code(err) != tc.want || e.read().fault != "" || f.busy() != 0 {
			t.Errorf("%s: %v, want %v; fault %q, %d places are held", name, err, tc.want, e.read().fault, f.busy())
		}
	}
}

// TestManyParts sends a body in 10,000 parts, and one of 100 MB, of which the picker reads no more than its limit.
func TestManyParts(t *testing.T) {
	f := newFleet(t, 1, func(c *gateway.Config) { c.MaxBodyBytes = 1 << 20 })
	s := f.server(nil)
	text := `{"prompt":[` + strings.Repeat("1,", 49_990) + `1],"max_tokens":2}`
	const parts = 10_000
	sent := -1
	each := len(text)/parts + 1
	e := &envoy{ctx: t.Context(), next: func() (*extprocv3.ProcessingRequest, error) {
		sent++
		lo, hi := min(len(text), (sent-1)*each), min(len(text), sent*each)
		switch {
		case sent == 0:
			return head("POST", completions, false), nil
		case sent <= parts:
			return bodyPart(text[lo:hi], sent == parts), nil
		case sent == parts+1:
			return answerHead("200", true), nil
		}
		return nil, io.EOF
	}}
	if got := whole(t, e, s.Process(e)); got.body.String() != text || !got.bodyEnds {
		t.Errorf("the worker gets %d bytes of %d", got.body.Len(), len(text))
	}

	part := strings.Repeat(" ", 64<<10)
	const all = 100_000_000
	for name, length := range map[string]string{"by its length": "100000000", "in the middle": "x"} {
		sent := 0
		e := &envoy{ctx: t.Context(), next: func() (*extprocv3.ProcessingRequest, error) {
			sent++
			if sent == 1 {
				return head("POST", completions, false, "content-length", length), nil
			}
			return bodyPart(part, sent*len(part) > all), nil
		}}
		err := s.Process(e)
		got := e.read()
		if err != nil || got.immediate != 413 || got.fault != "" {
			t.Errorf("%s: %v, %d %s", name, err, got.immediate, got.text)
		}
		if most := 2 + (1<<20)/len(part); sent > most || name == "by its length" && sent > 1 {
			t.Errorf("%s: %d messages were read, want at most %d", name, sent, most)
		}
	}
	if n := f.busy(); n != 0 {
		t.Errorf("%d places are held", n)
	}
}

// TestClientLeaves ends the stream while the picker reads the body, and while the request waits for a worker.
func TestClientLeaves(t *testing.T) {
	f := newFleet(t, 1, func(c *gateway.Config) { c.MaxOpen = 2 })
	s := f.server(nil)
	gone := status.Error(codes.Canceled, "client has left")
	for range 5 { // more than MaxOpen: each gives its place back
		e := &envoy{ctx: t.Context(), next: sends(gone, head("POST", completions, false), bodyPart(ask[:9], false))}
		if err := s.Process(e); !errors.Is(err, gone) || len(e.got) != 0 {
			t.Errorf("%v, %d messages", err, len(e.got))
		}
	}
	if e, err := s.play(t, head("POST", completions, false), bodyPart(ask, true), answerHead("200", true)); err != nil || e.read().destination == "" {
		t.Errorf("afterwards: %v, %+v", err, e.read())
	}
}

// TestOverload checks that a request waits while all workers are busy, that a full queue is status 429, and that a client may leave meanwhile.
func TestOverload(t *testing.T) {
	f := newFleet(t, 1, func(c *gateway.Config) {
		c.Router.MaxQueued = 1
		c.Workers[0].MaxRunning = 1
		c.Router.BusyFactor = 1e-9
	})
	s := f.server(nil)
	start := func(ctx context.Context) (*envoy, chan *extprocv3.ProcessingRequest, chan error) {
		in, done := make(chan *extprocv3.ProcessingRequest, 8), make(chan error, 1)
		e := &envoy{ctx: ctx, next: func() (*extprocv3.ProcessingRequest, error) {
			select {
			case m, ok := <-in:
				if ok {
					return m, nil
				}
				return nil, io.EOF
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}
		in <- head("POST", completions, false)
		in <- bodyPart(ask, true)
		go func() { done <- s.Process(e) }()
		return e, in, done
	}
	_, first, firstDone := start(t.Context())
	f.until("the first has its place", func() bool { return f.busy() == 1 })
	ctx, leave := context.WithCancel(t.Context())
	left, _, leftDone := start(ctx)
	full := func() {
		t.Helper()
		f.until("one waits", func() bool { return f.queued() == 1 })
		if e, err := s.play(t, head("POST", completions, false), bodyPart(ask, true)); err != nil || e.read().immediate != 429 {
			t.Errorf("a full queue: %v, %+v", err, e.read())
		}
	}
	full()
	leave()
	if err := <-leftDone; err == nil && len(left.got) != 0 {
		t.Errorf("who has left gets %v, %v", left.read(), err)
	}
	second, in, secondDone := start(t.Context())
	full()
	first <- answerHead("200", true)
	close(first)
	if err := <-firstDone; err != nil {
		t.Error(err)
	}
	in <- answerHead("200", true)
	close(in)
	whole(t, second, <-secondDone)
	if n := f.busy(); n != 0 {
		t.Errorf("%d places are held", n)
	}
}

// TestEndpointsReplaced replaces the list of workers again and again under load: each request has exactly one ending.
func TestEndpointsReplaced(t *testing.T) {
	f := newFleet(t, 4, func(c *gateway.Config) { c.QueueTimeout = time.Second })
	s := f.server(func(c *Config) { c.Fallbacks = 2 })
	all := make([]gateway.WorkerConfig, len(f.hosts))
	for i, host := range f.hosts {
		all[i].URL = "http://" + host
	}
	var stop atomic.Bool
	var changes, load sync.WaitGroup
	changes.Go(func() {
		random := rand.New(rand.NewPCG(1, 2))
		for !stop.Load() {
			some := append([]gateway.WorkerConfig{}, all...)
			random.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
			if err := f.SetWorkers(some[:1+random.IntN(len(some))]); err != nil {
				t.Error(err)
			}
		}
	})
	var sent, refused atomic.Int64
	for n := range 4 {
		load.Go(func() {
			for i := range 60 {
				body := fmt.Sprintf(`{"prompt":[%d,%d,3,4,5,6,7,8,9],"max_tokens":2}`, n, i)
				e, err := s.play(t, head("POST", completions, false), bodyPart(body, true), answerHead("200", false), answerPart("{}", true))
				switch got := e.read(); {
				case err != nil || got.fault != "":
					t.Errorf("%v, fault %q", err, got.fault)
				case got.immediate == 503:
					refused.Add(1)
				case got.body.String() == body && got.answerEnds && got.destination != "":
					sent.Add(1)
				default:
					t.Errorf("status %d, body %q", got.immediate, got.body.String())
				}
			}
		})
	}
	load.Wait()
	stop.Store(true)
	changes.Wait()
	if sent.Load() == 0 || sent.Load()+refused.Load() != 240 {
		t.Errorf("%d sent, %d refused", sent.Load(), refused.Load())
	}
	if n := f.busy(); n != 0 {
		t.Errorf("%d places are held", n)
	}
}

// FuzzProcess plays any messages in any order: no panic, each stream has one ending that the protocol allows, and no place stays held.
func FuzzProcess(f *testing.F) {
	for _, seed := range [][]byte{
		{0, 4, 7, 9}, {0, 3, 4, 7, 8, 9}, {0, 3, 6, 7, 8, 10}, {1, 7}, {2, 5}, {0, 0}, {0, 5}, {11, 4, 7, 10}, {12, 4}, {0, 3, 13}, {14, 4, 15, 9},
	} {
		f.Add(seed)
	}
	fleet := newFleet(f, 2, nil)
	s := fleet.server(func(c *Config) {
		c.Fallbacks, c.Conformance, c.WritePriority = 1, true, true
		c.Priority = func(string) (int, bool) { return 3, true }
	})
	bodies := []string{ask, `{"prompt":`, ``, `[1]`, `{"model":"m","prompt":"x","model":"n"}`, "\xff", `{"prompt":[1],"stream":true}`}
	f.Fuzz(func(t *testing.T, script []byte) {
		var all []*extprocv3.ProcessingRequest
		for i, b := range script[:min(len(script), 64)] {
			text := bodies[int(b>>4)%len(bodies)]
			var m *extprocv3.ProcessingRequest
			switch b & 15 {
			case 0:
				m = head("POST", completions, false)
			case 1:
				m = head("POST", "/v1/chat/completions?x", true, headerModel, text)
			case 2:
				m = head("GET", "/v1/models", true)
			case 3:
				m = bodyPart(text[:len(text)/2], false)
			case 4:
				m = bodyPart(text, true)
			case 5:
				m = bodyPart(text[len(text)/2:], true)
			case 6:
				m = trailers()
			case 7:
				m = answerHead("200", false, "content-type", "text/event-stream")
			case 8:
				m = answerPart("data: "+text+"\n\n", false)
			case 9:
				m = answerPart("data: [DONE]\n\n", true)
			case 10:
				m = answerTrailers()
			case 11:
				m = with(head("POST", completions, false, headerObjective, text, headerSelection, fleet.hosts[0]), metadataSubset, keySubset, strings.ToValidUTF8(text, ""))
			case 12:
				m = head(text, text, i%2 == 0, "content-length", text)
			case 13:
				m = &extprocv3.ProcessingRequest{}
			case 14:
				m = with(head("POST", "/tokenize", false), metadataSubset, keySubset, []any{fleet.hosts[0], fleet.hosts[1]})
			case 15:
				m = with(answerHead(text, i%2 == 0), metadataDestination, keyServed, fleet.hosts[i%2])
			}
			all = append(all, m)
		}
		e, err := s.play(t, all...)
		got := e.read()
		if got.fault != "" || fleet.busy() != 0 {
			t.Fatalf("%v: %v, fault %q, %d places are held", script, err, got.fault, fleet.busy())
		}
		if status.Code(err) == codes.Unknown {
			t.Fatalf("%v: an error without a code: %v", script, err)
		}
	})
}

// TestSetMembers checks the change of bodies against all forms that JSON allows.
func TestSetMembers(t *testing.T) {
	members := []member{{"model", []byte(`"new"`)}, {"priority", []byte("5")}}
	for body, want := range map[string]string{
		`{}`:                                    `{"model":"new","priority":5}`,
		` { } `:                                 ` {"model":"new","priority":5 } `,
		`{"a":1}`:                               `{"model":"new","priority":5,"a":1}`,
		`{"model":"old"}`:                       `{"priority":5,"model":"new"}`,
		`{"model" : {"x":[1,2]} ,"a":"}"}`:      `{"priority":5,"model" : "new" ,"a":"}"}`,
		`{"priority":1,"model":null}`:           `{"priority":5,"model":"new"}`,
		`{"model":1,"a":{"model":2},"model":3}`: `{"priority":5,"model":"new","a":{"model":2},"model":"new"}`,
		`{"mod\u0065l":"old","priority":0}`:     `{"mod\u0065l":"new","priority":5}`,
		`[{"model":"old"}]`:                     `[{"model":"old"}]`,
		`{"model":"old"`:                        `{"model":"old"`,
		`{"model":}`:                            `{"model":}`,
		``:                                      ``,
	} {
		given := []byte(body)
		if got := string(setMembers(given, members)); got != want || !bytes.Equal(given, []byte(body)) {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}

// TestNew checks the faults of a configuration.
func TestNew(t *testing.T) {
	if _, err := New(Config{Fallbacks: 17}); err == nil || !strings.Contains(err.Error(), "Gateway is nil") || !strings.Contains(err.Error(), "Fallbacks is 17") {
		t.Error(err)
	}
	g, err := gateway.New(gateway.Config{Router: router.Config{BlockTokens: 4}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for n, ok := range map[int]bool{-1: false, 0: true, 16: true, 17: false} {
		if _, err := New(Config{Gateway: g, Fallbacks: n}); (err == nil) != ok {
			t.Errorf("Fallbacks %d: %v", n, err)
		}
	}
}
