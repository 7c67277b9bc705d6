package main

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/stores"
)

// TestServeKilledDrafts kills a server whose requests have wrong guesses, and continues their outputs with another one.
// What it finds on disk must be the KV of the outputs, not that of refused guesses.
func TestServeKilledDrafts(t *testing.T) {
	t.Parallel()
	dir, model := t.TempDir(), nano(t)
	args := []string{"serve", "--addr", "127.0.0.1:0", "--model", model, "--kv-tokens", "4096", "--no-page"}
	const requests = 12
	chat := func(p *process, n int, more map[string]any) (u tierUsage) {
		t.Helper()
		body := map[string]any{"messages": []map[string]string{{"role": "user", "content": fmt.Sprint(n, " is light?")}}, "max_tokens": 160,
			"temperature": 0.7, "seed": n, "ignore_eos": true, "return_token_ids": true}
		maps.Copy(body, more)
		u, err := tierAsk(p.url, "/v1/chat/completions", body)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	then := func(p *process, tokens []kv.Token) (string, tierUsage) {
		t.Helper()
		u, err := tierAsk(p.url, "/v1/completions", map[string]any{"prompt": tokens, "max_tokens": 4, "temperature": 0, "ignore_eos": true})
		if err != nil {
			t.Fatal(err)
		}
		return u.Choices[0].Text, u
	}
	var answers []tierUsage
	var all [][]kv.Token // prompts and outputs
	var want []string    // what follows them
	plain := startCoppice(t, "plain", args...)
	for n := range requests {
		u := chat(plain, n, nil)
		answers, all = append(answers, u), append(all, slices.Concat(u.Prompt, u.Choices[0].TokenIDs))
		text, _ := then(plain, all[n])
		want = append(want, text)
	}
	plain.stop()

	tiered := append(args, "--speculate", "16", "--kv-disk", dir+":128MiB", "--kv-host", "64MiB", "--kv-write", "through", "--kv-token-time", "1s")
	dies := startCoppice(t, "dies", tiered...)
	for n := range requests {
		guess := []rune(answers[n].Choices[0].Message.Content)
		for i := 9; i < len(guess); i += 10 {
			guess[i] = 'x'
		}
		u := chat(dies, n, map[string]any{"prediction": map[string]any{"type": "content", "content": string(guess)}})
		if !slices.Equal(slices.Concat(u.Prompt, u.Choices[0].TokenIDs), all[n]) {
			t.Errorf("request %d: other tokens with drafts", n)
		}
	}
	drafted, right := dies.drafts()
	if drafted < 100 || right < 20 || right*10 > drafted*9 {
		t.Errorf("%d guesses, %d of them right: want many of both kinds", drafted, right)
	}
	until(t, "KV of outputs on disk", func() string {
		var figures struct{ Tiers []struct{ Extents int } }
		if dies.document("/v1/cache/stats", &figures); len(figures.Tiers) != 2 || figures.Tiers[1].Extents < requests/2 {
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
	again := startCoppice(t, "again", tiered...)
	disk := 0
	for n, tokens := range all {
		text, u := then(again, tokens)
		if text != want[n] {
			t.Errorf("request %d is continued by %q, want %q", n, text, want[n])
		}
		disk += max(0, u.Usage.Details.Tiers["disk"]-len(answers[n].Prompt))
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
