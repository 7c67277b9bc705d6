package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestServePriority checks that the flags of priority reach the scheduler. One request runs
// and one waits. A third of higher priority displaces the second; it is below the threshold,
// so it does not preempt the first. A fourth above the threshold does.
func TestServePriority(t *testing.T) {
	w := startCoppice(t, "worker", "serve", "--addr", "127.0.0.1:0", "--backend", "sim", "--profile", "h200", "--no-page", "--policy", "priority",
		"--max-running", "1", "--max-queued", "1", "--displace", "--preempt-threshold", "5", "--prompt-floor", "64")
	type answered struct {
		status int
		body   string
	}
	ask := func(priority, tokens int) <-chan answered {
		done := make(chan answered, 1)
		go func() {
			body := fmt.Sprintf(`{"prompt":"x","max_tokens":%d,"ignore_eos":true,"coppice":{"priority":%d}}`, tokens, priority)
			res, err := asker.Post(w.url+"/v1/completions", "application/json", strings.NewReader(body))
			if err != nil {
				done <- answered{body: err.Error()}
				return
			}
			defer res.Body.Close()
			text, _ := io.ReadAll(res.Body)
			done <- answered{res.StatusCode, string(text)}
		}()
		return done
	}
	have := func(running, waiting int) {
		t.Helper()
		until(t, "requests", func() string {
			f := w.figures()
			if f["coppice_num_requests_running"] == running && f["coppice_num_requests_waiting"] == waiting {
				return ""
			}
			return fmt.Sprintf("%d run and %d wait, want %d and %d", f["coppice_num_requests_running"], f["coppice_num_requests_waiting"], running, waiting)
		})
	}
	ask(0, 100_000)
	have(1, 0)
	second := ask(0, 1)
	have(1, 1)
	ask(4, 100_000)
	if a := <-second; a.status != http.StatusTooManyRequests || !strings.Contains(a.body, `"displaced"`) {
		t.Errorf("the one that was displaced: %d %s", a.status, a.body)
	}
	if f := w.figures(); f["coppice_num_preemptions_total"] != 0 || f["coppice_requests_displaced_total"] != 1 {
		t.Errorf("%d preemptions and %d displaced, want 0 and 1", f["coppice_num_preemptions_total"], f["coppice_requests_displaced_total"])
	}
	if a := <-ask(5, 1); a.status != http.StatusOK {
		t.Errorf("the one above the threshold: %d %s", a.status, a.body)
	}
	if f := w.figures(); f["coppice_num_preemptions_total"] != 1 {
		t.Errorf("%d preemptions, want 1", f["coppice_num_preemptions_total"])
	}
	w.kill()
}
