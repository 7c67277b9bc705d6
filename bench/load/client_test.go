package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/openai"
)

func hangUp(w *writer) {
	conn, _, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		conn.Close()
	}
}

func TestFailuresOfEachKind(t *testing.T) {
	plain := func(status int, body string) func(*writer) {
		return func(w *writer) { w.WriteHeader(status); io.WriteString(w, body) }
	}
	for _, tc := range []struct {
		kind Failure
		want string
		do   func(*writer)
	}{
		{Refused, `400 Bad Request: "max_tokens is 0"`, plain(400, `{"error":{"message":"max_tokens is 0"}}`)},
		{Refused, "--api-key", plain(401, "no key")},
		{Refused, "model's name", plain(404, "no such model")},
		{Busy, "slow down", plain(429, "slow down")},
		{Busy, "draining", plain(503, "draining")},
		{ServerError, "502", plain(502, "bad gateway")},
		{ServerError, "204", plain(204, "")},
		{Malformed, "application/json", func(w *writer) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"choices":[{"text":"all at once"}]}`)
		}},
		{Malformed, "not of the OpenAI API", func(w *writer) { w.event("{broken") }},
		{StreamError, "device lost", func(w *writer) { w.text("a"); w.event(`{"error":{"message":"device lost"}}`) }},
		{StreamError, "too long", func(w *writer) { w.event(`{"object":"error","message":"too long"}`) }},
		{Truncated, "without [DONE]", func(w *writer) { w.text("a") }},
		{Truncated, "without output", func(w *writer) { w.event("[DONE]") }},
		{Truncated, "unexpected EOF", func(w *writer) { w.text("a"); hangUp(w) }},
		{Connection, "EOF", hangUp},
		{Timeout, "timeout", func(w *writer) { w.text("a"); <-w.ctx.Done() }},
		{Timeout, "timeout", func(w *writer) { <-w.ctx.Done() }},
		{None, "", func(w *writer) { w.text("a"); w.event("[DONE]") }},
		{None, "", func(w *writer) { w.text("a"); w.event(`{"choices":[{"text":"","finish_reason":"stop"}]}`) }},
		{None, "", func(w *writer) { w.event(`{"choices":[{"text":"","finish_reason":"stop"}]}`); w.event("[DONE]") }}, // EOS at once
	} {
		t.Run(tc.kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				again := 0
				if tc.kind == Connection { // repeated by net/http, since Dial had used the connection
					again = 1
				}
				f := &fake{answer: func(w *writer, n int, q query) {
					if n <= again {
						tc.do(w)
						return
					}
					steady(ms, ms, 2)(w, n, q)
				}}
				r, err := Run(t.Context(), dialFake(t, f, ClientConfig{}), ids(4, 2), Config{Concurrency: 1, Requests: 3, Timeout: time.Minute}, nil)
				if err != nil || len(f.queries) != 3+again {
					t.Fatalf("%v: %d requests", err, len(f.queries))
				}
				if tc.kind == None {
					if r.Completed != 3 || r.Failed != 0 || len(r.Failures) != 0 {
						t.Fatalf("%+v", r)
					}
					return
				}
				if r.Completed != 2 || r.Failed != 1 || len(r.Failures) != 1 || r.Failures[0].Kind != tc.kind || r.Failures[0].Count != 1 || !strings.Contains(r.Failures[0].Example, tc.want) {
					t.Fatalf("want %v with %q: %+v", tc.kind, tc.want, r.Failures)
				}
				var b strings.Builder
				if err := r.WriteTable(&b); err != nil || !strings.Contains(b.String(), tc.kind.String()+", for example: ") {
					t.Errorf("%v: %s", err, b.String())
				}
			})
		})
	}
}

func TestTokensAreCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		chunks     []string
		output     int
		counted    counting
		chunkCount int
	}{
		"chunks":        {[]string{`{"choices":[{"text":"a b c"}]}`, `{"choices":[{"text":""}]}`, `{"choices":[{"text":"d"}]}`}, 2, byChunks, 2},
		"token ids":     {[]string{`{"choices":[{"text":"a b c","token_ids":[1,2,3]}]}`, `{"choices":[{"text":"","token_ids":[4]}]}`, `{"choices":[{"text":"","token_ids":[]}]}`}, 4, byTokenIDs, 2},
		"usage":         {[]string{`{"choices":[{"text":"a b c"}]}`, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":8}}`}, 8, byUsage, 1},
		"running usage": {[]string{`{"choices":[{"text":"a"}],"usage":{"completion_tokens":2}}`, `{"choices":[{"text":"b"}],"usage":{"completion_tokens":5}}`}, 5, byUsage, 2},
		"chat":          {[]string{`{"choices":[{"delta":{"role":"assistant","content":""}}]}`, `{"choices":[{"delta":{"content":"a"}}]}`, `{"choices":[{"delta":{"content":null,"reasoning_content":"b"}}]}`, `{"choices":[{"delta":{"reasoning":"b"}}]}`, `{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}`}, 4, byChunks, 4},
		"null fields":   {[]string{`{"choices":[{"text":"a","finish_reason":null,"token_ids":null}],"usage":null,"error":null}`, `{"choices":null}`}, 1, byChunks, 1},
	} {
		sc := newScratch()
		sc.sample.reset()
		stream := ": hello\n\n"
		for _, c := range tc.chunks {
			stream += "data: " + c + "\r\n\r\n"
		}
		err := sc.read(strings.NewReader(stream+"data: [DONE]\n\n"), true)
		if s := &sc.sample; err != nil || s.output != tc.output || s.counted != tc.counted || s.chunks() != tc.chunkCount {
			t.Errorf("%s: %v: %d tokens by %d in %d chunks", name, err, s.output, s.counted, s.chunks())
		}
	}
}

func TestChunksDoNotLeakIntoTheNext(t *testing.T) {
	c := &openai.Chunk{}
	for _, text := range []string{`{"choices":[{"text":"a","token_ids":[1],"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`, `{"choices":[{"index":0}]}`} {
		if err := readChunk(c, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.Choices[0]; got.Text != "" || got.TokenIDs != nil || got.FinishReason != "" || c.Usage != nil {
		t.Errorf("%+v, %+v", got, c.Usage)
	}
}

func TestBodies(t *testing.T) {
	zero := 0.0
	d := &dialogue{}
	d.add("system", &Segment{Text: "be brief"})
	d.add("user", &Segment{Text: `say "x"`})
	ids := &dialogue{}
	ids.add("user", &Segment{Tokens: []kv.Token{7}})
	ids.add("assistant", &Segment{Tokens: []kv.Token{8, 31999}})
	for _, tc := range []struct {
		o    Options
		e    Endpoint
		d    *dialogue
		want string
	}{
		{Options{}, Completions, d, `{"model":"m","prompt":"be brief\nsay \"x\"","max_tokens":5,"stream":true,"stream_options":{"include_usage":true}}`},
		{Options{NoUsage: true, IgnoreEOS: true, Temperature: &zero}, Completions, ids, `{"model":"m","prompt":[7,8,31999],"max_tokens":5,"temperature":0,"stream":true,"ignore_eos":true}`},
		{Options{NoUsage: true, tokenIDs: true}, Chat, d, `{"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"say \"x\""}],"max_tokens":5,"stream":true,"return_token_ids":true}`},
		{Options{NoUsage: true, Extra: map[string]json.RawMessage{"max_tokens": json.RawMessage("6"), "top_k": json.RawMessage(`[1]`), "model": json.RawMessage(`"n"`)}}, Completions, ids,
			`{"prompt":[7,8,31999],"stream":true,"max_tokens":6,"top_k":[1],"model":"n"}`},
	} {
		got := tc.o.body(tc.e, "m", tc.d, 5)
		sameJSON(t, got, tc.want)
		if n := strings.Count(string(got), `"max_tokens"`); n != 1 {
			t.Errorf("max_tokens comes %d times: %s", n, got)
		}
	}
}

func TestDialRefuses(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	infinite := math.Inf(1)
	serve := func(status int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status); io.WriteString(w, body) }))
		t.Cleanup(s.Close)
		return s.URL
	}
	for _, tc := range []struct {
		cfg  ClientConfig
		want string
	}{
		{ClientConfig{URL: "localhost:8080"}, "http://127.0.0.1:8080"},
		{ClientConfig{URL: "ftp://x"}, "http://127.0.0.1:8080"},
		{ClientConfig{URL: closed.URL}, "coppice serve"},
		{ClientConfig{URL: serve(401, "who are you?")}, `--api-key): "who are you?"`},
		{ClientConfig{URL: serve(401, "who are you?"), Model: "m"}, `--api-key): "who are you?"`},
		{ClientConfig{URL: serve(500, "oh")}, `500 Internal Server Error: "oh"`},
		{ClientConfig{URL: serve(200, "<html>")}, "OpenAI-compatible"},
		{ClientConfig{URL: serve(200, `{"data":[]}`)}, "--model"},
		{ClientConfig{URL: "http://x", Options: Options{Extra: map[string]json.RawMessage{"a": json.RawMessage("{")}}}, `"a" is not JSON`},
		{ClientConfig{URL: "http://x", Options: Options{Temperature: &infinite}}, "Temperature is +Inf"},
	} {
		if c, err := Dial(t.Context(), tc.cfg); c != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.cfg.URL, err, tc.want)
		}
	}
	_, err := Dial(t.Context(), ClientConfig{URL: closed.URL})
	if !errors.Is(err, ErrUnreachable) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v", err)
	}
	if c, err := Dial(t.Context(), ClientConfig{URL: serve(404, "no models here"), Model: "m"}); err != nil || c.Model() != "m" {
		t.Errorf("a named model: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dial(ctx, ClientConfig{URL: "http://127.0.0.1:1"}); !errors.Is(err, context.Canceled) {
		t.Errorf("called off: %v", err)
	}
}

func TestProbe(t *testing.T) {
	refuse := func(w *writer) { w.WriteHeader(400); io.WriteString(w, "no such token") }
	say := func(w *writer, ids string) {
		w.event(`{"choices":[{"text":"a"%s,"finish_reason":"length"}]}`, ids)
		w.event("[DONE]")
	}
	for name, tc := range map[string]struct {
		cfg       ClientConfig
		dialogues bool
		answer    func(w *writer, n int, q query)
		want      Vocabulary
		fails     string
	}{
		"large": {answer: func(w *writer, _ int, _ query) { say(w, "") }, want: Vocabulary{1000, 32000}},
		"small": {answer: func(w *writer, _ int, q query) {
			for _, id := range q.tokens {
				if id >= 512 {
					refuse(w)
					return
				}
			}
			say(w, "")
		}, want: Vocabulary{125, 500}},
		"text only": {answer: func(w *writer, _ int, q query) {
			if q.text == "" {
				refuse(w)
				return
			}
			say(w, "")
		}},
		"chat":                  {cfg: ClientConfig{Endpoint: Chat}, answer: func(w *writer, _ int, _ query) { say(w, "") }},
		"dialogues":             {dialogues: true, answer: func(w *writer, _ int, _ query) { say(w, `,"token_ids":[5]`) }, want: Vocabulary{1000, 32000}},
		"dialogues without ids": {dialogues: true, answer: func(w *writer, _ int, _ query) { say(w, "") }},
		"no right":              {answer: func(w *writer, _ int, _ query) { w.WriteHeader(403) }, fails: "--api-key"},
		"busy":                  {answer: func(w *writer, _ int, _ query) { w.WriteHeader(503) }, fails: "busy"},
		"nothing goes":          {answer: func(w *writer, _ int, _ query) { refuse(w) }, fails: "no such token"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{answer: tc.answer}
				v, err := dialFake(t, f, tc.cfg).Probe(t.Context(), tc.dialogues)
				if v != tc.want || (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
					t.Errorf("%+v, %v after %d requests", v, err, len(f.queries))
				}
				if tc.dialogues && f.queries[0].body["return_token_ids"] != true {
					t.Errorf("asked %v", f.queries[0].body)
				}
			})
		})
	}
}

func TestConversationsContinueWithTheServersAnswers(t *testing.T) {
	const turns = 4
	for name, tc := range map[string]struct {
		cfg ClientConfig
		v   Vocabulary
	}{"token ids": {v: VocabularyOf(32000)}, "text": {}, "chat": {cfg: ClientConfig{Endpoint: Chat}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{answer: func(w *writer, n int, q query) {
					time.Sleep(10 * ms)
					for i := range 3 {
						token := 100*n + i
						if q.path == "/v1/chat/completions" {
							w.event(`{"choices":[{"delta":{"content":"<%d>"}}]}`, token)
						} else {
							w.event(`{"choices":[{"text":"<%d>","token_ids":[%d]}]}`, token, token)
						}
					}
					w.end(5, 3, "")
				}}
				d := &MultiTurn{Vocabulary: tc.v, TurnCount: turns, SystemTokens: 6, InputTokens: 5, OutputTokens: 3, Think: time.Second, Seed: 2}
				if err := d.Validate(); err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				r, err := Run(t.Context(), dialFake(t, f, tc.cfg), d, Config{Concurrency: 1, Requests: 2*turns - 1}, nil)
				if err != nil || r.Completed != 2*turns-1 || len(r.Notes) != 0 {
					t.Fatalf("%v: %+v", err, r)
				}
				var due time.Duration
				for conversation := range 2 {
					s := d.Session(conversation)
					said := &dialogue{}
					said.add("system", &s.System)
					for n, turn := range s.Turns {
						i := conversation*turns + n
						if i == len(f.queries) {
							return
						}
						said.add("user", &turn.User)
						due += turn.Think
						if got := f.queries[i].at.Sub(begin); got != due {
							t.Errorf("request %d came at %v, want %v", i, got, due)
						}
						due += 10 * ms
						checkPrompt(t, &f.queries[i], said)
						answer := &Segment{Text: fmt.Sprintf("<%d><%d><%d>", 100*i, 100*i+1, 100*i+2)}
						if name == "token ids" {
							answer = &Segment{Tokens: []kv.Token{kv.Token(100 * i), kv.Token(100*i + 1), kv.Token(100*i + 2)}}
						}
						said.add("assistant", answer)
					}
				}
			})
		})
	}
}

func checkPrompt(t *testing.T, q *query, want *dialogue) {
	t.Helper()
	if q.path == "/v1/chat/completions" {
		got, err := json.Marshal(q.body["messages"])
		if err != nil {
			t.Fatal(err)
		}
		wanted, err := json.Marshal(want.messages)
		if err != nil {
			t.Fatal(err)
		}
		sameJSON(t, got, string(wanted))
		return
	}
	if len(want.tokens) == 0 {
		if q.text != string(want.text) {
			t.Errorf("prompt %q, want %q", q.text, string(want.text))
		}
		return
	}
	if fmt.Sprint(q.tokens) != fmt.Sprint(want.tokens) {
		t.Errorf("prompt %v, want %v", q.tokens, want.tokens)
	}
}

func TestFailedTurnEndsItsConversation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: func(w *writer, n int, q query) {
			if n == 1 {
				w.WriteHeader(500)
				return
			}
			steady(ms, ms, 1)(w, n, q)
		}}
		d := &MultiTurn{TurnCount: 4, InputTokens: 2, OutputTokens: 1}
		r, err := Run(t.Context(), dialFake(t, f, ClientConfig{Endpoint: Chat}), d, Config{Arrivals: &Arrivals{Rate: 1}, Requests: 8}, nil)
		if err != nil || r.Completed != 5 || r.Failed != 1 || r.Skipped != 2 || len(f.queries) != 6 {
			t.Errorf("%v: %+v", err, r)
		}
	})
}

func TestKeyIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: steady(ms, ms, 1), model: "first"}
		c := dialFake(t, f, ClientConfig{APIKey: "secret"})
		if _, err := Run(t.Context(), c, ids(1, 1), Config{Concurrency: 1, Requests: 1}, nil); err != nil || f.queries[0].key != "Bearer secret" || f.queries[0].body["model"] != "first" {
			t.Errorf("%v: %+v", err, f.queries)
		}
	})
}

// A run over real sockets that is cancelled halfway leaves no goroutines or connections.
func TestNothingIsLeftBehind(t *testing.T) {
	here := goleak.IgnoreCurrent()
	begun := make(chan struct{}, 100)
	f := &fake{model: "m", answer: func(w *writer, n int, q query) {
		w.text("a")
		begun <- struct{}{}
		<-w.ctx.Done()
	}}
	s := httptest.NewServer(f)
	c, err := Dial(t.Context(), ClientConfig{URL: s.URL + "/v1/"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for range 8 {
			<-begun
		}
		cancel()
	}()
	r, err := Run(ctx, c, ids(4, 2), Config{Arrivals: &Arrivals{Rate: 1e6}, MaxConcurrency: 8, Requests: 50}, nil)
	if !errors.Is(err, context.Canceled) || r.Unfinished != 8 || r.Completed != 0 || r.Failed != 0 || f.peak != 8 {
		t.Errorf("%v: %+v", err, r)
	}
	c.Close()
	s.Close()
	leaks.Check(t, here)
}

// Connections are reused: a request does not pay for a new one, except after an answer whose end came
// late on a stalled machine.
func TestConnectionsAreReused(t *testing.T) {
	opened := 0
	f := &fake{model: "m", answer: steady(0, 0, 3)}
	s := httptest.NewUnstartedServer(f)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			f.mu.Lock()
			opened++
			f.mu.Unlock()
		}
	}
	s.Start()
	defer s.Close()
	c, err := Dial(t.Context(), ClientConfig{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := Run(t.Context(), c, ids(4, 3), Config{Concurrency: 2, Requests: 200}, nil)
	if f.mu.Lock(); err != nil || r.Completed != 200 || opened > 20 {
		t.Errorf("%v: %d connections for %d requests of 2 workers", err, opened, r.Completed)
	}
	f.mu.Unlock()
}

func BenchmarkRead(b *testing.B) {
	for name, chunk := range map[string]string{"completions": completionChunk, "chat": chatChunk} {
		b.Run("endpoint="+name, func(b *testing.B) {
			const n = 1000
			stream := strings.Repeat("data: "+chunk+"\n\n", n) + "data: [DONE]\n\n"
			sc := newScratch()
			b.ReportAllocs()
			for b.Loop() {
				sc.sample.reset()
				if err := sc.read(strings.NewReader(stream), false); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/chunk")
		})
	}
}
