package openai

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/conversation"
)

// agrees reads body into p, which may have read other bodies before. If a strict decoder accepts
// body, agrees fails the test unless p has the same values without a doubt. It also fails if body
// has changed. accepted reports whether a strict decoder accepts body.
func agrees(t *testing.T, p *Peeked, body []byte) (accepted bool) {
	t.Helper()
	before := string(body)
	if c, err := DecodeCompletion(body, Options{}); err == nil {
		accepted = true
		if err := PeekCompletion(body, p); err != nil || p.Doubt != nil {
			t.Fatalf("%s is a completion, but: %v, %v", body, err, p.Doubt)
		}
		sameParams(t, body, &c.Params, p)
		first := c.Prompts[0]
		if p.Prompts != len(c.Prompts) || !reflect.DeepEqual(Prompt{p.Text, p.Tokens}, first) || p.Truncated {
			t.Fatalf("%s has %d prompts, first %v: got %d, %q %v", body, len(c.Prompts), first, p.Prompts, p.Text, p.Tokens)
		}
	} else {
		PeekCompletion(body, p)
	}
	if e, err := DecodeEmbeddings(body, Options{}); err == nil {
		accepted = true
		if err := PeekEmbeddings(body, p); err != nil || p.Doubt != nil {
			t.Fatalf("%s asks for embeddings, but: %v, %v", body, err, p.Doubt)
		}
		e.MaxTokens = 1 // as a proxy counts it
		sameParams(t, body, &e.Params, p)
		if p.Prompts != len(e.Inputs) || !reflect.DeepEqual(Prompt{p.Text, p.Tokens}, e.Inputs[0]) || p.Truncated {
			t.Fatalf("%s has %d inputs, first %v: got %d, %q %v", body, len(e.Inputs), e.Inputs[0], p.Prompts, p.Text, p.Tokens)
		}
	} else {
		PeekEmbeddings(body, p)
	}
	if c, err := DecodeChat(body, Options{}); err == nil {
		accepted = true
		if err := PeekChat(body, p); err != nil || p.Doubt != nil {
			t.Fatalf("%s is a chat, but: %v, %v", body, err, p.Doubt)
		}
		sameParams(t, body, &c.Params, p)
		if !reflect.DeepEqual(p.Messages, c.Messages) || !reflect.DeepEqual(p.Options, c.Options) || p.ContinueFinal != c.ContinueFinal {
			t.Fatalf("%s\ngives %+v %+v %v,\nwant  %+v %+v %v", body, p.Messages, p.Options, p.ContinueFinal, c.Messages, c.Options, c.ContinueFinal)
		}
	} else if err := PeekChat(body, p); err != nil && err.(*conversation.Error).Message == "" {
		t.Fatalf("%s is refused without a word", body)
	}
	if string(body) != before {
		t.Fatalf("%s became %s", before, body)
	}
	return accepted
}

func sameParams(t *testing.T, body []byte, want *conversation.Params, p *Peeked) {
	t.Helper()
	type params struct {
		model, user, salt, session string
		stream                     bool
		n, output, public          int
	}
	got := params{p.Model, p.User, p.CacheSalt, p.Session, p.Stream, p.N, p.OutputTokens, p.PublicTokens}
	if want := (params{want.Model, want.User, want.CacheSalt, want.Session, want.Stream, want.N, want.MaxTokens, want.PublicTokens}); got != want {
		t.Fatalf("%s\ngives %+v,\nwant  %+v", body, got, want)
	}
}

// peekBodies are bodies on which both decoders must agree.
var peekBodies = []string{
	`{"prompt":"x","cache_salt":"a","coppice":{"cache_salt":"b"}}`,
	`{"prompt":"x","session_id":"a","prompt_cache_key":"b"}`,
	`{"prompt":"x","prompt_cache_key":"b","session_id":"a"}`,
	`{"prompt":"x","session_id":7}`,
	`{"prompt":"x","cache_salt":"a","coppice":{"public_tokens":40}}`,
	`{"prompt":"x","coppice":{"public_tokens":40,"cache_salt":"b","public_tokens":7}}`,
	`{"prompt":"x","coppice":{"public_tokens":0}}`,
	`{"prompt":"x","coppice":{"cache_salt":"b","timeout":3},"cache_salt":"a"}`,
	`{"prompt":"x","coppice":{"cache_salt":null},"cache_salt":"a","cache_salt":"\u00e9\"\\"}`,
	`{"prompt":[1,2,3],"prompt":"x"}`, `{"prompt":"x","prompt":[[4],[5,6]] , "max_tokens":null,"n":2.0}`,
	` { "prompt" : [ 1 , 2,3 ,4294967295, 12345678 ,1234567, 1e3 , 5.0 ] } `, `{"prompt":[]}`, `{"prompt":[[]]}`, `{"prompt":[[],[1]]}`, `{"prompt":["",""]}`,
	`{"input":"x","cache_salt":"a","coppice":{"cache_salt":"b","public_tokens":3}}`, `{"input":[[4],[5,6]],"input":["y","z"],"user":"u"}`,
	`{"prompt":[0]}`, `{"prompt":[1,2]}`, "{\"prompt\":[\n1,\n2\n]}", `{"pr\u006fmpt":"\ud83d\ude00\ud83d\n\/\b\f\r\t"}`, "{\"prompt\":\"a\xffb\xc3\"}",
	`{"prompt":"` + strings.Repeat(`\n"`[:2], 40) + `\\\"x"}`,
	`{"messages":[{"role":"user","content":"Hi"}],"max_tokens":5,"max_completion_tokens":6,"stream":true,"user":"u","model":"m"}`,
	`{"messages":[{"role":"developer","content":[{"type":"text","text":"a"},{"text":"b\n","type":"text"}]},{"role":"user","content":"\"q\""}],"tools":[{"type":"function","function":{"name":"f","parameters":{"a":[1,{"b":"}"}]}}}]}`,
	`{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none"}`,
	`{"messages":[{"role":"user","content":"a"}],"tools":[],"documents":[],"tool_choice":"auto"}`,
	`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"arguments":"{\"a\":1}","name":"f"}},{"function":{"name":"g"}}]},{"role":"tool","tool_call_id":"1","content":"4"}]}`,
	`{"messages":[{"role":"assistant","reasoning":"r","reasoning_content":"c","content":""}],"continue_final_message":false,"add_generation_prompt":false}`,
	`{"messages":[{"role":"assistant","reasoning_content":"c","reasoning":"r","content":"so "}],"continue_final_message":true}`,
	`{"messages":[{"role":"assistant","reasoning_content":null,"reasoning":"r","reasoning_content":"c","content":"so "}],"add_generation_prompt":true}`,
	`{"messages":[{"role":"user","content":"a","name":"n"}],"reasoning_effort":"low","chat_template_kwargs":{"reasoning_effort":"high","enable_thinking":false}}`,
	`{"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{"reasoning_effort":"high","a\u0062":[1]},"reasoning_effort":"low","documents":[{"t":"x"}]}`,
	`{"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{"reasoning_effort":"high","reasoning_effort":null},"reasoning_effort":"low"}`,
	`{"messages":[{"role":"user","content":"a","content":"b"}],"messages":[{"role":"system","role":"user","content":null,"content":"c"}],"foo":null}`,
}

func TestPeekAgrees(t *testing.T) {
	var p Peeked
	accepted := 0
	for _, body := range peekBodies {
		if agrees(t, &p, []byte(body)) {
			accepted++
		}
	}
	lines, err := os.ReadFile("testdata/decode")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(lines), "\n") {
		if agrees(t, &p, []byte(line)) {
			accepted++
		}
	}
	if accepted < 60 {
		t.Errorf("%d bodies are accepted, want 60 or more", accepted)
	}
}

// TestPeekHints: hints are found in all their places, as raw values.
func TestPeekHints(t *testing.T) {
	for _, tc := range []struct {
		fields string
		want   Hints
	}{
		{`"prompt":"x"`, Hints{}},
		{`"priority":5`, Hints{Priority: "5"}},
		{`"coppice":{"timeout":1,"priority":6}`, Hints{Priority: "6"}},
		{`"priority":5,"coppice":{"priority":6}`, Hints{Priority: "5"}},
		{`"priority":null,"nvext":null`, Hints{}},
		{`"priority":5,"nvext":{"agent_hints":{"osl":9,"priority":-7}}`, Hints{Priority: "-7"}},
		{`"nvext":{"annotations":["a"],"router":{"ttft_target":120.5,"itl_target":null},"x":{"ttft_target":3}}`, Hints{TTFT: "120.5"}},
		{`"nvext":{"router":{"itl_target":"fast","ttft_target":[1]}}`, Hints{TTFT: "[1]", ITL: `"fast"`}},
		{`"nvext":{"r\u006futer":{"itl_\u0074arget":2}}`, Hints{ITL: "2"}},
		{`"nvext":{"router":{"ttft_target":` + strings.Repeat("1", 64) + `,"itl_target":` + strings.Repeat("1", 65) + `}}`,
			Hints{TTFT: strings.Repeat("1", 64), ITL: strings.Repeat("1", 64) + "..."}},
		{`"nvext":[{"router":{"ttft_target":1}}],"coppice":7`, Hints{}},
		{`"nvext":{"router":7,"agent_hints":{}},"nvext":{"router":{"itl_target":1e999}}`, Hints{ITL: "1e999"}},
	} {
		var p Peeked
		if err := PeekCompletion([]byte("{"+tc.fields+"}"), &p); err != nil || p.Hints != tc.want {
			t.Errorf("%s gives %+v, %v, want %+v", tc.fields, p.Hints, err, tc.want)
		}
		if err := PeekChat([]byte("{"+tc.fields+"}"), &p); err != nil || p.Hints != tc.want {
			t.Errorf("a chat of %s gives %+v, %v, want %+v", tc.fields, p.Hints, err, tc.want)
		}
		if p.Reset(); p.Hints != (Hints{}) {
			t.Errorf("%s is not forgotten", tc.fields)
		}
	}
}

// TestPeekIsLenient covers bodies that the strict decoders refuse.
func TestPeekIsLenient(t *testing.T) {
	for _, tc := range []struct{ body, want string }{
		{`{"prompt":"x","foo":{"a":[}}`, "invalid_json"},
		{`{"prompt":"x"`, "invalid_json"}, {`{"prompt":"x}`, "invalid_json"}, {`{"prompt":"x"}}`, "invalid_json"},
		{`[1]`, "invalid_type"}, {``, "invalid_json"}, {`"x"`, "invalid_type"}, {`{"prompt":[1,]}`, "invalid_json"}, {`{"prompt":[1`, "invalid_json"},
		{`{"prompt":[1 2]}`, "invalid_json"}, {`{"prompt":["a",]}`, "invalid_json"}, {`{"a":1,}`, "invalid_json"}, {`{"a" 1}`, "invalid_json"}, {`{a:1}`, "invalid_json"},
		{`{"prompt":"x","foo":1,"n":"many","stream":"yes","max_tokens":-1,"user":5,"best_of":3,"cache_salt":7}`, `1 "x" n=1 of=3 out=16`},
		{`{"prompt":"x","add_special_tokens":false,"max_tokens":9}`, `1 "x" n=1 of=0 out=9 special=false`},
		{`{"prompt":"x","truncate_prompt_tokens":7}`, `1 "x" n=1 of=0 out=16 keep=7`},
		{`{"prompt":"x","truncate_prompt_tokens":7,"truncation_side":"right"}`, `1 "x" n=1 of=0 out=16 keep=7 first`},
		{`{"truncation_side":"left","truncate_prompt_tokens":-1,"prompt":"x"}`, `1 "x" n=1 of=0 out=16`},
		{`{"prompt":"x","truncate_prompt_tokens":0}`, `1 "x" n=1 of=0 out=16: truncate_prompt_tokens is 0: nothing is left of the prompt`},
		{`{"prompt":"x","truncate_prompt_tokens":"7"}`, `1 "x" n=1 of=0 out=16: truncate_prompt_tokens is a string, want an integer`},
		{`{"prompt":"x","truncate_prompt_tokens":7,"truncation_side":"up"}`, `1 "x" n=1 of=0 out=16 keep=7: truncation_side is "up", want one of ["left" "right"]`},
		{`{"prompt":[1,2,-3,4],"a":[[{}]]}`, `1 [1 2] n=1 of=0 out=16: prompt[2] is -3, want an integer from 0 to 4294967295`},
		{`{"prompt":[[1,"a"],[2]]}`, `2 [1] n=1 of=0 out=16: prompt[0][1] is a string, want an integer`},
		{`{"prompt":[1,2,3,4,5,6]}`, `1 [1 2 3 4] n=1 of=0 out=16 truncated`},
		{`{"prompt":[[1,2,3,4],[1,2,3,4,5]]}`, `2 [1 2 3 4] n=1 of=0 out=16`},
		{`{"prompt":{"a":1}}`, `0 "" n=1 of=0 out=16: prompt is an object, want a string, an array of strings, an array of token ids, or an array of such arrays`},
		{`{"prompt":[{"a":1},"b"]}`, `2 "" n=1 of=0 out=16: prompt[0] is an object, want a string, a token id or an array of token ids`},
		{`{"prompt_embeds":"AAAA"}`, `0 "" n=1 of=0 out=16: prompt_embeds is given: the prompt has no tokens`},
		{strings.Repeat(`{"a":`, 100) + `1` + strings.Repeat(`}`, 100), `0 "" n=1 of=0 out=16: prompt is missing`},
	} {
		p := Peeked{Most: 4}
		got := ""
		if err := PeekCompletion([]byte(tc.body), &p); err != nil {
			got = err.(*conversation.Error).Code
		} else {
			got = fmt.Sprintf("%d %q", p.Prompts, p.Text)
			if p.Tokens != nil {
				got = fmt.Sprint(p.Prompts, p.Tokens)
			}
			got += fmt.Sprintf(" n=%d of=%d out=%d", p.N, p.BestOf, p.OutputTokens)
			if p.SpecialTokens != nil {
				got += fmt.Sprintf(" special=%v", *p.SpecialTokens)
			}
			if p.Truncated {
				got += " truncated"
			}
			if p.Truncate > 0 {
				got += fmt.Sprint(" keep=", p.Truncate)
			}
			if p.KeepFirst {
				got += " first"
			}
			if p.Doubt != nil {
				got += strings.TrimPrefix(p.Doubt.Error(), "openai")
			}
		}
		if got != tc.want {
			t.Errorf("%s\ngives %s,\nwant  %s", tc.body, got, tc.want)
		}
	}
}

func TestPeekDoubtsChats(t *testing.T) {
	for _, tc := range []struct{ body, want string }{
		{`{}`, "messages is missing"}, {`{"messages":[]}`, "messages is empty, want at least one message"}, {`{"messages":"x"}`, "messages is a string, want an array of messages"},
		{`{"messages":[5]}`, "messages[0] is a number, want a message, which is an object"},
		{`{"messages":[{"content":"x"}]}`, "messages[0].role is missing"},
		{`{"messages":[{"role":"user","content":5}]}`, "messages[0].content is a number, want a string or an array of parts"},
		{`{"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"data:"}}]}]}`, `messages[0].content[1] has the type "image_url"; only text is supported`},
		{`{"messages":[{"role":"user","content":["x",{"type":"input_text","text":"y"}]}],"tools":null}`, ""},
		{`{"messages":[{"role":"user","content":"x","foo":{}},{"role":"bot"}],"n":3}`, ""},
		{`{"messages":[{"role":"user","content":"x"}],"tools":{}}`, "tools is an object, want an array of objects"},
		{`{"messages":[{"role":"user","content":"x"}],"tools":[1]}`, "tools[0] is a number, want an object"},
		{`{"messages":[{"role":"user","content":"x"}],"chat_template":"y"}`, "chat_template is given: the request has its own template"},
		{`{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"tools":[]}}`, "chat_template_kwargs.tools would replace the field tools: give the field"},
		{`{"messages":[{"role":"user","content":" "}],"continue_final_message":true}`, "continue_final_message is set, but the last message has no text"},
		{`{"messages":[{"role":"assistant","tool_calls":[{"function":{}}]}]}`, "messages[0].tool_calls[0].function.name is missing"},
		{`{"messages":[{"role":"assistant","tool_calls":{}}]}`, "messages[0].tool_calls is an object, want an array of objects"},
	} {
		var p Peeked
		if err := PeekChat([]byte(tc.body), &p); err != nil {
			t.Errorf("%s: %v", tc.body, err)
		} else if got := fmt.Sprint(p.Doubt); got != "openai: "+tc.want && (p.Doubt != nil || tc.want != "") {
			t.Errorf("%s: %s, want %q", tc.body, got, tc.want)
		}
	}
	image := func(url string) string {
		var p Peeked
		if err := PeekChat([]byte(`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":"`+url+`"},"x"]}]}`), &p); err != nil {
			t.Fatal(err)
		}
		return p.Messages[0].Content
	}
	if a := image("a"); a != image("a") || image("a") == image("b") || !strings.HasSuffix(image("a"), "\nx") {
		t.Errorf("images become %q and %q", image("a"), image("b"))
	}
}

// TestTokenIDs compares all notations of ids with the strict decoder.
func TestTokenIDs(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var p Peeked
	for range 2000 {
		var b strings.Builder
		b.WriteString(`{"prompt":[`)
		seps := []string{",", ", "}[rng.IntN(2):]
		for i := range 1 + rng.IntN(60) {
			if i > 0 {
				b.WriteString([]string{seps[0], ",", " ,", "\n,\t"}[max(rng.IntN(40)-36, 0)])
			}
			fmt.Fprintf(&b, []string{"%d", "%d.0", "%de0"}[max(rng.IntN(60)-57, 0)], rng.Uint32()>>rng.IntN(33))
		}
		b.WriteString([]string{`]}`, ` ]}`, `]  }`}[rng.IntN(3)])
		if !agrees(t, &p, []byte(b.String())) {
			t.Fatalf("%s is refused", b.String())
		}
	}
}

func FuzzPeek(f *testing.F) {
	for _, body := range peekBodies {
		f.Add([]byte(body))
	}
	lines, err := os.ReadFile("testdata/decode")
	if err != nil {
		f.Fatal(err)
	}
	for _, line := range strings.Split(string(lines), "\n") {
		f.Add([]byte(line))
	}
	var p Peeked
	f.Fuzz(func(t *testing.T, body []byte) { agrees(t, &p, body) })
}

func TestPeekAllocates(t *testing.T) {
	var p Peeked
	body := tokenBody(1000)
	if n := testing.AllocsPerRun(100, func() {
		if err := PeekCompletion(body, &p); err != nil || len(p.Tokens) != 1000 {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations for token ids, want none", n)
	}
}

// TestPeekKeepsBoundedMemory: one huge request does not keep its memory forever.
func TestPeekKeepsBoundedMemory(t *testing.T) {
	var p Peeked
	if err := PeekCompletion(tokenBody(keptTokens+1), &p); err != nil || len(p.Tokens) != keptTokens+1 {
		t.Fatal(err)
	}
	if p.Reset(); cap(p.state.ids) != 0 {
		t.Errorf("room for %d tokens is kept", cap(p.state.ids))
	}
}

func tokenBody(n int) []byte {
	b := []byte(`{"model":"m","user":"u","stream":true,"prompt":[`)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(rng.IntN(128_000)), 10)
	}
	return append(b, `],"max_tokens":100}`...)
}

func BenchmarkPeekTokens(b *testing.B) {
	body := tokenBody(8192)
	for name, body := range map[string][]byte{"sep=,": body, "sep=, ": []byte(strings.ReplaceAll(string(body), ",", ", "))} {
		b.Run(name, func(b *testing.B) {
			var p Peeked
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := PeekCompletion(body, &p); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/8192, "ns/token")
		})
	}
}

func BenchmarkPeekText(b *testing.B) {
	plain := strings.Repeat("What is light? ", 2200)
	for name, text := range map[string]string{"escapes=0": plain, "escapes=3%": strings.ReplaceAll(plain, "light? What is ", `light?\nWhat is `)} {
		body := []byte(`{"model":"m","prompt":"` + text + `"}`)
		b.Run(name, func(b *testing.B) {
			var p Peeked
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := PeekCompletion(body, &p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestPeekMost reads prompts with as many tokens as the limit Most, one token fewer, and one token
// more.
func TestPeekMost(t *testing.T) {
	for _, n := range []int{1, 2, 7, 100} {
		for _, tail := range []string{"", ",\"x\":\"long enough for words\""} {
			for most := max(n-1, 1); most <= n+1; most++ {
				p := Peeked{Most: most}
				body := strings.Replace(string(tokenBody(n)), `,"max_tokens":100`, tail, 1)
				if err := PeekCompletion([]byte(body), &p); err != nil || len(p.Tokens) != min(n, most) || p.Truncated != (most < n) {
					t.Errorf("%d of at most %d: %d, truncated %v, %v", n, most, len(p.Tokens), p.Truncated, err)
				}
			}
		}
	}
}
