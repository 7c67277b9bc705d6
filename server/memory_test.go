package server

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine/sim"
)

// holds opens a connection with the header of a request whose body has that many bytes, and waits until
// the memory for it is reserved.
func (b *bed) holds(bytes int) net.Conn {
	b.Helper()
	conn, err := net.Dial("tcp", b.address)
	b.ok(err)
	b.Cleanup(func() { conn.Close() })
	before := b.srv.memory.Used()
	_, err = io.WriteString(conn, post(bytes, ""))
	b.ok(err)
	b.until(func(*coppice.Stats) bool { return b.srv.memory.Used() > before })
	return conn
}

// TestMemoryWaits: a body that does not fit the memory for open requests waits until another request
// has ended, and is answered then.
func TestMemoryWaits(t *testing.T) {
	b := start(t, setup{Node: coppice.Config{Memory: coppice.NewMemory(1 << 20)}, Server: Config{BusyWait: time.Hour}})
	first := b.holds(200_000)
	answered := make(chan received, 1)
	go func() {
		a, err := b.try(t.Context(), "POST", "/v1/completions", `{"prompt":"x","max_tokens":1}`+strings.Repeat(" ", 200_000))
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	b.ask("/v1/completions", `{"prompt":"x","max_tokens":1}`) // a small one passes
	select {
	case a := <-answered:
		t.Fatalf("answered with %s while another request has the memory", a.Status)
	default:
	}
	first.Close()
	if a := <-answered; a.StatusCode != 200 {
		t.Errorf("%s %s", a.Status, a.body)
	}
	b.until(func(*coppice.Stats) bool { return b.unused() == 0 })
}

// TestMemoryFull: a body that finds no room in time gets status 503 with Retry-After, of known length or
// not, and what was reserved is given back.
func TestMemoryFull(t *testing.T) {
	b := start(t, setup{Node: coppice.Config{Memory: coppice.NewMemory(1 << 20)}, Server: Config{BusyWait: time.Millisecond}})
	first := b.holds(200_000)
	body := `{"prompt":"x","max_tokens":1}` + strings.Repeat(" ", 400_000)
	if a := b.refused("POST", "/v1/completions", body, 503, "server_busy"); a.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	got := b.answered("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" +
		"61a80\r\n" + body[:400_000] + "\r\n0\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 503") || !strings.Contains(got, "server_busy") {
		t.Errorf("%.300q", got)
	}
	first.Close()
	b.until(func(*coppice.Stats) bool { return b.unused() == 0 })
	b.ask("/v1/completions", body)
}

// TestOutputsAreCharged: what an answer collects, and what a stream keeps, is charged. An output for
// which there is no room ends with an error.
func TestOutputsAreCharged(t *testing.T) {
	b := start(t, setup{
		Sim:  &sim.Config{Pages: 1 << 12, MaxSlots: 2, MaxRows: 2, MaxPositions: 1 << 16},
		Node: coppice.Config{Memory: coppice.NewMemory(64 << 10)},
	})
	b.refused("POST", "/v1/completions", `{"prompt":"x","max_tokens":60000,"ignore_eos":true}`, 413, "request_too_large")
	a := b.do("POST", "/v1/completions", `{"prompt":"x","max_tokens":60000,"ignore_eos":true,"stream":true}`)
	if !strings.Contains(string(a.body), "request_too_large") {
		t.Errorf("a stream of %d bytes ended without an error", len(a.body))
	}
	b.quiet()
	b.until(func(*coppice.Stats) bool { return b.unused() == 0 })
}

// TestLongTextIsRefusedEarly: a text that has more bytes than any prompt can have is refused as soon as that
// many bytes have arrived, although the body goes on. A text that could fit is read to its end.
func TestLongTextIsRefusedEarly(t *testing.T) {
	b := start(t, setup{Server: Config{ReadTimeout: time.Hour}})
	most := b.srv.policies.longest
	if most == 0 {
		t.Fatal("the tokenizer sets no bound")
	}
	conn, err := net.Dial("tcp", b.address)
	b.ok(err)
	defer conn.Close()
	_, err = io.WriteString(conn, post(most+1000, `{"prompt":"`+strings.Repeat("a", most+1)))
	b.ok(err)
	got := make([]byte, 4096)
	n, err := conn.Read(got)
	if text := string(got[:n]); err != nil || !strings.HasPrefix(text, "HTTP/1.1 400") || !strings.Contains(text, "context_length_exceeded") {
		t.Errorf("%v, %s", err, text)
	}
	for _, body := range []string{
		fmt.Sprintf(`{"pr\u006fmpt":%q}`, strings.Repeat("a", most+1)), // in a spelling that is not found early
		fmt.Sprintf(`{"prompt":%q}`, strings.Repeat("a", most)),
	} {
		b.refused("POST", "/v1/completions", body, 400, "context_length_exceeded")
	}
	b.until(func(*coppice.Stats) bool { return b.unused() == 0 })
}

// TestRefusedWhileSending: a client that reads no answer before it has sent its body gets the answer to a
// body that was refused early.
func TestRefusedWhileSending(t *testing.T) {
	b := start(t, setup{Node: coppice.Config{Memory: coppice.NewMemory(1 << 20)}, Server: Config{BusyWait: time.Millisecond}})
	held := b.holds(200_000)
	most := b.srv.policies.longest
	for _, tc := range []struct{ body, status, code string }{
		{`{"prompt":"` + strings.Repeat("a", 7<<20) + `"}`, "503", "server_busy"},
		{`{"prompt":"` + strings.Repeat("a", most+1) + `","user":"` + strings.Repeat("a", 6<<20) + `"}`, "400", "context_length_exceeded"},
	} {
		if tc.status == "400" {
			held.Close()
			b.until(func(*coppice.Stats) bool { return b.unused() == 0 })
		}
		conn, err := net.Dial("tcp", b.address)
		b.ok(err)
		if _, err = io.WriteString(conn, post(len(tc.body), tc.body)); err != nil {
			t.Errorf("%s: %v", tc.code, err)
		}
		got, err := io.ReadAll(conn)
		if text := string(got); err != nil || !strings.HasPrefix(text, "HTTP/1.1 "+tc.status) || !strings.Contains(text, tc.code) {
			t.Errorf("%v, %.300s", err, text)
		}
		conn.Close()
	}
}

// TestLongWord: the buffers for merging a text without a place to cut are charged. Without memory for them
// the request is refused.
func TestLongWord(t *testing.T) {
	for memory, status := range map[int64]int{8 << 20: 400, 64 << 20: 200} {
		b := start(t, setup{
			Sim:  &sim.Config{Pages: 1 << 15, MaxSlots: 2, MaxRows: 2, MaxPositions: 1 << 18},
			Node: coppice.Config{Memory: coppice.NewMemory(memory)},
		})
		word := strings.Repeat("the", 100_000)
		if tokens := len(b.tok.Encode(nil, word)); len(word) > b.srv.policies.longest || tokens >= 1<<18 {
			t.Fatalf("the word does not fit: %d tokens", tokens)
		}
		if a := b.do("POST", "/v1/completions", `{"prompt":"`+word+`","max_tokens":1}`); a.StatusCode != status {
			t.Errorf("with %d bytes: %s %.300s, want %d", memory, a.Status, a.body, status)
		}
		b.until(func(*coppice.Stats) bool { return b.unused() == 0 })
	}
}

// TestFormatsAreCharged: compiling a format takes memory for open requests, and gives it back.
func TestFormatsAreCharged(t *testing.T) {
	for memory, status := range map[int64]int{8 << 20: 400, 64 << 20: 200} {
		b := start(t, setup{Node: coppice.Config{Memory: coppice.NewMemory(memory)}})
		if a := b.do("POST", "/v1/completions", `{"prompt":"x","max_tokens":2,"guided_regex":"[a-z]+"}`); a.StatusCode != status {
			t.Errorf("with %d bytes: %s %.300s, want %d", memory, a.Status, a.body, status)
		}
		b.until(func(*coppice.Stats) bool { return b.unused() == 0 })
	}
}
