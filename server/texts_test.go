package server

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/internal/opticks"
)

// TestTurnsReuseTexts: the next turn of a chat encodes its new text, as /metrics shows, and nothing is reused with
// another cache salt or without the cache.
func TestTurnsReuseTexts(t *testing.T) {
	b := start(t, setup{})
	tokens := func(source string) int {
		t.Helper()
		m := regexp.MustCompile(`(?m)^coppice_text_tokens_total\{model_name="nano",source="` + source + `"\} (\d+)$`).FindStringSubmatch(b.metricsText())
		if m == nil {
			t.Fatalf("/metrics has no %s tokens", source)
		}
		n, _ := strconv.Atoi(m[1])
		return n
	}
	turn := func(bytes int, salt string) {
		b.ask("/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":1,"cache_salt":%q}`, opticks.Text()[:bytes], salt))
	}
	turn(3000, "a")
	if turn(3000, "b"); tokens("reused") != 0 {
		t.Errorf("%d tokens are reused with another salt", tokens("reused"))
	}
	encoded := tokens("encoded")
	turn(3200, "a")
	if fresh := tokens("encoded") - encoded; tokens("reused") == 0 || fresh*2 > encoded {
		t.Errorf("%d tokens are reused, and %d encoded for a turn of 200 bytes", tokens("reused"), fresh)
	}
	b = start(t, setup{Node: coppice.Config{TextBytes: -1}})
	for range 2 {
		turn(3000, "a")
	}
	if tokens("reused") != 0 || !strings.Contains(b.metricsText(), `coppice_text_cache_bytes{model_name="nano"} 0`) {
		t.Errorf("%d tokens are reused without a cache", tokens("reused"))
	}
}
