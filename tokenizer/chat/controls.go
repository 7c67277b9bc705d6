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

// ControlMode selects the treatment of control tokens ("<|im_end|>") in a caller's messages,
// where they would end a turn or begin another one.
type ControlMode uint8

// The modes.
const (
	Allow  ControlMode = iota // control tokens in messages act as control tokens, as in other servers
	Refuse                    // a conversation with control tokens in messages is refused
	Text                      // control tokens in messages are encoded as text
)

var controlModes = enum.New[ControlMode]("chat", "mode of control tokens", "allow", "refuse", "text")

// String returns "allow", "refuse" or "text".
func (m ControlMode) String() string { return controlModes.Name(m) }

// UnmarshalText parses the result of String.
func (m *ControlMode) UnmarshalText(text []byte) error { return controlModes.Read(m, text) }

// ErrControl is wrapped by the error for a conversation that contains control tokens.
var ErrControl = errors.New("chat: a control token in a message")

// Controls is the set of a model's control tokens. It is immutable and safe for concurrent use.
type Controls struct {
	tokens  []string // ascending
	longest int
	cores   map[string]bool // the tokens without their punctuation
}

// NewControls makes a set of tokens, given as their text: see tokenizer.ControlTokens.
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

// core returns a token without its punctuation: "user" for "<|user|>", which some templates
// make of a role.
func core(token string) string { return strings.Trim(token, "<>|[]{}▁ /") }

// begins returns the longest control token that s begins with, "" if there is none. part reports
// whether the whole of s is a proper prefix of a control token.
func (c *Controls) begins(s string) (token string, part bool) {
	lo, hi := 0, len(c.tokens)
	for n := range min(len(s), c.longest) {
		b := s[n]
		lo += sort.Search(hi-lo, func(i int) bool { return len(c.tokens[lo+i]) > n && c.tokens[lo+i][n] >= b })
		hi = lo + sort.Search(hi-lo, func(i int) bool { return c.tokens[lo+i][n] > b })
		if lo == hi {
			return token, false
		}
		if len(c.tokens[lo]) == n+1 { // the shortest one sorts first
			token = c.tokens[lo]
			if lo++; lo == hi {
				return token, false
			}
		}
	}
	return token, len(s) < c.longest
}

// Rendered is a rendered conversation.
type Rendered struct {
	Text string
	// Plain lists ascending byte offsets in Text at which text that looks like a control token
	// comes from a caller.
	Plain []int
}

// RenderAs is Render with a ControlMode. With Refuse it fails if a text of the caller (in a
// message, a tool, a document or a variable) contains control tokens that appear in the prompt,
// including those formed where two texts meet. With Refuse and Text it also fails for an unusual
// role of which a template may make a control token, and if the texts contain all the characters
// that RenderAs could use as marks. These errors wrap ErrControl. If c is nil or has no tokens,
// all modes act like Allow.
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
	marked := o
	marked.MaxBytes *= markedBytes
	if o.Charge != nil {
		if err := o.Charge(markedBytes * o.textBytes(messages)); err != nil {
			return Rendered{}, err
		}
	}
	text, err := t.render(messages, marked, m.mark)
	if err != nil {
		return Rendered{}, err
	}
	if m.full {
		return Rendered{}, fmt.Errorf("%w, and characters that no text has", ErrControl)
	}
	r := m.unmark(text)
	if o.MaxBytes > 0 && len(r.Text) > o.MaxBytes {
		return Rendered{}, fmt.Errorf("%w: over %d bytes", ErrTooLong, o.MaxBytes)
	}
	if mode == Refuse && len(r.Plain) > 0 {
		token, _ := c.begins(r.Text[r.Plain[0]:])
		return Rendered{}, fmt.Errorf("%w: %q, which this server does not take there; leave it out", ErrControl, token)
	}
	return r, nil
}

// markedBytes is the most times that a text with marks is as long as without: each character of a byte may
// begin a control token, and gets a mark of three bytes.
const markedBytes = 4

var usualRoles = []string{"system", "developer", "user", "assistant", "tool", "function"}

// marker inserts a character that occurs in no text after the first character of each control
// token in a caller's texts, and of each suffix that may become a control token with the
// following text. So these can be found in the output of the template.
type marker struct {
	controls *Controls
	sign     rune // the character; 0: none is needed
	full     bool // all possible characters occur in the texts, so none can be used
}

// Noncharacters of Unicode, reserved for internal use (Unicode Standard, section 23.7).
const firstMark, lastMark = 0xFDD0, 0xFDEF

// mark inserts marks in all texts in values, which must contain only the caller's texts. It sets
// m.sign to a character that does not occur in them, or sets m.full if there is none.
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
			for rest := s; ; { // tojson may have escaped it
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

// marked returns s with its marks.
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

// marks returns the ascending offsets in s at which a control token begins, or at which the rest
// of s may become one together with the text that follows s in the prompt.
func (m *marker) marks(s string) (at []int) {
	trimmed := strings.TrimRight(s, " \t\r\n") // many templates trim texts
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

// each returns v with f applied to all texts in it, keys included. It changes lists and
// dictionaries in place.
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

// unmark returns text, the template's output, without the marks. Plain has the offsets of the
// marked control tokens.
func (m *marker) unmark(text string) Rendered {
	if m.sign == 0 {
		return Rendered{Text: text}
	}
	mark, escaped := string(m.sign), fmt.Sprintf(`\u%04x`, m.sign) // tojson may have escaped it
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
