package prefixbreak

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/internal/budget"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// prompt is a conversation. Its tokens are the bytes of its text.
type prompt struct {
	tools    []string
	messages []chat.Message
}

func (p prompt) turn() *Turn {
	var tools []json.RawMessage
	for _, t := range p.tools {
		tools = append(tools, json.RawMessage(t))
	}
	return NewTurn(p.messages, tools)
}

func (p prompt) text() string {
	text := strings.Join(p.tools, "\n")
	for _, m := range p.messages {
		text += "<" + m.Role + ">" + m.Content
	}
	return text + "<assistant>"
}

func (p prompt) tokens() (all []kv.Token) {
	for _, b := range []byte(p.text()) {
		all = append(all, kv.Token(b))
	}
	return all
}

func decode(tokens []kv.Token) string {
	b := make([]byte, len(tokens))
	for i, t := range tokens {
		b[i] = byte(t)
	}
	return string(b)
}

// say returns p with further messages: of the user, the assistant and so on in turn.
func (p prompt) say(texts ...string) prompt {
	p.messages = slices.Clone(p.messages)
	for _, text := range texts {
		role := "user"
		if n := len(p.messages); n > 0 && p.messages[n-1].Role == "user" {
			role = "assistant"
		}
		p.messages = append(p.messages, chat.Message{Role: role, Content: text})
	}
	return p
}

// system returns a prompt with a system message.
func system(text string, tools ...string) prompt {
	return prompt{tools, []chat.Message{{Role: "system", Content: text}}}
}

// ask runs a request, and returns how it broke its prefix.
func (w *Watch) ask(key Key, p prompt) *Break {
	t := p.turn()
	b := w.Check(key, t)
	if b != nil {
		w.Locate(b, p.tokens(), decode)
	}
	w.Keep(key, t, b, p.tokens())
	return b
}

const question, reply = "What is light, and why does it bend when it enters the water of a pond?", "Light is a wave of the electromagnetic field, and it is slower in water than in air, so it bends."

// TestPlanted: nonces, times, shuffled tools and dropped messages are named, with the place where the prompts part, with
// and without a name of the session.
func TestPlanted(t *testing.T) {
	tools := []string{`{"name":"read_file"}`, `{"name":"write_file"}`, `{"name":"search"}`}
	turns := []string{question, reply, "And sound? Is it a wave of the same kind?", "Sound is a wave of pressure.", "Which one of the two is faster in the air, and which one is faster in water?", "Light is faster, in air by nearly a million times, and in water by less, since water carries sound well.", "By how much?", "Much.", "Why?"}
	in := func(head string, tools ...string) func(n int) prompt {
		return func(n int) prompt { return system(head+" You are brief.", tools...).say(turns[:n]...) }
	}
	dropped := func(from, to int) func(n int) prompt {
		return func(n int) prompt {
			p := in("Hello.")(n)
			p.messages = slices.Concat(p.messages[:from], p.messages[to:])
			return p
		}
	}
	for _, tc := range []struct {
		name    string
		old     func(n int) prompt
		new     func(n int) prompt
		cause   Cause
		was, is string
	}{
		{"a header with a nonce", in("x-anthropic-billing-header: cc_version=2.1.36; cch=a1b2c;"), in("x-anthropic-billing-header: cc_version=2.1.36; cch=9d03e;"), Nonce, "a1b2c", "9d03e"},
		{"a UUID", in("Request 6f1c1c5e-0d3a-4a59-8f3b-0a1b2c3d4e5f."), in("Request 6f1c1c5e-1d3a-4a59-8f3b-0a1b2c3d4e5f."), Nonce, "6f1c1c5e-0d3a-4a59-8f3b-0a1b2c3d4e5f", "6f1c1c5e-1d3a-4a59-8f3b-0a1b2c3d4e5f"},
		{"base64", in("id: dGhpc0lzQU5vbmNl"), in("id: b3RoZXJOb25jZVZh"), Nonce, "dGhpc0lzQU5vbmNl", "b3RoZXJOb25jZVZh"},
		{"hexadecimal digits", in("[session=deadbeef01]"), in("[session=deadbeef02]"), Nonce, "deadbeef01", "deadbeef02"},
		{"a date with a time", in("It is 2026-11-28 23:59:01."), in("It is 2026-11-28 23:59:44."), Timestamp, "23:59:01", "23:59:44"},
		{"ISO 8601", in("Now: 2026-11-28T23:59:01Z"), in("Now: 2026-11-29T00:00:05Z"), Timestamp, "2026-11-28T23:59:01Z", "2026-11-29T00:00:05Z"},
		{"a date in words", in("Today is Saturday, November 28, 2026."), in("Today is Sunday, November 29, 2026."), Timestamp, "Saturday", "Sunday"},
		{"seconds since 1970", in("time=1796000001"), in("time=1796000057"), Timestamp, "1796000001", "1796000057"},
		{"shuffled tools", in("Hello.", tools...), in("Hello.", tools[2], tools[0], tools[1]), ToolOrder, "read_file", "search"},
		{"another tool", in("Hello.", tools...), in("Hello.", tools[:2]...), Tools, "", ""},
		{"the oldest turn dropped", in("Hello."), dropped(1, 3), Truncated, "", ""},
		{"a turn dropped from the middle", in("Hello."), dropped(3, 5), Truncated, "", ""},
		{"another mode", in("You plan."), in("You write code."), Other, "plan", "write"},
	} {
		for _, session := range []string{"", "agent-1"} {
			w, key := New(Config{Sessions: 10, Bytes: 1 << 20}), Key{Tenant: "a", Session: session}
			old, new := tc.old(7), tc.new(9)
			if b := w.ask(key, old); b != nil {
				t.Fatalf("%s: the first turn is %v", tc.name, b)
			}
			if b := w.Check(Key{Tenant: "b", Session: session}, new.turn()); b != nil {
				t.Errorf("%s: another tenant's turn is %v", tc.name, b)
			}
			b := w.ask(key, new)
			if b == nil {
				t.Errorf("%s, session %q: not noticed", tc.name, session)
				continue
			}
			at := 0
			for o, n := old.text(), new.text(); o[at] == n[at]; at++ {
			}
			if b.Cause != tc.cause || !b.Known || b.Token != at || b.Cost != len(old.text())-at || tc.was != "" && (b.Was != tc.was || b.Is != tc.is) || !b.First {
				t.Errorf("%s, session %q: %v, %q is now %q, first %v; want %v at token %d", tc.name, session, b, b.Was, b.Is, b.First, tc.cause, at)
			}
			// The client does it again: its next turn breaks the prefix of this one, but that is no news.
			if again := w.ask(key, tc.old(9).say("A million times.", "Thanks.")); again == nil || again.Cause == tc.cause && again.First {
				t.Errorf("%s, session %q: again %v", tc.name, session, again)
			}
		}
	}
}

// TestHonest: 10,000 sessions grow, edit their last message, fork, ask again and go back, with messages that many have in
// common. None is said to break its prefix, with names of sessions, without, and with little memory.
func TestHonest(t *testing.T) {
	common := []string{"continue", "yes", "ok", "go on", question, "Read the file main.go and tell me what it does, in a single short paragraph without code."}
	systems := []prompt{system("You are brief."), system("You are an agent that works on code. Today is Saturday.", `{"name":"read_file"}`, `{"name":"search"}`), {}}
	for _, setup := range []struct {
		sessions int
		named    bool
		memory   Config
	}{
		{6000, false, Config{Sessions: 4096, Bytes: 64 << 20}}, {3000, true, Config{Sessions: 4096, Bytes: 64 << 20}}, {500, true, Config{Sessions: 16, Bytes: 64 << 10}}, {500, false, Config{Sessions: 16, Bytes: 64 << 10}},
	} {
		r, w := rand.New(rand.NewPCG(7, 11)), New(setup.memory)
		answer := func() string {
			if r.IntN(4) == 0 {
				return "Done."
			}
			return fmt.Sprintf("%s That is answer %d.", reply, r.Uint32())
		}
		message := func() string {
			if r.IntN(2) == 0 {
				return common[r.IntN(len(common))]
			}
			return fmt.Sprintf("Question %d at %02d:%02d: what is %x?", r.IntN(1000), r.IntN(24), r.IntN(60), r.Uint64())
		}
		type session struct {
			key      Key
			now      prompt
			branches []prompt
		}
		var open []*session
		for begun := 0; begun < setup.sessions || len(open) > 0; {
			if begun < setup.sessions && len(open) < 40 {
				s := &session{now: systems[r.IntN(len(systems))].say(message())}
				if begun++; setup.named {
					s.key.Session = fmt.Sprint("s", begun)
				}
				open = append(open, s)
			}
			s := open[r.IntN(len(open))]
			turn := s.now.turn()
			if b := w.Check(s.key, turn); b != nil {
				t.Fatalf("an honest session is said to be %v:\n%s", b, s.now.text())
			}
			w.Keep(s.key, turn, nil, nil)
			first := 0
			if s.now.messages[0].Role == "system" {
				first = 1
			}
			s.branches = append(s.branches, s.now)
			switch n := len(s.now.messages); r.IntN(10) {
			case 0: // edits the last message
				s.now = prompt{s.now.tools, slices.Clone(s.now.messages[:n-1])}.say(message())
			case 1: // asks again
			case 2: // forks: goes back to an earlier message and asks something else
				at := first + 2*r.IntN((n-first+1)/2)
				s.now = prompt{s.now.tools, slices.Clone(s.now.messages[:at])}.say(message())
			case 3: // another branch goes on
				s.now = s.branches[r.IntN(len(s.branches))].say(answer(), message())
			case 4:
				open = slices.DeleteFunc(open, func(o *session) bool { return o == s })
			default:
				s.now = s.now.say(answer(), message())
			}
		}
	}
}

// TestBounds: what is remembered stays within the limits, is charged, and is given back.
func TestBounds(t *testing.T) {
	memory := budget.New(1 << 20)
	w := New(Config{Sessions: 5, Bytes: 1 << 14, Memory: memory})
	for i := range 40 {
		w.ask(Key{Session: fmt.Sprint(i)}, system("x").say(strings.Repeat("y", 100*i)))
		if w.count > 5 || w.bytes > 1<<14 || memory.Used() < int64(w.bytes) || w.count == 0 {
			t.Fatalf("%d sessions with %d bytes, %d charged", w.count, w.bytes, memory.Used())
		}
	}
	w.ask(Key{Session: "large"}, system("x").say(strings.Repeat("y", 1<<14)))
	if w.groups[Key{Session: "large"}] != nil {
		t.Error("a session that is larger than all may be is remembered")
	}
	small := budget.New(4000)
	w = New(Config{Sessions: 5, Bytes: 1 << 14, Memory: small})
	for i := range 5 {
		w.ask(Key{}, system("x").say(strings.Repeat("y", 100*i)))
	}
	if small.Used() > 4000 || w.bytes > 4000 {
		t.Errorf("%d bytes of a small budget", w.bytes)
	}
	w.Close()
	if w.count != 0 || w.bytes != 0 || small.Used() != 0 || len(w.groups) != 0 {
		t.Errorf("%d sessions, %d bytes, %d charged after Close", w.count, w.bytes, small.Used())
	}
}
