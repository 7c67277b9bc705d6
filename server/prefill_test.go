package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/server/view"
)

// TestPrefillIsShown: while long prompts are computed, the page and the API have their number, the tokens
// computed so far and the tokens left.
func TestPrefillIsShown(t *testing.T) {
	b, device := batteryBed(t)
	b.key = "secret-of-root"
	release := device.hold()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			body := fmt.Sprintf(`{"prompt":[%d%s],"max_tokens":1}`, 10+i, strings.Repeat(",5", 400))
			if a := b.do("POST", "/v1/completions", body); a.StatusCode != 200 {
				t.Errorf("%s %s", a.Status, a.body)
			}
		})
	}
	b.until(func(s *coppice.Stats) bool { return s.Scheduler.Prefilling > 0 && s.Scheduler.Requests == 8 })
	var page view.State
	b.ok(json.Unmarshal(b.do("GET", "/v1/view", "").body, &page))
	if tot := page.Totals; tot.Prefilling == 0 || tot.PrefillLeft == 0 || tot.PrefillTokens == 0 || tot.OutputTokens != 0 {
		t.Errorf("the page has %+v", tot)
	}
	var stats map[string]any
	b.ok(json.Unmarshal(b.do("GET", "/v1/cache/stats", "").body, &stats))
	if stats["prefilling"] == 0.0 || stats["prefill_left_tokens"] == 0.0 || stats["prefill_tokens"] == 0.0 {
		t.Errorf("the API has %v", stats)
	}
	release()
	wg.Wait()
	b.quiet()
	b.ok(json.Unmarshal(b.do("GET", "/v1/cache/stats", "").body, &stats))
	computed := stats["prompt_tokens"].(float64) - stats["cached_tokens"].(float64)
	if stats["prefilling"] != 0.0 || stats["prefill_left_tokens"] != 0.0 || stats["prefill_tokens"] != computed {
		t.Errorf("at the end the API has %v", stats)
	}
}
