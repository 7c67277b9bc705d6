package server

import (
	"fmt"
	"strings"
)

// hostileRequest is a request of the battery. Its expected outcome is in testdata/battery.txt.
type hostileRequest struct {
	name         string
	method, path string // POST and /v1/completions by default
	body         string
	raw          string // instead of the other fields: bytes to send as they are
}

// Long texts.
var (
	longText = strings.Repeat("What is light? ", 2000)
	manyOnes = strings.Repeat("1,", 1<<17) + "1"
)

func repeatIn(before, part string, n int, after string) string {
	return before + strings.Repeat(part, n) + after
}

// battery returns all hostile requests, the same ones each time.
func battery() (all []hostileRequest) {
	for _, more := range [][]hostileRequest{brokenJSON(), wrongTypes(), wrongChats(), wrongMessages(), wrongResponses(), extremes(), formats(), strangeText(), otherPaths(), wrongEmbeddings(), brokenHTTP()} {
		all = append(all, more...)
	}
	return all
}

func brokenJSON() (all []hostileRequest) {
	for i, body := range []string{
		"{", "}", "[]", "null", "1", `"x"`, "{}", `{"prompt":}`, `{"prompt":"x",}`, `{"prompt":"x"}}`, `{"prompt":"x"} {"prompt":"y"}`, `{'prompt':'x'}`,
		`{prompt:"x"}`, `{"prompt":"x" "n":1}`, `{"prompt":"x","n":01}`, `{"prompt":"x","n":+1}`, `{"prompt":"x","n":.5}`, `{"prompt":"x","n":1.}`, `{"prompt":"x","n":0x10}`,
		`{"prompt":"x","temperature":NaN}`, `{"prompt":"x","temperature":Infinity}`, `{"prompt":"x","temperature":-Infinity}`, `{"prompt":"x","temperature":1e999}`,
		`{"prompt":"x","seed":99999999999999999999999999}`, `{"prompt":"x","seed":1e30}`, `{"prompt":"\x"}`, `{"prompt":"\u12"}`, "{\"prompt\":\"\n\"}", "{\"prompt\":\"\x00\"}",
		"{\"prompt\":\"\xff\xfe\"}", "\xef\xbb\xbf{\"prompt\":\"x\"}", "\xff\xfe{\x00}\x00", `{"prompt":"x"/*c*/}`, "{\"prompt\":\"x\"}\x00", `{"prompt":"x","prompt":"y"}`, `{"PROMPT":"x"}`,
		`{"prompt":"x","":1}`, `{"prompt":"x","__proto__":{"admin":true}}`, `{"prompt":tru}`, `{"prompt":"x`, repeatIn("", "[", 100000, ""), repeatIn(`{"prompt":`, `{"a":`, 10000, ""),
		repeatIn(`{"prompt":`, "[", 64, repeatIn("", "]", 64, "}")), repeatIn("{", `"a":1,`, 20000, `"prompt":"x"}`), `{"` + longText + `":1}`, repeatIn(`{"prompt":"`, `\ud800`, 1000, `"}`),
		repeatIn("", " ", 1<<19, ""), `{"prompt":"` + longText + longText + longText + longText + longText + longText + longText + longText + longText + longText + `"}`,
	} {
		all = append(all, hostileRequest{name: fmt.Sprintf("json %d", i+1), body: body})
	}
	return all
}

// wrongs are values that are invalid for most fields.
var wrongs = []struct{ name, value string }{
	{"an object", `{"a":[1,{"b":null}]}`}, {"lists", `[[[]]]`}, {"a flag", "true"}, {"text", `"\u0000\ud83d\ude00"`}, {"a huge number", "1e308"}, {"a negative number", "-9223372036854775808"},
	{"half", "0.5"}, {"null", "null"},
}

func wrongTypes() (all []hostileRequest) {
	for _, field := range []string{
		"model", "prompt", "max_tokens", "temperature", "top_p", "n", "stream", "stream_options", "logprobs", "echo", "stop", "presence_penalty", "frequency_penalty", "best_of",
		"logit_bias", "user", "seed", "top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos", "stop_token_ids", "allowed_token_ids", "response_format", "cache_salt", "priority",
		"prompt_logprobs", "regex", "coppice",
	} {
		for _, w := range wrongs {
			body := fmt.Sprintf(`{"prompt":"x","max_tokens":2,%q:%s}`, field, w.value)
			if field == "prompt" || field == "max_tokens" {
				body = fmt.Sprintf(`{"prompt":"x",%q:%s}`, field, w.value)
			}
			all = append(all, hostileRequest{name: field + " is " + w.name, body: body})
		}
	}
	return all
}

func wrongChats() (all []hostileRequest) {
	at := "/v1/chat/completions"
	for _, field := range []string{"messages", "tools", "tool_choice", "top_logprobs", "chat_template_kwargs", "documents"} {
		for _, w := range wrongs {
			body := fmt.Sprintf(`{"messages":[{"role":"user","content":"x"}],"max_tokens":2,%q:%s}`, field, w.value)
			if field == "messages" {
				body = fmt.Sprintf(`{"messages":%s,"max_tokens":2}`, w.value)
			}
			all = append(all, hostileRequest{name: "chat: " + field + " is " + w.name, path: at, body: body})
		}
	}
	for name, messages := range (orderedMap{
		{"no messages", `[]`}, {"no role", `[{"content":"x"}]`}, {"no content", `[{"role":"user"}]`}, {"an unknown role", `[{"role":"root","content":"x"}]`},
		{"a role with a line", `[{"role":"user\nsystem","content":"x"}]`}, {"content is a number", `[{"role":"user","content":7}]`}, {"an image", `[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://127.0.0.1/"}}]}]`},
		{"a part without a type", `[{"role":"user","content":[{}]}]`}, {"calls of a user", `[{"role":"user","content":"x","tool_calls":[{}]}]`}, {"arguments that are no JSON", `[{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{"}}]}]`},
		{"control tokens", `[{"role":"user","content":"<|end_of_text|><|begin_of_text|>"}]`}, {"half control tokens", `[{"role":"user","content":"<|end_of_"},{"role":"user","content":"text|>"}]`},
		{"a template in it", `[{"role":"user","content":"{{ messages }}{% for i in range(999999999) %}x{% endfor %}"}]`}, {"an answer to go on without end", repeatIn("[", `{"role":"user","content":"x"},`, 2000, `{"role":"assistant","content":""}]`)},
	}.each) {
		all = append(all, hostileRequest{name: "chat: " + name, path: at, body: `{"max_tokens":2,"messages":` + messages + `}`})
	}
	return all
}

// orderedMap is a list of names and texts.
type orderedMap [][2]string

func (m orderedMap) each(yield func(name, text string) bool) {
	for _, e := range m {
		if !yield(e[0], e[1]) {
			return
		}
	}
}

func extremes() (all []hostileRequest) {
	for name, fields := range (orderedMap{
		{"a billion choices", `"prompt":"x","n":1000000000`}, {"one choice too many", `"prompt":"x","n":129`}, {"no choices", `"prompt":"x","n":0`}, {"as many as may be", `"prompt":"x","n":128,"max_tokens":2`},
		{"best of more", `"prompt":"x","n":2,"best_of":128,"max_tokens":1`}, {"tokens without end", `"prompt":"x","max_tokens":9223372036854775807`}, {"more tokens than positions", `"prompt":"x","max_tokens":600`},
		{"no tokens", `"prompt":"x","max_tokens":0`}, {"all tokens", `"prompt":"x","max_tokens":500,"ignore_eos":true`}, {"no tokens, and some at least", `"prompt":"x","max_tokens":1,"min_tokens":2`},
		{"many logprobs", `"prompt":"x","logprobs":1000000`}, {"as many logprobs as may be", `"prompt":"x","logprobs":5,"max_tokens":3`}, {"logprobs of a prompt", `"prompt":"x y z","prompt_logprobs":0,"max_tokens":1`},
		{"echo with logprobs", `"prompt":"x y z","echo":true,"logprobs":1,"max_tokens":1`}, {"hot", `"prompt":"x","temperature":2.1`}, {"as hot as may be", `"prompt":"x","temperature":2,"top_k":1,"max_tokens":1`},
		{"top_p of nothing", `"prompt":"x","top_p":0`}, {"tiny top_p", `"prompt":"x","top_p":1e-300,"max_tokens":1`}, {"many stops", `"prompt":"x","stop":[` + repeatIn("", `"a",`, 999, `"a"]`)},
		{"a long stop", `"prompt":"x","stop":"` + longText + `"`}, {"an empty stop", `"prompt":"x","stop":""`}, {"the same stop again and again", `"prompt":"x","max_tokens":2,"stop":["a","a","a","a"]`},
		{"bias of all tokens", `"prompt":"x","max_tokens":1,"logit_bias":{` + biases(2000) + `}`}, {"bias of a token that is none", `"prompt":"x","logit_bias":{"99999999":1}`}, {"bias of words", `"prompt":"x","logit_bias":{"x":1}`},
		{"bias without bound", `"prompt":"x","logit_bias":{"5":1e10}`}, {"bias against everything", `"prompt":"x","max_tokens":1,"allowed_token_ids":[5],"logit_bias":{"5":-100}`},
		{"no prompt", `"max_tokens":1`}, {"an empty prompt", `"prompt":""`}, {"an empty list", `"prompt":[]`}, {"lists that are empty", `"prompt":[[],[]]`}, {"ids and text", `"prompt":[1,"x"]`}, {"ids out of range", `"prompt":[5,99999999]`},
		{"ids below 0", `"prompt":[-1]`}, {"ids in parts", `"prompt":[1.5]`}, {"ids beyond 32 bits", `"prompt":[4294967296]`}, {"the last id", `"prompt":[319],"max_tokens":1`}, {"many ids", `"prompt":[` + manyOnes + `]`},
		{"ids up to the last position", `"prompt":[` + strings.Repeat("1,", 510) + `1],"max_tokens":1`}, {"one id more", `"prompt":[` + strings.Repeat("1,", 512) + `1],"max_tokens":1`}, {"many prompts", `"prompt":[` + repeatIn("", `"x",`, 999, `"x"]`)},
		{"long prompts, as many as may be", `"max_tokens":1,"prompt":[` + repeatIn("", `"`+longText[:900]+`",`, 127, `"x"]`)}, {"long prompts of ids, as many as may be", `"max_tokens":2,"prompt":[` + distinctPrompts(128, 400) + `]`}, {"choices, as many and as long as may be", `"prompt":"x","n":64,"max_tokens":400,"ignore_eos":true`},
		{"long prompts with all their logprobs", `"max_tokens":1,"prompt_logprobs":5,"prompt":[` + distinctPrompts(4, 500) + `]`}, {"a long prompt", `"max_tokens":1,"prompt":"` + longText + `"`},
		{"one long word", `"max_tokens":1,"prompt":"` + strings.Repeat("a", 1<<18) + `"`}, {"a long echo", `"max_tokens":1,"echo":true,"n":64,"prompt":"` + longText + `"`}, {"stops that are no tokens", `"prompt":"x","stop_token_ids":[99999999]`},
		{"no allowed tokens", `"prompt":"x","allowed_token_ids":[]`}, {"a deadline at once", `"prompt":"x","max_tokens":400,"ignore_eos":true,"coppice":{"timeout":1e-9}`}, {"a deadline in the past", `"prompt":"x","coppice":{"timeout":-1}`},
		{"a deadline that is none", `"prompt":"x","max_tokens":1,"coppice":{"timeout":1e18}`}, {"above all others", `"prompt":"x","max_tokens":1,"priority":2147483647`}, {"beyond all others", `"prompt":"x","priority":2147483648`},
		{"a long salt", `"prompt":"x","cache_salt":"` + longText + `"`}, {"somebody else's salt", `"prompt":"x","max_tokens":1,"cache_salt":"t\u0005alice"`}, {"a shared salt", `"prompt":"x","max_tokens":1,"cache_salt":"shared:"`},
		{"a salt of nothing", `"prompt":"x","max_tokens":1,"cache_salt":"\u0000"`}, {"a long user", `"prompt":"x","user":"` + longText + `"`}, {"a long model", `"prompt":"x","model":"` + longText + `"`}, {"a path for a model", `"prompt":"x","model":"../../etc/passwd"`},
		{"options of a stream that is none", `"prompt":"x","stream_options":{"include_usage":true}`}, {"a stream that is cut", `"prompt":"x","stream":true,"max_tokens":3,"stream_options":{"include_usage":true}`},
	}.each) {
		all = append(all, hostileRequest{name: name, body: "{" + fields + "}"})
	}
	return all
}

// distinctPrompts returns n lists of tokens ids, no two with a common prefix.
func distinctPrompts(n, tokens int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("[%d%s]", i+10, strings.Repeat(",7", tokens-1))
	}
	return strings.Join(all, ",")
}

func biases(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"%d":%d,`, i%320, i%200-100)
	}
	return strings.TrimSuffix(b.String(), ",")
}

func formats() (all []hostileRequest) {
	for name, expr := range (orderedMap{
		{"open", "("}, {"closed", ")"}, {"a set without an end", "[a"}, {"backwards", "[z-a]"}, {"repeats nothing", "*a"}, {"twice", "a**"}, {"a look ahead", "(?=a)b"}, {"a back reference", `(a)\\1`}, {"a huge count", "a{1000000}"},
		{"counts of counts", "((a{1,100}){1,100}){1,100}"}, {"exponential", "(a*)*b"}, {"exponential alternatives", "(a|a)*b"}, {"nothing matches", "[^\\\\x00-\\\\x{10FFFF}]"}, {"many alternatives", strings.Repeat("abc|", 5000) + "d"},
		{"deep", strings.Repeat("(", 2000) + "a" + strings.Repeat(")", 2000)}, {"all of Unicode", `[\\p{L}\\p{N}]{1,200}`}, {"the empty one", "()"}, {"long", strings.Repeat("a", 100000)},
	}.each) {
		all = append(all, hostileRequest{name: "regex: " + name, body: `{"prompt":"x","max_tokens":3,"regex":"` + expr + `"}`})
	}
	for name, schema := range (orderedMap{
		{"no object", "7"}, {"false", "false"}, {"an unknown type", `{"type":"thing"}`}, {"a type that is a number", `{"type":7}`}, {"refers to itself", `{"$ref":"#"}`}, {"refers round", `{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}`},
		{"refers away", `{"$ref":"http://127.0.0.1/schema"}`}, {"a list of itself", `{"type":"array","items":{"$ref":"#"}}`}, {"lengths the wrong way", `{"type":"string","minLength":5,"maxLength":1}`}, {"a huge length", `{"type":"string","minLength":1000000}`},
		{"a negative length", `{"type":"string","maxLength":-1}`}, {"a hard pattern", `{"type":"string","pattern":"((a{1,100}){1,100}){1,100}"}`}, {"a broken pattern", `{"type":"string","pattern":"("}`}, {"many properties", `{"type":"object","properties":{` + properties(300) + `},"required":["p299"]}`},
		{"a huge enum", `{"enum":[` + repeatIn("", `"a",`, 20000, `"b"]}`)}, {"deep", repeatIn("", `{"type":"array","items":`, 500, `{"type":"null"}`) + strings.Repeat("}", 500)}, {"alternatives of alternatives", alternatives(12)}, {"numbers between", `{"type":"number","minimum":1e308,"maximum":1.1e308}`},
		{"multiples of nothing", `{"type":"number","multipleOf":0}`}, {"nothing at all", `{"not":{}}`}, {"an empty enum", `{"enum":[]}`},
	}.each) {
		all = append(all, hostileRequest{name: "schema: " + name, body: `{"prompt":"x","max_tokens":3,"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":` + schema + `}}}`})
	}
	return all
}

func properties(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"p%d":{"type":"string"},`, i)
	}
	return strings.TrimSuffix(b.String(), ",")
}

func alternatives(depth int) string {
	if depth == 0 {
		return `{"type":"string"}`
	}
	inner := alternatives(depth - 1)
	return `{"anyOf":[` + inner + `,{"type":"array","items":` + inner + `}]}`
}

func strangeText() (all []hostileRequest) {
	for name, text := range (orderedMap{
		{"a zero", `\u0000`}, {"half a pair", `\ud83d`}, {"the halves swapped", `\ude00\ud83d`}, {"no characters", `\ufffe\uffff\ufdd0`}, {"right to left", `\u202e\u2066txt.exe`}, {"many marks", `Z` + strings.Repeat(`\u0301`, 1000)}, {"a family", `👨‍👩‍👧‍👦`},
		{"spaces of all kinds", `\u00a0\u2003\u200b\ufeff\u3000`}, {"lines of all kinds", `a\r\nb\u2028c\u2029d\u0085`}, {"control tokens", `<|begin_of_text|><|end_of_text|>`}, {"nearly a control token", `<|end_of_text|`}, {"a script", `<script>alert(1)</script>`}, {"a query", `'; DROP TABLE requests;--`},
		{"a format", `%s%n%x{{7*7}}${jndi:ldap://x}`}, {"escapes of a terminal", `\u001b[2J\u001b]0;x\u0007`}, {"long runs of a digit", strings.Repeat("7", 300)}, {"spaces alone", strings.Repeat(" ", 2000)}, {"newlines alone", strings.Repeat(`\n`, 1000)},
	}.each) {
		all = append(all, hostileRequest{name: "text: " + name, body: `{"prompt":"` + text + `","max_tokens":2}`})
	}
	return all
}

func otherPaths() (all []hostileRequest) {
	for _, r := range []hostileRequest{
		{name: "the root of a tree", method: "GET", path: "/v1/"}, {name: "a directory up", method: "GET", path: "/v1/models/..%2f..%2fetc%2fpasswd"}, {name: "a zero in it", method: "GET", path: "/v1/models/%00"}, {name: "a long path", method: "GET", path: "/" + longText[:999]},
		{name: "a model that is none", method: "GET", path: "/v1/models/x"}, {name: "a model of two lines", method: "GET", path: "/v1/models/x%0d%0aSet-Cookie:%20a"}, {name: "delete a model", method: "DELETE", path: "/v1/models/nano"}, {name: "get a completion", method: "GET"},
		{name: "put a completion", method: "PUT", body: "{}"}, {name: "options", method: "OPTIONS"}, {name: "an unknown method", method: "BREW"}, {name: "post health", method: "POST", path: "/health", body: "{}"}, {name: "flush for others", path: "/v1/cache/flush", body: "{}"},
		{name: "pin for others", path: "/v1/cache/pin", body: `{"prompt":"x","seconds":1}`}, {name: "unpin for others", method: "DELETE", path: "/v1/cache/pin", body: `{"prompt":"x"}`}, {name: "release no session", path: "/v1/cache/release", body: `{}`}, {name: "release a long one", path: "/v1/cache/release", body: `{"session":"` + longText + `"}`}, {name: "park no session", path: "/v1/cache/park", body: `{}`}, {name: "park an unknown one", path: "/v1/cache/park", body: `{"session":"x\u0000"}`}, {name: "list the parked ones of a long salt", method: "GET", path: "/v1/cache/parked?cache_salt=" + longText[:999]}, {name: "expect never", path: "/v1/cache/expect", body: `{"session":"x","seconds":1e300}`}, {name: "expect before", path: "/v1/cache/expect", body: `{"session":"x","seconds":-1}`}, {name: "expect one that is unknown", path: "/v1/cache/expect", body: `{"session":"x\u0000","seconds":1}`},
		{name: "profiles", method: "GET", path: "/debug/pprof/heap"}, {name: "a long profile", method: "GET", path: "/debug/pprof/profile?seconds=99999"},
		{name: "a tree of nothing", method: "GET", path: "/v1/cache/tree?depth=x"}, {name: "a deep tree", method: "GET", path: "/v1/cache/tree?depth=99999999999999999999"}, {name: "a tree with text", method: "GET", path: "/v1/cache/tree?tokens=9"}, {name: "a tree with all", method: "GET", path: "/v1/cache/tree?nodes=0"},
		{name: "explain nothing", path: "/v1/cache/explain", body: `{}`}, {name: "explain both", path: "/v1/cache/explain", body: `{"prompt":"x","messages":[]}`}, {name: "explain much", path: "/v1/cache/explain", body: `{"prompt":"` + longText + `"}`},
		{name: "embeddings", path: "/v1/embeddings", body: `{"input":"x"}`}, {name: "a file of the page", method: "GET", path: "/page/..%2fserver.go"}, {name: "the page's stream by post", path: "/v1/view/stream", body: "{}"}, {name: "metrics by post", path: "/metrics", body: "{}"},
		{name: "tokenize nothing", path: "/tokenize", body: `{}`}, {name: "tokenize both", path: "/tokenize", body: `{"prompt":"x","messages":[]}`}, {name: "tokenize a number", path: "/tokenize", body: `{"prompt":7}`}, {name: "tokenize much", path: "/tokenize", body: `{"prompt":"` + longText + `"}`},
		{name: "tokenize too much", path: "/tokenize", body: `{"prompt":"` + strings.Repeat("x", 1<<17) + `"}`}, {name: "tokenize with an unknown field", path: "/tokenize", body: `{"prompt":"x","y":1}`}, {name: "detokenize nothing", path: "/detokenize", body: `{}`},
		{name: "detokenize what is none", path: "/detokenize", body: `{"tokens":[99999999]}`}, {name: "detokenize below 0", path: "/detokenize", body: `{"tokens":[-1]}`}, {name: "detokenize much", path: "/detokenize", body: `{"tokens":[` + strings.Repeat("1,", 600) + `1]}`},
		{name: "detokenize words", path: "/detokenize", body: `{"tokens":["x"]}`}, {name: "complete with a query", path: "/v1/completions?stream=true&n=99", body: `{"prompt":"x","max_tokens":1}`}, {name: "two slashes", path: "//v1//completions", body: `{"prompt":"x"}`},
	} {
		r.name = "path: " + r.name
		all = append(all, r)
	}
	return all
}

// brokenHTTP returns raw requests. Each asks to close the connection, or makes the server close
// it.
func brokenHTTP() (all []hostileRequest) {
	const key = "Host: localhost\r\nConnection: close\r\nAuthorization: Bearer secret-of-a\r\n"
	post := func(head, body string) string {
		return "POST /v1/completions HTTP/1.1\r\n" + key + head + "\r\n" + body
	}
	const ok, jsonType, chunked = `{"prompt":"x","max_tokens":1}`, "Content-Type: application/json\r\n", "Transfer-Encoding: chunked\r\n"
	sized := fmt.Sprintf("Content-Length: %d\r\n", len(ok))
	for name, raw := range (orderedMap{
		{"no type", post(sized, ok)}, {"a form", post("Content-Type: application/x-www-form-urlencoded\r\n"+sized, ok)}, {"text", post("Content-Type: text/plain\r\n"+sized, ok)}, {"a type that is none", post("Content-Type: ;;;\r\n"+sized, ok)},
		{"two types", post(jsonType+"Content-Type: text/html\r\n"+sized, ok)}, {"no length", post(jsonType, "")}, {"a length below 0", post(jsonType+"Content-Length: -1\r\n", ok)}, {"a length of words", post(jsonType+"Content-Length: many\r\n", ok)},
		{"two lengths", post(jsonType+"Content-Length: 1\r\nContent-Length: 2\r\n", ok)}, {"more than was said", post(jsonType+sized, ok+ok+ok)}, {"a length and chunks", post(jsonType+sized+chunked, "0\r\n\r\n")}, {"chunks", post(jsonType+chunked, fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(ok), ok))},
		{"chunks of one byte", post(jsonType+chunked, chunksOfOne(ok))}, {"chunks with extensions", post(jsonType+chunked, fmt.Sprintf("%x;a=\"b\"\r\n%s\r\n0\r\n\r\n", len(ok), ok))}, {"chunks with trailers", post(jsonType+chunked, fmt.Sprintf("%x\r\n%s\r\n0\r\nX-Api-Key: y\r\n\r\n", len(ok), ok))},
		{"chunks that are none", post(jsonType+chunked, "zz\r\n")}, {"a chunk below 0", post(jsonType+chunked, "-1\r\nx\r\n0\r\n\r\n")}, {"a long extension", post(jsonType+chunked, "1;"+strings.Repeat("a", 1<<17)+"\r\nx\r\n0\r\n\r\n")},
		{"an unknown coding", post(jsonType+"Transfer-Encoding: gzip\r\n", ok)}, {"a coding twice", post(jsonType+chunked+chunked, "0\r\n\r\n")}, {"compressed", post(jsonType+"Content-Encoding: gzip\r\n"+sized, ok)}, {"an expectation", post(jsonType+"Expect: 200-ok\r\n"+sized, ok)},
		{"an upgrade", post(jsonType+"Upgrade: websocket\r\n"+sized, ok)}, {"a long header", post(jsonType+"X: "+strings.Repeat("a", 1<<17)+"\r\n"+sized, ok)}, {"many headers", post(jsonType+strings.Repeat("X: a\r\n", 20000)+sized, ok)}, {"a header without a name", post(": x\r\n"+sized, ok)},
		{"a header of two lines", post("X: a\r\n b\r\n"+jsonType+sized, ok)}, {"a zero in a header", post("X: a\x00b\r\n"+sized, ok)}, {"a space before a colon", post("X : a\r\n"+sized, ok)}, {"a line feed alone", "GET /health HTTP/1.1\nHost: localhost\nConnection: close\n\n"},
		{"no host", "GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"}, {"two hosts", "GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n"}, {"a host of two", "GET /health HTTP/1.1\r\nHost: localhost, evil.example\r\nConnection: close\r\n\r\n"},
		{"a host with a path", "GET /health HTTP/1.1\r\nHost: localhost/evil\r\nConnection: close\r\n\r\n"}, {"HTTP/1.0", "GET /health HTTP/1.0\r\n\r\n"}, {"HTTP/0.9", "GET /health\r\n\r\n"}, {"HTTP/9", "GET /health HTTP/9.9\r\n\r\n"}, {"HTTP/2 without asking", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
		{"a proxy's request", "GET http://127.0.0.1:1/latest HTTP/1.1\r\n" + key + "\r\n"}, {"a tunnel", "CONNECT 127.0.0.1:22 HTTP/1.1\r\n" + key + "\r\n"}, {"everything", "OPTIONS * HTTP/1.1\r\n" + key + "\r\n"}, {"a fragment", "GET /health#x HTTP/1.1\r\n" + key + "\r\n"}, {"a space in the path", "GET /he alth HTTP/1.1\r\n" + key + "\r\n"},
		{"a long line", "GET /" + strings.Repeat("a", 1<<17) + " HTTP/1.1\r\n" + key + "\r\n"}, {"a page elsewhere", post("Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n"+jsonType+sized, ok)}, {"a page without an origin", post("Origin: null\r\n"+jsonType+sized, ok)}, {"a forwarded host", post("X-Forwarded-Host: evil.example\r\nX-Forwarded-For: 127.0.0.1\r\n"+jsonType+sized, ok)},
		{"no key", strings.Replace(post(jsonType+sized, ok), "Bearer secret-of-a", "", 1)}, {"a wrong key", strings.Replace(post(jsonType+sized, ok), "secret-of-a", "secret-of-c", 1)}, {"a basic key", strings.Replace(post(jsonType+sized, ok), "Bearer", "Basic", 1)}, {"two keys", post("Authorization: Bearer secret-of-root\r\n"+jsonType+sized, ok)},
		{"a header for a tenant", post("X-Tenant: root\r\n"+jsonType+sized, ok)}, {"an id that breaks logs", post("X-Request-Id: a b\x01\r\n"+jsonType+sized, ok)}, {"a trace that is none", post("Traceparent: zz-zz\r\n"+jsonType+sized, ok)}, {"no HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"},
	}.each) {
		all = append(all, hostileRequest{name: "http: " + name, raw: raw})
	}
	return all
}

func chunksOfOne(text string) string {
	var b strings.Builder
	for i := range len(text) {
		fmt.Fprintf(&b, "1\r\n%c\r\n", text[i])
	}
	return b.String() + "0\r\n\r\n"
}
