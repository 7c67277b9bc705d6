package coppice_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// begin returns a session of node.
func begin(t *testing.T, node *coppice.Node, o coppice.SessionOptions) *coppice.Session {
	t.Helper()
	s, err := node.NewSession(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fork returns a fork of s.
func fork(t *testing.T, s *coppice.Session) *coppice.Session {
	t.Helper()
	child, err := s.Fork()
	if err != nil {
		t.Fatal(err)
	}
	return child
}

// say runs a turn of s and checks it against a request of node without a session, with the same tokens.
func say(t *testing.T, plain *coppice.Node, s *coppice.Session, req coppice.Request) {
	t.Helper()
	ctx, before := context.Background(), s.Tokens()
	req.Digest, req.IgnoreEOS = true, true
	got, err := s.Text(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	req.Tokens = slices.Concat(before, req.Tokens)
	want, err := plain.Text(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if got.Text != want.Text || !slices.Equal(got.Tokens, want.Tokens) || got.LogitDigest != want.LogitDigest || !slices.Equal(s.Tokens(), want.Tokens) {
		t.Errorf("session %s after %d tokens: %q, want %q", s.Name(), len(before), got.Text, want.Text)
	}
}

// TestSessionForks: each turn of a tree of forks gives the tokens and the logit bits of a request without a session.
func TestSessionForks(t *testing.T) {
	node, plain := open(t, coppice.Config{}), open(t, coppice.Config{})
	root := begin(t, node, coppice.SessionOptions{Name: "root"})
	say(t, plain, root, coppice.Request{Prompt: "What is light?", MaxTokens: 5})
	all := []*coppice.Session{root}
	for i := range 12 {
		s := all[i/3]
		child := fork(t, s)
		if err := child.AppendTokens(kv.Token(40+i), kv.Token(60+i)); err != nil {
			t.Fatal(err)
		}
		say2(t, plain, child, []kv.Token{kv.Token(40 + i), kv.Token(60 + i)}, coppice.Request{MaxTokens: 1 + i%4, Sampling: engine.SamplingParams{Temperature: 1, Seed: uint64(i)}})
		say(t, plain, s, coppice.Request{Prompt: fmt.Sprint(" And then? ", i), MaxTokens: 3})
		all = append(all, child)
	}
	if name := all[5].Name(); name != "root/1/2" {
		t.Errorf("a fork of a fork is called %s", name)
	}
	for _, s := range all {
		s.Release()
		if _, err := s.Fork(); !errors.Is(err, coppice.ErrSessionReleased) || s.Len() != 0 {
			t.Errorf("%v after Release", err)
		}
	}
}

// say2 is say for tokens that were appended.
func say2(t *testing.T, plain *coppice.Node, s *coppice.Session, appended []kv.Token, req coppice.Request) {
	t.Helper()
	before := slices.Concat(s.Tokens(), appended)
	req.Digest, req.IgnoreEOS = true, true
	got, err := s.Text(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	req.Tokens = before
	want, err := plain.Text(context.Background(), req)
	if err != nil || !slices.Equal(got.Tokens, want.Tokens) || got.LogitDigest != want.LogitDigest {
		t.Errorf("session %s: %v, want %v, %v", s.Name(), got.Tokens, want.Tokens, err)
	}
}

// TestSessionChat: the first turn has the prompt of Node.Chat, and each later one continues the tokens of the turn
// before it with the new messages alone.
func TestSessionChat(t *testing.T) {
	m := openLocal(coppice.Config{})
	defer m.Close()
	ctx, opts := context.Background(), coppice.ChatOptions{Request: coppice.Request{MaxTokens: 6}}
	s := begin(t, m.Node, coppice.SessionOptions{Chat: opts})
	first := []chat.Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "What is light?"}}
	got, err := s.Chat(ctx, first...)
	want, err2 := m.Chat(ctx, first, opts)
	if err != nil || err2 != nil || !slices.Equal(got.Tokens, want.Tokens) {
		t.Errorf("%v, %v: %v, want %v", err, err2, got.Tokens, want.Tokens)
	}
	before := s.Tokens()
	next := chat.Message{Role: "user", Content: "And <b>colour</b>?"}
	got, err = s.Chat(ctx, next)
	if err != nil {
		t.Fatal(err)
	}
	kept := len(before)
	if want.StopToken {
		kept--
	}
	whole, err := m.ChatRequest(append(first, chat.Message{Role: "assistant", Content: "X"}, next), opts)
	if err != nil {
		t.Fatal(err)
	}
	_, added, _ := strings.Cut(whole.Prompt, "X")
	text := string(m.Tokenizer().Decode(nil, got.Tokens[kept:got.PromptTokens], false))
	if !slices.Equal(got.Tokens[:kept], before[:kept]) || text != added || got.CachedTokens < kept-m.Info().PageTokens {
		t.Errorf("the second turn adds %q, want %q; %d of %d tokens cached", text, added, got.CachedTokens, kept)
	}
}

// TestSessionTurnFails: a turn that fails, is left early or is released leaves no trace, and a second turn at a time is refused.
func TestSessionTurnFails(t *testing.T) {
	node, h := openHeld(t, coppice.Config{})
	ctx, long := context.Background(), coppice.Request{Prompt: "Light", MaxTokens: 3000, IgnoreEOS: true}
	h.outputs(2)
	s := begin(t, node, coppice.SessionOptions{Budget: 4000})
	for _, err := range s.Generate(ctx, long) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Text(ctx, long); !errors.Is(err, coppice.ErrSessionBusy) {
			t.Errorf("a second turn: %v", err)
		}
		if err := s.AppendTokens(1); !errors.Is(err, coppice.ErrSessionBusy) {
			t.Errorf("AppendTokens: %v", err)
		}
		if child := fork(t, s); child.Len() != 0 {
			t.Errorf("a fork during the first turn has %d tokens", child.Len())
		}
		break
	}
	h.outputs(noLimit)
	idle(t, node)
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Text(cancelled, long); !errors.Is(err, context.Canceled) || s.Len() != 0 {
		t.Errorf("%v, %d tokens", err, s.Len())
	}
	for _, req := range []coppice.Request{{Prompt: "a", Samples: 2}, {Tokens: []kv.Token{1}, Media: []kv.Media{{}}}, {}, {Prompt: "a", MaxTokens: -1}} {
		if _, err := s.Text(ctx, req); err == nil || s.Len() != 0 {
			t.Errorf("%+v: %v, %d tokens", req, err, s.Len())
		}
	}
	if left, _ := s.Left(); left < 3990 || left > 4000 {
		t.Errorf("%d tokens are left of the budget: only what came counts", left)
	}
	say(t, node, s, coppice.Request{Prompt: "Light", MaxTokens: 3})
	h.outputs(3)
	for _, err := range s.Generate(ctx, long) {
		s.Release()
		if err != nil && !errors.Is(err, coppice.ErrSessionReleased) {
			t.Errorf("released during a turn: %v", err)
		}
		h.outputs(noLimit)
	}
	if _, err := s.Text(ctx, long); !errors.Is(err, coppice.ErrSessionReleased) {
		t.Errorf("%v after Release", err)
	}
	idle(t, node)
}

// TestSessionBudget: a session and its forks share one budget, which counts input and output once, cached or not.
func TestSessionBudget(t *testing.T) {
	node := open(t, coppice.Config{})
	ctx := context.Background()
	s := begin(t, node, coppice.SessionOptions{Budget: 30})
	turn := func(s *coppice.Session, input, output int) (int, error) {
		r, err := s.Text(ctx, coppice.Request{Tokens: slices.Repeat([]kv.Token{50}, input), MaxTokens: output, IgnoreEOS: true})
		return r.OutputTokens, err
	}
	child := fork(t, s)
	for i, tc := range []struct {
		s                         *coppice.Session
		input, output, came, left int
	}{{s, 8, 4, 4, 18}, {child, 6, 2, 2, 10}, {fork(t, child), 2, 100, 8, 0}} {
		n, err := turn(tc.s, tc.input, tc.output)
		if left, limited := s.Left(); err != nil || n != tc.came || left != tc.left || !limited {
			t.Errorf("turn %d: %d output tokens, %d left, %v", i, n, left, err)
		}
	}
	if _, err := turn(s, 1, 1); !errors.Is(err, coppice.ErrSessionBudget) {
		t.Errorf("beyond the budget: %v", err)
	}
	if _, limited := begin(t, node, coppice.SessionOptions{}).Left(); limited {
		t.Error("a session without a budget has one")
	}
}

// BenchmarkFork: the cost of a fork does not depend on the number of tokens.
func BenchmarkFork(b *testing.B) {
	m := openLocal(coppice.Config{})
	defer m.Close()
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprint("tokens=", n), func(b *testing.B) {
			s, err := m.NewSession(coppice.SessionOptions{})
			if err != nil {
				b.Fatal(err)
			}
			if err := s.AppendTokens(make([]kv.Token, n)...); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				child, err := s.Fork()
				if err != nil {
					b.Fatal(err)
				}
				child.Release()
			}
		})
	}
}
