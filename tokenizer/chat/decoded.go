package chat

import (
	"bytes"
	"encoding/json"
)

// Bytes that values take in memory, about: a dictionary or a list with its first element, and each further
// element.
const containerBytes, elementBytes = 256, 48

// decodedBytes returns an upper bound on the memory, in bytes, of the values that a template gets.
func (o *Options) decodedBytes(messages []Message) int {
	n := containerBytes
	for i := range messages {
		n += messages[i].decodedBytes()
	}
	for _, all := range [][]json.RawMessage{o.Tools, o.Documents} {
		for _, raw := range all {
			n += jsonBytes(raw)
		}
	}
	for _, raw := range o.Variables {
		n += elementBytes + jsonBytes(raw)
	}
	return n
}

// textBytes returns an upper bound on the bytes of the caller's texts.
func (o *Options) textBytes(messages []Message) (n int) {
	for i := range messages {
		m := &messages[i]
		n += len(m.Role) + len(m.Content) + len(m.Reasoning) + len(m.ToolCallID) + len(m.Name)
		for j := range m.Parts {
			n += len(m.Parts[j].Text)
		}
	}
	return n + o.decodedBytes(messages)
}

func (m *Message) decodedBytes() int {
	n := 2 * containerBytes
	for i := range m.Parts {
		n += containerBytes + extraBytes(m.Parts[i].Extra)
	}
	for i := range m.ToolCalls {
		n += 3*containerBytes + 2*jsonBytes(m.ToolCalls[i].Arguments) // twice: the JSON may be in a string
	}
	return n + extraBytes(m.Extra)
}

func extraBytes(extra map[string]json.RawMessage) (n int) {
	for _, raw := range extra {
		n += elementBytes + jsonBytes(raw)
	}
	return n
}

// jsonBytes returns an upper bound on the memory of a JSON value. Brackets and commas in texts count, too.
func jsonBytes(raw json.RawMessage) int {
	count := func(b byte) int { return bytes.Count(raw, []byte{b}) }
	return len(raw) + containerBytes*(count('{')+count('[')) + elementBytes*(1+count(','))
}
