package prefixbreak

import (
	"encoding/json"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Turn is a prompt as a list of messages and tools, by their hashes.
type Turn struct {
	tools    []uint64
	messages []message
	// chains[i] stands for the tools and the first i messages.
	chains []uint64
}

type message struct {
	hash      uint64
	bytes     int
	assistant bool
}

// NewTurn returns the turn of a conversation. It keeps no part of it.
func NewTurn(messages []chat.Message, tools []json.RawMessage) *Turn {
	t := &Turn{tools: make([]uint64, len(tools)), messages: make([]message, len(messages)), chains: make([]uint64, len(messages)+1)}
	var b []byte
	for i, tool := range tools {
		t.tools[i] = xxh3.Hash(tool)
		b = appendHash(b, t.tools[i])
	}
	t.chains[0] = xxh3.Hash(b)
	for i := range messages {
		m := &messages[i]
		h := xxh3.New()
		for _, part := range []string{m.Role, m.Name, m.ToolCallID, m.Reasoning, m.Content} {
			h.WriteString(part)
			h.Write([]byte{0})
		}
		size := len(m.Content) + len(m.Reasoning)
		for _, c := range m.ToolCalls {
			h.WriteString(c.ID)
			h.WriteString(c.Name)
			h.Write(c.Arguments)
			size += len(c.Name) + len(c.Arguments)
		}
		t.messages[i] = message{hash: h.Sum64(), bytes: size, assistant: m.Role == "assistant"}
		b = appendHash(appendHash(b[:0], t.chains[i]), t.messages[i].hash)
		t.chains[i+1] = xxh3.Hash(b)
	}
	return t
}

func appendHash(dst []byte, h uint64) []byte {
	for shift := 0; shift < 64; shift += 8 {
		dst = append(dst, byte(h>>shift))
	}
	return dst
}

// whole returns the hash of all tools and messages.
func (t *Turn) whole() uint64 { return t.chains[len(t.chains)-1] }

// last returns the hash of the last message.
func (t *Turn) last() uint64 { return t.messages[len(t.messages)-1].hash }

// sizeOf is the memory of a turn in a Watch in bytes: itself, and its entries in maps.
func (t *Turn) sizeOf() int { return 8*len(t.tools) + 24*len(t.messages) + 48*len(t.chains) + 512 }

// change is how a later turn differs from the one that it follows: where the messages [from, oldTo) of the old turn
// were, the new one has [from, newTo).
type change struct {
	tools        bool // the tools are others, or in another order
	from         int
	oldTo, newTo int
}

// evidence is the least length, in bytes, of the texts that show that two turns belong together: of answers between
// turns without the name of a session, of any texts within a session.
const evidence = 64

// follow returns how new differs from old. ok is false if new does not follow old, or follows it without a change.
// sure says that both are known to be of the same session.
func follow(old, new *Turn, sure bool) (c change, ok bool) {
	n, m := len(old.messages), len(new.messages)
	for c.from < min(n, m) && old.messages[c.from].hash == new.messages[c.from].hash {
		c.from++
	}
	c.tools = old.chains[0] != new.chains[0]
	if c.from == n { // the messages have only grown
		c.oldTo, c.newTo = c.from, c.from
		return c, c.tools && (sure || answered(new, n-1) && bytesOf(old.messages, true) >= evidence)
	}
	if c.from == m {
		return c, false // an earlier turn, again
	}
	best := 0
	for p := m - 2; p >= c.from; p-- { // where the last message of old may be in new
		if new.messages[p].hash != old.messages[n-1].hash || !answered(new, p) {
			continue
		}
		run := 1
		for run < min(n, p+1)-c.from && old.messages[n-1-run].hash == new.messages[p-run].hash {
			run++
		}
		if run > best {
			best, c.oldTo, c.newTo = run, n-run, p+1-run
		}
	}
	if best == 0 {
		return c, false
	}
	again := old.messages[n-best:]
	// Short messages, such as "continue", come again in any conversation, while answers seldom do.
	answers := bytesOf(again, true)
	if !sure || answers > 0 {
		return c, answers >= evidence || sure
	}
	// Another branch of the conversation has other answers, and may have the same question after them.
	branch := bytesOf(old.messages[c.from:c.oldTo], true) > 0 && bytesOf(new.messages[c.from:c.newTo], true) > 0
	return c, bytesOf(again, false) >= evidence && !branch
}

// answered reports whether an answer of the assistant comes after message i.
func answered(t *Turn, i int) bool { return i+1 < len(t.messages) && t.messages[i+1].assistant }

// bytesOf returns the length of the texts, or only that of answers.
func bytesOf(all []message, answers bool) (n int) {
	for _, m := range all {
		if m.assistant || !answers {
			n += m.bytes
		}
	}
	return n
}

// reordered reports whether both turns have the same tools, in different orders.
func reordered(old, new *Turn) bool {
	if len(old.tools) != len(new.tools) {
		return false
	}
	count := make(map[uint64]int, len(old.tools))
	for _, h := range old.tools {
		count[h]++
	}
	for _, h := range new.tools {
		count[h]--
		if count[h] < 0 {
			return false
		}
	}
	return true
}
