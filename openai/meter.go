package openai

import "bytes"

// Meter measures the texts of the prompt in the body of a request to /v1/completions while the body
// arrives, so that a text that is too long need not be kept. It finds the member "prompt" of the body
// by that spelling only, and does not check the JSON. The zero value is ready to use.
type Meter struct {
	depth    int
	inText   bool // in a string
	escaped  bool // the previous byte of the string began an escape
	expects  bool // the next string is the name of a member of the body
	isName   bool // the string is such a name
	isPrompt bool // the latest member of the body is the prompt
	name     []byte
	length   int // least number of bytes of the string so far
}

// promptName is the member that a Meter measures.
const promptName = "prompt"

// Longest reads the next part of the body. It returns the least number of bytes that the longest text
// of the prompt has so far, of those that are in this part.
func (m *Meter) Longest(part []byte) (longest int) {
	for len(part) > 0 {
		if m.inText {
			part = m.text(part)
			if m.isPrompt && !m.isName {
				longest = max(longest, m.length)
			}
			continue
		}
		c := part[0]
		part = part[1:]
		switch c {
		case '"':
			m.inText, m.length, m.name = true, 0, m.name[:0]
			m.isName, m.expects = m.expects, false
		case '{', '[':
			m.depth++
			m.expects = c == '{' && m.depth == 1
		case '}', ']':
			m.depth--
		case ',':
			m.expects = m.depth == 1
		}
	}
	return longest
}

// text reads the rest of a string, or as much of it as part has, and returns the rest of part. An escape
// counts as one byte: four are subtracted for the digits of \uFFFF, which are counted as text.
func (m *Meter) text(part []byte) []byte {
	if m.escaped {
		if m.escaped = false; part[0] == 'u' {
			m.length -= 4
		}
		return part[1:]
	}
	n := bytes.IndexAny(part, "\"\\")
	if n < 0 {
		n = len(part)
	}
	m.length += n
	if m.isName && len(m.name) <= len(promptName) {
		m.name = append(m.name, part[:min(n, len(promptName)+1)]...)
	}
	if n == len(part) {
		return nil
	}
	if part[n] == '\\' {
		m.escaped = true
		m.name = append(m.name, '\\') // another name, whatever the escape is
		m.length++
	} else {
		m.inText = false
		if m.isName {
			m.isPrompt = string(m.name) == promptName
		}
	}
	return part[n+1:]
}
