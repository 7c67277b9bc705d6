package main

import (
	"encoding/json"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestBenchPeers checks that two servers of one model get the same prompts and report the
// same token counts.
func TestBenchPeers(t *testing.T) {
	t.Parallel()
	dir := nano(t)
	one := startCoppice(t, "one", "serve", "--addr", "127.0.0.1:0", "--model", dir)
	two := startCoppice(t, "two", "serve", "--addr", "127.0.0.1:0", "--model", dir)
	args := []string{"bench", "peers", "--url", one.url, "--against", two.url, "--scale", "16", "--rounds", "2", "--loads", "alone,prefix,conversations"}
	if _, err := os.Stat("/proc/self/status"); err == nil {
		args = append(args, "--pid", strconv.Itoa(one.cmd.Process.Pid), "--peer-pid", strconv.Itoa(two.cmd.Process.Pid))
	}
	stdout, stderr, ok := command(t, append(args, "--json")...)
	if !ok {
		t.Fatal(stderr)
	}
	var got struct{ Loads []peerLoad }
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || len(got.Loads) != 3 {
		t.Fatalf("%v: %s", err, stdout)
	}
	for _, l := range got.Loads {
		if l.URL.PromptTokens == 0 || l.URL.PromptTokens != l.Peer.PromptTokens || l.URL.Failed+l.Peer.Failed != 0 || l.URL.TokensPerS == 0 || l.Ratios["prompt_tokens"] != 1 {
			t.Errorf("%+v", l)
		}
		if l.Load != "alone" && (l.URL.CachedTokens == 0 || l.Peer.CachedTokens == 0) {
			t.Errorf("%s: nothing cached: %+v", l.Load, l)
		}
		if len(args) > 12 && !(l.URL.ResidentMB > 1 && l.Peer.ResidentMB > 1) {
			t.Errorf("%s: memory %v and %v MB", l.Load, l.URL.ResidentMB, l.Peer.ResidentMB)
		}
	}
	table, stderr, ok := command(t, append(args[:len(args):len(args)], "--loads", "alone")...)
	for _, want := range []string{"TTFT p50 ms", "output tokens/s", "ratio", "alone"} {
		if !ok || !strings.Contains(table, want) {
			t.Errorf("no %q in %s %s", want, table, stderr)
		}
	}
	refused(t, []string{"no load \"x\"", "conversations"}, "bench", "peers", "--against", two.url, "--loads", "x")
	refused(t, []string{"--rounds is 0"}, "bench", "peers", "--against", two.url, "--rounds", "0")
	refused(t, []string{"--against", "coppice serve"}, "bench", "peers", "--url", one.url, "--against", "http://127.0.0.1:1")
}

func TestMedians(t *testing.T) {
	m := medians([]peerFigures{{TTFTMedianMS: 3, Failed: 1}, {TTFTMedianMS: 1}, {TTFTMedianMS: 2, ResidentMB: math.Inf(1)}})
	if m.TTFTMedianMS != 2 || m.Failed != 0 || m.ResidentMB != 0 {
		t.Errorf("%+v", m)
	}
}
