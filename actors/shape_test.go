package actors

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/grammar/jsonschema"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// printable returns nano's tokens that are visible ASCII or a space: with only these allowed,
// the text equals the bytes of the tokens.
func printable() (tokens []kv.Token) {
	for t := range kv.Token(nano.Tokenizer().VocabSize()) {
		text := nano.Tokenizer().Text(t)
		if text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
			tokens = append(tokens, t)
		}
	}
	return tokens
}

// A stop string ends the output before it, however it is split into tokens, and no part of it
// is ever delivered.
func TestStopStrings(t *testing.T) {
	for inflight := 1; inflight <= 2; inflight++ {
		s := start(t, Config{Scheduler: scheduler.Config{MaxInflight: inflight}}, cpu.Config{})
		req := Request{Prompt: prompt, MaxTokens: 120, IgnoreEOS: true, AllowedTokens: printable(), Sampling: engine.SamplingParams{Temperature: 1.2, Seed: 3}}
		_, whole, _ := drain(t, open(t, s, req))
		if len(whole) < 100 {
			t.Fatalf("%q is too short, take another seed", whole)
		}
		for at := 20; at < 90; at += 7 {
			for _, n := range []int{1, 3, 9} {
				stop := whole[at : at+n]
				first := strings.Index(whole, stop)
				for _, keep := range []bool{false, true} {
					req := req
					req.StopStrings, req.KeepStop = []string{"never said", stop, stop + "x"}, keep
					want := whole[:first]
					if keep {
						want += stop
					}
					_, text, e := drain(t, open(t, s, req))
					if text != want || e.Reason != scheduler.Stop || e.StopString != stop {
						t.Errorf("stopped at %q: %q, want %q; ending %v at %q", stop, text, want, e.Reason, e.StopString)
					}
				}
			}
		}
		// A stop string within MinTokens is ignored; the next one ends the output.
		req.StopStrings = []string{"a", "e", "o"}
		for _, least := range []int{1, 10, 60} {
			req.MinTokens = least
			tokens, text, e := drain(t, open(t, s, req))
			if !strings.HasPrefix(whole, text) || len(tokens) <= least && e.Reason == scheduler.Stop {
				t.Errorf("MinTokens %d: %d tokens, %q", least, len(tokens), text)
			}
		}
		conserve(t, s)
	}
}

// Text that may begin a stop string is held back until it is known not to.
func TestStopStringsAreHeldBack(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	req := Request{Prompt: prompt, MaxTokens: 60, IgnoreEOS: true, AllowedTokens: printable(), Sampling: engine.SamplingParams{Temperature: 1, Seed: 5}}
	_, whole, _ := drain(t, open(t, s, req))
	// Every proper prefix of this string occurs in the text, the whole does not: it ends in a
	// byte that the text lacks.
	req.StopStrings = []string{whole[8:30] + "\x00"}
	_, text, e := drain(t, open(t, s, req))
	if text != whole || e.Reason != scheduler.Length {
		t.Errorf("%q ended by %v, want %q", text, e.Reason, whole)
	}
}

// matching returns the format of the texts that an expression matches.
func matching(expression string) grammar.Format {
	return grammar.Format{Language: grammar.RE2{}, Text: expression}
}

// valid returns the format of the JSON values that a schema describes.
func valid(schema string) grammar.Format {
	return grammar.Format{Language: jsonschema.Schema, Text: schema}
}

// odd is a language that can't be a key of a map.
type odd struct {
	grammar.RE2
	_ []int
}

func TestFormats(t *testing.T) {
	const person = `{"type":"object","properties":{"name":{"type":"string","maxLength":12},"age":{"type":"integer","minimum":0,"maximum":150},
		"tags":{"type":"array","items":{"enum":["a","b"]},"maxItems":3}},"required":["name","age"],"additionalProperties":false}`
	for inflight := 1; inflight <= 2; inflight++ {
		s := start(t, Config{Scheduler: scheduler.Config{MaxInflight: inflight, MaxRunning: 3, StepTokens: 48}}, cpu.Config{})
		phone := `[0-9]{3}-[0-9]{4}( ext [0-9]{1,3})?`
		var streams []*Stream
		var checks []func(text string) bool
		for i := range 24 {
			req := Request{Prompt: prompt, MaxTokens: 200, Sampling: engine.SamplingParams{Temperature: 1, Seed: uint64(i)}}
			switch i % 4 {
			case 0:
				req.Format = matching(phone)
				checks = append(checks, regexp.MustCompile("^(?:"+phone+")$").MatchString)
			case 1:
				req.Format = valid(person)
				checks = append(checks, func(text string) bool {
					var p struct {
						Name *string
						Age  *int
						Tags []string
					}
					d := json.NewDecoder(strings.NewReader(text))
					d.DisallowUnknownFields()
					return d.Decode(&p) == nil && p.Name != nil && len([]rune(*p.Name)) <= 12 && p.Age != nil && *p.Age <= 150 && len(p.Tags) <= 3
				})
			case 2:
				req.Format = grammar.Format{Language: jsonschema.AnyObject}
				checks = append(checks, func(text string) bool { return strings.HasPrefix(text, "{") })
			case 3:
				req.IgnoreEOS, req.MaxTokens = true, 20
				checks = append(checks, func(text string) bool { return text != "" })
			}
			streams = append(streams, open(t, s, req))
		}
		for i, stream := range streams {
			_, text, e := drain(t, stream)
			if e.Err != nil || !checks[i](text) || i%4 < 2 && e.Reason != scheduler.Stop {
				t.Errorf("request %d: %q, ended by %v, %v", i, text, e.Reason, e.Err)
			}
			if i%4 == 2 && e.Reason == scheduler.Stop && !json.Valid([]byte(text)) {
				t.Errorf("request %d: %q is no JSON", i, text)
			}
		}
		conserve(t, s)
	}
}

// An invalid format fails the request, each time; a hard one fails by timeout.
func TestFormatsRefused(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	for _, f := range []grammar.Format{
		matching("("), matching(strings.Repeat("^", 8<<20)), matching(`a\bc`), valid("{"), valid(`{"not":{}}`), {Text: "a"}, {Language: odd{}}, {Language: jsonschema.ToolCalls + 1},
	} {
		for range 2 { // the second time from the cache
			stream, err := s.Open(Request{Prompt: prompt, Format: f, Samples: 2})
			if err == nil {
				for range 2 {
					_, err = stream.Next(patience(t))
				}
			}
			if !errors.Is(err, scheduler.ErrInvalid) {
				t.Errorf("%+v: %v", f, err)
			}
		}
	}
	conserve(t, s)
	hurried := start(t, Config{FormatTimeout: 1}, cpu.Config{})
	_, err := open(t, hurried, Request{Prompt: prompt, Format: matching("a+")}).Next(patience(t))
	if !errors.Is(err, ErrFormatTimeout) {
		t.Errorf("within a nanosecond: %v", err)
	}
	// A request without a format does not wait for the compiler.
	drain(t, open(t, hurried, Request{Prompt: prompt, MaxTokens: 3}))
}

// MinTokens and AllowedTokens, with and without overlap.
func TestAllowedTokens(t *testing.T) {
	for inflight := 1; inflight <= 2; inflight++ {
		s := start(t, Config{Scheduler: scheduler.Config{MaxInflight: inflight}}, cpu.Config{})
		allowed := []kv.Token{40, 41, 42, 100}
		req := Request{Prompt: prompt, MaxTokens: 50, AllowedTokens: allowed, IgnoreEOS: true, StopTokens: []kv.Token{41, 42}, Sampling: engine.SamplingParams{Temperature: 2, Seed: 9}}
		for _, least := range []int{0, 1, 17, 50} {
			req.MinTokens = least
			tokens, _, e := drain(t, open(t, s, req))
			for i, token := range tokens {
				if !slices.Contains(allowed, token) || i < least && slices.Contains(req.StopTokens, token) {
					t.Errorf("MinTokens %d: token %d is %d", least, i, token)
				}
			}
			if least == 50 && e.Reason != scheduler.Length || least < 50 && e.Reason != scheduler.Stop {
				t.Errorf("MinTokens %d: ended by %v after %d", least, e.Reason, len(tokens))
			}
		}
		conserve(t, s)
	}
}

// The log-probabilities of a prompt equal those of the same tokens as outputs, bit by bit,
// whatever part is cached and however the prompt is chunked.
func TestLogprobs(t *testing.T) {
	s := start(t, Config{Scheduler: scheduler.Config{StepTokens: 24, ChunkTokens: 7}}, cpu.Config{})
	stream := open(t, s, Request{Prompt: prompt, MaxTokens: 40, IgnoreEOS: true, Sampling: engine.SamplingParams{Logprobs: true, TopLogprobs: 3}})
	var logprobs []float32
	var e *Ending
	for e == nil {
		piece, err := stream.Next(patience(t))
		if err != nil {
			t.Fatal(err)
		}
		if len(piece.Logprobs) != len(piece.Tokens) || len(piece.Top) != len(piece.Tokens) {
			t.Fatalf("%d tokens, %d log-probabilities, %d tops", len(piece.Tokens), len(piece.Logprobs), len(piece.Top))
		}
		for i, token := range piece.Tokens {
			if top := piece.Top[i]; len(top) != 3 || top[0].Token != token || top[0].Logprob != piece.Logprobs[i] || top[1].Logprob > top[0].Logprob {
				t.Errorf("token %d with %v: top %v", token, piece.Logprobs[i], top)
			}
		}
		logprobs = append(logprobs, piece.Logprobs...)
		e = piece.Ending
	}
	beside := open(t, s, Request{Prompt: "Something else " + prompt, MaxTokens: 100, IgnoreEOS: true})
	for range 2 {
		stream := open(t, s, Request{Tokens: e.Tokens, MaxTokens: 2, IgnoreEOS: true, PromptLogprobs: true, Samples: 2})
		var prompted []float32
		for {
			piece, err := stream.Next(patience(t))
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			prompted = append(prompted, piece.PromptLogprobs...)
			if piece.Ending != nil && piece.Sample == 0 && piece.Ending.CachedTokens != 0 {
				t.Errorf("%d tokens came from the cache", piece.Ending.CachedTokens)
			}
		}
		if len(prompted) != len(e.Tokens) || !math.IsNaN(float64(prompted[0])) {
			t.Fatalf("%d log-probabilities of %d tokens, the first is %v", len(prompted), len(e.Tokens), prompted[0])
		}
		if got := prompted[e.PromptTokens:]; !slices.Equal(got, logprobs) {
			t.Errorf("as prompt %v\nas output %v", got, logprobs)
		}
	}
	drain(t, beside)
	conserve(t, s)
}

// A request may be aborted while it waits for its format.
func TestAbortWhileFormatWaits(t *testing.T) {
	s := start(t, Config{FormatTimeout: time.Minute}, cpu.Config{})
	for i := range 20 {
		stream := open(t, s, Request{Prompt: prompt, MaxTokens: 50, Format: matching(strings.Repeat("[a-z]{1,9} ", i+1))})
		stream.Abort(nil)
		if _, _, e := drain(t, stream); e.Reason != scheduler.Abort && e.Reason != scheduler.Length && e.Reason != scheduler.Stop {
			t.Errorf("ended by %v, %v", e.Reason, e.Err)
		}
	}
	conserve(t, s)
}
