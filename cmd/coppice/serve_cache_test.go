package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestServeEviction checks, in a pool with room for two prompts, that flags and file decide
// which prompts are still cached when they are repeated.
func TestServeEviction(t *testing.T) {
	t.Parallel()
	quota := filepath.Join(t.TempDir(), "coppice.json")
	if err := os.WriteFile(quota, []byte(`{"tenants": {"default": {"cache-tokens": 32}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		asks string // prompts
		want int    // cached tokens of the last one, in whole pages
	}{
		{nil, "abaca", 64},
		{[]string{"--eviction", "fifo"}, "abaca", 16},
		{[]string{"--eviction", "slru", "--slru-hits", "2"}, "aaabbca", 64},
		{[]string{"--cache-ttl", "1ns"}, "aa", 0},
		{[]string{"--config", quota, "--api-key", "long-enough"}, "aba", 0},
	} {
		ask, end := serveCommand(t, tc.args...)
		got := 0
		for _, first := range tc.asks {
			got = ask(int(first))
		}
		if got/16*16 != tc.want {
			t.Errorf("%q: after %s %d tokens are cached, want %d", tc.args, tc.asks, got, tc.want)
		}
		end()
	}
}

// serveCommand starts coppice serve on a small simulated pool. ask sends a prompt of 65
// tokens and returns the number of cached ones.
func serveCommand(t *testing.T, args ...string) (ask func(first int) int, end func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"serve", "--addr", "127.0.0.1:0", "--backend", "sim", "--kv-tokens", "176", "--no-page"}, args...)...)
	cmd.Env = append(os.Environ(), "COPPICE_TEST_MAIN=1")
	out, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	lines, url := bufio.NewReader(out), ""
	for seen := ""; url == ""; {
		line, err := lines.ReadString('\n')
		if seen += line; err != nil {
			t.Fatalf("%v after %s", err, seen)
		}
		if m := serverGreets.FindStringSubmatch(line); m != nil {
			url = m[1] + "/v1/completions"
		}
	}
	ask = func(first int) int {
		t.Helper()
		tokens := make([]int, 65)
		for i := range tokens {
			tokens[i] = (first+i)%50 + 10
		}
		body, _ := json.Marshal(map[string]any{"prompt": tokens, "max_tokens": 1, "ignore_eos": true})
		req, err := http.NewRequest("POST", url, strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer long-enough")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var answer struct {
			Usage struct {
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		text, err := io.ReadAll(res.Body)
		if err == nil {
			err = json.Unmarshal(text, &answer)
		}
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("%s: %v: %s", res.Status, err, text)
		}
		return answer.Usage.Details.Cached
	}
	return ask, func() {
		t.Helper()
		http.DefaultClient.CloseIdleConnections()
		err := cmd.Process.Signal(syscall.SIGTERM)
		rest, _ := io.ReadAll(lines)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, rest)
		}
		if err != nil {
			t.Error(fmt.Errorf("ending the server: %w", err))
		}
	}
}
