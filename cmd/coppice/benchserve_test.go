package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// scriptedServer answers each completion with three chunks, and records the requests. It
// has a vocabulary of 512.
type scriptedServer struct {
	mu     sync.Mutex
	bodies []map[string]any
	hang   chan struct{} // if not nil: receives from each request, which then never ends
	status int           // if not 0: the status of all answers
}

func (s *scriptedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/models" {
		io.WriteString(w, `{"data":[{"id":"scripted"}]}`)
		return
	}
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), 400)
		return
	}
	n := 0
	if ids, ok := body["prompt"].([]any); ok {
		n = len(ids)
		for _, id := range ids {
			if id.(float64) >= 512 {
				http.Error(w, `{"error":{"message":"no such token"}}`, 400)
				return
			}
		}
	}
	if s.status != 0 {
		http.Error(w, `{"error":{"message":"not today"}}`, s.status)
		return
	}
	s.mu.Lock()
	s.bodies = append(s.bodies, body)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	chunk := `data: {"choices":[{"text":"light ","delta":{"content":"light "},"token_ids":[7]}]}` + "\n\n"
	for range 3 {
		io.WriteString(w, chunk)
		w.(http.Flusher).Flush()
	}
	if s.hang != nil {
		s.hang <- struct{}{}
		<-r.Context().Done()
		return
	}
	fmt.Fprintf(w, "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n", n)
}

func TestBenchServe(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	trace := write("trace.jsonl", `{"timestamp":0,"input_length":600,"output_length":9,"hash_ids":[1,2]}`+"\n"+`{"timestamp":5,"input_length":512,"output_length":9,"hash_ids":[1]}`+"\n")
	prompts := write("prompts.txt", "one\ntwo\nthree\n")
	for name, tc := range map[string]struct {
		args     []string
		requests float64 // completed
		sent     int     // with probe and warm-up
		input    float64
	}{
		"random":         {[]string{"--dataset", "random", "--requests", "12", "--input-tokens", "20", "--concurrency", "3"}, 12, 14, 240},
		"open loop":      {[]string{"--dataset", "random", "--requests", "12", "--input-tokens", "20", "--rate", "inf", "--max-concurrency", "4", "--warmup", "0"}, 12, 13, 240},
		"known vocab":    {[]string{"--dataset", "random", "--requests", "12", "--input-tokens", "20", "--vocab", "500", "--warmup", "0"}, 12, 12, 240},
		"default number": {[]string{"--dataset", "random", "--input-tokens", "20", "--warmup", "0"}, 100, 101, 2000},
		// 25 conversations of four turns: a system prompt of 512 tokens, 128 tokens a turn, and
		// answers of 3.
		"hardly a flag": {[]string{"--concurrency", "1"}, 100, 102, 25 * (4*512 + (1+2+3+4)*128 + (1+2+3)*3)},
		"shared prefix": {[]string{"--dataset", "shared-prefix", "--groups", "2", "--prompts-per-group", "5", "--prefix-tokens", "30", "--suffix-tokens", "4"}, 10, 12, 340},
		"multi turn":    {[]string{"--dataset", "multi-turn", "--turns", "3", "--system-tokens", "0", "--input-tokens", "10", "--requests", "6", "--concurrency", "1"}, 6, 8, 2 * (10 + 23 + 36)},
		"trace":         {[]string{"--dataset", "trace", "--file", trace, "--scale", "16"}, 2, 4, 38 + 32},
		"agent trace":   {[]string{"--dataset", "trace", "--file", "../../bench/load/testdata/agentx.jsonl", "--input-tokens", "1000", "--scale", "8", "--speedup", "inf"}, 7, 9, 25 + 38 + 16 + 24 + 17 + 50 + 16},
		"messages":      {[]string{"--dataset", "trace", "--file", "../../bench/load/testdata/messages.jsonl", "--endpoint", "chat", "--warmup", "0", "--max-think", "1ms"}, 5, 5, 0},
		"file":          {[]string{"--dataset", "file", "--file", prompts, "--endpoint", "chat", "--warmup", "0"}, 3, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &scriptedServer{}
			s := httptest.NewServer(fake)
			defer s.Close()
			saved := filepath.Join(t.TempDir(), "result.json")
			stdout, stderr, ok := command(t, append([]string{"bench", "serve", "--url", s.URL, "--json", "--save", saved}, tc.args...)...)
			if !ok || stderr != "" {
				t.Fatalf("ok %v: %s", ok, stderr)
			}
			var got map[string]any
			if err := json.Unmarshal([]byte(stdout), &got); err != nil {
				t.Fatal(err)
			}
			if got["completed"] != tc.requests || got["failed"] != 0.0 || len(fake.bodies) != tc.sent || got["total_input_tokens"] != tc.input || got["total_output_tokens"] != 3*tc.requests || got["model_id"] != "scripted" {
				t.Errorf("the server got %d requests: %s", len(fake.bodies), stdout)
			}
			if text, err := os.ReadFile(saved); err != nil || string(text) != stdout {
				t.Errorf("saved %q, %v", text, err)
			}
		})
	}
}

func TestBenchServeTable(t *testing.T) {
	fake := &scriptedServer{}
	s := httptest.NewServer(fake)
	defer s.Close()
	stdout, stderr, ok := command(t, "bench", "serve", "--url", s.URL+"/v1", "--requests", "5", "--prompt-form", "words", "--no-ignore-eos", "--no-usage", "--temperature=-1",
		"--warmup", "0", "--extra-body", `{"top_k":3}`, "--percentiles", "90,99.5", "--goodput", "ttft:1h")
	if !ok || stderr != "" || !strings.HasPrefix(stdout, "============ Serving Benchmark Result ============\nSuccessful requests:                     5") {
		t.Fatalf("ok %v: %s%s", ok, stdout, stderr)
	}
	for _, want := range []string{"P90 TTFT (ms):", "P99.5 E2EL (ms):", "Request goodput (req/s):", "Maximum request concurrency:             8"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in %s", want, stdout)
		}
	}
	body := fake.bodies[0]
	_, text := body["prompt"].(string)
	for _, gone := range []string{"ignore_eos", "temperature", "stream_options"} {
		if _, there := body[gone]; there {
			t.Errorf("%s was sent: %v", gone, body)
		}
	}
	if !text || body["top_k"] != 3.0 || body["max_tokens"] != 64.0 {
		t.Errorf("sent %v", body)
	}
}

// TestBenchServeAgents checks that the requests of agents name their session, and that the table has
// the ideal hit rate.
func TestBenchServeAgents(t *testing.T) {
	for _, flags := range [][]string{nil, {"--no-session-names", "--scale", "256", "--turns", "3", "--input-tokens", "30000"}} {
		fake := &scriptedServer{}
		s := httptest.NewServer(fake)
		defer s.Close()
		args := append([]string{"bench", "serve", "--url", s.URL, "--dataset", "agents", "--requests", "60", "--concurrency", "2", "--warmup", "0", "--think", "0s", "--vocab", "500"}, flags...)
		stdout, stderr, ok := command(t, args...)
		if !ok || stderr != "" || !strings.Contains(stdout, "Successful requests:                     60") {
			t.Fatalf("ok %v: %s%s", ok, stdout, stderr)
		}
		if share := "Ideal cached share of input (%):"; !strings.Contains(stdout, share) || strings.Contains(stdout, share+strings.Repeat(" ", 9)+"0.00") {
			t.Errorf("no ideal in %s", stdout)
		}
		longest, most, names := 0, 140_000/128+1, map[any]int{}
		for _, body := range fake.bodies {
			longest = max(longest, len(body["prompt"].([]any)))
			names[body["prompt_cache_key"]]++
		}
		if flags != nil {
			most = 30_000/256 + 1
		}
		if longest > most || longest < most/4 {
			t.Errorf("%v: the longest prompt has %d tokens, want at most %d", flags, longest, most)
		}
		if named := names["agent-0-0"] > 0 && names[nil] == 0; named != (flags == nil) || !named && len(names) != 1 {
			t.Errorf("%v: requests by session: %v", flags, names)
		}
	}
}

func TestBenchServeInterrupted(t *testing.T) {
	fake := &scriptedServer{hang: make(chan struct{}, 8)}
	s := httptest.NewServer(fake)
	defer s.Close()
	cmd := exec.Command(os.Args[0], "bench", "serve", "--url", s.URL, "--vocab", "500", "--warmup", "0", "--concurrency", "2", "--input-tokens", "8")
	cmd.Env = append(os.Environ(), "COPPICE_TEST_MAIN=1")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-fake.hang
	<-fake.hang
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(stdout.String(), "Unfinished requests:                     2") {
		t.Errorf("exit %d: %s%s", code, stdout.String(), stderr.String())
	}
}

func TestBenchServeBadInput(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	refusing := httptest.NewServer(&scriptedServer{status: 400})
	defer refusing.Close()
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"--url", closed.URL}, []string{"no server answers at " + closed.URL, "coppice serve"}},
		{[]string{"--url", refusing.URL}, []string{"400 Bad Request", "not today"}},
		{[]string{"--url", refusing.URL, "--vocab", "500", "--warmup", "0", "--requests", "2"}, []string{"all 2 requests failed: refused: 400 Bad Request", "not today"}},
		{[]string{"--url", refusing.URL, "--prompt-form", "ids", "--endpoint", "chat"}, []string{"--prompt-form ids"}},
		{[]string{"--url", refusing.URL, "--vocab", "500", "--dataset", "file"}, []string{"--dataset file needs a --file"}},
		{[]string{"--url", refusing.URL, "--vocab", "500", "--input-tokens", "0"}, []string{"--input-tokens is 0, want at least 1"}},
		{[]string{"--url", refusing.URL, "--vocab", "500", "--dataset", "trace", "--file", "gone.jsonl"}, []string{"gone.jsonl"}},
		{[]string{"--dataset", "trace", "--file", "../../bench/load/testdata/messages.jsonl"}, []string{"a trace of messages needs --endpoint chat"}},
		{[]string{"--dataset", "trace", "--file", "benchserve_test.go"}, []string{"line 1: want a JSON object"}},
		{[]string{"--url", refusing.URL, "--vocab", "500", "--dataset", "trace", "--file", "../../bench/load/testdata/agentx.jsonl", "--scale", "128"}, []string{"line 1: block_size is 64", "128"}},
		{[]string{"--vocab", "3"}, []string{"--vocab is 3, want 4 to"}},
		{[]string{"--rate", "3", "--concurrency", "3"}, []string{"--max-concurrency"}},
		{[]string{"--rate", "0"}, []string{`--rate is "0"`}},
		{[]string{"--rate", "1", "--burstiness", "0"}, []string{"--burstiness is 0"}},
		{[]string{"--rate", "1", "--burstiness", "inf", "--speedup", "inf"}, []string{"no server answers"}},
		{[]string{"--rate", "inf", "--duration", "1s"}, []string{"--requests"}},
		{[]string{"--ramp", "linear"}, []string{"--rate"}},
		{[]string{"--ramp", "steep"}, []string{"steep", "exponential"}},
		{[]string{"--timeout", "0s"}, []string{"--timeout is 0s"}},
		{[]string{"--goodput", "speed:1s"}, []string{"--goodput", "ttft:200ms"}},
		{[]string{"--extra-body", "[1]"}, []string{"--extra-body", "JSON object"}},
		{[]string{"--extra-body", "null"}, []string{"--extra-body", "JSON object"}},
		{[]string{"--dataset", "sharegpt"}, []string{`--dataset: "sharegpt" is not a choice; want random, shared-prefix, multi-turn, agents, trace or file`}},
		{[]string{"--url", refusing.URL, "--vocab", "500", "--dataset", "agents", "--input-tokens", "20000"}, []string{"InputTokens is 20000, want at least 23000"}},
		{[]string{"--url", refusing.URL, "--vocab", "500", "--dataset", "agents", "--think=-1s"}, []string{"Think is -1s"}},
		{[]string{"--endpoint", "embeddings"}, []string{"embeddings", "completions"}},
	} {
		args := tc.args
		if tc.args[0] != "--url" {
			args = append([]string{"--url", closed.URL}, args...)
		}
		_, stderr, ok := command(t, append([]string{"bench", "serve"}, args...)...)
		for _, want := range tc.want {
			if ok || !strings.Contains(stderr, want) {
				t.Errorf("%v: ok %v, %q, want %q", tc.args, ok, stderr, want)
			}
		}
	}
}
