package openai

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsonbody"
)

// TestDecode decodes each line of testdata/decode as a body and prints the nonzero fields of the
// request, or the error. The document's schemas must accept the same bodies, unless a line says
// beyond-schema.
func TestDecode(t *testing.T) {
	schemas := map[string]string{
		"completion": "CompletionRequest", "chat": "ChatRequest", "embeddings": "EmbeddingRequest",
		"tokenize": "TokenizeRequest", "detokenize": "DetokenizeRequest", "pin": "PinRequest", "release": "ReleaseRequest", "expect": "ExpectRequest", "explain": "ExplainRequest",
	}
	doc := readDocument(t)
	doc.request = true
	datadriven.RunTest(t, "testdata/decode", func(t *testing.T, d *datadriven.TestData) string {
		var out strings.Builder
		for _, line := range strings.Split(d.Input, "\n") {
			got, err := decodeLine(d.Cmd, line)
			if err == nil {
				fmt.Fprintln(&out, got)
			} else {
				e, ok := err.(*conversation.Error)
				if !ok {
					d.Fatalf(t, "%v", err)
				}
				if e.Status != 400 {
					t.Errorf("%s: %s has status %d", d.Pos, line, e.Status)
				}
				fmt.Fprintf(&out, "[%s %s] %s\n", e.Code, e.Param, e.Message)
			}
			if fault := doc.checkJSON(schemas[d.Cmd], line); (fault == nil) != (err == nil || d.HasArg("beyond-schema")) {
				t.Errorf("%s: %s\ndecoded with %v,\nby the document %v", d.Pos, line, err, fault)
			}
		}
		return out.String()
	})
}

func decodeLine(kind, line string) (string, error) {
	switch kind {
	case "completion":
		c, err := DecodeCompletion([]byte(line), Options{})
		if err != nil {
			return "", err
		}
		return nonZero(*c), nil
	case "chat":
		c, err := DecodeChat([]byte(line), Options{})
		if err != nil {
			return "", err
		}
		return nonZero(*c), nil
	case "embeddings":
		v, err := DecodeEmbeddings([]byte(line), Options{})
		if err != nil {
			return "", err
		}
		return nonZero(*v), nil
	case "tokenize":
		v, err := DecodeTokenize([]byte(line))
		if err != nil {
			return "", err
		}
		return nonZero(*v), nil
	case "release":
		v, err := DecodeRelease([]byte(line))
		if err != nil {
			return "", err
		}
		return nonZero(*v), nil
	case "expect":
		v, err := DecodeExpect([]byte(line))
		if err != nil {
			return "", err
		}
		return nonZero(*v), nil
	case "detokenize":
		v, err := DecodeDetokenize([]byte(line))
		if err != nil {
			return "", err
		}
		return nonZero(*v), nil
	case "pin":
		v, err := DecodePin([]byte(line))
		if err != nil {
			return "", err
		}
		return nonZero(*v), nil
	case "explain":
		v, err := DecodeExplain([]byte(line), Options{})
		if err != nil {
			return "", err
		}
		if v.Chat != nil {
			return "chat " + nonZero(*v.Chat), nil
		}
		return "completion " + nonZero(*v.Completion), nil
	}
	return "", fmt.Errorf("unknown command %q", kind)
}

// nonZero prints the nonzero fields of a struct.
func nonZero(v any) string {
	var b strings.Builder
	printNonZero(&b, reflect.ValueOf(v))
	return b.String()
}

func printNonZero(b *strings.Builder, v reflect.Value) {
	switch {
	case v.Kind() == reflect.Struct:
		b.WriteByte('{')
		n := 0
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				continue
			}
			if n++; n > 1 {
				b.WriteByte(' ')
			}
			b.WriteString(v.Type().Field(i).Name + ":")
			printNonZero(b, v.Field(i))
		}
		b.WriteByte('}')
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		fmt.Fprintf(b, "`%s`", v.Bytes())
	case v.Kind() == reflect.Slice:
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteByte(' ')
			}
			printNonZero(b, v.Index(i))
		}
		b.WriteByte(']')
	case v.Kind() == reflect.String:
		fmt.Fprintf(b, "%q", v.String())
	case v.Kind() == reflect.Map:
		fmt.Fprintf(b, "%s", v)
	default:
		fmt.Fprint(b, v)
	}
}

// TestDecodeLimits: depth and number of fields of a body are limited.
func TestDecodeLimits(t *testing.T) {
	deep := func(n int) string {
		return `{"prompt":"x","metadata":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}"
	}
	list := func(n int, item string) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	names := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"%d":0,`, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	chat := `{"messages":[{"role":"user","content":"x"}],`
	for _, tc := range []struct {
		what    string
		fits    string
		beyond  string
		param   string
		asChat  bool
		message string
	}{
		{"depth", deep(jsonbody.MaxDepth - 1), deep(jsonbody.MaxDepth), "", false, "the body nests arrays and objects over 64 deep"},
		{"fields", chat + `"chat_template_kwargs":{` + names(jsonbody.MaxFields) + "}}", chat + `"chat_template_kwargs":{` + names(jsonbody.MaxFields+1) + "}}", "chat_template_kwargs", true, "chat_template_kwargs has over 1024 fields"},
		{"stops", `{"prompt":"x","stop":[` + list(conversation.MaxStops, `"a"`) + "]}", `{"prompt":"x","stop":[` + list(conversation.MaxStops+1, `"a"`) + "]}", "stop", false, "stop has over 16 strings"},
		{"prompts", `{"prompt":[` + list(maxPrompts, `"a"`) + "]}", `{"prompt":[` + list(maxPrompts+1, `"a"`) + "]}", "prompt", false, "prompt has over 2048 prompts"},
		{"stop tokens", `{"prompt":"x","stop_token_ids":[` + list(maxStopTokens, `1`) + "]}", `{"prompt":"x","stop_token_ids":[` + list(maxStopTokens+1, `1`) + "]}", "stop_token_ids", false, "stop_token_ids has over 256 token ids"},
		{"a stop", `{"prompt":"x","stop":"` + strings.Repeat("s", conversation.MaxStopBytes) + `"}`, `{"prompt":"x","stop":"` + strings.Repeat("s", conversation.MaxStopBytes+1) + `"}`, "stop", false, "stop has 1025 bytes, want at most 1024"},
		{"bytes of stops", `{"prompt":"x","stop":["` + strings.Repeat("s", conversation.MaxStopBytes-1) + `","t"]}`, `{"prompt":"x","stop":["` + strings.Repeat("s", conversation.MaxStopBytes) + `","t"]}`, "stop", false, "stop has 1025 bytes, want at most 1024"},
		{"salts", `{"prompt":"x","cache_salt":"` + strings.Repeat("s", jsonbody.MaxName) + `"}`, `{"prompt":"x","cache_salt":"` + strings.Repeat("s", jsonbody.MaxName+1) + `"}`, "cache_salt", false, "cache_salt has 1025 bytes, want at most 1024: give a hash of it"},
		{"classes", `{"prompt":"x","coppice":{"class":"` + strings.Repeat("s", jsonbody.MaxName) + `"}}`, `{"prompt":"x","coppice":{"class":"` + strings.Repeat("s", jsonbody.MaxName+1) + `"}}`, "coppice.class", false, "coppice.class has 1025 bytes, want at most 1024: give a hash of it"},
		{"biases", `{"prompt":"x","logit_bias":{` + names(maxBiases) + "}}", `{"prompt":"x","logit_bias":{` + names(maxBiases+1) + "}}", "logit_bias", false, "logit_bias has over 1024 fields"},
		{"messages", `{"messages":[` + list(maxMessages, `{"role":"user","content":""}`) + "]}", `{"messages":[` + list(maxMessages+1, `{"role":"user","content":""}`) + "]}", "messages", true, "messages has over 8192 messages"},
		{"parts", `{"messages":[{"role":"user","content":[` + list(maxParts, `{"type":"text","text":""}`) + "]}]}", `{"messages":[{"role":"user","content":[` + list(maxParts+1, `{"type":"text","text":""}`) + "]}]}", "messages[0].content", true, "messages[0].content has over 1024 parts"},
		{"tools", chat + `"tools":[` + list(maxTools, `{"type":"function","function":{"name":"f"}}`) + "]}", chat + `"tools":[` + list(maxTools+1, `{"type":"function","function":{"name":"f"}}`) + "]}", "tools", true, "tools has over 128 objects"},
	} {
		decode := func(body string) error {
			if tc.asChat {
				_, err := DecodeChat([]byte(body), Options{})
				return err
			}
			_, err := DecodeCompletion([]byte(body), Options{})
			return err
		}
		if err := decode(tc.fits); err != nil {
			t.Errorf("%s: at the limit: %v", tc.what, err)
		}
		err := decode(tc.beyond)
		if e, ok := err.(*conversation.Error); !ok || e.Message != tc.message || e.Param != tc.param {
			t.Errorf("%s: beyond it: %#v, want %q of %q", tc.what, err, tc.message, tc.param)
		}
	}
	// Far deeper than a recursive decoder would survive.
	if _, err := DecodeCompletion([]byte(strings.Repeat(`{"a":`, 1<<20)), Options{}); err == nil {
		t.Error("a body nested a million deep is accepted")
	}
}

func TestCutFinal(t *testing.T) {
	for _, tc := range []struct{ content, rendered, want string }{
		{"It is", "<user>It is?</user><bot>It is</bot>\n", "<user>It is?</user><bot>It is"},
		{"It is ", "<bot>It is </bot>", "<bot>It is "}, // a template that keeps the content as it is
		{"It is ", "<bot>It is</bot>", "<bot>It is"},   // a template that trims
		{" It is", "<bot>It is</bot>", "<bot>It is"},
	} {
		c, err := DecodeChat([]byte(`{"continue_final_message":true,"messages":[{"role":"assistant","content":"`+tc.content+`"}]}`), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if c.Options.AddGenerationPrompt {
			t.Error("a new turn is begun")
		}
		if got, err := c.CutFinal(tc.rendered); got != tc.want || err != nil {
			t.Errorf("%q in %q: %q, %v, want %q", tc.content, tc.rendered, got, err, tc.want)
		}
		if _, err := c.CutFinal("<bot>"); err == nil {
			t.Errorf("%q is found where it is not", tc.content)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"prompt":"x","logit_bias":{"5":-100},"stop":["a"],"top_p":0.5}`, `{"prompt":[[1,2],[3]],"n":2,"coppice":{"regex":"a|b"}}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"\ud83d"}]}],"tools":[{"type":"function","function":{"name":"f"}}]}`,
		`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]}],"chat_template_kwargs":{"a":[1]}}`,
		`{"prompt":" ","seconds":1e-3}`, `{"tokens":[4294967295]}`, `[`, `{"prompt":}`, `{"top_p":1e-50,"prompt":"x"}`,
	} {
		f.Add([]byte(s))
	}
	doc := readDocument(f)
	doc.request = true
	f.Fuzz(func(t *testing.T, body []byte) {
		if c, err := DecodeCompletion(body, Options{}); err == nil {
			checkN(t, &c.Params)
			if err := doc.checkJSON("CompletionRequest", string(body)); err != nil {
				t.Errorf("%s is accepted, but by the document %v", body, err)
			}
		} else if err.(*conversation.Error).Message == "" {
			t.Errorf("%s is refused without a word", body)
		}
		if c, err := DecodeChat(body, Options{}); err == nil {
			checkN(t, &c.Params)
			if err := doc.checkJSON("ChatRequest", string(body)); err != nil {
				t.Errorf("%s is accepted, but by the document %v", body, err)
			}
		}
		DecodeTokenize(body)
		DecodeDetokenize(body)
		DecodePin(body)
		DecodeExplain(body, Options{})
	})
}

func checkN(t *testing.T, p *conversation.Params) {
	if p.N < 1 || p.N > maxN {
		t.Errorf("%+v: %d choices", p, p.N)
	}
}

func BenchmarkDecodeChat(b *testing.B) {
	body := []byte(`{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"` + strings.Repeat("What is light? ", 70) + `"}],"temperature":0.7,"max_tokens":128,"stream":true,"stream_options":{"include_usage":true}}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeChat(body, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeTokens(b *testing.B) {
	body := []byte(`{"prompt":[` + strings.Repeat("12345,", 9999) + `1]}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeCompletion(body, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestBiasOfARequest: logit_bias replaces the server's default, which all requests share.
func TestBiasOfARequest(t *testing.T) {
	defaults := conversation.Sampling{Bias: append(make([]conversation.TokenBias, 0, 4), conversation.TokenBias{Token: 7, Bias: 1}, conversation.TokenBias{Token: 9, Bias: 2})}
	decode := func(bias string) []conversation.TokenBias {
		c, err := DecodeCompletion([]byte(`{"prompt":"x"`+bias+`}`), Options{Sampling: &defaults})
		if err != nil {
			t.Fatal(err)
		}
		return c.Sampling.Bias
	}
	first, second := decode(`,"logit_bias":{"5":-1,"9":3}`), decode(`,"logit_bias":{"6":-2}`)
	if want := []conversation.TokenBias{{Token: 5, Bias: -1}, {Token: 9, Bias: 3}}; !slices.Equal(first, want) {
		t.Errorf("the first request has %v, want %v", first, want)
	}
	if want := []conversation.TokenBias{{Token: 6, Bias: -2}}; !slices.Equal(second, want) {
		t.Errorf("the second request has %v, want %v", second, want)
	}
	if got := decode(""); !slices.Equal(got, defaults.Bias) {
		t.Errorf("a request without logit_bias has %v, want %v", got, defaults.Bias)
	}
}
