package ollama

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Limits of the lists of a conversation.
const (
	maxMessages = 8192
	maxCalls    = 128 // per message
)

var roles = []string{"system", "developer", "user", "assistant", "tool"}

// conversation reads the messages.
func (r *reading) conversation(v value) {
	r.messages = &v
	t := &r.turn
	t.Messages = nil
	calls := 0
	for _, e := range r.List(v, "an array of messages") {
		if len(t.Messages) == maxMessages {
			r.Fail(v, "invalid_value", "%s has over %d messages", v, maxMessages)
			break
		}
		m := r.message(e)
		for i := range m.ToolCalls {
			if calls++; m.ToolCalls[i].ID == "" {
				m.ToolCalls[i].ID = callID(calls)
			}
		}
		if m.Role == "tool" && m.ToolCallID == "" {
			m.ToolCallID = answeredCall(t.Messages, m.Name)
		}
		t.Messages = append(t.Messages, m)
	}
}

// callID is the id of a call that came without one, which some templates need: call n of the conversation.
// Mistral's templates want nine letters and digits.
func callID(n int) string { return fmt.Sprintf("call%05d", n) }

// answeredCall returns the id of the call that the result of the tool name answers, in a conversation up to
// that result: the first call of the latest turn with calls that has no result yet, if possible one of that
// tool. "" if there is none.
func answeredCall(before []chat.Message, name string) string {
	var answered []string
	for _, m := range slices.Backward(before) {
		if m.Role == "tool" {
			answered = append(answered, m.ToolCallID)
			continue
		}
		id := ""
		for _, c := range m.ToolCalls {
			switch {
			case slices.Contains(answered, c.ID):
			case c.Name == name:
				return c.ID
			case id == "":
				id = c.ID
			}
		}
		return id
	}
	return ""
}

// message reads a message.
func (r *reading) message(v value) (m chat.Message) {
	mark := len(r.Kept)
	for _, f := range r.Object(v, "a message, which is an object") {
		switch string(f.Name) {
		case "role":
			m.Role = r.role(f.Value)
		case "content":
			m.Content = r.Text(f.Value)
		case "thinking":
			m.Reasoning = r.Text(f.Value)
		case "tool_name", "name":
			m.Name = r.Text(f.Value)
		case "tool_call_id":
			m.ToolCallID = r.Text(f.Value)
		case "tool_calls":
			m.ToolCalls = r.calls(f.Value)
		case "images":
			r.images(f.Value)
		default:
			r.Unknown("messages[].", f)
		}
	}
	r.Kept = r.Kept[:mark]
	switch {
	case m.Role == "":
		r.Missing(v.At("role"))
	case len(m.ToolCalls) > 0 && m.Role != "assistant":
		at := v.At("tool_calls")
		r.Fail(at, "invalid_value", "%s are for the role assistant, but this message has the role %s", at, m.Role)
	}
	return m
}

// role reads a role. developer, a newer name of OpenAI's, becomes system, because templates that don't know
// it omit such messages silently.
func (r *reading) role(v value) string {
	role, ok := r.Among(v, roles)
	switch {
	case !ok:
		r.OneOf(v, roles...)
	case role == "developer":
		return "system"
	}
	return role
}

// calls reads the calls in an earlier turn of the assistant.
func (r *reading) calls(v value) []chat.ToolCall {
	var all []chat.ToolCall
	for _, raw := range r.Objects(v, maxCalls) {
		at, mark := value{Raw: raw, Top: v.Top}, len(r.Kept)
		var call chat.ToolCall
		r.Fields(at, "messages[].tool_calls[].", map[string]func(value){
			"id":       func(v value) { call.ID = r.Text(v) },
			"index":    func(v value) { r.Integer(v, 0, maxCalls) }, // Open WebUI has it here, 0 for each call
			"type":     func(v value) { r.OneOf(v, "function") },
			"function": func(v value) { r.called(v, &call) },
		})
		if call.Name == "" {
			r.Missing(at.At("function.name"))
		}
		all, r.Kept = append(all, call), r.Kept[:mark]
	}
	return all
}

// called reads the function of a call. Its arguments stay raw JSON: an object, or a string that contains one,
// as some clients send them.
func (r *reading) called(v value, call *chat.ToolCall) {
	r.Fields(v, "messages[].tool_calls[].function.", map[string]func(value){
		"index":       func(v value) { r.Integer(v, 0, maxCalls) },
		"name":        func(v value) { call.Name = r.Text(v) },
		"description": func(v value) { r.Text(v) }, // of a tool that a client copies
		"arguments": func(v value) {
			if v.Raw[0] != '{' && v.Raw[0] != '"' {
				r.Want(v, "an object")
			}
			call.Arguments = v.Raw
		},
	})
}

// isHarmless reports whether a field has no influence on the output.
func isHarmless(name string) bool {
	_, found := slices.BinarySearch(harmless, name)
	return found
}

// harmless are fields without influence on the output, at any level: options that say how Ollama loads a model
// or that it itself has given up, and fields of clients. Their values are not checked; Params.Ignored names
// them.
var harmless = []string{
	"chat_id",           // Open WebUI
	"created_at",        // of an answer that is sent back
	"done",              // of an answer that is sent back
	"done_reason",       // of an answer that is sent back
	"draft_num_predict", //
	"embedding_only",    //
	"f16_kv",            //
	"id",                // Open WebUI: of a message
	"logits_all",        //
	"low_vram",          //
	"main_gpu",          //
	"metadata",          //
	"mirostat",          // Ollama no longer has it
	"mirostat_eta",      //
	"mirostat_tau",      //
	"num_batch",         //
	"num_ctx",           // size of the context in memory
	"num_gpu",           //
	"num_gqa",           //
	"num_keep",          // tokens to keep when the context is full: prompts are never cut
	"num_thread",        //
	"numa",              //
	"penalize_newline",  //
	"repeat_last_n",     // penalties count all tokens
	"rope_frequency_base",
	"rope_frequency_scale",
	"session_id", //
	"shift",      // whether to drop the oldest tokens when the context is full
	"tfs_z",      // Ollama no longer has it
	"timestamp",  // of a message
	"truncate",   // whether to drop the oldest messages: prompts are never cut
	"typical_p",  //
	"use_mlock",  //
	"use_mmap",   //
	"user",       //
	"vocab_only", //
}
