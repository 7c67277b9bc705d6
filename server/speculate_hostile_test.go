package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/scheduler"
)

// TestSpeculateHostile: a prediction of any content and size changes no answer, and takes nothing that is not given back:
// a megabyte, control tokens, NULs, half characters, the bytes of other tokenizers, with one choice and with 128.
func TestSpeculateHostile(t *testing.T) {
	t.Parallel()
	b := start(t, setup{CPU: cpu.Config{KVTokens: 8192, MaxRows: 128, MaxSlots: 128}, Node: coppice.Config{Scheduler: scheduler.Config{
		Speculate: scheduler.SpeculateAuto, MaxSamples: 128}}})
	controls := strings.Join(b.tok.ControlTokens(), "")
	for _, more := range []string{`,"temperature":0`, `,"temperature":1,"seed":3`} {
		plain := b.do("POST", "/v1/chat/completions", speculative("off", "", more))
		var want struct{ Choices json.RawMessage }
		b.ok(json.Unmarshal(plain.body, &want))
		for name, prediction := range map[string]string{
			"a megabyte": strings.Repeat("What is light? ", 1<<16), "one piece": strings.Repeat("a", 1<<20), "all fits": strings.Repeat("What is light? ", 200),
			"controls": controls + controls, "NULs": strings.Repeat("\x00", 5000), "odd bytes": "\ufffd\u2581the\u0120of\u200d\U0001F469\u0301 \ufeff", "empty": "", "space": "  \n\t ",
		} {
			for _, speculate := range []string{"1024", `"auto"`} {
				a := b.do("POST", "/v1/chat/completions", speculative(speculate, prediction, more))
				var got struct{ Choices json.RawMessage }
				b.ok(json.Unmarshal(a.body, &got))
				if a.StatusCode != 200 || string(got.Choices) != string(want.Choices) {
					t.Errorf("%s%s: %s %.300s, want %s", name, more, a.Status, a.body, want.Choices)
				}
			}
		}
	}
	many := b.ask("/v1/chat/completions", speculative("1024", strings.Repeat("What is light? ", 300), `,"n":128,"temperature":1,"seed":5`))
	same := b.ask("/v1/chat/completions", speculative("off", "", `,"n":128,"temperature":1,"seed":5`))
	for i := range same.Choices {
		if len(many.Choices) != 128 || many.Choices[i].Message.Content != same.Choices[i].Message.Content {
			t.Fatalf("choice %d of %d differs", i, len(many.Choices))
		}
	}
	// A surrogate without its half is a character of its own, not an error.
	half := strings.Replace(speculative("8", "x", `,"temperature":0`), `"content":"x"`, `"content":"x\ud800y"`, 1)
	if a := b.do("POST", "/v1/chat/completions", half); a.StatusCode != 200 && a.StatusCode != 400 {
		t.Errorf("half a character: %s %s", a.Status, a.body)
	}
	b.quiet()
	if used := b.unused(); used != 0 {
		t.Errorf("%d bytes of memory are still charged", used)
	}
}

// speculative returns a chat with a prediction, none if it is "", and guesses as the value speculate says.
func speculative(speculate, prediction, more string) string {
	if prediction != "" {
		text, err := json.Marshal(prediction)
		if err != nil {
			panic(err)
		}
		more += `,"prediction":{"type":"content","content":` + string(text) + `}`
	}
	return fmt.Sprintf(`{"messages":[{"role":"user","content":"What is light?"}],"max_tokens":24,"ignore_eos":true,"coppice":{"speculate":%s}%s}`,
		strings.ReplaceAll(speculate, "off", `"off"`), more)
}

// TestSpeculateLeaves: clients that go away and a server that stops while guesses are in flight leave no page and no charge.
func TestSpeculateLeaves(t *testing.T) {
	t.Parallel()
	b := start(t, setup{Node: coppice.Config{Scheduler: scheduler.Config{Speculate: scheduler.SpeculateAuto, MaxInflight: 2}}})
	text, err := json.Marshal(b.ask("/v1/chat/completions", strings.Replace(speculative("off", "", `,"temperature":0`), `"max_tokens":24`, `"max_tokens":2000`, 1)).Choices[0].Message.Content)
	b.ok(err)
	body := strings.Replace(speculative("16", "x", `,"temperature":0,"stream":true,"n":2`), `"content":"x"`, `"content":`+string(text), 1)
	body = strings.Replace(body, `"max_tokens":24`, `"max_tokens":2000`, 1)
	begin := func(ctx context.Context) *http.Response {
		req, err := http.NewRequestWithContext(ctx, "POST", b.url+"/v1/chat/completions", strings.NewReader(body))
		if err == nil {
			req.Header.Set("Content-Type", "application/json")
			var res *http.Response
			if res, err = b.client.Do(req); err == nil {
				return res
			}
		}
		t.Error(err)
		return nil
	}
	var clients sync.WaitGroup
	for lines := range 8 {
		clients.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if res := begin(ctx); res != nil {
				defer res.Body.Close()
				for s := bufio.NewScanner(res.Body); lines >= 0 && s.Scan(); lines-- {
				}
			}
		})
	}
	clients.Wait()
	b.quiet()
	m := b.stats().Scheduler
	if drafted, right := m.Drafts.Sum(); drafted == 0 || right == 0 {
		t.Errorf("%d guesses, %d right: no request had some in flight", drafted, right)
	}
	var last sync.WaitGroup
	for range 4 {
		if res := begin(t.Context()); res != nil {
			last.Go(func() {
				defer res.Body.Close()
				all := ""
				for s := bufio.NewScanner(res.Body); s.Scan(); {
					all += s.Text() + "\n"
				}
				if !strings.HasSuffix(all, "data: [DONE]\n\n") && !strings.Contains(all, "shutting_down") {
					t.Errorf("a stream ends with %.300s", all[max(0, len(all)-300):])
				}
			})
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.srv.Shutdown(ctx)
	last.Wait()
	b.quiet()
	if used := b.unused(); used != 0 {
		t.Errorf("%d bytes of memory are still charged", used)
	}
}
