package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
)

// TestTokenizeIsARequest: /tokenize and /detokenize count against MaxRequests, refuse long
// bodies before processing them, and accept more tokens than the model has positions.
func TestTokenizeIsARequest(t *testing.T) {
	b := start(t, setup{Node: coppice.Config{MaxRequests: 1}, Server: Config{MaxTokenizeBytes: 1 << 16}})
	long := fmt.Sprintf(`{"prompt":%q}`, strings.Repeat("What is light? ", 4000))
	var got struct {
		Count int
		Limit int `json:"max_model_len"`
	}
	b.ok(json.Unmarshal(b.do("POST", "/tokenize", long).body, &got))
	if want := len(b.tok.EncodePrompt(nil, strings.Repeat("What is light? ", 4000))); got.Count != want || got.Count <= got.Limit {
		t.Errorf("%d tokens, want %d, of a model with %d positions", got.Count, want, got.Limit)
	}
	over := fmt.Sprintf(`{"prompt":%q}`, strings.Repeat("x", 1<<16))
	for path, body := range map[string]string{"/tokenize": over, "/detokenize": `{"tokens":[` + strings.Repeat("1,", 1<<15) + `1]}`} {
		if a := b.refused("POST", path, body, 413, "body_too_large"); !strings.Contains(string(a.body), "65536 bytes") {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	leave, err := b.node.Enter()
	b.ok(err)
	for path, body := range map[string]string{"/tokenize": `{"prompt":"x"}`, "/detokenize": `{"tokens":[1]}`, "/v1/completions": `{"prompt":"x"}`} {
		b.refused("POST", path, body, 429, "server_busy")
	}
	leave()
	b.ask("/detokenize", `{"tokens":[1]}`)
	b.quiet()
}

// TestTokenizeUnread: clients that request long answers and do not read them cost little memory.
func TestTokenizeUnread(t *testing.T) {
	b := start(t, setup{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	body := `{"return_token_strs":true,"prompt":"` + strings.Repeat("7.", 1<<18) + `"}`
	for range 24 {
		conn, err := net.Dial("tcp", b.address)
		b.ok(err)
		defer conn.Close()
		b.ok(conn.(*net.TCPConn).SetReadBuffer(4096))
		_, err = io.WriteString(conn, strings.Replace(post(len(body), body), "/v1/completions", "/tokenize", 1))
		b.ok(err)
		first := make([]byte, 12) // the answer has begun
		_, err = io.ReadFull(conn, first)
		b.ok(err)
		if string(first) != "HTTP/1.1 200" {
			t.Errorf("%s", first)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	// A token takes 4 bytes; the body's memory is released once it has been read.
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 24*(8<<20) {
		t.Errorf("%d bytes of heap for 24 answers", grown)
	}
}
