package view

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

func sampled(t testing.TB, nodes int) *State {
	t.Helper()
	src := &fake{tree: grown(nodes, 3)}
	src.stats.Scheduler.Waiting, src.stats.Scheduler.PoolPages = 2, 100
	src.stats.Scheduler.PromptTokens, src.stats.Scheduler.CachedTokens = 3, 1
	f := NewFeed(Config{Source: src, Model: "m\"<&>\u2028", Version: "1", Text: func(tokens []kv.Token) string {
		return strings.Repeat("a\n\t\"\\<é\u2029\x01\x7f日", len(tokens)/8)
	}})
	t.Cleanup(func() { f.Close() })
	f.Observe(Observation{TTFT: 123456789, ITL: 1234567})
	f.Finish(Finished{Tenant: "acme", Reason: "stop", PromptTokens: 1, TTFTMillis: 1.5})
	s := newSampler(f)
	s.sample(t.Context())
	snap := *s.sample(t.Context())
	snap.Tenants = append(snap.Tenants, Tenant{Tenant: "acme", Running: 1})
	return &snap
}

// TestStateInJSON: decoding a state gives what was encoded.
func TestStateInJSON(t *testing.T) {
	snap := sampled(t, 300)
	if len(snap.Running) != 1 || len(snap.Waiting) != 2 || len(snap.Tree.Shown) != 300 || snap.Curve == nil || len(snap.History.AtMillis) != 2 {
		t.Fatalf("%+v", snap)
	}
	text, err := snap.encode(false)
	if err != nil {
		t.Fatal(err)
	}
	var back State
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if again, _ := json.Marshal(&back); !bytes.Equal(again, text) {
		t.Errorf("written again it is %s, want %s", again, text)
	}
}

func TestRedactedHidesOthers(t *testing.T) {
	snap := sampled(t, 300)
	text, err := snap.encode(true)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte("acme")) || bytes.Contains(text, []byte(`"text":`)) || bytes.Contains(text, []byte(`"text_total"`)) || bytes.Contains(text, []byte("日")) || bytes.Contains(text, []byte(`"start"`)) {
		t.Errorf("%s", text)
	}
	var back State
	if err := json.Unmarshal(text, &back); err != nil || !back.Server.Redacted || len(back.Tree.Shown)+len(back.Running)+len(back.Waiting)+len(back.Finished) != 0 || back.Tree.Nodes != snap.Tree.Nodes || back.Totals.PromptTokens != snap.Totals.PromptTokens {
		t.Errorf("%v, %+v", err, back)
	}
	if snap.Running[0].Tenant != "acme" || snap.Finished[0].Tenant != "acme" || snap.Server.Redacted {
		t.Error("the state was written to")
	}
}

func TestFigures(t *testing.T) {
	for f, want := range map[Figure]string{0: "0", 0.25: "0.25", 1e6: "1000000", Figure(math.Inf(1)): "null"} {
		if got, err := json.Marshal(f); err != nil || string(got) != want {
			t.Errorf("%v is %s, %v, want %s", float64(f), got, err, want)
		}
	}
	var f Figure
	if err := json.Unmarshal([]byte("null"), &f); err != nil || f.Known() {
		t.Errorf("null is %v, %v", f, err)
	}
	if err := json.Unmarshal([]byte(`"x"`), &f); err == nil {
		t.Error(`"x" is a number`)
	}
}
