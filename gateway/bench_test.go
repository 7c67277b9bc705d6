package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/gateway/internal/prompt"
	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/chat"
	"github.com/coppice-llm/coppice/tokenizer/tokenfile"
)

// BenchmarkOverhead sends the same small request directly and through the gateway, in turns,
// with prompts of 8,192 tokens that workers have mostly cached. It reports medians: both times,
// their difference, and the gateway's stages: read (body to tokens), hash, and choose (find and
// select).
func BenchmarkOverhead(b *testing.B) {
	for _, workers := range []int{3, 64} {
		for _, form := range []string{"tokens", "text", "chat"} {
			b.Run(fmt.Sprintf("workers=%d/prompt=%s", workers, form), func(b *testing.B) { overhead(b, workers, 8192, form) })
		}
	}
}

func overhead(b *testing.B, workers, promptTokens int, form string) {
	const size = 16
	cfg := Config{ProbeEvery: time.Hour, Router: router.Config{BlockTokens: size}}
	if form != "tokens" {
		cfg.Prompt = demoPrompts(b)
	}
	direct := answering(b, &cfg, workers, size)
	g, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	for g.members.Summary().Ready < workers {
		time.Sleep(time.Millisecond)
	}
	routed := listen(b, g)
	const kinds = 16
	bodies := make([][]byte, kinds)
	for k := range bodies {
		bodies[k] = demoBody(b, cfg.Prompt.Tokenizer, form, k, promptTokens)
	}
	path := "/v1/completions"
	if form == "chat" {
		path = "/v1/chat/completions"
	}
	client := &http.Client{Transport: &http.Transport{WriteBufferSize: 128 << 10}}
	defer client.CloseIdleConnections()
	post := func(url string, body []byte) time.Duration {
		begun := time.Now()
		res, err := client.Post(url+path, "application/json", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if res.StatusCode != 200 {
			b.Fatal(res.Status)
		}
		return time.Since(begun)
	}
	for i := range 4 * kinds {
		post(direct, bodies[i%kinds])
		post(routed, bodies[i%kinds])
	}
	var straight, through []time.Duration
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		straight = append(straight, post(direct, bodies[i%kinds]))
		through = append(through, post(routed, bodies[i%kinds]))
	}
	b.StopTimer()
	slices.Sort(straight)
	slices.Sort(through)
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	mid := len(straight) / 2
	b.ReportMetric(us(straight[mid]), "direct-µs")
	b.ReportMetric(us(through[mid]), "routed-µs")
	b.ReportMetric(us(through[mid]-straight[mid]), "overhead-µs")
	for stage, mean := range stageMeans(b, g) {
		b.ReportMetric(mean*1e6, stage+"-µs")
	}
}

// answering starts workers that always give the same answer, and returns the URL of one.
func answering(b *testing.B, cfg *Config, workers, size int) string {
	answer := []byte(`{"id":"cmpl-1","choices":[{"text":"x"}]}`)
	serve := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		rw.Header().Set("Content-Type", "application/json")
		rw.Write(answer)
	})
	direct := ""
	for i := range workers {
		c := card.Card{Name: fmt.Sprintf("w%d", i), Models: []string{"m"}, BlockTokens: size}
		mux := http.NewServeMux()
		mux.HandleFunc("GET "+card.Path, func(rw http.ResponseWriter, r *http.Request) { rw.Write(c.Append(nil)) })
		mux.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
		mux.Handle("/", serve)
		url := listen(b, mux)
		cfg.Workers = append(cfg.Workers, members.WorkerConfig{URL: url})
		direct = url
	}
	return direct
}

// demoPrompts reads text with the tokenizer of the generated demo model.
func demoPrompts(b *testing.B) prompt.Config {
	dir := filepath.Join(b.TempDir(), "demo")
	if err := random.Generate(dir, random.Spec{Preset: random.Demo, Seed: 1}); err != nil {
		b.Fatal(err)
	}
	tok, err := tokenfile.Open(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		b.Fatal(err)
	}
	template, err := chat.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	return prompt.Config{Tokenizer: tok, Template: template}
}

// demoBody returns a request of about that many tokens: ids, a text, or a conversation of 21
// messages.
func demoBody(b *testing.B, tok *tokenizer.Tokenizer, form string, kind, promptTokens int) []byte {
	ask := map[string]any{"model": "m", "max_tokens": 16}
	if form == "tokens" {
		tokens := make([]kv.Token, promptTokens)
		for i := range tokens {
			tokens[i] = kv.Token(kind*100_000 + i*7%50_000)
		}
		ask["prompt"] = tokens
	} else {
		text := opticks.Text()
		bytes := promptTokens * len(text) / len(tok.Encode(nil, text))
		text = strings.Repeat(text[kind*1000:], 1+bytes/(len(text)-kind*1000))[:bytes]
		ask["prompt"] = text
		if form == "chat" {
			delete(ask, "prompt")
			var messages []map[string]string
			const turns = 21
			for i := range turns {
				role := []string{"user", "assistant"}[i%2]
				messages = append(messages, map[string]string{"role": role, "content": text[i*bytes/turns : (i+1)*bytes/turns]})
			}
			ask["messages"] = messages
		}
	}
	body, err := json.Marshal(ask)
	if err != nil {
		b.Fatal(err)
	}
	return body
}

// stageMeans returns the gateway's own stage times, in seconds.
func stageMeans(b *testing.B, g *Gateway) map[string]float64 {
	families, err := g.cfg.Registry.Gather()
	if err != nil {
		b.Fatal(err)
	}
	means := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "coppice_router_overhead_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			h := m.GetHistogram()
			means[m.GetLabel()[0].GetValue()] = h.GetSampleSum() / float64(h.GetSampleCount())
		}
	}
	return means
}

// listen serves on a local port until the benchmark ends.
func listen(b *testing.B, h http.Handler) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() { s.Serve(l); close(done) }()
	b.Cleanup(func() { s.Close(); <-done })
	return "http://" + l.Addr().String()
}
