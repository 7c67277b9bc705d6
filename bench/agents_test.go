package bench

import (
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/internal/invariants"
)

// TestGenerateAgents checks that a trace of agents depends on its seed alone, comes in the order of time, and that
// a session's turns mostly continue each other.
func TestGenerateAgents(t *testing.T) {
	cfg := agentsConfig{Agents: 12, Requests: 400, Seed: 5}
	generate := func(cfg agentsConfig) *Trace {
		t.Helper()
		trace, err := generateAgents(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return trace
	}
	a, b := generate(cfg), generate(cfg)
	if !slices.EqualFunc(a.requests, b.requests, slices.Equal) || !slices.Equal(a.turns, b.turns) {
		t.Error("two traces of one seed differ")
	}
	cfg.Seed = 6
	if other := generate(cfg); slices.Equal(other.requests[0], a.requests[0]) {
		t.Error("two seeds give the same requests")
	}
	last, continued, turns := map[uint32]int{}, 0, 0
	for i, turn := range a.turns {
		if i > 0 && turn.At < a.turns[i-1].At {
			t.Fatalf("request %d comes at %v, the one before at %v", i, turn.At, a.turns[i-1].At)
		}
		if before, some := last[turn.Session]; some && turn.Session != 0 {
			turns++
			n := len(a.requests[before]) - 52 // without reasoning and answer
			if len(a.requests[i]) > n && slices.Equal(a.requests[i][:n], a.requests[before][:n]) {
				continued++
			}
		}
		last[turn.Session] = i
	}
	if turns < 200 || continued < turns*9/10 {
		t.Errorf("%d of %d turns continue the one before", continued, turns)
	}
	if _, err := generateAgents(agentsConfig{Agents: -1}); err == nil {
		t.Error("-1 agents are accepted")
	}
}

// TestSessionPolicyBeatsLRU checks on small traces of agents that the policy session computes less again than LRU
// where all that is current fits, and that random pauses cost it little.
func TestSessionPolicyBeatsLRU(t *testing.T) {
	if invariants.Enabled {
		t.Skip("a full walk after each of thousands of mutations takes minutes")
	}
	traces, err := Agents(1200, 7)
	if err != nil {
		t.Fatal(err)
	}
	table, err := ComparePolicies(t.Context(), traces, PolicyConfig{Policies: []string{"lru", "session"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, trace := range table.Traces {
		for _, c := range trace.Capacities {
			lru, session := &c.Policies[0], &c.Policies[1]
			t.Logf("%s at %v: %d of %d computed again, best %d", trace.Name, c.Share, session.Recomputed, lru.Recomputed, trace.IdealTokens-c.ClairvoyantTokens)
			if trace.Name == "agents-regular" && c.Share > 1 && session.Recomputed*10 > lru.Recomputed*6 {
				t.Errorf("%s at %v: %d tokens are computed again, LRU %d", trace.Name, c.Share, session.Recomputed, lru.Recomputed)
			}
			if trace.Name == "agents-random" && session.SavedTokens*100 < lru.SavedTokens*98 {
				t.Errorf("%s at %v: %d tokens are saved, by LRU %d", trace.Name, c.Share, session.SavedTokens, lru.SavedTokens)
			}
		}
	}
}
