package server

import (
	"fmt"
	"strings"
)

// wrongResponses are hostile requests to /v1/responses and to stored responses.
func wrongResponses() (all []hostileRequest) {
	const at = "/v1/responses"
	for _, field := range []string{
		"model", "input", "instructions", "previous_response_id", "tools", "tool_choice", "parallel_tool_calls", "max_output_tokens", "temperature", "top_p", "top_logprobs", "include", "text", "reasoning",
		"truncation", "metadata", "prompt_cache_key", "store", "stream", "stream_options", "background", "conversation", "coppice",
	} {
		for _, w := range wrongs {
			body := fmt.Sprintf(`{"max_output_tokens":2,"input":"x",%q:%s}`, field, w.value) // of two the last counts
			all = append(all, hostileRequest{name: "responses: " + field + " is " + w.name, path: at, body: body})
		}
	}
	for name, items := range (orderedMap{
		{"items of nothing", `[{},[],null,7]`}, {"a role of the system's own", `[{"role":"root","content":"x"}]`}, {"an image", `[{"role":"user","content":[{"type":"input_image","image_url":"http://127.0.0.1/"}]}]`},
		{"a file", `[{"role":"user","content":[{"type":"input_file","file_url":"file:///etc/passwd"}]}]`}, {"a result without a call", `[{"type":"function_call_output","call_id":"c","output":"x"}]`},
		{"arguments that are no JSON", `[{"role":"user","content":"x"},{"type":"function_call","call_id":"c","name":"f","arguments":"{"}]`}, {"a reference to a path", `[{"type":"item_reference","id":"../../etc/passwd"}]`},
		{"a reference to nothing", `[{"type":"item_reference","id":"msg_0123456789abcdef0123456789abcdef00"}]`}, {"many parts", `[{"role":"user","content":[` + repeatIn("", `{"type":"input_text","text":"x"},`, 2000, `{"type":"input_text","text":"x"}`) + `]}]`},
		{"many items", repeatIn("[", `{"role":"user","content":"x"},`, 33000, `{"role":"user","content":"y"}]`)}, {"control tokens", `[{"role":"user","content":"<|end_of_text|>"}]`},
		{"encrypted reasoning", `[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"` + strings.Repeat("A", 1<<16) + `"},{"role":"user","content":"x"}]`},
	}.each) {
		all = append(all, hostileRequest{name: "responses: " + name, path: at, body: `{"max_output_tokens":2,"input":` + items + `}`})
	}
	for _, path := range []string{"/resp_1", "/resp_0123456789abcdef0123456789abcdef", "/..%2f..%2fetc%2fpasswd", "/resp_1/input_items", "/resp_1/input_items?limit=x", "/resp_1/other", "/" + strings.Repeat("a", 4000)} {
		name := "responses: get " + path[:min(len(path), 40)]
		all = append(all, hostileRequest{name: name, method: "GET", path: at + path})
	}
	return append(all, hostileRequest{name: "responses: no body", path: at}, hostileRequest{name: "responses: deep", path: at, body: repeatIn(`{"input":`, `[`, 10000, "")},
		hostileRequest{name: "responses: get", method: "GET", path: at}, hostileRequest{name: "responses: delete", method: "DELETE", path: at + "/resp_1"},
		hostileRequest{name: "responses: cancel", path: at + "/resp_1/cancel", body: "{}"}, hostileRequest{name: "responses: a stored one as a stream", method: "GET", path: at + "/resp_1?stream=true"})
}
