package coppice_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/tokenizer/chat"
	"github.com/coppice-llm/coppice/tool"
)

// TestSessionRun: Run calls the tools that the model names with arguments of their schema, shows it results and errors, and ends after the
// most turns. The session keeps all of it.
func TestSessionRun(t *testing.T) {
	m := openLocal(coppice.Config{})
	defer m.Close()
	ctx, called, failing := context.Background(), 0, errors.New("the lamp is broken")
	var s *coppice.Session
	lamp := tool.New("lamp", "Switches the lamp.", func(ctx context.Context, in struct {
		On bool `json:"on"`
	}) (string, error) {
		called++
		if child := fork(t, s); child.Len() != s.Len() {
			t.Errorf("a fork within a tool has %d tokens, the session %d", child.Len(), s.Len())
		}
		return "", failing
	})
	o := coppice.SessionOptions{Name: "agent", Tools: tool.Set{lamp}, MustCall: true, MaxTurns: 1}
	o.Chat.Request = coppice.Request{MaxTokens: 400}
	s = begin(t, m.Node, o)
	_, err := s.Run(ctx, chat.Message{Role: "user", Content: "It is dark."})
	if !errors.Is(err, coppice.ErrSessionTurns) || called == 0 {
		t.Errorf("%v, %d calls", err, called)
	}
	before := s.Len()
	e, err := s.Explain(ctx)
	if err != nil || e.PromptTokens <= before || e.Cached[0] == 0 {
		t.Errorf("%v, %+v", err, e)
	}
	o = coppice.SessionOptions{Tools: o.Tools, Chat: o.Chat}
	o.Chat.Request.MaxTokens = 8
	s2 := begin(t, m.Node, o) // the generated model calls nothing by itself
	r, err := s2.Run(ctx, chat.Message{Role: "user", Content: "It is dark."})
	if err != nil || r.OutputTokens == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = s.Chat(ctx) // answers the results
	text := string(m.Tokenizer().Decode(nil, r.Tokens[before-1:r.PromptTokens], false))
	if err != nil || strings.Count(text, failing.Error()) != called {
		t.Errorf("the model reads %q, %v", text, err)
	}
	for _, bad := range []coppice.SessionOptions{
		{Name: strings.Repeat("x", coppice.MaxSessionName+1)}, {Budget: -1}, {MaxTurns: -1}, {Tools: tool.Set{{Name: "a"}}},
	} {
		if _, err := m.NewSession(bad); !errors.Is(err, coppice.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := begin(t, open(t, coppice.Config{}), coppice.SessionOptions{}).Chat(ctx, chat.Message{Role: "user", Content: "a"}); !errors.Is(err, coppice.ErrInvalid) {
		t.Errorf("without a template: %v", err)
	}
	deep := begin(t, m.Node, coppice.SessionOptions{Name: strings.Repeat("x", coppice.MaxSessionName)})
	for range 60 { // each fork adds to the name
		deep = fork(t, deep)
	}
	if _, err := deep.Text(ctx, coppice.Request{Prompt: "Light", MaxTokens: 1}); err != nil {
		t.Error(err)
	}
}
