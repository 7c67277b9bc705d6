package prompt

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
)

// TestTruncatedPrompts: of a prompt with truncate_prompt_tokens the reader has the tokens that vLLM keeps: the last ones, or with
// truncation_side the first. Around a text of /v1/completions the tokenizer's own tokens stay.
func TestTruncatedPrompts(t *testing.T) {
	tok, tmpl := testTokenizer(t), testTemplate(t, "qwen.jinja")
	r := testReader(t, Config{Tokenizer: tok, Template: tmpl})
	before, after := tok.Around()
	text := opticks.Text()[:3000]
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	chat := fmt.Sprintf(`{"messages":[{"role":"user","content":%s}]}`, quoted)
	rendered, err := byServer(tok, tmpl, Chat, []byte(chat))
	if err != nil {
		t.Fatal(err)
	}
	plain, ids := tok.Encode(nil, text), make([]kv.Token, 900)
	for i := range ids {
		ids[i] = kv.Token(i)
	}
	listed, err := json.Marshal(ids)
	if err != nil || len(before) == 0 || len(plain) < 500 || len(rendered) < 500 {
		t.Fatal(err, before, len(plain), len(rendered))
	}
	around := func(part []kv.Token) []kv.Token { return slices.Concat(before, part, after) }
	own := len(before) + len(after)
	keep := func(of []kv.Token, n int) (last, first []kv.Token) { return of[len(of)-n:], of[:n] }
	for _, n := range []int{own + 1, 64, 65, 499} {
		textLast, textFirst := keep(plain, n-own)
		bareLast, _ := keep(plain, n)
		idsLast, idsFirst := keep(ids, n)
		chatLast, chatFirst := keep(rendered, n)
		for _, tc := range []struct {
			kind Kind
			body string
			want []kv.Token
		}{
			{Completions, `{"prompt":` + string(quoted) + `}`, around(textLast)},
			{Completions, `{"prompt":` + string(quoted) + `,"truncation_side":"right"}`, around(textFirst)},
			{Completions, `{"prompt":` + string(quoted) + `,"add_special_tokens":false,"truncation_side":"left"}`, bareLast},
			{Embeddings, `{"input":` + string(quoted) + `}`, around(textLast)},
			{Completions, `{"prompt":` + string(listed) + `}`, idsLast},
			{Completions, `{"prompt":` + string(listed) + `,"truncation_side":"right"}`, idsFirst},
			{Chat, chat, chatLast},
			{Chat, chat[:len(chat)-1] + `,"truncation_side":"right"}`, chatFirst},
		} {
			for _, most := range []int{0, 100} { // fewer than the prompt has before it is shortened
				body := strings.TrimSuffix(tc.body, "}") + fmt.Sprintf(`,"truncate_prompt_tokens":%d}`, n)
				var p Prompt
				if err := r.Read(tc.kind, "", []byte(body), As{MaxTokens: most, BlockTokens: 16}, &p); err != nil {
					t.Fatal(err)
				}
				if !p.Exact() || p.Truncated || len(p.Blocks.Hashes) > 0 || !slices.Equal(p.Tokens, tc.want) {
					t.Errorf("%v %.60q, %d of at most %d tokens: exact %v (%v), %d hashes\n%v, want\n%v", tc.kind, tc.body, n, most, p.Exact(), p.Inexact, len(p.Blocks.Hashes), p.Tokens, tc.want)
				}
			}
		}
	}
	for _, tc := range []struct {
		n    string
		want []kv.Token
	}{{"-1", around(plain)}, {"100000", around(plain)}, {fmt.Sprint(len(plain) + own), around(plain)}, {fmt.Sprint(len(plain) + own - 1), around(plain[1:])}} {
		var p Prompt
		if read(t, r, Completions, `{"prompt":`+string(quoted)+`,"truncate_prompt_tokens":`+tc.n+`}`, &p); !p.Exact() || !slices.Equal(p.Tokens, tc.want) {
			t.Errorf("%s: exact %v (%v), %d tokens, want %d", tc.n, p.Exact(), p.Inexact, len(p.Tokens), len(tc.want))
		}
	}
}

// TestDeepBodies: a body that nests deeper than a reader goes is JSON, so a worker may take it: it has a model and no prompt.
func TestDeepBodies(t *testing.T) {
	r := testReader(t, Config{})
	deep := strings.Repeat(`{"type":"object","properties":{"a":`, 40) + `{}` + strings.Repeat(`}}`, 40)
	for _, kind := range []Kind{Chat, Messages, Responses, OllamaChat} {
		var p Prompt
		body := `{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}],"input":"x","tools":[` + deep + `]}`
		if read(t, r, kind, body, &p); p.Model != "m" || !p.Stream || p.Exact() {
			t.Errorf("%v: %+v", kind, p)
		}
		if err := r.Read(kind, "", []byte(body[:len(body)-1]), As{}, &p); err == nil {
			t.Errorf("%v: a body that ends early is taken", kind)
		}
	}
}
