package load

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestAgentTrace reads the fixture in the format of recorded coding agents.
func TestAgentTrace(t *testing.T) {
	path := filepath.Join("testdata", "agentx.jsonl")
	d, err := OpenTrace(path, AnyFormat, TraceConfig{Vocabulary: VocabularyOf(32000), Speedup: 2, InputTokens: 100_000, MaxThink: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if fewest, most := d.Requests(); d.Sessions() != 2 || d.Total() != 7 || fewest != 1 || most != 6 ||
		d.String() != "trace of agents: 7 requests (1 of more than 100000 tokens left out) in 2 sessions of agentx.jsonl, speedup 2, scale 1/1, of token ids 1000 to 31999" {
		t.Fatalf("%d requests of %d sessions, %d to %d: %v", d.Total(), d.Sessions(), fewest, most, d)
	}
	s := d.Session(0)
	if s.Name != "fix-the-parser" || len(s.Turns) != 3 || s.requests(0) != 6 {
		t.Fatalf("%s has %d turns, %d requests", s.Name, len(s.Turns), s.requests(0))
	}
	one, two, three := s.Turns[0].User.Tokens, s.Turns[1].User.Tokens, s.Turns[2].User.Tokens
	if len(one) != 200 || len(two) != 300 || len(three) != 400 || shared(one, two) != 192 || shared(two, three) != 300 {
		t.Errorf("prompts of %d, %d and %d, sharing %d and %d", len(one), len(two), len(three), shared(one, two), shared(two, three))
	}
	// The pause is the recorded one, or the time since the answer before; all half as long, at most 4 s.
	if a, b, c := s.Turns[0].Think, s.Turns[1].Think, s.Turns[2].Think; a != 0 || b != 750*ms || c != 4*time.Second {
		t.Errorf("pauses of %v, %v and %v", a, b, c)
	}
	agents := s.Turns[1].Agents
	if len(agents) != 2 || len(s.Turns[0].Agents)+len(s.Turns[2].Agents) != 0 || agents[0].Name != "fix-the-parser/explore" || agents[1].Name != "fix-the-parser/test" {
		t.Fatalf("sub-agents %+v", agents)
	}
	first, second, other := agents[0].Turns[0], agents[0].Turns[1], agents[1].Turns[0]
	if n := shared(first.User.Tokens, second.User.Tokens); n != 128 || second.Think != 1500*ms || first.OutputTokens != 1 || second.OutputTokens != 9 {
		t.Errorf("a sub-agent's prompts share %d, with a pause of %v and outputs of %d and %d", n, second.Think, first.OutputTokens, second.OutputTokens)
	}
	if n := shared(first.User.Tokens, other.User.Tokens); n != 128 || len(other.User.Tokens) != 130 {
		t.Errorf("sub-agents share %d tokens of %d", n, len(other.User.Tokens))
	}
	if shared(one, d.Session(1).Turns[0].User.Tokens) != 0 {
		t.Error("local ids are shared by sessions")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := TraceConfig{Vocabulary: VocabularyOf(250), Scale: 16}.checked()
	if err != nil {
		t.Fatal(err)
	}
	global, err := readAgentTrace(strings.NewReader(strings.ReplaceAll(string(text), `"local"`, `"global"`)), cfg)
	if err != nil {
		t.Fatal(err)
	}
	one, two, three = global.Session(0).Turns[0].User.Tokens, global.Session(0).Turns[1].User.Tokens, global.Session(1).Turns[0].User.Tokens
	if len(one) != 13 || len(two) != 19 || shared(one, two) != 12 || shared(one, three) != 8 || len(global.Session(1).Turns) != 2 {
		t.Errorf("scaled and global: %d and %d tokens, sharing %d and %d", len(one), len(two), shared(one, two), shared(one, three))
	}
}

// TestAgentTraceIsPlayed plays the fixture: each request has its recorded length, whatever the
// server answers, and the last one waits for the sub-agents.
func TestAgentTraceIsPlayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := OpenTrace(filepath.Join("testdata", "agentx.jsonl"), AgentX, TraceConfig{Vocabulary: VocabularyOf(32000), InputTokens: 1000})
		if err != nil {
			t.Fatal(err)
		}
		f := &fake{answer: steady(ms, ms, 2)}
		r, err := Run(t.Context(), dialFake(t, f, ClientConfig{}), d, Config{Concurrency: 1}, nil)
		if err != nil || r.Completed != 7 || f.peak != 2 {
			t.Fatalf("%v: %d completed, %d at once", err, r.Completed, f.peak)
		}
		var got []string
		for _, q := range f.queries {
			got = append(got, fmt.Sprint(q.session, " ", len(q.tokens)))
		}
		slices.Sort(got[2:4])
		want := []string{"fix-the-parser 200", "fix-the-parser 300", "fix-the-parser/explore 128", "fix-the-parser/test 130", "fix-the-parser/explore 192", "fix-the-parser 400", "write-a-test 128"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		// 192 of the second, 128 of the sub-agent that sends later (127 if that is all of its prompt),
		// 128 of the next, 300 of the last.
		if n := 192 + 128 + 128 + 300 - r.IdealTokens; n != 0 && n != 1 || r.IdealOf != 200+300+128+130+192+400+128 {
			t.Errorf("ideal %d of %d", r.IdealTokens, r.IdealOf)
		}
	})
}

func TestBadAgentTraces(t *testing.T) {
	entry := func(e string) string { return `{"id":"a","block_size":64,"requests":[` + e + `]}` }
	good := entry(`{"type":"s","in":5,"out":1}`) + "\n"
	for text, want := range map[string]string{
		"":                       "empty",
		"{":                      "line 1: want a JSON object with id",
		`{"id":"a"}`:             "line 1: block_size is missing",
		good + good + `{"id":1}`: "line 3: want a JSON object with id",
		`{"id":"a","block_size":48,"requests":[{}]}`:                                       "block_size is 48",
		`{"id":"a","block_size":64,"requests":[]}`:                                         "requests is missing",
		`{"id":"a","block_size":64,"hash_id_scope":"?","requests":[{}]}`:                   `hash_id_scope is "?"`,
		`{"id":"\n","block_size":64,"requests":[{}]}`:                                      `id is "\n"`,
		`{"block_size":64,"requests":[{}]}`:                                                `id is ""`,
		good + entry(`{}`):                                                                 `line 2: requests[0].type is ""`,
		entry(`{"type":"s","in":5}`):                                                       "requests[0].in and out",
		entry(`{"type":"s","in":0,"out":1}`):                                               "requests[0].in is 0",
		entry(`{"type":"s","in":1,"out":-1}`):                                              "requests[0].out is -1",
		entry(`{"type":"s","in":64,"out":1,"hash_ids":[1,2]}`):                             "requests[0].hash_ids has 2 numbers, want at most 1",
		entry(`{"type":"s","in":64,"out":1,"hash_ids":[-1]}`):                              "hash_ids",
		entry(`{"type":"s","in":64,"out":1,"t":-1}`):                                       "requests[0].t is -1",
		entry(`{"type":"s","in":64,"out":1,"think_time":1e300}`):                           "requests[0].think_time is 1e+300",
		entry(`{"type":"s","in":1,"out":1},{"type":"subagent","requests":[{"type":"x"}]}`): `requests[1].requests[0].type is "x"`,
		entry(`{"type":"subagent","agent_id":"\u00e9","requests":[]}`):                     "requests[0].agent_id",
	} {
		cfg, err := TraceConfig{}.checked()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readAgentTrace(strings.NewReader(text), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	cfg := TraceConfig{Scale: 128, Speedup: 1}
	if _, err := readAgentTrace(strings.NewReader(good), cfg); err == nil || !strings.Contains(err.Error(), "at least the scale, 128") {
		t.Errorf("a scale above the block: %v", err)
	}
	cfg = TraceConfig{Scale: 1, Speedup: 1, InputTokens: 4}
	if _, err := readAgentTrace(strings.NewReader(good), cfg); err == nil || !strings.Contains(err.Error(), "all 1 requests have more than 4 tokens") {
		t.Errorf("nothing is left: %v", err)
	}
}

// TestConversations plays the fixture of recorded messages with tools.
func TestConversations(t *testing.T) {
	path := filepath.Join("testdata", "messages.jsonl")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		d, err := OpenTrace(path, AnyFormat, TraceConfig{Speedup: 1, OutputTokens: 99})
		if err != nil || d.Sessions() != 3 || d.Total() != 5 || d.String() != "conversations: 5 requests in 3 sessions of messages.jsonl, speedup 1" {
			t.Fatal(d, err)
		}
		f := &fake{answer: func(w *writer, n int, _ query) {
			w.event(`{"choices":[{"delta":{"content":"Yes."}}]}`)
			w.end(1000, 2, `,"prompt_tokens_details":{"cached_tokens":0}`)
		}}
		begin := time.Now()
		r, err := Run(t.Context(), dialFake(t, f, ClientConfig{Endpoint: Chat}), d, Config{Concurrency: 1}, nil)
		if err != nil || r.Completed != 5 {
			t.Fatal(r, err)
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		for i, want := range []struct {
			line  int
			name  string
			at    time.Duration
			tools bool
			most  float64
		}{{0, "weather-1", 0, true, 24}, {2, "weather-1", 1500 * ms, true, 16}, {1, "sums-7", 1500 * ms, false, 1}, {3, "sums-7", 4500 * ms, false, 99}, {4, "", 4500 * ms, false, 99}} {
			q := f.queries[i]
			var line map[string]json.RawMessage
			if err := json.Unmarshal([]byte(lines[want.line]), &line); err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(q.body["messages"])
			if err != nil {
				t.Fatal(err)
			}
			sameJSON(t, got, string(line["messages"]))
			if q.session != want.name || q.at.Sub(begin) != want.at || (q.body["tools"] != nil) != want.tools || q.body["max_tokens"] != want.most {
				t.Errorf("request %d: session %q at %v, tools %v, max_tokens %v; want %+v", i, q.session, q.at.Sub(begin), q.body["tools"], q.body["max_tokens"], want)
			}
		}
		if share := float64(r.IdealTokens) / float64(r.IdealOf); share < 0.2 || share > 0.5 || r.IdealOf != 5000 {
			t.Errorf("ideal %d of %d", r.IdealTokens, r.IdealOf)
		}
	})
}

func TestBadConversations(t *testing.T) {
	good := `{"messages":[{"role":"user","content":"a"}]}` + "\n"
	for text, want := range map[string]string{
		"":               "empty",
		good + "[]":      "line 2: want a JSON object with session_id",
		good + "{}":      "line 2: messages is missing",
		`{"messages":3}`: "line 1: want a JSON object",
		`{"messages":[{"role":"user"},{"content":"a"}]}`:                         "line 1: messages[1].role is missing",
		`{"messages":[{"role":"user"},7]}`:                                       "messages[1] is not a message",
		`{"messages":[{"role":"user"}],"tools":{}}`:                              "tools is not an array",
		`{"messages":[{"role":"user"}],"output_length":-1}`:                      "output_length is -1",
		`{"messages":[{"role":"user"}],"delay":-1}`:                              "delay is -1",
		`{"messages":[{"role":"user"}],"timestamp":1e300}`:                       "timestamp is 1e+300",
		`{"messages":[{"role":"user"}],"session_id":""}`:                         `session_id is ""`,
		`{"messages":[{"role":"user"}],"message_mode":"delta","session_id":"a"}`: `message_mode is "delta"`,
	} {
		if _, err := readConversations(strings.NewReader(text), TraceConfig{Speedup: 1}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestFormatOf(t *testing.T) {
	for text, want := range map[string]TraceFormat{
		trace: Mooncake, `{"id":"a","totals":{"messages":[1]},"block_size":1}`: AgentX, `{"session_id":"a","messages":[]}`: Messages,
	} {
		if got, err := formatOf(strings.NewReader(text)); got != want || err != nil {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{"": "empty", "[]": "want a JSON object", `{"a":1}`: "no trace that is known", `{"a":`: "line 1: a", `{"a"`: "line 1"} {
		if _, err := formatOf(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
