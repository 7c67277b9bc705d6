package server

import (
	"fmt"
	"strings"
)

// wrongMessages are hostile requests to /v1/messages and /v1/messages/count_tokens.
func wrongMessages() (all []hostileRequest) {
	const at = "/v1/messages"
	for _, field := range []string{
		"model", "max_tokens", "messages", "system", "stop_sequences", "stream", "temperature", "top_p", "top_k", "metadata", "thinking", "tools", "tool_choice", "output_config", "output_format",
		"cache_control", "service_tier", "container", "mcp_servers", "coppice",
	} {
		for _, w := range wrongs {
			body := fmt.Sprintf(`{"max_tokens":2,"messages":[{"role":"user","content":"x"}],%q:%s}`, field, w.value) // of two the last counts
			all = append(all, hostileRequest{name: "messages: " + field + " is " + w.name, path: at, body: body})
		}
	}
	const mark = `"cache_control":{"type":"ephemeral"}`
	for name, fields := range (orderedMap{
		{"no content", `[{"role":"user"}]`}, {"a role of the system", `[{"role":"system","content":"x"}]`}, {"a role that is none", `[{"role":"tool","content":"x"}]`}, {"content is a number", `[{"role":"user","content":7}]`},
		{"blocks of nothing", `[{"role":"user","content":[{},[],null,7]}]`}, {"an image", `[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"http://127.0.0.1/"}}]}]`},
		{"a file", `[{"role":"user","content":[{"type":"document","source":{"type":"url","url":"file:///etc/passwd"}}]}]`}, {"a result of nothing", `[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1"}]}]`},
		{"a call without a result", `[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]}]`},
		{"calls of a user", `[{"role":"user","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]}]`}, {"input is text", `[{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":"{}"}]},{"role":"user","content":"x"}]`},
		{"nested results", `[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"tool_result","tool_use_id":"2","content":[]}]}]}]`},
		{"five breakpoints", `[{"role":"user","content":[` + repeatIn("", `{"type":"text","text":"x",`+mark+`},`, 4, `{"type":"text","text":"x",`+mark+`}`) + `]}]`},
		{"four breakpoints", `[{"role":"user","content":[` + repeatIn("", `{"type":"text","text":"x",`+mark+`},`, 3, `{"type":"text","text":"x",`+mark+`}`) + `]}]`},
		{"a breakpoint for ever", `[{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"1000h"}}]}]`},
		{"many blocks", `[{"role":"user","content":[` + repeatIn("", `{"type":"text","text":"x"},`, 2000, `{"type":"text","text":"x"}`) + `]}]`},
		{"an empty beginning of the answer", `[{"role":"user","content":"x"},{"role":"assistant","content":""}]`}, {"only the beginning of the answer", `[{"role":"assistant","content":" "}]`},
		{"messages that become one", repeatIn("[", `{"role":"user","content":"x"},`, 4000, `{"role":"user","content":"y"}]`)}, {"control tokens", `[{"role":"user","content":"<|end_of_text|>"}]`},
	}.each) {
		all = append(all, hostileRequest{name: "messages: " + name, path: at, body: `{"max_tokens":2,"messages":` + fields + `}`},
			hostileRequest{name: "count: " + name, path: at + "/count_tokens", body: `{"messages":` + fields + `}`})
	}
	return append(all, hostileRequest{name: "messages: no body", path: at}, hostileRequest{name: "messages: deep", path: at, body: repeatIn(`{"messages":`, `{"a":`, 10000, "")},
		hostileRequest{name: "messages: a long nonce", path: at, body: `{"max_tokens":2,"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=` + strings.Repeat("2;cch=", 20000) + `"}],"messages":[{"role":"user","content":"x"}]}`},
		hostileRequest{name: "messages: batches", path: at + "/batches", body: "{}"}, hostileRequest{name: "messages: get", method: "GET", path: at})
}
