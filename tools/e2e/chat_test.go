package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// talk returns a chat request with a deterministic answer.
func talk(tokens int64, messages ...openai.ChatCompletionMessageParamUnion) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "nano", Messages: messages, MaxCompletionTokens: openai.Int(tokens), Seed: openai.Int(7)}
}

func (p *process) chat(req openai.ChatCompletionNewParams, opts ...option.RequestOption) *openai.ChatCompletion {
	p.t.Helper()
	got, err := p.client.Chat.Completions.New(within(p.t), req, opts...)
	if err != nil {
		p.t.Fatalf("chat: %v", detail(err))
	}
	return got
}

// chatStream runs a streamed chat request and returns the client's accumulator and all chunks.
func (p *process) chatStream(req openai.ChatCompletionNewParams, opts ...option.RequestOption) (*openai.ChatCompletionAccumulator, []openai.ChatCompletionChunk) {
	p.t.Helper()
	s := p.client.Chat.Completions.NewStreaming(within(p.t), req, opts...)
	defer s.Close()
	all := &openai.ChatCompletionAccumulator{}
	var chunks []openai.ChatCompletionChunk
	for s.Next() {
		if !all.AddChunk(s.Current()) {
			p.t.Errorf("the client's accumulator refuses %s", s.Current().RawJSON())
		}
		chunks = append(chunks, s.Current())
	}
	if err := s.Err(); err != nil {
		p.t.Fatalf("stream of a chat: %v", detail(err))
	}
	return all, chunks
}

func TestChat(t *testing.T) {
	p := serve(t)
	req := talk(20, openai.SystemMessage("Be brief."), openai.UserMessage("What is light?"))
	req.User = openai.String("somebody")
	req.StreamOptions.IncludeUsage = openai.Bool(true)
	s, chunks := p.chatStream(req, endless)
	req.StreamOptions = openai.ChatCompletionStreamOptionsParam{}
	whole := p.chat(req, endless)
	c := whole.Choices[0]
	if c.Message.Role != "assistant" || c.Message.Content == "" || c.FinishReason != "length" || c.Message.Refusal != "" {
		t.Errorf("choices %s", whole.RawJSON())
	}
	if !strings.HasPrefix(whole.ID, "chatcmpl-") || whole.Object != "chat.completion" || whole.Model != "nano" || whole.Created == 0 {
		t.Errorf("head %s", whole.RawJSON())
	}
	if whole.Usage.CompletionTokens != 20 || whole.Usage.TotalTokens != whole.Usage.PromptTokens+20 {
		t.Errorf("usage %s", whole.Usage.RawJSON())
	}
	if got := s.Choices[0]; got.Message.Content != c.Message.Content || got.Message.Role != "assistant" || got.FinishReason != "length" {
		t.Errorf("streamed %+v, whole %s", got, c.RawJSON())
	}
	if u := s.Usage; u.CompletionTokens != 20 || u.PromptTokens != whole.Usage.PromptTokens {
		t.Errorf("usage of the stream %+v", u)
	}
	if first := chunks[0].Choices[0].Delta; first.Role != "assistant" || first.Content != "" {
		t.Errorf("the first chunk is %s", chunks[0].RawJSON())
	}
	for _, chunk := range chunks {
		if chunk.ID != chunks[0].ID || chunk.Object != "chat.completion.chunk" || chunk.Model != "nano" {
			t.Errorf("head of a chunk: %s", chunk.RawJSON())
		}
	}
	old := req
	old.MaxTokens, old.MaxCompletionTokens = openai.Int(20), openai.ChatCompletionNewParams{}.MaxCompletionTokens
	if got := p.chat(old, endless); got.Choices[0].Message.Content != c.Message.Content {
		t.Errorf("by max_tokens %q, by max_completion_tokens %q", got.Choices[0].Message.Content, c.Message.Content)
	}
	p.quiet(p.client)
}

// TestTurns checks that each turn of a conversation finds the earlier ones in the cache.
func TestTurns(t *testing.T) {
	p := serve(t)
	messages := []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(words("Rule", 10))}
	var before, cachedBefore int64
	for turn := range 5 {
		messages = append(messages, openai.UserMessage(words("And what is", 6)))
		got := p.chat(talk(12, messages...), option.WithJSONSet("logit_bias", letters))
		u := got.Usage
		cached := u.PromptTokensDetails.CachedTokens
		// At least the whole pages of the last prompt are cached.
		if turn > 0 && (cached <= cachedBefore || cached < before-16) {
			t.Errorf("turn %d: %d of %d tokens cached, the last prompt had %d, of which %d", turn, cached, u.PromptTokens, before, cachedBefore)
		}
		before, cachedBefore = u.PromptTokens, cached
		messages = append(messages, openai.AssistantMessage(got.Choices[0].Message.Content))
	}
	if f := p.stats(p.client); f.CachedTokens == 0 || f.CachedTokens >= f.PromptTokens {
		t.Errorf("in all %d of %d tokens cached", f.CachedTokens, f.PromptTokens)
	}
}

// letters is a bias that forces plain letters. The text of a generated model has broken characters,
// which are not tokenized to the same tokens again.
var letters = func() map[string]int {
	bias := map[string]int{}
	for _, id := range tokenizeLetters {
		bias[itoa(id)] = 30
	}
	return bias
}()

// tokenizeLetters holds the tokens of a to z. In a byte-level vocabulary the tokens of bytes are
// numbered from '!' on.
var tokenizeLetters = func() (ids []int64) {
	for c := 'a'; c <= 'z'; c++ {
		ids = append(ids, int64(c-'!'))
	}
	return ids
}()

// TestLetters compares tokenizeLetters with the tokenizer.
func TestLetters(t *testing.T) {
	for i, id := range tokenizeLetters {
		if got := tok.Encode(nil, string(rune('a'+i))); len(got) != 1 || int64(got[0]) != id {
			t.Fatalf("%c is token %v, not %d", 'a'+i, got, id)
		}
	}
}

func TestChoices(t *testing.T) {
	p := serve(t)
	req := talk(10, openai.UserMessage("What is light?"))
	req.N = openai.Int(3)
	whole := p.chat(req, endless)
	s, _ := p.chatStream(req, endless)
	if len(whole.Choices) != 3 || len(s.Choices) != 3 || whole.Usage.CompletionTokens != 30 {
		t.Fatalf("%d choices, %d streamed, %s", len(whole.Choices), len(s.Choices), whole.Usage.RawJSON())
	}
	for i, c := range whole.Choices {
		if int(c.Index) != i || s.Choices[i].Message.Content != c.Message.Content {
			t.Errorf("choice %d is %q, streamed %q", c.Index, c.Message.Content, s.Choices[i].Message.Content)
		}
	}
	if whole.Choices[0].Message.Content == whole.Choices[1].Message.Content {
		t.Error("two choices are the same")
	}
	p.quiet(p.client)
}

func TestChatLogprobs(t *testing.T) {
	p := serve(t)
	req := talk(8, openai.UserMessage("What is light?"))
	req.Logprobs, req.TopLogprobs = openai.Bool(true), openai.Int(4)
	whole := p.chat(req, endless).Choices[0]
	s, _ := p.chatStream(req, endless)
	streamed := s.Choices[0].Logprobs.Content
	if len(whole.Logprobs.Content) != 8 || len(streamed) != 8 {
		t.Fatalf("%d logprobs, %d streamed", len(whole.Logprobs.Content), len(streamed))
	}
	var bytes []byte
	for i, l := range whole.Logprobs.Content {
		if l.Logprob > 0 || len(l.TopLogprobs) != 4 || !slices.IsSortedFunc(l.TopLogprobs, func(a, b openai.ChatCompletionTokenLogprobTopLogprob) int {
			return -int(sign(a.Logprob - b.Logprob))
		}) {
			t.Errorf("place %d: %s", i, l.RawJSON())
		}
		if streamed[i].Token != l.Token || streamed[i].Logprob != l.Logprob {
			t.Errorf("place %d: streamed %q %v, whole %q %v", i, streamed[i].Token, streamed[i].Logprob, l.Token, l.Logprob)
		}
		for _, b := range l.Bytes {
			bytes = append(bytes, byte(b))
		}
	}
	if got := strings.ToValidUTF8(string(bytes), "\uFFFD"); strings.ReplaceAll(got, "\uFFFD", "") != strings.ReplaceAll(whole.Message.Content, "\uFFFD", "") {
		t.Errorf("the bytes say %q, the text is %q", got, whole.Message.Content)
	}
}

func sign(f float64) int {
	switch {
	case f < 0:
		return -1
	case f > 0:
		return 1
	}
	return 0
}

// TestRefusedByName checks that the server refuses unsupported fields by their names.
func TestRefusedByName(t *testing.T) {
	p := serve(t)
	for name, set := range map[string]any{
		"audio": map[string]any{"voice": "alloy", "format": "wav"}, "modalities": []string{"text", "audio"}, "functions": []any{map[string]any{"name": "f"}},
		"store": true, "web_search_options": map[string]any{},
		"top_logprobs": 3, "messages": []any{}, "tool_choice": "required",
	} {
		_, err := p.client.Chat.Completions.New(within(t), talk(4, openai.UserMessage("light?")), option.WithJSONSet(name, set))
		param, code := name, "unsupported_parameter"
		switch name {
		case "modalities":
			param, code = "modalities[1]", "unsupported_value"
		case "top_logprobs", "messages", "tool_choice": // tool_choice without tools is refused
			code = "invalid_value"
		}
		refused(t, name, err, 400, param, code)
	}
	image := openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: "data:image/png;base64,AA=="})})
	_, err := p.client.Chat.Completions.New(within(t), talk(4, image))
	refused(t, "image", err, 400, "messages[0].content[0]", "unsupported_value")
	for _, harmless := range []map[string]any{{"store": false}, {"prediction": map[string]any{"type": "content", "content": "light is"}}, {"metadata": map[string]string{"a": "b"}}, {"service_tier": "auto"}, {"parallel_tool_calls": true}, {"verbosity": "low"}, {"stream_options": map[string]bool{"include_usage": true}}} {
		for name, v := range harmless {
			p.chat(talk(4, openai.UserMessage("light?")), option.WithJSONSet(name, v))
		}
	}
}
