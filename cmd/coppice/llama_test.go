package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// The tests of this file compare a GGUF file of SmolLM2 with llama.cpp, whose programs must be
// in PATH; otherwise they skip.

func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not in PATH", name)
	}
	return path
}

// llama is a running llama-server.
type llama struct {
	*testing.T
	url string
}

// startLlama starts llama-server; of two values of an option the last one counts.
func startLlama(t *testing.T, file string, options ...string) *llama {
	t.Helper()
	port := freePorts(t, 1)
	args := append([]string{"-m", file, "--host", "127.0.0.1", "--port", strconv.Itoa(port), "-c", "2048", "-np", "1", "-t", "1", "--jinja"}, options...)
	cmd := exec.Command(program(t, "llama-server"), args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	l := &llama{t, fmt.Sprintf("http://127.0.0.1:%d", port)}
	until(t, "llama-server", func() string {
		res, err := asker.Get(l.url + "/health")
		if err != nil {
			return err.Error()
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return res.Status
		}
		return ""
	})
	return l
}

func (l *llama) ask(path string, question, answer any) {
	l.Helper()
	body, err := json.Marshal(question)
	if err != nil {
		l.Fatal(err)
	}
	client := &http.Client{Timeout: 10 * time.Minute}
	res, err := client.Post(l.url+path, "application/json", bytes.NewReader(body))
	if err != nil {
		l.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.300s", res.Status, text)
	}
	if err = cmp.Or(err, json.Unmarshal(text, answer)); err != nil {
		l.Fatalf("%s: %v", path, err)
	}
}

func (l *llama) tokens(text string) []kv.Token {
	var got struct{ Tokens []kv.Token }
	l.ask("/tokenize", map[string]any{"content": text, "add_special": false, "parse_special": true}, &got)
	return got.Tokens
}

// TestLlamaTokensAndChats checks that texts of many languages, code and odd white space get
// llama.cpp's tokens, and that conversations are rendered as by llama.cpp.
func TestLlamaTokensAndChats(t *testing.T) {
	file := smol.path(t)
	l := startLlama(t, file)
	tok, err := local.Tokenizer(file)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile("../../tokenizer/testdata/texts.json")
	if err != nil {
		t.Fatal(err)
	}
	var texts []struct{ Text string }
	if err := json.Unmarshal(raw, &texts); err != nil || len(texts) < 200 {
		t.Fatalf("%d texts: %v", len(texts), err)
	}
	for _, text := range texts {
		if got, want := tok.Encode(nil, text.Text), l.tokens(text.Text); !slices.Equal(got, want) {
			t.Errorf("%q\n got %v\nwant %v", text.Text, got, want)
		}
	}
	template, err := local.Template(file)
	if err != nil {
		t.Fatal(err)
	}
	turn := func(role, content string) chat.Message { return chat.Message{Role: role, Content: content} }
	for _, messages := range [][]chat.Message{
		{turn("user", "What is light?")},
		{turn("system", "Be brief."), turn("user", "What is light?")},
		{turn("user", " Hello\n"), turn("assistant", "Hi. "), turn("user", "“Why”?\n\n\nTell\tme.")},
		{turn("system", ""), turn("user", "Grüße, 世界! 🌍"), turn("assistant", ""), turn("user", "")},
	} {
		type wire struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		}
		var sent []wire
		for _, m := range messages {
			sent = append(sent, wire{m.Role, m.Content})
		}
		var want struct{ Prompt string }
		l.ask("/apply-template", map[string]any{"messages": sent}, &want)
		if got, err := template.Render(messages, chat.Options{AddGenerationPrompt: true}); err != nil || got != want.Prompt {
			t.Errorf("%+v, %v:\n got %q\nwant %q", sent, err, got, want.Prompt)
		}
	}
}

// computed is a backend for the file, with one sequence.
type computed struct {
	*testing.T
	engine.Backend
	model *model.Model
	seq   uint64
}

func compute(t *testing.T, file string, tokens int) *computed {
	t.Helper()
	return computeKV(t, file, tokens, kv.F32)
}

func computeKV(t *testing.T, file string, tokens int, kvType kv.DType) *computed {
	t.Helper()
	m, err := model.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := cpu.Open(m, cpu.Config{KVTokens: tokens, MaxTokens: tokens, KVType: kvType})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		m.Close()
	})
	return &computed{T: t, Backend: b, model: m}
}

// run computes tokens at position start of the sequence; 0 begins a new one.
func (c *computed) run(start int, tokens []kv.Token, prompt bool) engine.RowOut {
	c.Helper()
	c.seq++
	batch := &engine.Batch{Seq: c.seq}
	from := kv.CeilPages(start, 16)
	if start == 0 {
		batch.Binds = []engine.SlotBind{{}}
	}
	row := engine.Row{Start: int32(start), Tokens: tokens, Sample: true, PromptLogprobs: prompt}
	for p := from; p < kv.CeilPages(start+len(tokens), 16); p++ {
		row.Pages = append(row.Pages, kv.PageID(p))
	}
	batch.Rows = []engine.Row{row}
	ticket, err := c.Submit(batch)
	if err != nil {
		c.Fatal(err)
	}
	<-ticket.Done()
	res, err := ticket.Result()
	if err != nil {
		c.Fatal(err)
	}
	return res.Out[0]
}

// continued is a prompt and its greedy continuation by llama.cpp.
type continued struct {
	prompt []kv.Token
	Probs  []struct {
		ID      kv.Token
		Logprob float64
		Top     []struct {
			ID      kv.Token
			Logprob float64
		} `json:"top_logprobs"`
	} `json:"completion_probabilities"`
}

// continuations gets 64 tokens after each of n prompts of up to 250 tokens.
func (l *llama) continuations(encode func(dst []kv.Token, text string) []kv.Token, n int) []continued {
	l.Helper()
	paragraphs, all := opticks.Paragraphs(), make([]continued, n)
	for i := range all {
		c := &all[i]
		c.prompt = encode(nil, paragraphs[i*len(paragraphs)/n])
		c.prompt = c.prompt[:min(len(c.prompt), 16+8*i)]
		l.ask("/completion", map[string]any{"prompt": c.prompt, "n_predict": 64, "temperature": 0, "n_probs": 2, "ignore_eos": true, "cache_prompt": false}, c)
		if len(c.Probs) != 64 {
			l.Fatalf("llama.cpp gave %d tokens", len(c.Probs))
		}
	}
	return all
}

// widened returns the file converted to f16 weights by llama-quantize.
func widened(t *testing.T, file string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "f16.gguf")
	if said, err := exec.Command(program(t, "llama-quantize"), "--allow-requantize", file, to, "F16", "2").CombinedOutput(); err != nil {
		t.Fatalf("llama-quantize: %v: %s", err, said)
	}
	return to
}

// TestLlamaBestTokens checks, with f16 weights and 64 tokens of llama.cpp after each of 30
// prompts, that the best token is llama.cpp's wherever its two best are more than 0.05 apart
// in log-probability.
func TestLlamaBestTokens(t *testing.T) {
	file := widened(t, smol.path(t))
	l, ours := startLlama(t, file), compute(t, file, 1024)
	near, all := 0, 0
	for i, c := range l.continuations(ours.model.Tokenizer().EncodePrompt, 30) {
		best := ours.run(0, c.prompt, false).Token
		for j, p := range c.Probs {
			apart := p.Top[0].Logprob - p.Top[1].Logprob
			if all++; apart <= 0.05 {
				near++
			} else if best != p.ID {
				t.Errorf("prompt %d, token %d: %d is best, for llama.cpp %d, by %.3f before %d", i, j, best, p.ID, apart, p.Top[1].ID)
			}
			best = ours.run(len(c.prompt)+j, []kv.Token{p.ID}, false).Token
		}
	}
	t.Logf("%d of %d tokens were too near to another", near, all)
}

// TestLlamaNoise measures the noise that activations of eight bits put into the
// log-probabilities of a quantised model, and checks that ours is no larger than llama.cpp's.
// It exceeds 0.05, so with quantised weights the best tokens need not agree where two are
// that close.
func TestLlamaNoise(t *testing.T) {
	file := smol.path(t)
	exact := compute(t, widened(t, file), 1024) // f32 activations by f16 weights
	l, ours := startLlama(t, file), compute(t, file, 1024)
	var own, other, n float64
	for _, c := range l.continuations(ours.model.Tokenizer().EncodePrompt, 12) {
		tokens := slices.Clone(c.prompt)
		for _, p := range c.Probs {
			tokens = append(tokens, p.ID)
		}
		got, want := ours.run(0, tokens, true).Prompt[len(c.prompt)-1:], exact.run(0, tokens, true).Prompt[len(c.prompt)-1:]
		for j, p := range c.Probs {
			w := float64(want[j])
			own, other, n = own+(float64(got[j])-w)*(float64(got[j])-w), other+(p.Logprob-w)*(p.Logprob-w), n+1
		}
	}
	own, other = math.Sqrt(own/n), math.Sqrt(other/n)
	t.Logf("root mean square over %v tokens: %.4f, llama.cpp's %.4f", n, own, other)
	if own > 1.1*other {
		t.Errorf("noise of %.4f, llama.cpp has %.4f", own, other)
	}
}
