package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/stores"
)

// draftedChats are requests, their answers, and what follows these.
type draftedChats struct {
	*testing.T
	answers []tierUsage
	all     [][]kv.Token // prompts and outputs
	then    []string     // the continuations
}

// ask sends request n with a prediction.
func (c *draftedChats) ask(p *process, n int, prediction string) tierUsage {
	c.Helper()
	u, err := tierAsk(p.url, "/v1/chat/completions", map[string]any{"messages": []map[string]string{{"role": "user", "content": fmt.Sprint(n, " is light?")}}, "max_tokens": 160,
		"temperature": 0.7, "seed": n, "ignore_eos": true, "return_token_ids": true, "prediction": map[string]any{"type": "content", "content": prediction}})
	if err != nil {
		c.Fatal(err)
	}
	return u
}

// follow continues tokens.
func (c *draftedChats) follow(p *process, tokens []kv.Token) (string, tierUsage) {
	c.Helper()
	u, err := tierAsk(p.url, "/v1/completions", map[string]any{"prompt": tokens, "max_tokens": 4, "temperature": 0, "ignore_eos": true})
	if err != nil {
		c.Fatal(err)
	}
	return u.Choices[0].Text, u
}

// expect asks all requests of a server without drafts and tiers.
func (c *draftedChats) expect(p *process, requests int) {
	c.Helper()
	for n := range requests {
		u := c.ask(p, n, "")
		c.answers, c.all = append(c.answers, u), append(c.all, slices.Concat(u.Prompt, u.Choices[0].TokenIDs))
		text, _ := c.follow(p, c.all[n])
		c.then = append(c.then, text)
	}
}

// guess asks all requests with predictions of which a tenth is wrong.
func (c *draftedChats) guess(p *process) {
	c.Helper()
	for n := range c.all {
		guess := []rune(c.answers[n].Choices[0].Message.Content)
		for i := 9; i < len(guess); i += 10 {
			guess[i] = 'x'
		}
		if u := c.ask(p, n, string(guess)); !slices.Equal(slices.Concat(u.Prompt, u.Choices[0].TokenIDs), c.all[n]) {
			c.Errorf("request %d: other tokens with drafts", n)
		}
	}
}

// TestServeKilledDrafts kills a server that has refused guesses, and continues its outputs with another one. What that
// finds on disk must be the KV of the outputs, not that of refused guesses.
func TestServeKilledDrafts(t *testing.T) {
	t.Parallel()
	dir, model := t.TempDir(), nano(t)
	args := []string{"serve", "--addr", "127.0.0.1:0", "--model", model, "--kv-tokens", "4096", "--no-page"}
	chats := &draftedChats{T: t}
	plain := startCoppice(t, "plain", args...)
	chats.expect(plain, 12)
	plain.stop()
	args = append(args, "--speculate", "16", "--kv-disk", dir+":128MiB", "--kv-write", "through", "--kv-token-time", "1s")
	dies := startCoppice(t, "dies", args...)
	chats.guess(dies)
	drafted, right := dies.drafts()
	if drafted < 100 || right < 20 || right*10 > drafted*9 {
		t.Errorf("%d guesses, %d of them right: want many of both kinds", drafted, right)
	}
	until(t, "KV of half the outputs on disk", func() string {
		var figures struct{ Tiers []struct{ Extents int } }
		if dies.document("/v1/cache/stats", &figures); len(figures.Tiers) != 1 || figures.Tiers[0].Extents < 6 {
			return fmt.Sprint(figures)
		}
		return ""
	})
	dies.kill()
	dirs, err := stores.Find(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range dirs {
		for r := range dirs[i].Records(true) {
			if r.Err != nil {
				t.Errorf("a record is damaged: %v", r.Err)
			}
		}
	}
	again := startCoppice(t, "again", args...)
	disk := 0
	for n, tokens := range chats.all {
		text, u := chats.follow(again, tokens)
		if text != chats.then[n] {
			t.Errorf("request %d is continued by %q, want %q", n, text, chats.then[n])
		}
		disk += max(0, u.Usage.Details.Tiers["disk"]-len(chats.answers[n].Prompt))
	}
	if t.Logf("%d guesses, %d of them right; %d tokens of outputs from disk", drafted, right, disk); disk == 0 {
		t.Error("no KV of an output came from disk")
	}
}

// drafts returns the guesses that a server has verified, and the right ones.
func (p *process) drafts() (drafted, right int) {
	p.Helper()
	f := p.figures()
	return f["coppice_spec_decode_num_draft_tokens_total"], f["coppice_spec_decode_num_accepted_tokens_total"]
}

// TestRouteDrafts checks that a router passes predictions and the number of guesses on, and their counts back.
func TestRouteDrafts(t *testing.T) {
	t.Parallel()
	model := nano(t)
	var workers []*process
	for i := range 2 {
		workers = append(workers, startCoppice(t, fmt.Sprintf("worker %d", i), "serve", "--addr", "127.0.0.1:0", "--model", model, "--kv-tokens", "4096", "--no-page", "--speculate", "auto"))
	}
	router := startCoppice(t, "router", "route", "--addr", "127.0.0.1:0", "--worker", workers[0].url+","+workers[1].url)
	untilFleet(t, router, map[string]string{workers[0].url: "healthy", workers[1].url: "healthy"})
	for n := range 4 {
		body := map[string]any{"messages": []map[string]string{{"role": "user", "content": fmt.Sprint(n, " is light?")}}, "max_tokens": 32, "temperature": 0, "ignore_eos": true,
			"coppice": map[string]any{"speculate": "off"}}
		off, err := tierAsk(router.url, "/v1/chat/completions", body)
		if err != nil {
			t.Fatal(err)
		}
		text := off.Choices[0].Message.Content
		body["coppice"], body["prediction"] = map[string]any{"speculate": 8}, map[string]any{"type": "content", "content": text}
		on, err := tierAsk(router.url, "/v1/chat/completions", body)
		if err != nil || on.Choices[0].Message.Content != text {
			t.Fatalf("%q, %v, want %q", on.Choices[0].Message.Content, err, text)
		}
		if n := off.Usage.Output.Accepted; n != 0 || on.Usage.Output.Accepted == 0 {
			t.Errorf("%d guesses were right without any, and %d with a prediction", n, on.Usage.Output.Accepted)
		}
	}
	drafted := 0
	for _, w := range workers {
		n, _ := w.drafts()
		drafted += n
	}
	if drafted == 0 {
		t.Error("no worker has verified a guess")
	}
}
