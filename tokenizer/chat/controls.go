package chat

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/internal/enum"
)

// ControlMode is what becomes of control tokens ("<|im_end|>") that a caller writes into a
// conversation, where they would end a turn or begin another one.
type ControlMode uint8

// The modes.
const (
	Allow  ControlMode = iota // they are control tokens, as in other servers
	Refuse                    // the conversation is refused
	Text                      // they are text, encoded as such
)

var controlModes = enum.New[ControlMode]("chat", "mode of control tokens", "allow", "refuse", "text")

// String is "allow", "refuse" or "text".
func (m ControlMode) String() string { return controlModes.Name(m) }

// UnmarshalText takes what String gives.
func (m *ControlMode) UnmarshalText(text []byte) error { return controlModes.Read(m, text) }

// ErrControl is wrapped by the refusal of a conversation with control tokens in it.
var ErrControl = errors.New("chat: a control token in a message")

// Controls are the control tokens of a model. They are immutable and safe for concurrent
// use.
type Controls struct {
	tokens  []string // ascending
	longest int
	cores   map[string]bool // what is between the punctuation of each
}

// NewControls takes the tokens as they stand in text: tokenizer.ControlTokens.
func NewControls(tokens []string) *Controls {
	c := &Controls{cores: map[string]bool{}}
	for _, t := range tokens {
		if t == "" {
			continue
		}
		c.tokens = append(c.tokens, t)
		c.longest = max(c.longest, len(t))
		c.cores[core(t)] = true
	}
	slices.Sort(c.tokens)
	c.tokens = slices.Compact(c.tokens)
	return c
}

// core is a token without its punctuation: "user" of "<|user|>", which some templates make
// of a role.
func core(token string) string { return strings.Trim(token, "<>|[]{}▁ /") }

// begins reports whether a control token stands at the beginning of s, and whether all of
// s is the beginning of one.
func (c *Controls) begins(s string) (token string, part bool) {
	lo, hi := 0, len(c.tokens)
	for n := range min(len(s), c.longest) {
		b := s[n]
		lo += sort.Search(hi-lo, func(i int) bool { return len(c.tokens[lo+i]) > n && c.tokens[lo+i][n] >= b })
		hi = lo + sort.Search(hi-lo, func(i int) bool { return c.tokens[lo+i][n] > b })
		if lo == hi {
			return token, false
		}
		if len(c.tokens[lo]) == n+1 { // the shortest of them sorts first
			token = c.tokens[lo]
			if lo++; lo == hi {
				return token, false
			}
		}
	}
	return token, len(s) < c.longest
}

// Rendered is a conversation as the template writes it.
type Rendered struct {
	Text string
	// Plain are ascending byte offsets in Text at which what reads like a control token is a
	// caller's text.
	Plain []int
}

// RenderAs is Render for a mode. With Refuse it fails with ErrControl where a caller's text
// has control tokens that come out in the prompt, also ones that come about where two texts
// meet. A nil c is one without tokens.
func (t *Template) RenderAs(messages []Message, o Options, c *Controls, mode ControlMode) (Rendered, error) {
	if mode == Allow || c == nil || len(c.tokens) == 0 {
		text, err := t.Render(messages, o)
		return Rendered{Text: text}, err
	}
	for i := range messages {
		if role := messages[i].Role; c.cores[role] && !slices.Contains(usualRoles, role) {
			return Rendered{}, fmt.Errorf("%w: the role %.40q of message %d may become one", ErrControl, role, i)
		}
	}
	m := marker{controls: c}
	text, err := t.render(messages, o, m.mark)
	if err != nil {
		return Rendered{}, err
	}
	if m.full {
		return Rendered{}, fmt.Errorf("%w, and characters that no text has", ErrControl)
	}
	r := m.unmark(text)
	if mode == Refuse && len(r.Plain) > 0 {
		token, _ := c.begins(r.Text[r.Plain[0]:])
		return Rendered{}, fmt.Errorf("%w: %q, which this server does not take there; leave it out", ErrControl, token)
	}
	return r, nil
}

var usualRoles = []string{"system", "developer", "user", "assistant", "tool", "function"}

// marker puts a character that no text has behind the first one of each control token in a
// caller's texts, and of what may become one with what follows. So it can be found again in
// what the template made of them.
type marker struct {
	controls *Controls
	sign     rune // the character; 0: none is needed
	full     bool // there is none left to take
}

// Noncharacters of Unicode, for a program's own use (Unicode Standard, section 23.7).
const firstMark, lastMark = 0xFDD0, 0xFDEF

// mark marks all texts in values, which are the caller's alone.
func (m *marker) mark(values map[string]any) {
	found := false
	used := map[rune]bool{}
	for _, v := range values {
		each(v, func(s string) string {
			found = found || m.marks(s) != nil
			for _, r := range s {
				if r >= firstMark && r <= lastMark {
					used[r] = true
				}
			}
			for rest := s; ; { // as tojson may write them
				at := strings.Index(rest, `\ufd`)
				if at < 0 {
					return s
				}
				rest = rest[at+2:]
				r, _ := strconv.ParseUint(rest[:min(4, len(rest))], 16, 32)
				used[rune(r)] = true
			}
		})
	}
	if !found {
		return
	}
	m.sign = firstMark
	for used[m.sign] {
		m.sign++
	}
	if m.full = m.sign > lastMark; m.full {
		return
	}
	for name, v := range values {
		values[name] = each(v, m.marked)
	}
}

// marks are the offsets in s at which a control token begins or may begin.
func (m *marker) marks(s string) (at []int) {
	trimmed := strings.TrimRight(s, " \t\r\n") // as many templates do
	for i := range len(s) {
		token, part := m.controls.begins(s[i:])
		if !part && token == "" && i < len(trimmed) && len(trimmed)-i < m.controls.longest {
			_, part = m.controls.begins(trimmed[i:])
		}
		if token != "" || part {
			at = append(at, i)
		}
	}
	return at
}

// marked is s with its marks.
func (m *marker) marked(s string) string {
	all := m.marks(s)
	if all == nil {
		return s
	}
	var b strings.Builder
	from := 0
	for _, at := range all {
		_, n := utf8.DecodeRuneInString(s[at:])
		b.WriteString(s[from : at+n])
		b.WriteRune(m.sign)
		from = at + n
	}
	b.WriteString(s[from:])
	return b.String()
}

// each has f change all texts of a value, keys included.
func each(v any, f func(string) string) any {
	switch v := v.(type) {
	case string:
		return f(v)
	case *list:
		for i := range v.items {
			v.items[i] = each(v.items[i], f)
		}
	case *dict:
		d := newDict()
		for i, key := range v.keys {
			d.set(each(key, f), each(v.values[i], f))
		}
		*v = *d
	}
	return v
}

// unmark takes the marks out of what the template wrote, and says where control tokens begin
// that have one.
func (m *marker) unmark(text string) Rendered {
	if m.sign == 0 {
		return Rendered{Text: text}
	}
	mark, escaped := string(m.sign), fmt.Sprintf(`\u%04x`, m.sign) // as tojson may write it
	var b strings.Builder
	var starts []int
	for {
		at, n := strings.Index(text, mark), len(mark)
		if e := strings.Index(text, escaped); e >= 0 && (at < 0 || e < at) {
			at, n = e, len(escaped)
		}
		if at < 0 {
			break
		}
		b.WriteString(text[:at])
		_, last := utf8.DecodeLastRuneInString(text[:at])
		if last > 0 {
			starts = append(starts, b.Len()-last)
		}
		text = text[at+n:]
	}
	b.WriteString(text)
	r := Rendered{Text: b.String()}
	for _, at := range starts {
		if token, _ := m.controls.begins(r.Text[at:]); token != "" && (len(r.Plain) == 0 || r.Plain[len(r.Plain)-1] != at) {
			r.Plain = append(r.Plain, at)
		}
	}
	return r
}
