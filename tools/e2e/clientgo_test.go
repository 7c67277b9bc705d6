package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
)

// What the clients are asked: cases.py has the same.
const (
	clientQuestion = "What is the capital of France?"
	clientWeather  = "What will the weather be like in Paris in the next 3 days? Call the tool, then tell me."
	clientResultOf = "fog, 13 degrees"
	clientAgain    = "Which city did I ask about?"
	clientReport   = "It will rain for 3 days, and it will be cold. Give me this weather: its kind, whether it is cold, and the days."
)

// goClient is this module's client in one case.
type goClient struct {
	ctx    context.Context
	client openai.Client
	model  string
}

// openaiGo runs the cases of the scripts with the Go client of this module.
func openaiGo(t *testing.T, url, model string, retry bool, skip []string) (out []clientResult) {
	t.Helper()
	pins, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := ""
	if m := regexp.MustCompile(`github\.com/openai/openai-go/v3 v(\S+)`).FindSubmatch(pins); m != nil {
		version = string(m[1])
	}
	cases := map[string]func(*goClient) (got string, sensible bool, err error){
		"text": (*goClient).text, "stream": (*goClient).stream, "tools": (*goClient).tools, "structured": (*goClient).structured,
		"second turn": (*goClient).secondTurn, "third turn": (*goClient).thirdTurn, "usage": (*goClient).usage,
	}
	for _, column := range columns {
		if slices.Contains(skip, "openai-go/"+column) {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*patience)
		base := option.WithBaseURL(url + "/openai-go/" + strings.ReplaceAll(column, " ", "-") + "/v1/")
		c := &goClient{ctx: ctx, client: openai.NewClient(base, option.WithAPIKey("none"), option.WithMaxRetries(0)), model: model}
		began := time.Now()
		got, sensible, err := cases[column](c)
		for tries := 1; retry && tries < 3 && err == nil && got == ""; tries++ { // random weights end one answer in 300 at once
			got, sensible, err = cases[column](c)
		}
		cancel()
		r := clientResult{Client: "openai-go", Language: "Go", Version: version, Case: column, Cell: "yes", Valid: true, Sensible: sensible, Got: got}
		if retry && err == nil && got == "" {
			err = errors.New("no answer")
		}
		if err != nil {
			r.Cell, r.Valid, r.Sensible, r.Got = "fault", false, false, detail(err).Error()
		}
		r.Seconds = time.Since(began).Round(100 * time.Millisecond).Seconds()
		out = append(out, r)
	}
	return out
}

func (c *goClient) ask(user string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: c.model, Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("Be brief."), openai.UserMessage(user)}}
}

func (c *goClient) create(ask openai.ChatCompletionNewParams) (*openai.ChatCompletion, error) {
	return c.client.Chat.Completions.New(c.ctx, ask)
}

func (c *goClient) streamed(ask openai.ChatCompletionNewParams) (*openai.ChatCompletionAccumulator, error) {
	s := c.client.Chat.Completions.NewStreaming(c.ctx, ask)
	defer s.Close()
	all := &openai.ChatCompletionAccumulator{}
	for s.Next() {
		if !all.AddChunk(s.Current()) {
			return nil, fmt.Errorf("the client's accumulator refuses %s", s.Current().RawJSON())
		}
	}
	if s.Err() == nil && len(all.Choices) == 0 {
		return nil, errors.New("a stream without choices")
	}
	return all, s.Err()
}

func (c *goClient) text() (string, bool, error) {
	got, err := c.create(c.ask(clientQuestion))
	if err != nil {
		return "", false, err
	}
	text := got.Choices[0].Message.Content
	return text, says(text, "paris"), nil
}

func (c *goClient) stream() (string, bool, error) {
	got, err := c.streamed(c.ask(clientQuestion))
	if err != nil {
		return "", false, err
	}
	text := got.Choices[0].Message.Content
	return text, says(text, "paris"), nil
}

// armed is the question that a tool answers.
func (c *goClient) armed() openai.ChatCompletionNewParams {
	schema := map[string]any{"type": "object", "required": []string{"city", "days"}, "additionalProperties": false,
		"properties": map[string]any{"city": map[string]any{"type": "string", "enum": []string{"Paris", "London"}}, "days": map[string]any{"type": "integer"}}}
	ask := c.ask(clientWeather)
	ask.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
		Name: "forecast", Description: openai.String("The weather of the next days."), Parameters: schema})}
	return ask
}

// called returns the answer with a required call, whole.
func (c *goClient) called() (openai.ChatCompletionMessage, error) {
	ask := c.armed()
	ask.ToolChoice.OfAuto = openai.String("required")
	got, err := c.create(ask)
	if err != nil {
		return openai.ChatCompletionMessage{}, err
	}
	choice := got.Choices[0]
	if choice.FinishReason != "tool_calls" || len(choice.Message.ToolCalls) == 0 {
		return choice.Message, fmt.Errorf("no call: %s", choice.RawJSON())
	}
	return choice.Message, nil
}

func (c *goClient) tools() (string, bool, error) {
	ask := c.armed()
	ask.ToolChoice.OfAuto = openai.String("required")
	streamed, err := c.streamed(ask)
	if err != nil {
		return "", false, err
	}
	whole, err := c.called()
	if err != nil {
		return "", false, err
	}
	sensible := len(whole.ToolCalls) == 1
	for _, call := range append(whole.ToolCalls, streamed.Choices[0].Message.ToolCalls...) {
		var args struct {
			City string
			Days json.Number // of a generated model, longer than any int
		}
		if err := json.Unmarshal([]byte(call.Function.Arguments), &args); err != nil || args.Days == "" || call.Function.Name != "forecast" {
			return "", false, fmt.Errorf("call %s: %v", call.RawJSON(), err)
		}
		sensible = sensible && args.City == "Paris" && args.Days == "3"
	}
	return whole.ToolCalls[0].Function.Arguments, sensible, nil
}

func (c *goClient) structured() (string, bool, error) {
	schema := map[string]any{"type": "object", "required": []string{"kind", "cold", "days"}, "additionalProperties": false,
		"properties": map[string]any{"kind": map[string]any{"type": "string", "enum": []string{"sun", "rain", "snow"}},
			"cold": map[string]any{"type": "boolean"}, "days": map[string]any{"type": "integer"}}}
	ask := c.ask(clientReport)
	ask.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{
		JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "weather", Strict: openai.Bool(true), Schema: schema}}
	got, err := c.create(ask)
	if err != nil {
		return "", false, err
	}
	var w struct {
		Kind string
		Cold *bool
		Days json.Number
	}
	text := got.Choices[0].Message.Content
	if err := json.Unmarshal([]byte(text), &w); err != nil || w.Cold == nil || w.Days == "" {
		return "", false, fmt.Errorf("%q: %v", text, err)
	}
	return text, w.Kind == "rain" && *w.Cold && w.Days == "3", nil
}

// conversation returns the question, the call, its result, and the answer to it.
func (c *goClient) conversation() (openai.ChatCompletionNewParams, *openai.ChatCompletion, error) {
	called, err := c.called()
	if err != nil {
		return openai.ChatCompletionNewParams{}, nil, err
	}
	ask := c.armed()
	ask.Messages = append(ask.Messages, called.ToParam())
	for _, call := range called.ToolCalls {
		ask.Messages = append(ask.Messages, openai.ToolMessage(clientResultOf, call.ID))
	}
	then, err := c.create(ask)
	if err == nil && then.Usage.PromptTokensDetails.CachedTokens == 0 {
		err = fmt.Errorf("nothing is cached: %s", then.RawJSON())
	}
	return ask, then, err
}

func (c *goClient) secondTurn() (string, bool, error) {
	_, then, err := c.conversation()
	if err != nil {
		return "", false, err
	}
	m := then.Choices[0].Message
	if len(m.ToolCalls) > 0 {
		return m.RawJSON(), false, nil
	}
	return m.Content, says(m.Content, "fog", "13"), spoken(m.Content)
}

func (c *goClient) thirdTurn() (string, bool, error) {
	ask, then, err := c.conversation()
	if err != nil {
		return "", false, err
	}
	m := then.Choices[0].Message
	ask.Messages = append(ask.Messages, m.ToParam())
	for _, call := range m.ToolCalls {
		ask.Messages = append(ask.Messages, openai.ToolMessage(clientResultOf, call.ID))
	}
	ask.Messages = append(ask.Messages, openai.UserMessage(clientAgain))
	got, err := c.create(ask)
	if err != nil {
		return "", false, err
	}
	text := got.Choices[0].Message.Content
	return text, says(text, "paris"), spoken(text)
}

func (c *goClient) usage() (string, bool, error) {
	whole, err := c.create(c.ask(clientQuestion))
	if err != nil {
		return "", false, err
	}
	ask := c.ask(clientQuestion)
	ask.StreamOptions.IncludeUsage = openai.Bool(true)
	streamed, err := c.streamed(ask)
	if err != nil {
		return "", false, err
	}
	u, v := whole.Usage, streamed.Usage
	if u.PromptTokens == 0 || u.TotalTokens != u.PromptTokens+u.CompletionTokens || v.PromptTokens != u.PromptTokens || v.CompletionTokens == 0 {
		return "", false, fmt.Errorf("usage %s, of the stream %+v", u.RawJSON(), v)
	}
	return u.RawJSON(), true, nil
}

// spoken returns an error about a text with a call of the tool, which the server has not parsed.
func spoken(text string) error {
	if callInText.MatchString(text) {
		return fmt.Errorf("a call that stays text: %q", text)
	}
	return nil
}

var callInText = regexp.MustCompile(`"name"\s*:\s*"forecast"`)

// says reports whether the text has one of the words.
func says(text string, words ...string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}
