package e2e

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// drawn returns the tokens of an answer.
func (p *process) drawn(req openai.CompletionNewParams, opts ...option.RequestOption) []int64 {
	p.t.Helper()
	got := p.complete(req, slices.Concat([]option.RequestOption{endless, option.WithJSONSet("return_token_ids", true)}, opts)...)
	return extra[[]int64](p.t, got.Choices[0].RawJSON(), "token_ids")
}

func TestSeed(t *testing.T) {
	p := serve(t)
	req := text("What is light?", 16)
	seven := p.drawn(req)
	if got := p.drawn(req); !slices.Equal(got, seven) {
		t.Errorf("seed 7 gave %v, then %v", seven, got)
	}
	req.Seed = openai.Int(8)
	if got := p.drawn(req); slices.Equal(got, seven) {
		t.Error("seeds 7 and 8 give the same")
	}
	req.Seed = openai.CompletionNewParams{}.Seed
	if a, b := p.drawn(req), p.drawn(req); slices.Equal(a, b) {
		t.Error("without a seed twice the same")
	}
	req.Temperature = openai.Float(0)
	greedy := p.drawn(req)
	if got := p.drawn(req); !slices.Equal(got, greedy) {
		t.Errorf("at temperature 0 %v, then %v", greedy, got)
	}
	req.Temperature, req.Seed = openai.Float(1), openai.Int(3)
	req.TopP = openai.Float(1e-6)
	if got := p.drawn(req); !slices.Equal(got, greedy) {
		t.Errorf("of a tiny top_p %v, of greedy %v", got, greedy)
	}
	req.TopP = openai.CompletionNewParams{}.TopP
	if got := p.drawn(req, option.WithJSONSet("top_k", 1)); !slices.Equal(got, greedy) {
		t.Errorf("of top_k 1 %v, of greedy %v", got, greedy)
	}
}

// TestPenalties biases two tokens so strongly that one of them is drawn, and checks that penalties
// decide which.
func TestPenalties(t *testing.T) {
	p := serve(t)
	req := text("What is light?", 16)
	req.Temperature = openai.Float(0)
	first := p.drawn(req)[0]
	req.LogitBias = map[string]int64{itoa(first): -100}
	if got := p.drawn(req); slices.Contains(got, first) {
		t.Errorf("token %d is banned, got %v", first, got)
	}
	req.LogitBias = map[string]int64{"70": 100, "71": 90}
	only := p.drawn(req)
	if !slices.Equal(only, slices.Repeat([]int64{70}, 16)) {
		t.Fatalf("with token 70 all but forced %v", only)
	}
	req.FrequencyPenalty = openai.Float(2)
	if got := p.drawn(req); got[0] != 70 || !slices.Contains(got, 71) {
		t.Errorf("with a frequency penalty %v, want 70s, and a 71 when they have become too dear", got)
	}
	req.FrequencyPenalty, req.PresencePenalty = openai.CompletionNewParams{}.FrequencyPenalty, openai.Float(2)
	if got := p.drawn(req); !slices.Equal(got, only) {
		t.Errorf("a presence penalty of 2 is less than the bias is, got %v", got)
	}
	// A presence penalty spreads the output over the four allowed tokens; once all four have
	// it, none has an advantage. A negative penalty favours tokens that were drawn before.
	req.LogitBias = nil
	allowed := option.WithJSONSet("allowed_token_ids", []int{70, 71, 72, 73})
	req.PresencePenalty = openai.Float(-2)
	kept := len(distinct(p.drawn(req, allowed)))
	req.PresencePenalty = openai.Float(2)
	if fled := p.drawn(req, allowed); len(distinct(fled)) <= kept || len(distinct(fled)) > 4 {
		t.Errorf("with a presence penalty %d tokens, %v, with a bonus %d", len(distinct(fled)), fled, kept)
	}
}

// TestStop checks that an answer ends at a stop string from its middle, whole and streamed.
func TestStop(t *testing.T) {
	p := serve(t)
	req := text("What is light?", 60)
	all := p.complete(req, endless).Choices[0].Text
	stop := ""
	for run := range strings.FieldsFuncSeq(all[len(all)/3:], func(r rune) bool { return r == utf8.RuneError }) {
		if len(run) > len(stop) { // the longest run without broken characters
			stop = run
		}
	}
	if stop = stop[1 : len(stop)-1]; len(stop) < 4 { // it should span several tokens
		t.Fatalf("no run of whole characters in %q", all)
	}
	want, _, _ := strings.Cut(all, stop)
	req.Stop = openai.CompletionNewParamsStopUnion{OfStringArray: []string{"never said", stop}}
	whole := p.complete(req, endless)
	if c := whole.Choices[0]; c.Text != want || c.FinishReason != "stop" {
		t.Errorf("until %q: %q by %s, want %q", stop, c.Text, c.FinishReason, want)
	}
	if got := extra[string](t, whole.Choices[0].RawJSON(), "stop_reason"); got != stop {
		t.Errorf("stop_reason %q, want %q", got, stop)
	}
	if s := p.stream(req, 1, endless); s.text[0] != want || s.finish[0] != "stop" {
		t.Errorf("streamed until %q: %q by %s, want %q", stop, s.text[0], s.finish[0], want)
	}
	if got := p.complete(req, endless, option.WithJSONSet("include_stop_str_in_output", true)); got.Choices[0].Text != want+stop {
		t.Errorf("with it %q, want %q", got.Choices[0].Text, want+stop)
	}
	if got := p.complete(req, endless, option.WithJSONSet("min_tokens", 60)); got.Choices[0].Text != all || got.Choices[0].FinishReason != "length" {
		t.Errorf("with min_tokens %q by %s, want all of %q", got.Choices[0].Text, got.Choices[0].FinishReason, all)
	}
	ids := p.drawn(text("What is light?", 60))
	got := p.complete(text("What is light?", 60), endless, option.WithJSONSet("stop_token_ids", []int64{ids[9]}))
	if at := slices.Index(ids, ids[9]); got.Choices[0].FinishReason != "stop" || got.Usage.CompletionTokens != int64(at+1) {
		t.Errorf("with token %d as a stop: %s", ids[9], got.RawJSON())
	}
	p.quiet(p.client)
}

func distinct(ids []int64) []int64 { return slices.Compact(slices.Sorted(slices.Values(ids))) }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
