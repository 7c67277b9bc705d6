package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/sim"
)

var (
	streams      = flag.Int("streams", 1000, "streams of TestThousandStreams")
	streamTokens = flag.Int("stream-tokens", 16, "tokens of each")
	streamPprof  = flag.String("stream-pprof", "", "file for a CPU profile of the server under them")
)

// TestThousandStreams: each of many concurrent streams receives all its text in order, as the
// simulated model predicts. With -v it prints the server's cost per token.
func TestThousandStreams(t *testing.T) {
	t.Parallel()
	m, err := model.Open(nano)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tok := m.Tokenizer()
	cfg := many(m.Config().Vocab)
	cfg.Pages = 1
	oracle, err := sim.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer oracle.Close()
	p := startChild(t)
	idle := p.usage("")
	played := p.usage(fmt.Sprint(*streams, *streamTokens))
	before := p.usage("")
	var profiled sync.WaitGroup
	if *streamPprof != "" {
		profiled.Go(func() { profile(t, p.address, *streamPprof) })
	}

	var all, begun sync.WaitGroup
	begun.Add(*streams)
	pieces := make([]int, *streams)
	for i := range *streams {
		all.Go(func() {
			var first sync.Once
			defer first.Do(begun.Done)
			want := ""
			var buf []byte
			d := tok.NewContinuation()
			for _, token := range oracle.Expect(tok.EncodePrompt(nil, streamPrompt(i)), engine.SamplingParams{}, *streamTokens, nil) {
				buf = d.Next(buf, token)
			}
			want = string(d.Flush(buf))
			got, n, err := readStream(p.address, fmt.Sprintf(`{"prompt":%q,"max_tokens":%d,"temperature":0,"ignore_eos":true,"stream":true}`, streamPrompt(i), *streamTokens),
				func() { first.Do(begun.Done) })
			if err != nil || got != want {
				t.Errorf("stream %d: %v, got %.60q, want %.60q", i, err, got, want)
			}
			pieces[i] = n
		})
	}
	begun.Wait()
	during := p.usage("")
	all.Wait()
	after := p.usage("")
	profiled.Wait()

	tokens := *streams * *streamTokens
	sum := 0
	for _, n := range pieces {
		sum += n
	}
	node, total := played.since(idle), after.since(before)
	if int(total.Output) != tokens {
		t.Errorf("%d tokens were made, want %d", total.Output, tokens)
	}
	perToken := func(u taken) float64 { return float64(u.CPU.Microseconds()) / float64(tokens) }
	t.Logf("%d streams of %d tokens: %d events, %d steps", *streams, *streamTokens, sum, total.Steps)
	t.Logf("CPU a token: %.1f µs with the server, %.1f µs of these by the node alone, so %.1f µs by the server", perToken(total), perToken(node), perToken(total)-perToken(node))
	kib := func(a, b uint64) float64 { return (float64(a) - float64(b)) / 1024 / float64(*streams) }
	t.Logf("memory a stream: %.1f KiB heap, %.1f KiB stacks, %.1f KiB resident; %d goroutines", kib(during.Heap, before.Heap), kib(during.Stacks, before.Stacks),
		kib(uint64(during.RSS), uint64(before.RSS)), during.Goroutines)
}

// readStream posts a request and reads a stream of completions to its end. It returns the text,
// and the number of events with text. It calls begun at each such event.
func readStream(address, body string, begun func()) (text string, pieces int, err error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return "", 0, err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		return "", 0, err
	}
	r := bufio.NewReader(conn)
	status, err := r.ReadString('\n')
	if err != nil || !strings.Contains(status, " 200 ") {
		return "", 0, fmt.Errorf("status %q: %v", status, err)
	}
	var b strings.Builder
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return b.String(), pieces, err
		}
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		switch {
		case !ok:
		case string(data) == "[DONE]\n":
			return b.String(), pieces, nil
		default:
			begun()
			var c struct {
				Choices []struct{ Text string }
			}
			if err := json.Unmarshal(data, &c); err != nil {
				return b.String(), pieces, err
			}
			b.WriteString(c.Choices[0].Text)
			pieces++
		}
	}
}

// profile takes a CPU profile of the server at address for some seconds and writes it to file.
func profile(t *testing.T, address, file string) {
	conn, err := net.DialTimeout("tcp", address, time.Minute)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /debug/pprof/profile?seconds=4 HTTP/1.0\r\n\r\n")
	data, err := io.ReadAll(conn)
	if err != nil {
		t.Error(err)
		return
	}
	_, data, _ = bytes.Cut(data, []byte("\r\n\r\n"))
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Error(err)
	}
}
