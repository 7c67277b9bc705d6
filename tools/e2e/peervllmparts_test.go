//go:build unix

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/openai/openai-go/v3"

	"github.com/coppice-llm/coppice/kv"
)

// residency: prompts of every length around a block, twice and with a common beginning.
func (f *vllmFleet) residency(t *testing.T) {
	queries, hits := f.counts()
	believed, asked := 0, 0
	base := f.tokens(4 * vllmBlock)
	for _, n := range []int{1, vllmBlock - 1, vllmBlock, vllmBlock + 1, 3*vllmBlock - 1, 3 * vllmBlock, 3*vllmBlock + 1, 4 * vllmBlock} {
		for range 2 {
			c := f.complete(base[:n], 4)
			f.exact("a beginning", &c)
			believed, asked = believed+c.Overlap*vllmBlock, asked+n
		}
	}
	for range 10 {
		c := f.complete(slices.Concat(base[:vllmBlock*(1+f.rng.IntN(4))], f.tokens(1+f.rng.IntN(60))), 4)
		f.exact("a fork", &c)
		believed, asked = believed+c.Overlap*vllmBlock, asked+c.Usage.PromptTokens
	}
	q, h := f.counts()
	if int(q-queries) != asked || int(h-hits) != believed || believed == 0 {
		t.Errorf("vLLM counts %v tokens and %v found, the gateway %d and %d", q-queries, h-hits, asked, believed)
	}
	salt := map[string]any{"cache_salt": strings.Repeat("5a", 32)}
	salted := map[string]any{"prompt": base, "max_tokens": 1, "temperature": 0, "cache_salt": salt["cache_salt"]}
	first, again := f.ask("/v1/completions", salted), computed{}
	f.until("the gateway knows the blocks of a salt", func() bool {
		return f.overlaps(append(slices.Clone(base), 100), salt)[first.Worker] == 4
	})
	again = f.ask("/v1/completions", salted)
	if first.Overlap != 0 || again.Overlap == 0 || first.Worker != again.Worker {
		t.Errorf("with a salt %d blocks were believed at %s, then %d at %s", first.Overlap, first.Worker, again.Overlap, again.Worker)
	}
	f.exact("with a salt", &first)
	f.exact("with a salt again", &again)
}

// chats: conversations of several turns. The gateway renders and tokenizes them as vLLM does.
func (f *vllmFleet) chats(t *testing.T) {
	found := 0
	for n := range 6 {
		messages := []map[string]any{{"role": "system", "content": systems[n%len(systems)]}}
		for turn := range 3 {
			messages = append(messages, map[string]any{"role": "user", "content": questions[(n+turn)%len(questions)]})
			c := f.ask("/v1/chat/completions", map[string]any{"messages": messages, "max_tokens": 5, "temperature": 0})
			f.settle(&c)
			f.exact(fmt.Sprintf("conversation %d, turn %d", n, turn), &c)
			found += c.Overlap
			messages = append(messages, map[string]any{"role": "assistant", "content": fmt.Sprintf("It is in hall %d.", n)})
		}
	}
	if found == 0 {
		t.Error("the gateway found nothing")
	}
}

// eviction: documents of twice the size of both caches. The prompts end within a block that the answer
// does not fill: so no step after the first evicts anything.
func (f *vllmFleet) eviction(t *testing.T) {
	const blocks = 24
	documents := make([][]kv.Token, 4*vllmBlocks/blocks)
	for i := range documents {
		documents[i] = f.tokens(blocks * vllmBlock)
	}
	_, hits := f.counts()
	exact, all, believed := 0, 0, 0
	for range 60 {
		d := documents[min(f.rng.IntN(len(documents)), f.rng.IntN(len(documents)), f.rng.IntN(len(documents)))] // the first ones more often
		c := f.complete(slices.Concat(d[:vllmBlock*(1+f.rng.IntN(blocks))], f.tokens(1+f.rng.IntN(20))), 4)
		all, believed = all+1, believed+c.Overlap*vllmBlock
		if f.exact("under eviction", &c) {
			exact++
		}
	}
	_, h := f.counts()
	held := 0
	for _, r := range f.ranks() {
		held += r.Held
	}
	t.Logf("exact %d of %d times; %d tokens found; %d of %d blocks in the index", exact, all, believed, held, 2*(vllmBlocks-1))
	if int(h-hits) != believed || believed == 0 {
		t.Errorf("vLLM counts %v tokens found, the gateway %d", h-hits, believed)
	}
	if held > 2*(vllmBlocks-1) || held < vllmBlocks {
		t.Errorf("the index holds %d blocks of caches of %d", held, 2*(vllmBlocks-1))
	}
}

// gap: a worker's events are lost while it computes. When the connection is back, the gateway fetches
// what it has missed by a replay.
func (f *vllmFleet) gap(t *testing.T) {
	for i, w := range f.workers {
		before := f.tokens(3*vllmBlock + 5)
		post(t, w.url()+"/v1/completions", map[string]any{"model": "mini", "prompt": before, "max_tokens": 1})
		f.until("the gateway knows "+w.name, func() bool { return f.overlaps(before, nil)[w.name] == 3 })
		f.relays[i].cut()
		missed := f.tokens(5*vllmBlock + 5)
		if status, _, text := post(t, w.url()+"/v1/completions", map[string]any{"model": "mini", "prompt": missed, "max_tokens": 1}); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
		if n := f.overlaps(missed, nil)[w.name]; n != 0 {
			t.Errorf("the gateway knows %d blocks of which it heard nothing", n)
		}
		f.relays[i].mend()
		f.until("the gateway has fetched what it missed of "+w.name, func() bool {
			return f.overlaps(missed, nil)[w.name] == 5 && f.overlaps(before, nil)[w.name] == 3
		})
		c := f.complete(missed, 4)
		f.exact("after a gap", &c)
	}
}

// late: a gateway that starts now learns all that was cached before, by the replay of all events.
func (f *vllmFleet) late(t *testing.T) {
	var prompts [][]kv.Token
	for range 4 {
		p := f.tokens(4*vllmBlock + 3)
		f.complete(p, 4)
		prompts = append(prompts, p)
	}
	var known []foreignWorker
	for _, w := range f.workers {
		known = append(known, foreignWorker{Name: w.name, URL: w.url(), Events: local("tcp", w.events), Replay: local("tcp", w.replay)})
	}
	late := routeForeign(t, vllmBlock, f.workers[0].model, known)
	late.process.model = "mini"
	for _, p := range prompts {
		want := f.overlaps(p, nil)
		late.until("the late gateway knows what the first one does", func() bool { return fmt.Sprint(late.overlaps(p, nil)) == fmt.Sprint(want) })
		if want["one"]+want["two"] < 4 {
			t.Errorf("the first gateway knows %v of a prompt of 4 blocks", want)
		}
	}
	if got, want := late.ranks(), f.ranks(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the late gateway has %+v, the first %+v", got, want)
	}
}

// auto: a gateway that is given URLs and a model, and no more, reads at vLLM where its events and replays are and how
// long its blocks are.
func (f *vllmFleet) auto(t *testing.T) {
	const block = 16 // the gateway's own, half of vLLM's
	before := f.tokens(4*vllmBlock + 3)
	home := f.complete(before, 1).Worker
	auto := newForeignFleet(launch(t, http.DefaultClient, []string{"route", "--worker", f.workers[0].url() + "," + f.workers[1].url(), "--model", f.workers[0].model}, nil), block)
	auto.process.model = "mini"
	names := map[string]string{}
	for _, w := range f.workers {
		names[w.name] = fmt.Sprintf("127-0-0-1-%d", w.port)
		auto.follows(names[w.name])
	}
	auto.until("the gateway knows what was cached before it started", func() bool { return auto.overlaps(before, nil)[names[home]] == 4*vllmBlock/block })
	for _, n := range []int{vllmBlock - 1, vllmBlock, vllmBlock + block + 1, 2 * vllmBlock, 5*vllmBlock + 1} {
		prompt := f.tokens(n)
		body := map[string]any{"prompt": prompt, "max_tokens": 1, "temperature": 0}
		first := auto.ask("/v1/completions", body)
		auto.exact("never seen", &first)
		auto.until("the gateway knows it", func() bool {
			return auto.overlaps(append(slices.Clone(prompt), 100), nil)[first.Worker] == n/vllmBlock*vllmBlock/block
		})
		again := auto.ask("/v1/completions", body)
		auto.exact("seen before", &again)
		if want := (n - 1) / vllmBlock * vllmBlock / block; again.Worker != first.Worker && want > 0 || again.Overlap != want {
			t.Errorf("%d tokens: %d blocks of %d at %s, then %d at %s", n, first.Overlap, block, first.Worker, again.Overlap, again.Worker)
		}
	}
}

// prompts: vLLM's own endpoint for rendering makes the prompt tokens that the gateway is tested with.
func (f *vllmFleet) prompts(t *testing.T) {
	script := filepath.Join("..", "..", "gateway", "internal", "prompt", "testdata", "render.py")
	said, err := exec.CommandContext(within(t), filepath.Join(f.workers[0].dir, "bin", "python"), script, f.workers[0].model, "--vllm", f.workers[0].url()).CombinedOutput()
	if all := strings.Split(strings.TrimSpace(string(said)), "\n"); err != nil {
		t.Errorf("%v: %s", err, said[:min(len(said), 4000)])
	} else {
		t.Log(all[len(all)-1])
	}
}

// fleetSums is a part of /v1/fleet/view.
type fleetSums struct {
	Requests  int `json:"requests"`
	Prompt    int `json:"prompt_tokens"`
	Confirmed int `json:"confirmed_tokens"`
	Predicted int `json:"predicted_tokens"`
	Cached    int `json:"cached_tokens"`
}

// underLoad: conversations at the same time. The gateway's figures of the load are vLLM's.
func (f *vllmFleet) underLoad(t *testing.T) {
	sums := func() fleetSums { // a client may have its whole answer before the gateway has counted the request
		var view struct {
			Open  int `json:"open_requests"`
			Fleet fleetSums
		}
		f.until("the gateway has counted all requests", func() bool {
			f.get("/v1/fleet/view", &view)
			return view.Open == 0
		})
		return view.Fleet
	}
	before := sums()
	queries, hits := f.counts()
	var all sync.WaitGroup
	for n := range 12 {
		all.Go(func() { f.converse(t.Context(), n) })
	}
	all.Wait()
	after := sums()
	q, h := f.counts()
	prompt, confirmed, predicted, cached := after.Prompt-before.Prompt, after.Confirmed-before.Confirmed, after.Predicted-before.Predicted, after.Cached-before.Cached
	t.Logf("%d prompt tokens, %d predicted to be cached, %d cached; vLLM counts %v and %v", prompt, predicted, cached, q-queries, h-hits)
	if n := after.Requests - before.Requests; n != 48 || prompt != int(q-queries) || confirmed != prompt || cached != int(h-hits) {
		t.Errorf("the gateway counts %d requests, want 48, and %d prompt tokens, of which %d confirmed and %d cached, vLLM %v and %v", n, prompt, confirmed, cached, q-queries, h-hits)
	}
	if 4*cached < prompt {
		t.Errorf("%d of %d prompt tokens were cached", cached, prompt)
	}
}

// ids matches what differs from answer to answer of vLLM.
var ids = regexp.MustCompile(`"(id|created|created_at|request_id|completed_at)": ?("[^"]*"|[0-9.]+)`)

// withoutIDs replaces what differs from answer to answer of vLLM.
func withoutIDs(text string) string { return ids.ReplaceAllString(text, `"$1":""`) }

// alike compares the answers of a worker and of the gateway to the same request, byte for byte but for
// ids and times.
func (f *vllmFleet) alike(t *testing.T, what, path string, body any) (status int, text string) {
	t.Helper()
	s1, h1, own := post(t, f.workers[0].url()+path, body)
	s2, h2, through := post(t, f.front+path, body)
	a, b := withoutIDs(string(own)), withoutIDs(string(through))
	if s1 != s2 || h1.Get("Content-Type") != h2.Get("Content-Type") || a != b {
		t.Errorf("%s: vLLM answers %d %s\n%s\nthe gateway %d %s\n%s", what, s1, h1.Get("Content-Type"), a, s2, h2.Get("Content-Type"), b)
	}
	return s1, string(through)
}

// streams: server-sent events pass through unchanged. On a busy machine vLLM joins the tokens of several steps to one event, in each
// stream in another way, so the test asks until two streams have the same events.
func (f *vllmFleet) streams(t *testing.T) {
	for path, body := range map[string]map[string]any{
		"/v1/completions":      {"prompt": "the light of", "max_tokens": 40},
		"/v1/chat/completions": {"messages": []any{map[string]any{"role": "user", "content": "light?"}}, "max_tokens": 40, "logprobs": true, "top_logprobs": 2},
	} {
		body["model"], body["stream"], body["temperature"] = "mini", true, 0
		body["stream_options"] = map[string]any{"include_usage": true}
		for _, w := range f.workers { // or the usage differs: it has the cached tokens
			post(t, w.url()+path, body)
		}
		status, text := 0, ""
		for try := 0; ; try++ {
			_, _, own := post(t, f.workers[0].url()+path, body)
			s, _, through := post(t, f.front+path, body)
			status, text = s, string(through)
			a, b := withoutIDs(string(own)), withoutIDs(text)
			if a == b {
				break
			}
			if of, got := joined(t, a), joined(t, b); of != got {
				t.Errorf("%s: vLLM answers %s\nthe gateway %s", path, of, got)
				break
			}
			if try == 20 {
				t.Errorf("%s: no two streams of %d have the same events; the last are\n%s\nand\n%s", path, try, a, b)
				break
			}
		}
		if status != http.StatusOK || strings.Count(text, "data: ") < 5 || !strings.HasSuffix(text, "data: [DONE]\n\n") {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

// joined returns what the events of a stream say in all, however they are cut: the text, the names and the lists of each member, with
// the latest usage.
func joined(t *testing.T, stream string) string {
	t.Helper()
	all := map[string]string{}
	var add func(path string, v any)
	add = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, of := range v {
				add(path+"."+k, of)
			}
		case []any:
			for _, of := range v {
				if text, err := json.Marshal(of); err != nil {
					t.Fatal(err)
				} else if path == ".choices" {
					add(path, of)
				} else {
					all[path] += string(text)
				}
			}
		case string:
			if path != ".choices" && strings.HasPrefix(path, ".choices") {
				all[path] += v
			} else {
				all[path] = v
			}
		case nil:
		default:
			all[path] = fmt.Sprint(v)
		}
	}
	for line := range strings.Lines(stream) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		var event map[string]any
		if !ok || data == "[DONE]" {
			continue
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		add("", event)
	}
	return fmt.Sprint(all)
}

// tools: a forced call of a function, whole and as a stream, and the turn after it.
func (f *vllmFleet) tools(t *testing.T) {
	tools := []any{map[string]any{"type": "function", "function": map[string]any{"name": "cut", "parameters": map[string]any{
		"type": "object", "properties": map[string]any{"tree": map[string]any{"enum": []string{"hazel", "ash"}}}, "required": []string{"tree"}, "additionalProperties": false}}}}
	messages := []any{map[string]any{"role": "user", "content": "Cut the hazel."}}
	body := map[string]any{"model": "mini", "messages": messages, "tools": tools, "temperature": 0, "max_tokens": 60,
		"tool_choice": map[string]any{"type": "function", "function": map[string]any{"name": "cut"}}}
	status, _, text := post(t, f.front+"/v1/chat/completions", body)
	var got openai.ChatCompletion
	if err := json.Unmarshal(text, &got); err != nil || status != http.StatusOK || len(got.Choices) != 1 || len(got.Choices[0].Message.ToolCalls) != 1 || got.Choices[0].Message.ToolCalls[0].Function.Name != "cut" {
		t.Fatalf("%v, %d %s", err, status, text)
	}
	call := got.Choices[0].Message.ToolCalls[0]
	body["stream"] = true
	if status, _, text := post(t, f.front+"/v1/chat/completions", body); status != http.StatusOK || !strings.Contains(string(text), `"tool_calls"`) {
		t.Errorf("%d %s", status, text)
	}
	delete(body, "stream")
	delete(body, "tool_choice")
	body["messages"] = append(messages,
		map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{"id": call.ID, "type": "function", "function": map[string]any{"name": "cut", "arguments": call.Function.Arguments}}}},
		map[string]any{"role": "tool", "tool_call_id": call.ID, "content": "It is cut."})
	body["max_tokens"] = 4
	c := f.ask("/v1/chat/completions", body)
	f.settle(&c)
	c = f.ask("/v1/chat/completions", body)
	f.exact("after a tool", &c)
	if c.Overlap == 0 {
		t.Errorf("of %d tokens after a tool, nothing was found", c.Usage.PromptTokens)
	}
}

// errors: what vLLM refuses reaches the client as vLLM wrote it.
func (f *vllmFleet) errors(t *testing.T) {
	chat := func(more string) string {
		return `{"model":"mini","messages":[{"role":"user","content":"light?"}],"max_tokens":4` + more + `}`
	}
	for what, r := range map[string]struct{ path, body string }{
		"temperature":          {"/v1/chat/completions", chat(`,"temperature":-1`)},
		"top_p":                {"/v1/chat/completions", chat(`,"top_p":7`)},
		"top_logprobs":         {"/v1/chat/completions", chat(`,"logprobs":true,"top_logprobs":9999`)},
		"a tool without tools": {"/v1/chat/completions", chat(`,"tool_choice":"required"`)},
		"a schema":             {"/v1/chat/completions", chat(`,"response_format":{"type":"json_schema"}`)},
		"a stream's options":   {"/v1/chat/completions", chat(`,"stream_options":{"include_usage":true}`)},
		"a number as text":     {"/v1/chat/completions", chat(`,"seed":"x"`)},
		"n":                    {"/v1/completions", `{"model":"mini","prompt":"light","n":0}`},
		"too long":             {"/v1/completions", `{"model":"mini","prompt":[` + strings.Repeat("200,", 5000) + `200],"max_tokens":4}`},
		"too many":             {"/v1/completions", `{"model":"mini","prompt":"light","max_tokens":100000}`},
		"an unknown token":     {"/v1/completions", `{"model":"mini","prompt":[99999999],"max_tokens":4}`},
	} {
		t.Run(what, func(t *testing.T) {
			if status, text := f.alike(t, what, r.path, r.body); status < 400 || status >= 500 {
				t.Errorf("vLLM answers %d %s", status, text)
			}
		})
	}
}

// killed: a worker dies while it computes. Streams that have begun end with an error; requests of which
// the client has seen nothing are computed by the other worker. The worker comes back with an empty cache.
func (f *vllmFleet) killed(t *testing.T) {
	f.mayLose = true
	shared := f.tokens(6*vllmBlock + 3)
	home := f.worker(f.complete(shared, 4).Worker)
	stream, err := http.Post(f.front+"/v1/completions", "application/json", strings.NewReader(f.long(shared, true)))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	if !lines.Scan() || stream.Header.Get("X-Coppice-Worker") != home.name {
		t.Fatalf("the stream begins with %q at %s, and not at %s", lines.Text(), stream.Header.Get("X-Coppice-Worker"), home.name)
	}
	const waiting = 5
	ended := make(chan string, waiting)
	running := func() float64 {
		return home.metric("vllm:num_requests_running") + home.metric("vllm:num_requests_waiting")
	}
	before, long := running(), f.long(shared, false)
	for range waiting {
		go func() {
			status, header, text, err := send(f.front+"/v1/completions", long)
			ended <- fmt.Sprintf("%d at %s: %.200s, %v", status, header.Get("X-Coppice-Worker"), text, err)
		}()
	}
	there := 0.0
	f.until("requests run at "+home.name, func() bool { there = running() - before; return there >= 1 })
	home.kill()
	rest := ""
	for lines.Scan() {
		rest += lines.Text() + "\n"
	}
	if told := strings.Contains(rest, `"error"`) || f.breaks && lines.Err() != nil; !told || strings.Contains(rest, "[DONE]") {
		t.Errorf("the stream that had begun ends with %.500s, %v", rest[max(0, len(rest)-500):], lines.Err())
	}
	for range waiting {
		if got := <-ended; !strings.HasPrefix(got, "200 at ") {
			t.Errorf("a request of which the client had seen nothing ended with %s", got)
		}
	}
	f.until("the gateway has lost "+home.name, func() bool { return f.ranks()[home.name].State == "lost" })
	home.start(f.whole)
	home.peer.t = t
	home.answers(home.url() + "/health")
	f.follows(home.name)
	f.until("the gateway has forgotten what "+home.name+" had", func() bool { return f.overlaps(shared, nil)[home.name] == 0 })
	for range 6 {
		p := f.tokens(3*vllmBlock + 5)
		for range 2 {
			c := f.complete(p, 4)
			f.exact("after a restart", &c)
		}
		if status, _, text := post(t, home.url()+"/v1/completions", map[string]any{"model": "mini", "prompt": p, "max_tokens": 1}); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
		f.until("the gateway hears the new process", func() bool { return f.overlaps(p, nil)[home.name] == 3 })
	}
}

// long returns a completion that takes some seconds.
func (f *vllmFleet) long(tokens []kv.Token, stream bool) string {
	body, err := json.Marshal(map[string]any{"model": "mini", "prompt": tokens, "max_tokens": 600, "ignore_eos": true, "stream": stream})
	if err != nil {
		f.t.Fatal(err)
	}
	return string(body)
}

// dynamo: Dynamo's indexer reads the same events of both workers and comes to the gateway's index, while
// requests evict what others cached.
func (f *vllmFleet) dynamo(t *testing.T) {
	var known []foreignWorker
	for _, w := range f.workers {
		known = append(known, foreignWorker{Name: w.name, URL: w.url(), Events: local("tcp", w.events), Replay: local("tcp", w.replay)})
	}
	for _, w := range f.workers { // the indexer asks for no replay of what was before: both begin with empty caches
		if status, _, text := post(t, w.url()+"/reset_prefix_cache", ""); status != http.StatusOK {
			t.Fatalf("reset: %d %s", status, text)
		}
	}
	d := startDynamo(t, peerDir(t, "dynamo"), "mini", vllmBlock, known)
	d.active(f.process)
	var prompts [][]kv.Token
	most := 0
	for range 6 {
		for range 4 {
			p := f.tokens(vllmBlock*(2+f.rng.IntN(16)) + 1 + f.rng.IntN(20))
			if len(prompts) > 0 && f.rng.IntN(2) == 0 {
				of := prompts[f.rng.IntN(len(prompts))]
				p = slices.Concat(of[:vllmBlock*(1+f.rng.IntN(len(of)/vllmBlock))], f.tokens(vllmBlock*f.rng.IntN(8)+5))
			}
			prompts = append(prompts, p)
			f.complete(p, 4)
		}
		most = max(most, d.agree(f.foreignFleet, prompts))
	}
	t.Logf("%d prompts, at most %d blocks, alike", len(prompts), most)
	if most < vllmBlocks/2 {
		t.Errorf("at most %d blocks were held", most)
	}
}
