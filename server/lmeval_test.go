package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// scoreOf sends prompt and reads the answer like parse_logprobs of lm-eval's model
// local-completions. context is the number of tokens of prompt that are not scored. score is the
// sum of the log-probabilities of the tokens after the context, without the generated token;
// greedy reports whether each of them was the most probable token at its position.
func scoreOf(b *bed, prompt []int, context int) (score float64, greedy bool) {
	b.Helper()
	ids := strings.ReplaceAll(fmt.Sprint(prompt), " ", ",")
	raw := b.do("POST", "/v1/completions", `{"model":"nano","prompt":[`+ids+`],"temperature":0,"max_tokens":1,"logprobs":1,"seed":1234,"echo":true}`)
	var answer struct {
		Choices []struct {
			Logprobs struct {
				Own []*float64            `json:"token_logprobs"`
				Top []map[string]*float64 `json:"top_logprobs"`
			}
		}
	}
	if err := json.Unmarshal(raw.body, &answer); err != nil || raw.StatusCode != 200 {
		b.Fatalf("%v: %s %s", err, raw.Status, raw.body)
	}
	l := answer.Choices[0].Logprobs
	if len(l.Own) != len(prompt)+1 || len(l.Top) != len(prompt)+1 || l.Own[0] != nil {
		b.Fatalf("%d and %d places for %d tokens, the first %v", len(l.Own), len(l.Top), len(prompt), l.Own[0])
	}
	greedy = true
	for i := context; i < len(prompt); i++ {
		score += *l.Own[i]
		best := slices.MaxFunc(slices.Collect(maps.Values(l.Top[i])), func(a, b *float64) int {
			if *a < *b {
				return -1
			}
			return 1
		})
		greedy = greedy && *l.Own[i] == *best
	}
	return score, greedy
}

// TestLMEval: the model's own continuation is greedy. A continuation that differs in one token
// is not, and is less probable.
func TestLMEval(t *testing.T) {
	b := start(t, setup{})
	for _, text := range []string{"What is light?", "Rays of", "a"} {
		context := len(b.tok.EncodePrompt(nil, text))
		said := b.ask("/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":12,"temperature":0,"ignore_eos":true,"return_token_ids":true}`, text)).Choices[0].TokenIDs
		var prompt []int
		for _, id := range b.tok.EncodePrompt(nil, text) {
			prompt = append(prompt, int(id))
		}
		prompt = append(prompt, said...)
		score, greedy := scoreOf(b, prompt, context)
		if !greedy || score >= 0 {
			t.Errorf("%q: what the model wrote scores %v, greedy %v", text, score, greedy)
		}
		for _, at := range []int{context, context + 5, len(prompt) - 1} {
			other := slices.Clone(prompt)
			other[at] = (other[at] + 1) % b.node.Info().Vocab
			if less, greedy := scoreOf(b, other[:at+1], at); greedy {
				t.Errorf("%q: another token at %d is greedy too, and scores %v", text, at, less)
			}
		}
	}
}

// TestContinuousUsage: each chunk has the usage so far, the last one the total.
func TestContinuousUsage(t *testing.T) {
	b := start(t, setup{})
	for path, body := range map[string]string{
		"/v1/completions":      `{"prompt":["What is light?","a"],"max_tokens":9,"n":2,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`,
		"/v1/chat/completions": `{"messages":[{"role":"user","content":"What is light?"}],"max_tokens":9,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`,
	} {
		chunks := b.streamed(path, body)
		last := chunks[len(chunks)-1].Usage
		before := 0
		for i, c := range chunks {
			if c.Usage == nil || c.Usage.Prompt != last.Prompt || c.Usage.Completion < before || c.Usage.Total != c.Usage.Prompt+c.Usage.Completion {
				t.Fatalf("%s: chunk %d says %+v, the last %+v", path, i, c.Usage, last)
			}
			before = c.Usage.Completion
		}
		if next := chunks[len(chunks)-2].Usage; next.Completion != last.Completion || last.Completion == 0 {
			t.Errorf("%s: at the end %+v, then %+v", path, next, last)
		}
	}
}
