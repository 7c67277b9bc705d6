package answer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	coppice "github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/jsontext"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/tokenfile"
)

var head = Head{ID: "x-1", Created: 1700000000, Model: "m", Fingerprint: "fp"}

func openTokenizer(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	data, err := os.ReadFile("../../../tokenizer/testdata/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenfile.Parse(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// play returns the pieces of an output of one sample: one piece per token of text, the last one
// with the ending how. The tokens have the log-probabilities -0.5, -1 and so on. Each position has
// tops top tokens: the token itself and those with the next ids. The first piece of sample 0 also
// has log-probabilities of the tokens of prompt.
func play(tok *tokenizer.Tokenizer, sample int, prompt []kv.Token, text string, tops int, how coppice.Ending) []coppice.Piece {
	var all []coppice.Piece
	tokens := tok.Encode(nil, text)
	detok := tok.NewContinuation()
	for i, token := range tokens {
		p := coppice.Piece{Sample: sample, Text: string(detok.Next(nil, token)), Tokens: []kv.Token{token}}
		p.Logprobs = []float32{-0.5 * float32(i+1)}
		var top []engine.TokenLogprob
		for j := range tops {
			top = append(top, engine.TokenLogprob{Token: token + kv.Token(j), Logprob: -0.5*float32(i+1) - float32(j)})
		}
		p.Top = [][]engine.TokenLogprob{top}
		if i == 0 && sample == 0 {
			for j := range prompt {
				p.PromptLogprobs = append(p.PromptLogprobs, -float32(j))
				var top []engine.TokenLogprob
				for k := range tops {
					top = append(top, engine.TokenLogprob{Token: prompt[j] + kv.Token(k) - 1, Logprob: -float32(j) - float32(k) + 1})
				}
				p.PromptTop = append(p.PromptTop, top)
			}
			if len(prompt) > 0 {
				p.PromptLogprobs[0], p.PromptTop[0] = nan, nil
			}
		}
		all = append(all, p)
	}
	last := &all[len(all)-1]
	last.Text += string(detok.Flush(nil))
	how.Tokens = append(append([]kv.Token{}, prompt...), tokens...)
	how.PromptTokens, how.OutputTokens, how.CachedTokens = len(prompt), len(tokens), max(len(prompt)-1, 0)
	how.ComputedTokens = how.PromptTokens - how.CachedTokens
	last.Ending = &how
	return all
}

// TestAnswers writes the answer to the request in the first line, whole or streamed. Each
// further line is an output, "prompt sample how text", where how is length, stop, stop=STRING or
// error. A text may be quoted as in Go.
func TestAnswers(t *testing.T) {
	tok := openTokenizer(t)
	datadriven.RunTest(t, "testdata/answers", func(t *testing.T, d *datadriven.TestData) string {
		lines := strings.Split(d.Input, "\n")
		var p *conversation.Params
		var promptState func(i int) ([]kv.Token, string)
		var stream *Stream
		var whole *Response
		names := tok
		if d.HasArg("no-tokenizer") {
			names = nil
		}
		if d.Cmd == "chat" {
			c, err := openai.DecodeChat([]byte(lines[0]), openai.Options{})
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			p, stream, whole = &c.Params, Chat(c, head, names).Stream(), Chat(c, head, names).Whole()
			if d.HasArg("reasoning") {
				stream.SetReasoning(d.HasArg("opened"))
				whole.SetReasoning(d.HasArg("opened"))
			}
			promptState = func(int) ([]kv.Token, string) { return tok.EncodePrompt(nil, c.Messages[0].Content), "" }
		} else {
			c, err := openai.DecodeCompletion([]byte(lines[0]), openai.Options{})
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			p, stream, whole = &c.Params, Completion(c, head, names).Stream(), Completion(c, head, names).Whole()
			promptState = func(i int) ([]kv.Token, string) {
				if c.Prompts[i].Tokens != nil {
					return c.Prompts[i].Tokens, string(tok.Decode(nil, c.Prompts[i].Tokens, true))
				}
				return tok.EncodePrompt(nil, c.Prompts[i].Text), c.Prompts[i].Text
			}
		}
		var out []byte
		for _, line := range lines[1:] {
			i, sample, text, ending := readOutput(t, d, line)
			prompt, promptText := promptState(i)
			stream.SetPrompt(i, promptText, prompt)
			whole.SetPrompt(i, promptText, prompt)
			for _, piece := range play(tok, sample, prompt, text, max(p.TopLogprobs, p.PromptTop), ending) {
				if piece.Ending != nil && ending.Err != nil {
					out = stream.Error(out, conversation.NewError(408, "deadline_exceeded", "%v", ending.Err))
					continue
				}
				whole.Piece(i, &piece)
				out = stream.Piece(out, i, &piece)
			}
		}
		if !p.Stream {
			return string(whole.Append(nil))
		}
		if !strings.Contains(string(out), `{"error":`) {
			out = stream.Done(out)
		}
		if stream.Usage() != whole.Usage() && !strings.Contains(string(out), `{"error":`) {
			t.Errorf("%s: usage is %+v and %+v", d.Pos, stream.Usage(), whole.Usage())
		}
		for _, event := range strings.Split(strings.TrimSuffix(string(out), "\n\n"), "\n\n") {
			if data, ok := strings.CutPrefix(event, "data: "); !ok || data != "[DONE]" && !json.Valid([]byte(data)) {
				t.Errorf("%s: no event: %s", d.Pos, event)
			}
		}
		return strings.ReplaceAll(string(out), "\n\n", "\n")
	})
}

// readOutput parses a line of TestAnswers.
func readOutput(t *testing.T, d *datadriven.TestData, line string) (i, sample int, text string, ending coppice.Ending) {
	fields := strings.SplitN(line, " ", 4)
	if _, err := fmt.Sscan(fields[0]+" "+fields[1], &i, &sample); err != nil {
		d.Fatalf(t, "%v", err)
	}
	how, text := fields[2], fields[3]
	if quoted, err := strconv.Unquote(text); err == nil {
		text = quoted
	}
	ending = coppice.Ending{Reason: coppice.Length}
	switch how, s, _ := strings.Cut(how, "="); how {
	case "stop":
		ending = coppice.Ending{Reason: coppice.Stop, StopString: s}
	case "error":
		ending = coppice.Ending{Reason: coppice.Abort, Err: coppice.ErrDeadline}
	}
	return i, sample, text, ending
}

func TestTokens(t *testing.T) {
	tok := openTokenizer(t)
	for _, tc := range []struct{ got, want string }{
		{written(func(w *bufio.Writer) error { return WriteTokens(w, []kv.Token{1496, 5}, 9, tok) }), `{"count":2,"max_model_len":9,"tokens":[1496,5],"token_strs":["<|begin_of_text|>","&"]}`},
		{written(func(w *bufio.Writer) error { return WriteTokens(w, nil, 9, nil) }), `{"count":0,"max_model_len":9,"tokens":[],"token_strs":null}`},
		{written(func(w *bufio.Writer) error { return WriteText(w, tok, tok.Encode(nil, "a\n")) }), `{"prompt":"a\n"}`},
		{CompletionID(0xfedcba9876543210) + ChatID(1), "cmpl-fedcba9876543210chatcmpl-0000000000000001"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s, want %s", tc.got, tc.want)
		}
	}
}

// chunk is the expected content of a stream's event, for encoding/json.
type chunk struct {
	ID          string        `json:"id"`
	Object      string        `json:"object"`
	Created     int64         `json:"created"`
	Model       string        `json:"model"`
	Fingerprint *string       `json:"system_fingerprint"`
	Choices     []chunkChoice `json:"choices"`
}

type chunkChoice struct {
	Index    int          `json:"index"`
	Delta    *chunkDelta  `json:"delta"`
	Logprobs *chunkScores `json:"logprobs"`
	Finish   *string      `json:"finish_reason"`
	Tokens   *[]kv.Token  `json:"token_ids,omitempty"`
}

type chunkDelta struct {
	Content string `json:"content"`
}

type chunkScores struct {
	Content []chunkToken `json:"content"`
	Refusal *string      `json:"refusal"`
}

type chunkToken struct {
	Token   string        `json:"token"`
	Logprob float32       `json:"logprob"`
	Bytes   []int         `json:"bytes"`
	Top     *[]chunkToken `json:"top_logprobs,omitempty"`
}

// jsonOf returns encoding/json's output, without HTML escapes.
func jsonOf(t testing.TB, v any) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

func TestNoLogarithm(t *testing.T) {
	for _, v := range []float32{float32(math.Inf(-1)), nan} {
		if got := string(appendLogprob(nil, v)); got != "-9999" {
			t.Errorf("%g is written %s", v, got)
		}
	}
}

// FuzzChunk: a chunk has exactly the bytes that encoding/json writes for the same values.
func FuzzChunk(f *testing.F) {
	tok := openTokenizer(f)
	f.Add("light", "model", uint32(5), float32(-0.25), uint8(3), true)
	f.Add("\xff\u2028", "\"", uint32(1497), float32(-20.5), uint8(0), true)
	f.Add("", "", uint32(200), float32(0), uint8(20), false)
	f.Fuzz(func(t *testing.T, text, model string, token uint32, logprob float32, tops uint8, shown bool) {
		if math.IsNaN(float64(logprob)) || math.IsInf(float64(logprob), 0) || text == "" && !shown {
			return
		}
		token %= uint32(tok.VocabSize())
		tops %= 21
		c := &openai.Chat{Turn: conversation.Turn{Params: conversation.Params{N: 3, Logprobs: shown, TopLogprobs: int(tops)}}, Shown: openai.Shown{ReturnTokenIDs: shown}}
		h := Head{ID: "chatcmpl-1", Created: 1700000000, Model: model}
		s := Chat(c, h, tok).Stream()
		entry := func(t kv.Token, f float32) chunkToken {
			text := tok.Text(t)
			if tok.Special(t) {
				text = string(tok.Decode(nil, []kv.Token{t}, false))
			}
			e := chunkToken{Token: text, Logprob: f, Bytes: []int{}}
			for _, b := range []byte(text) {
				e.Bytes = append(e.Bytes, int(b))
			}
			return e
		}
		p := coppice.Piece{Sample: 2, Text: text, Tokens: []kv.Token{kv.Token(token)}, Logprobs: []float32{logprob}}
		want := chunk{ID: h.ID, Object: "chat.completion.chunk", Created: h.Created, Model: model, Choices: []chunkChoice{{Index: 2, Delta: &chunkDelta{text}}}}
		if shown {
			e, top := entry(kv.Token(token), logprob), []chunkToken{}
			list := []engine.TokenLogprob{}
			for i := range uint32(tops) {
				l := engine.TokenLogprob{Token: kv.Token((token + i) % uint32(tok.VocabSize())), Logprob: logprob - float32(i)}
				list, top = append(list, l), append(top, entry(l.Token, l.Logprob))
			}
			p.Top, e.Top = [][]engine.TokenLogprob{list}, &top
			want.Choices[0].Logprobs = &chunkScores{Content: []chunkToken{e}}
			want.Choices[0].Tokens = &p.Tokens
		}
		s.Piece(nil, 0, &p) // the first event has the role
		got := string(s.Piece(nil, 0, &p))
		if want := "data: " + jsonOf(t, want) + "\n\n"; got != want {
			t.Errorf("the chunk is\n%s, want\n%s", got, want)
		}
	})
}

// TestStreamAllocatesNothing: a token costs no allocation, whatever parts of it are shown.
func TestStreamAllocatesNothing(t *testing.T) {
	tok := openTokenizer(t)
	for name, s := range streams(tok) {
		piece := steady()
		buf := s.Piece(nil, 0, &piece)
		buf = s.Piece(buf, 0, &piece)
		if n := testing.AllocsPerRun(100, func() { buf = s.Piece(buf[:0], 0, &piece) }); n != 0 || len(buf) == 0 {
			t.Errorf("%s: %v allocations for %d bytes", name, n, len(buf))
		}
	}
}

func steady() coppice.Piece {
	p := coppice.Piece{Text: " light\n", Tokens: []kv.Token{300}, Logprobs: []float32{-0.123456}}
	var top []engine.TokenLogprob
	for i := range 20 {
		// Including special tokens.
		top = append(top, engine.TokenLogprob{Token: kv.Token(1480 + i), Logprob: -float32(i) - 0.123456})
	}
	p.Top = [][]engine.TokenLogprob{top}
	return p
}

func streams(tok *tokenizer.Tokenizer) map[string]*Stream {
	plain, all := conversation.Params{N: 1}, conversation.Params{N: 1, Logprobs: true, TopLogprobs: 20}
	ids := openai.Shown{ReturnTokenIDs: true}
	one := []openai.Prompt{{Text: "x"}}
	return map[string]*Stream{
		"completion":           Completion(&openai.Completion{Params: plain, Prompts: one}, head, tok).Stream(),
		"completion, logprobs": Completion(&openai.Completion{Params: all, Shown: ids, Prompts: one}, head, tok).Stream(),
		"chat":                 Chat(&openai.Chat{Turn: conversation.Turn{Params: plain}}, head, tok).Stream(),
		"chat, logprobs":       Chat(&openai.Chat{Turn: conversation.Turn{Params: all}, Shown: ids}, head, tok).Stream(),
		"without tokenizer":    Completion(&openai.Completion{Params: all, Shown: ids, Prompts: one}, head, nil).Stream(),
	}
}

func BenchmarkChunk(b *testing.B) {
	tok := openTokenizer(b)
	all := streams(tok)
	for _, name := range []string{"completion", "chat", "completion, logprobs", "chat, logprobs"} {
		s, piece := all[name], steady()
		buf := s.Piece(nil, 0, &piece)
		b.Run("of="+strings.ReplaceAll(name, ", ", "+"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				buf = s.Piece(buf[:0], 0, &piece)
			}
		})
	}
}

// written returns what write writes.
func written(write func(*bufio.Writer) error) string {
	var b bytes.Buffer
	if err := write(bufio.NewWriter(&b)); err != nil {
		return err.Error()
	}
	return b.String()
}

// narrow is a writer that keeps what it gets, and the length of the longest write. It fails after
// most bytes.
type narrow struct {
	bytes.Buffer
	most, longest int
}

func (n *narrow) Write(b []byte) (int, error) {
	if n.longest = max(n.longest, len(b)); n.Len() >= n.most {
		return 0, io.ErrClosedPipe
	}
	return n.Buffer.Write(b)
}

// TestLongAnswers: the answers of /tokenize and /detokenize equal encoding/json's output for any
// tokens. They are written in short pieces, and end with the first write that fails.
func TestLongAnswers(t *testing.T) {
	tok := openTokenizer(t)
	rng := rand.New(rand.NewPCG(5, 5))
	for _, n := range []int{0, 1, textTokens - 1, textTokens, textTokens + 1, 20*textTokens + 7} {
		tokens := make([]kv.Token, n)
		for i := range tokens {
			tokens[i] = kv.Token(rng.IntN(tok.VocabSize()))
		}
		var got struct {
			Count  int
			Tokens []kv.Token
			Names  []string `json:"token_strs"`
			Prompt string
		}
		ids, text := narrow{most: 1 << 30}, narrow{most: 1 << 30}
		err := errors.Join(WriteTokens(bufio.NewWriter(&ids), tokens, 9, tok), json.Unmarshal(ids.Bytes(), &got), WriteText(bufio.NewWriter(&text), tok, tokens))
		if err != nil {
			t.Fatal(err)
		}
		if got.Count != n || !slices.Equal(got.Tokens, tokens) || len(got.Names) != n {
			t.Errorf("%d tokens: %d, %d and %d names", n, got.Count, len(got.Tokens), len(got.Names))
		}
		if want := string(append(jsontext.AppendString([]byte(`{"prompt":`), string(tok.Decode(nil, tokens, false))), '}')); text.String() != want {
			t.Errorf("%d tokens: a text of %d bytes, want %d", n, text.Len(), len(want))
		}
		if max(ids.longest, text.longest) > 50<<10 {
			t.Errorf("%d tokens: writes of %d and %d bytes", n, ids.longest, text.longest)
		}
		for _, short := range []*narrow{{most: 1}, {most: 5000}} {
			first, second := bufio.NewWriter(short), bufio.NewWriter(short)
			if WriteTokens(first, tokens, 9, tok) == nil && WriteText(second, tok, tokens) == nil && n > 20*textTokens {
				t.Errorf("%d tokens: no error from a writer that takes %d bytes", n, short.most)
			}
			if most := short.most + 2*bufio.NewWriter(nil).Size(); short.Len() > max(most, ids.longest+text.longest) {
				t.Errorf("%d tokens: %d bytes after an error at %d", n, short.Len(), short.most)
			}
		}
	}
}
