package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/gateway/internal/members"
)

// TestPassesWhatWorkersTake: requests that the APIs of other workers take reach them byte for byte, whether or not this project's
// own servers would take them, and so do the answers.
func TestPassesWhatWorkersTake(t *testing.T) {
	salt := strings.Repeat("0123456789abcdef", 4)
	const call = `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	deep := strings.Repeat(`{"type":"object","properties":{"a":`, 40) + `{}` + strings.Repeat(`}}`, 40)
	w := newForeign(t, "w")
	s := newStand(t, Config{}, w)
	s.ready(1)
	for _, tc := range []struct{ method, path, body string }{
		{"POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"Hi"},` + call + `,{"role":"tool","tool_call_id":"c","content":null}]}`},
		{"POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"}],"truncate_prompt_tokens":8,"truncation_side":"right","vllm_xargs":{"a":1},"foo":[null]}`},
		{"POST", "/v1/chat/completions", `{"messages":[{"role":"function","name":"f","content":"x"}],"functions":[],"function_call":"auto","audio":{},"store":true}`},
		{"POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,"}}]}],"mm_processor_kwargs":{}}`},
		{"POST", "/v1/completions", `{"prompt":"x","truncate_prompt_tokens":-1,"suffix":"y","use_beam_search":true,"cache_salt":"` + salt + `"}`},
		{"POST", "/v1/completions", `{"prompt_embeds":"AAAA"}`},
		{"POST", "/v1/responses", `{"input":[{"type":"web_search_call","id":"ws_1"},{"role":"user","content":[{"type":"input_image","image_url":"data:,"}]}],"background":true,"foo":1}`},
		{"POST", "/v1/responses", `{"input":"x","conversation":{"id":"c"},"prompt":{"id":"p"},"tools":[{"type":"mcp","server_label":"s"}],"top_logprobs":3,"max_output_tokens":-1}`},
		{"POST", "/v1/responses", `{"input":"x","tools":[{"type":"function","name":"f","parameters":` + deep + `}]}`},
		{"POST", "/v1/messages", `{"messages":[{"role":"user","content":[{"type":"document","source":{}},{"type":"text","text":"x"}]}],"container":"c","mcp_servers":[{}],"foo":1}`},
		{"POST", "/v1/messages", `{"messages":[{"role":"user","content":"x"}],"max_tokens":"many","tools":[{"name":"f","input_schema":` + deep + `}]}`},
		{"POST", "/v1/messages/count_tokens", `{"messages":[]}`},
		{"GET", "/version", ""}, {"POST", "/tokenize", `{"prompt":"x"}`}, {"POST", "/detokenize", `{"tokens":[1]}`},
		{"POST", "/score", `{"text_1":"a","text_2":["b"]}`}, {"POST", "/v1/score", `{"text_1":"a","text_2":["b"]}`}, {"POST", "/pooling", `{"input":"a"}`},
		{"POST", "/classify", `{"input":"a"}`}, {"POST", "/v1/rerank", `{"query":"a","documents":["b"]}`}, {"POST", "/rerank", `{"query":"a"}`}, {"POST", "/v2/rerank", `{}`},
		{"POST", "/v1/chat/completions/render", `{"messages":[]}`}, {"POST", "/v1/completions/render", `{"prompt":"x"}`},
	} {
		const answer = "\x00its own answer\r\n"
		w.does(func(rw http.ResponseWriter, r *http.Request) {
			if body, err := io.ReadAll(r.Body); err != nil || string(body) != tc.body || r.Method != tc.method || r.URL.Path != tc.path {
				t.Errorf("%s %s %s became %s %s %s, %v", tc.method, tc.path, tc.body, r.Method, r.URL.Path, body, err)
			}
			rw.WriteHeader(203)
			io.WriteString(rw, answer)
		})
		if got := s.send(tc.method, tc.path, tc.body); got.StatusCode != 203 || got.text != answer || got.worker() == "" {
			t.Errorf("%s %s %s: %s %s", tc.method, tc.path, tc.body, got.Status, got.text)
		}
	}
	s.idle()
}

// TestSaltIsAString: a salt of 64 hexadecimal digits is a namespace like any other. It was taken for the name of a medium.
func TestSaltIsAString(t *testing.T) {
	a, b := newForeign(t, "a"), newForeign(t, "b")
	s := newStand(t, Config{Approximate: true}, a, b)
	s.ready(2)
	salts := []string{`""`, `"x"`, `"` + strings.Repeat("0123456789abcdef", 4) + `"`, `"` + strings.Repeat("0123456789abcdef", 3) + `0123456789abcdee"`}
	for i, salt := range salts {
		first := s.ask(t.Context(), run(0, 400), `,"cache_salt":`+salt)
		again := s.ask(t.Context(), run(0, 400), `,"cache_salt":`+salt)
		if first.Header.Get(headerOverlap) != "0" || again.Header.Get(headerOverlap) != "100" || first.worker() != again.worker() {
			t.Errorf("salt %d: %s, then %s of 100 blocks, at %s and %s", i, first.Header.Get(headerOverlap), again.Header.Get(headerOverlap), first.worker(), again.worker())
		}
	}
}

// TestWorkersOwnPaths: no client reaches a path by which a worker is changed or controlled, however the client spells it.
func TestWorkersOwnPaths(t *testing.T) {
	w := newForeign(t, "w")
	s := newStand(t, Config{ProbeEvery: time.Hour}, w)
	s.ready(1)
	before := w.requests() // the gateway's own
	for _, path := range []string{
		// of vLLM
		"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/sleep", "/wake_up", "/is_sleeping", "/reset_prefix_cache", "/reset_mm_cache", "/collective_rpc",
		"/start_profile", "/stop_profile", "/server_info", "/scale_elastic_ep", "/pause", "/resume", "/abort_requests", "/update_weights", "/invocations", "/ping", "/load",
		"/inference/v1/generate", "/kv_event_sources", "/tokenizer_info",
		// of SGLang
		"/flush_cache", "/generate", "/get_server_info", "/release_memory_occupation", "/load_lora_adapter", "/update_weights_from_disk", "/open_session", "/shutdown",
		// of Coppice
		"/v1/cache/pin", "/v1/cache/tree", "/v1/cache/stats", "/v1/worker", "/debug/pprof/profile", "/v1/view",
	} {
		for _, spelled := range []string{
			path, path + "/", "/" + path, "/v1/.." + path, "/score/.." + path, "/v1/responses/.." + path, "/v1/responses/..%2F.." + strings.ReplaceAll(path, "/", "%2F"),
			"/v1/responses/%2E%2E%2F" + path[1:] + "/cancel", "/score%2F.." + path, "/tokenize;" + path, path + "%3Fx", "/v1/models/.." + path,
		} {
			for _, method := range []string{"GET", "POST", "DELETE", "PUT"} {
				r, err := http.NewRequest(method, s.url+spelled, strings.NewReader(`{"prompt":"x"}`))
				if err != nil {
					t.Fatal(err)
				}
				res, err := http.DefaultTransport.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				io.Copy(io.Discard, res.Body)
				if res.Body.Close(); res.StatusCode < 300 || res.StatusCode >= 500 || res.Header.Get(headerWorker) != "" {
					t.Errorf("%s %s: %s from %q", method, spelled, res.Status, res.Header.Get(headerWorker))
				}
			}
		}
	}
	if n := w.requests() - before; n != 0 {
		t.Errorf("%d requests reached the worker", n)
	}
}

// TestTruncatedPromptIsRouted: the router knows a prompt that its worker shortens by the part that is left.
func TestTruncatedPromptIsRouted(t *testing.T) {
	a, b := newWorker(t, "a", true, nil), newWorker(t, "b", true, nil)
	s := newStand(t, Config{}, a, b)
	s.ready(2)
	b.holds(run(600, 400))
	s.until("the events", func() bool { return s.worker("b").Ranks[0].HeldBlocks == 100 })
	for range 3 {
		r := s.ask(t.Context(), run(0, 1000), `,"truncate_prompt_tokens":400`)
		if r.worker() != "b" || r.Header.Get(headerOverlap) != "100" || r.Header.Get(headerBlocks) != "100" {
			t.Errorf("%s: %s of %s blocks at %s", r.Status, r.Header.Get(headerOverlap), r.Header.Get(headerBlocks), r.worker())
		}
	}
}

// TestVersionNeedsNoKey: as at a worker.
func TestVersionNeedsNoKey(t *testing.T) {
	w := newForeign(t, "w")
	w.does(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, `{"version":%q}`, "0.32.0 "+r.Header.Get("Authorization"))
	})
	s := newStand(t, Config{Tenant: func(*http.Request) (string, bool, error) { return "", false, errTooMany }, Workers: []members.WorkerConfig{}}, w)
	s.ready(1)
	if got := s.send("GET", "/version", ""); got.StatusCode != 200 || got.text != `{"version":"0.32.0 "}` {
		t.Errorf("%s %s", got.Status, got.text)
	}
	if got := s.send("POST", "/score", "{}"); got.StatusCode != 429 {
		t.Errorf("another path: %s %s", got.Status, got.text)
	}
}
