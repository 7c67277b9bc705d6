package anthropic

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Unnamed begins the names that Conversation returns.
const Unnamed = "cache-control:"

// Conversation returns a name for the conversation that the request continues: the same for all its turns, as they have the tools,
// the system prompt and the first message of the user in common.
func (r *Request) Conversation() string {
	h := sha256.New()
	for _, tool := range r.Options.Tools {
		h.Write(tool)
	}
	for i := range r.Messages {
		h.Write([]byte(r.Messages[i].Content))
		h.Write([]byte{0})
		if r.Messages[i].Role == "user" {
			break
		}
	}
	return Unnamed + hex.EncodeToString(h.Sum(nil)[:16])
}

// Ends returns how many bytes of a rendered conversation each breakpoint covers. A template may write more
// than the blocks; where it does not write a block's text as it is, its breakpoint and those after it cover what
// the last one before them does. The tools and the system prompt end where the first other message begins.
func (r *Request) Ends(rendered string) []int {
	ends := make([]int, len(r.Breakpoints))
	at, next := 0, 0
	system := 0
	for i := range r.Messages {
		m := &r.Messages[i]
		text := strings.TrimSpace(m.Content)
		from := strings.Index(rendered[at:], text)
		if from < 0 {
			break
		}
		from += at
		if m.Role != "system" && system == 0 {
			system = from
		}
		lead := strings.Index(m.Content, text) // white space that templates may trim
		for ; next < len(ends) && r.Breakpoints[next].Message <= i; next++ {
			if b := &r.Breakpoints[next]; b.Message == i {
				ends[next] = from + min(max(b.Bytes-lead, 0), len(text))
			}
		}
		at = from + len(text)
	}
	for i := range ends {
		if r.Breakpoints[i].Message < 0 {
			ends[i] = system
		}
		if i > 0 {
			ends[i] = max(ends[i], ends[i-1])
		}
	}
	return ends
}
