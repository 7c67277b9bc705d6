package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/coppice-llm/coppice/engine/model/gguf"
)

// talk pipes input into coppice chat with these arguments, and returns what it printed and whether
// it succeeded.
func talk(t *testing.T, input string, args ...string) (stdout, stderr string, ok bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"chat", "--max-tokens", "12", "--temperature", "0"}, args...)...)
	cmd.Env = append(os.Environ(), "COPPICE_TEST_MAIN=1")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	err := cmd.Run()
	return out.String(), errs.String(), err == nil
}

var chatCached = regexp.MustCompile(`\[(\d+) prompt tokens, (\d+) of them cached \(\d+ %\); \d+ output tokens; first after`)

// cachedShares returns the cached share of the prompt of each turn, as printed.
func cachedShares(t *testing.T, stderr string) (shares []float64) {
	t.Helper()
	for _, m := range chatCached.FindAllStringSubmatch(stderr, -1) {
		prompt, _ := strconv.ParseFloat(m[1], 64)
		cached, _ := strconv.ParseFloat(m[2], 64)
		shares = append(shares, cached/prompt)
	}
	return shares
}

// TestChat checks that turns on a pipe give the same answers and the same cached shares in
// this process and over HTTP, and that commands work.
func TestChat(t *testing.T) {
	dir := nano(t)
	const input = "What is light, and of what colours?\nAnd what is shade\\\nin your opinion?\n\n/foo\n//bar\n/clear\nWhat is light, and of what colours?\n/system\n/system Be brief.\n/help\n/exit\nnot read\n"
	local, stderr, ok := talk(t, input, "--model", dir)
	if !ok {
		t.Fatal(stderr)
	}
	shares := cachedShares(t, stderr)
	if len(shares) != 4 || shares[0] != 0 || shares[1] < 0.4 || shares[2] < 0.5 || shares[3] < 0.9 {
		t.Errorf("cached shares %v: %s", shares, stderr)
	}
	for _, want := range []string{"nano; /help lists commands", "no command /foo", "a new conversation\n", `the system message is ""`, "with that system message", "/clear         start a new conversation"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("no %q in %s", want, stderr)
		}
	}
	if strings.Contains(local, "> ") || strings.Contains(local, "tokens") {
		t.Errorf("a pipe gets more than answers: %q", local)
	}
	server := startCoppice(t, "server", "serve", "--addr", "127.0.0.1:0", "--model", dir, "--api-key", "very-secret")
	remote, stderr, ok := talk(t, input, "--url", server.url, "--api-key", "very-secret")
	if !ok || remote != local {
		t.Errorf("over HTTP: %v %q, want %q: %s", ok, remote, local, stderr)
	}
	if shares := cachedShares(t, stderr); len(shares) != 4 || shares[1] < 0.4 || shares[3] < 0.9 {
		t.Errorf("over HTTP: cached shares %v: %s", shares, stderr)
	}
	long := strings.Repeat("light ", 3000) + "\nWhat is light?\n"
	if _, stderr, ok := talk(t, long, "--url", server.url, "--api-key", "very-secret"); !ok || !strings.Contains(stderr, "the server answers 400") || len(cachedShares(t, stderr)) != 1 {
		t.Errorf("a message that is too long over HTTP: %v %s", ok, stderr)
	}
	if _, stderr, ok := talk(t, long, "--model", dir); !ok || !strings.Contains(stderr, "too long") || len(cachedShares(t, stderr)) != 1 {
		t.Errorf("a message that is too long: %v %s", ok, stderr)
	}
}

func TestChatRefuses(t *testing.T) {
	refused(t, []string{"--url and --model"}, "chat", "--url", "http://127.0.0.1:1", "--model", "x")
	refused(t, []string{"--max-tokens is 0"}, "chat", "--max-tokens", "0")
	refused(t, []string{"coppice serve"}, "chat", "--url", "http://127.0.0.1:1")
}

// endless is a server whose answers never end.
func endless(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			io.WriteString(w, `{"data":[{"id":"endless"}]}`)
			return
		}
		io.Copy(io.Discard, r.Body)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, `data: {"choices":[{"delta":{"content":"on and on\n"}}]}`+"\n\n"); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestChatInterrupt checks that Ctrl-C stops the answer but not the conversation, and that it
// ends the program if no answer is being given.
func TestChatInterrupt(t *testing.T) {
	cmd := exec.Command(os.Args[0], "chat", "--url", endless(t))
	cmd.Env = append(os.Environ(), "COPPICE_TEST_MAIN=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	notes, answers := bufio.NewReader(errs), bufio.NewReader(out)
	until := func(r *bufio.Reader, want string) {
		t.Helper()
		for {
			line, err := r.ReadString('\n')
			if strings.Contains(line, want) {
				return
			}
			if err != nil {
				t.Fatalf("%v before %q", err, want)
			}
		}
	}
	fmt.Fprintln(in, "go on")
	until(answers, "on and on")
	go io.Copy(io.Discard, answers) // keeps the pipe from filling up
	cmd.Process.Signal(os.Interrupt)
	until(notes, "stopped")
	until(notes, "output tokens")
	fmt.Fprintln(in, "/clear")
	until(notes, "a new conversation")
	cmd.Process.Signal(syscall.SIGINT)
	until(notes, "interrupted")
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("%v, want status 130", err)
	}
}

// TestServeTakesACachedModel checks that without --model, serve and chat use a model of the
// cache that can be loaded, and name it.
func TestServeTakesACachedModel(t *testing.T) {
	testHub(t, "some/model-GGUF", map[string][]byte{"model-Q8_0.gguf": ggufBytes(t, gguf.Q8_0, 1), "broken-Q4_0.gguf": []byte("GGUF\x03\x00\x00\x00 and so on")})
	if _, stderr, ok := talk(t, "/exit\n"); !ok || !strings.Contains(stderr, "coppice-speak (no --model given: a small model speaks") || !strings.Contains(stderr, "coppice pull") {
		t.Errorf("chat without any model: %v %s", ok, stderr)
	}
	for _, file := range []string{"Q8_0", "broken-Q4_0.gguf"} {
		if _, stderr, ok := command(t, "pull", "some/model-GGUF:"+file); !ok {
			t.Fatal(stderr)
		}
	}
	if _, stderr, ok := talk(t, "/exit\n"); !ok || !strings.Contains(stderr, "model-Q8_0 (no --model given: using hf:some/model-GGUF:model-Q8_0.gguf from") {
		t.Errorf("chat: %v %s", ok, stderr)
	}
	server := startCoppice(t, "server", "serve", "--addr", "127.0.0.1:0")
	if said := server.said.String(); !strings.Contains(said, "serving model-Q8_0 on") || !strings.Contains(said, "using hf:some/model-GGUF:model-Q8_0.gguf from") {
		t.Error(said)
	}
	sim := startCoppice(t, "sim", "serve", "--addr", "127.0.0.1:0", "--backend", "sim")
	if said := sim.said.String(); !strings.Contains(said, "serving demo on") {
		t.Error(said)
	}
}
