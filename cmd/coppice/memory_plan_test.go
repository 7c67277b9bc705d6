package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// TestPlanMemory checks how the memory is divided.
func TestPlanMemory(t *testing.T) {
	const mib = 1 << 20
	for _, tc := range []struct {
		name                            string
		limit, heap, mapped, live, body int64
		wantHeap, wantRequests          int64
		tight                           bool
	}{
		{name: "nothing known", body: 8 * mib, wantRequests: unknownRequests},
		{name: "a small group", limit: 512 * mib, mapped: 64 * mib, live: 8 * mib, body: 8 * mib, wantHeap: 384 * mib, wantRequests: (376*mib - 47*mib - 376*mib/32) / 2},
		{name: "a large machine", limit: 64 << 30, mapped: 8 << 30, body: 8 * mib, wantHeap: 52<<30 - 32*mib, wantRequests: (52<<30 - 32*mib - mostFormats - 64*mib) / 2},
		{name: "a pool larger than the memory", limit: 512 * mib, mapped: 1 << 30, live: 8 * mib, body: 8 * mib, wantHeap: 64 * mib, wantRequests: 32 * mib, tight: true},
		{name: "GOMEMLIMIT", limit: 64 << 30, heap: 100 * mib, mapped: 8 << 30, live: 4 * mib, body: mib, wantHeap: 100 * mib, wantRequests: 38 * mib},
		{name: "a heap that is full", limit: 512 * mib, live: 600 * mib, body: mib, wantHeap: 448 * mib, wantRequests: 4 * mib, tight: true},
	} {
		p := planMemory(tc.limit, tc.heap, tc.mapped, tc.live, tc.body, 64*mib, 0)
		if p.Heap != tc.wantHeap || p.Requests != tc.wantRequests || p.Tight != tc.tight {
			t.Errorf("%s: %+v, want heap %d and requests %d", tc.name, p, tc.wantHeap, tc.wantRequests)
		}
	}
}

// TestPlanStored: stored responses get a 32nd of the free heap, at most what is asked for, and requests have that much less.
func TestPlanStored(t *testing.T) {
	const mib = 1 << 20
	for most, want := range map[int64]int64{64 * mib: 376 * mib / 32, 5 * mib: 5 * mib, 0: 0} {
		without, p := planMemory(512*mib, 0, 64*mib, 8*mib, mib, 0, 0), planMemory(512*mib, 0, 64*mib, 8*mib, mib, 0, most)
		if p.Stored != want || p.Requests != without.Requests-want/2 {
			t.Errorf("at most %d: %+v, without %+v", most, p, without)
		}
	}
}

func TestMaxMemoryRefused(t *testing.T) {
	for _, command := range []string{"serve", "route --worker http://a:1"} {
		args := strings.Fields(command)
		refused(t, []string{"--max-memory is 1MiB, want at least 64MiB"}, append(args, "--max-memory", "1MiB")...)
		refused(t, []string{"--max-bodies is 1MiB, want --max-body (8MiB)"}, append(args, "--max-bodies", "1MiB")...)
	}
}

// TestServeMemory: 24 long texts at once, which the memory has no room for together, are answered one
// after the other, and the process stays small.
func TestServeMemory(t *testing.T) {
	p := startCoppice(t, "small", "serve", "--addr", "127.0.0.1:0", "--no-page", "--max-memory", "256MiB")
	// The server finds "prompt" in this spelling only after it has read all.
	body := []byte(`{"max_tokens":1,"pr\u006fmpt":"` + strings.Repeat("a", 4<<20) + `"}`)
	statuses := postAtOnce(t, p.url+"/v1/completions", body, 24)
	if statuses["400"] == 0 || statuses["400"]+statuses["503"] != 24 {
		t.Errorf("answers: %v", statuses)
	}
	if status, text := p.completes(`{"prompt":"x","max_tokens":1}`); status != http.StatusOK {
		t.Errorf("afterwards: %d %s", status, text)
	}
	if most, ok := peakBytes(t, p.cmd.Process.Pid); ok && most > 320<<20 {
		t.Errorf("the process took %d bytes", most)
	}
}

// postAtOnce posts body n times at once and returns how many answers have which status. An answer that is
// no error, or a 503 without Retry-After, counts under its status and text.
func postAtOnce(t *testing.T, url string, body []byte, n int) map[string]int {
	var all sync.WaitGroup
	var mu sync.Mutex
	statuses := map[string]int{}
	for range n {
		all.Go(func() {
			res, err := asker.Post(url, "application/json", bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			if err != nil {
				t.Error(err)
			}
			outcome := fmt.Sprint(res.StatusCode)
			if res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("Retry-After") == "" || !strings.Contains(string(text), `"error"`) {
				outcome += " " + string(text)
			}
			mu.Lock()
			defer mu.Unlock()
			statuses[outcome]++
		})
	}
	all.Wait()
	return statuses
}

// peakBytes returns the largest resident memory that a process has had; false where it is unknown, or is
// that of the race detector.
func peakBytes(t *testing.T, pid int) (int64, bool) {
	t.Helper()
	n := numberAfter(os.DirFS("/proc/"+strconv.Itoa(pid)), "status", "VmHWM:") << 10
	t.Logf("%d bytes at the most", n)
	return n, n > 0 && !raceEnabled
}
