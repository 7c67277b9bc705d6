package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// text returns a completion request with a deterministic answer.
func text(prompt string, tokens int64) openai.CompletionNewParams {
	return openai.CompletionNewParams{
		Model: "nano", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String(prompt)},
		MaxTokens: openai.Int(tokens), Seed: openai.Int(7),
	}
}

func tokens(ids []int64, n int64) openai.CompletionNewParams {
	req := text("", n)
	req.Prompt = openai.CompletionNewParamsPromptUnion{OfArrayOfTokens: ids}
	return req
}

// endless makes a request ignore the end-of-text token, so that the length of its answer is known.
var endless = option.WithJSONSet("ignore_eos", true)

func (p *process) complete(req openai.CompletionNewParams, opts ...option.RequestOption) *openai.Completion {
	p.t.Helper()
	got, err := p.client.Completions.New(within(p.t), req, opts...)
	if err != nil {
		p.t.Fatalf("completion: %v", detail(err))
	}
	return got
}

// streamed is the accumulated content of a stream.
type streamed struct {
	text   []string // of each choice
	finish []string
	ids    [][]int64
	usage  *openai.CompletionUsage
	last   string // the last chunk, as received
}

func (p *process) stream(req openai.CompletionNewParams, choices int, opts ...option.RequestOption) *streamed {
	p.t.Helper()
	s := p.client.Completions.NewStreaming(within(p.t), req, opts...)
	defer s.Close()
	all := &streamed{text: make([]string, choices), finish: make([]string, choices), ids: make([][]int64, choices)}
	for s.Next() {
		chunk := s.Current()
		all.last = chunk.RawJSON()
		if chunk.JSON.Usage.Valid() {
			all.usage = &chunk.Usage
		}
		for _, c := range chunk.Choices {
			all.text[c.Index] += c.Text
			if all.finish[c.Index] != "" {
				p.t.Errorf("choice %d goes on after %q", c.Index, all.finish[c.Index])
			}
			all.finish[c.Index] += string(c.FinishReason)
			all.ids[c.Index] = append(all.ids[c.Index], extra[[]int64](p.t, c.RawJSON(), "token_ids")...)
		}
	}
	if err := s.Err(); err != nil {
		p.t.Fatalf("stream: %v", detail(err))
	}
	return all
}

// extra returns a field of a response that OpenAI's API does not have.
func extra[T any](t *testing.T, raw, field string) (v T) {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(raw), &all); err != nil {
		t.Fatal(err)
	}
	if all[field] == nil {
		return v
	}
	if err := json.Unmarshal(all[field], &v); err != nil {
		t.Fatalf("%s: %v in %s", field, err, raw)
	}
	return v
}

// TestCompletion checks that whole and streamed answers are equal, and that usage has the cached
// tokens.
func TestCompletion(t *testing.T) {
	p := serve(t)
	prompt := words("What is light", 20)
	first := p.complete(text(prompt, 24), endless)
	size := int64(len(tok.EncodePrompt(nil, prompt)))
	c := first.Choices[0]
	if len(first.Choices) != 1 || c.Text == "" || c.FinishReason != "length" || c.Index != 0 {
		t.Errorf("choices %s", first.RawJSON())
	}
	if !strings.HasPrefix(first.ID, "cmpl-") || first.Object != "text_completion" || first.Model != "nano" || first.Created == 0 || first.SystemFingerprint == "" {
		t.Errorf("head %s", first.RawJSON())
	}
	if u := first.Usage; u.PromptTokens != size || u.CompletionTokens != 24 || u.TotalTokens != size+24 || u.PromptTokensDetails.CachedTokens != 0 {
		t.Errorf("usage %s", u.RawJSON())
	}
	again := p.complete(text(prompt, 24), endless)
	if again.Choices[0].Text != c.Text || again.ID == first.ID {
		t.Errorf("with the same seed %q, then %q", c.Text, again.Choices[0].Text)
	}
	if cached := again.Usage.PromptTokensDetails.CachedTokens; cached < size-16 || cached >= size {
		t.Errorf("%d of %d tokens were cached the second time", cached, size)
	}
	plain := p.stream(text(prompt, 24), 1, endless)
	if plain.text[0] != c.Text || plain.finish[0] != "length" || plain.usage != nil {
		t.Errorf("streamed %+v, whole %q", plain, c.Text)
	}
	req := text(prompt, 24)
	req.StreamOptions.IncludeUsage = openai.Bool(true)
	counted := p.stream(req, 1, endless)
	if u := counted.usage; u == nil || u.PromptTokens != size || u.CompletionTokens != 24 || u.PromptTokensDetails.CachedTokens < size-16 {
		t.Errorf("usage of the stream: %+v", u)
	}
	if !strings.Contains(counted.last, `"choices":[]`) {
		t.Errorf("the usage came with choices: %s", counted.last)
	}
	p.quiet(p.client)
}

// TestPrompts sends a prompt as text, as tokens and as one of several.
func TestPrompts(t *testing.T) {
	p := serve(t)
	prompt := "What is light?"
	want := p.complete(text(prompt, 12), endless).Choices[0].Text
	var ids []int64
	for _, id := range tok.EncodePrompt(nil, prompt) {
		ids = append(ids, int64(id))
	}
	if got := p.complete(tokens(ids, 12), endless).Choices[0].Text; got != want {
		t.Errorf("as tokens %q, as text %q", got, want)
	}
	batch := text("", 12)
	batch.Prompt = openai.CompletionNewParamsPromptUnion{OfArrayOfTokenArrays: [][]int64{{5, 6, 7}, ids}}
	if got := p.complete(batch, endless).Choices; len(got) != 2 || got[1].Text != want || got[1].Index != 1 {
		t.Errorf("as the second array %+v, as text %q", got, want)
	}
	batch.Prompt = openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"Another one", prompt}}
	batch.N = openai.Int(2)
	whole := p.complete(batch, endless)
	if len(whole.Choices) != 4 || whole.Choices[2].Text != want || whole.Usage.CompletionTokens != 48 {
		t.Fatalf("two prompts, twice: %s", whole.RawJSON())
	}
	s := p.stream(batch, 4, endless)
	for i, c := range whole.Choices {
		if int(c.Index) != i || s.text[i] != c.Text || s.finish[i] != "length" {
			t.Errorf("choice %d is %q, streamed %q", i, c.Text, s.text[i])
		}
	}
	if whole.Choices[2].Text == whole.Choices[3].Text {
		t.Error("two samples of a prompt are the same")
	}
	batch.N, batch.Echo = openai.Int(1), openai.Bool(true)
	if got := p.complete(batch, endless).Choices; got[1].Text != prompt+want {
		t.Errorf("with echo %q, want %q", got[1].Text, prompt+want)
	}
	p.quiet(p.client)
}

// TestTokenIDs checks that the returned tokens of prompt and output, whole and streamed, can be the
// prompt of a next turn.
func TestTokenIDs(t *testing.T) {
	p := serve(t)
	show := option.WithJSONSet("return_token_ids", true)
	prompt := words("What is light", 8)
	whole := p.complete(text(prompt, 20), endless, show)
	in, out := extra[[]int64](t, whole.Choices[0].RawJSON(), "prompt_token_ids"), extra[[]int64](t, whole.Choices[0].RawJSON(), "token_ids")
	if len(out) != 20 || len(in) != int(whole.Usage.PromptTokens) {
		t.Fatalf("%d of %d prompt tokens, %d of 20 tokens", len(in), whole.Usage.PromptTokens, len(out))
	}
	for i, id := range tok.EncodePrompt(nil, prompt) {
		if in[i] != int64(id) {
			t.Fatalf("prompt token %d is %d, the tokenizer says %d", i, in[i], id)
		}
	}
	if s := p.stream(text(prompt, 20), 1, endless, show); !slices.Equal(s.ids[0], out) {
		t.Errorf("streamed %v, whole %v", s.ids[0], out)
	}
	next := p.complete(tokens(slices.Concat(in, out, []int64{9, 10, 11}), 4), endless)
	if cached := next.Usage.PromptTokensDetails.CachedTokens; cached < whole.Usage.PromptTokens {
		t.Errorf("of the next turn %d tokens were cached, want the prompt before and most of its output: over %d", cached, whole.Usage.PromptTokens)
	}
	p.quiet(p.client)
}

func TestLogprobs(t *testing.T) {
	p := serve(t)
	req := text("What is light?", 10)
	req.Logprobs, req.Temperature = openai.Int(3), openai.Float(0)
	c := p.complete(req, endless).Choices[0]
	l := c.Logprobs
	if len(l.Tokens) != 10 || len(l.TokenLogprobs) != 10 || len(l.TopLogprobs) != 10 || len(l.TextOffset) != 10 {
		t.Fatalf("logprobs %s", c.RawJSON())
	}
	for i, top := range l.TopLogprobs {
		best := 0.0
		for name, v := range top {
			if v > l.TokenLogprobs[i]+1e-6 || v > 0 {
				t.Errorf("in place %d %q has %v, the greedy token %q %v", i, name, v, l.Tokens[i], l.TokenLogprobs[i])
			}
			best = min(best, v)
		}
		if own, ok := top[l.Tokens[i]]; len(top) < 3 || !ok || own != l.TokenLogprobs[i] {
			t.Errorf("in place %d %v, and the token is %q", i, top, l.Tokens[i])
		}
		if i > 0 && l.TextOffset[i] < l.TextOffset[i-1] {
			t.Errorf("offsets go back: %v", l.TextOffset)
		}
	}
	stream := p.client.Completions.NewStreaming(within(t), req, endless)
	defer stream.Close()
	var names []string
	var values []float64
	var offsets []int64
	for stream.Next() {
		for _, c := range stream.Current().Choices {
			names = append(names, c.Logprobs.Tokens...)
			values = append(values, c.Logprobs.TokenLogprobs...)
			offsets = append(offsets, c.Logprobs.TextOffset...)
		}
	}
	if stream.Err() != nil || !slices.Equal(names, l.Tokens) || !slices.Equal(values, l.TokenLogprobs) || !slices.Equal(offsets, l.TextOffset) {
		t.Errorf("streamed %q %v %v, %v\nwhole %q %v %v", names, values, offsets, stream.Err(), l.Tokens, l.TokenLogprobs, l.TextOffset)
	}
	req.Echo = openai.Bool(true)
	echoed := p.complete(req, endless).Choices[0].Logprobs
	if n := len(tok.EncodePrompt(nil, "What is light?")); len(echoed.TokenLogprobs) != n+10 || !slices.Equal(echoed.TokenLogprobs[n:], l.TokenLogprobs) {
		t.Errorf("with echo %v, want %d for the prompt and then %v", echoed.TokenLogprobs, n, l.TokenLogprobs)
	}
	p.quiet(p.client)
}
