package members

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Snapshot describes the workers, to be read without a lock. It never changes.
type Snapshot struct {
	ByID   map[kv.WorkerID]*Member // workers that have answered and were not refused
	Served map[string]int          // by model: number of healthy workers that serve it
	LoRAs  map[string]bool         // models that are adapters
	// Tokens is by model the most prompt plus output tokens, at the worker with the smallest known limit.
	Tokens  map[string]int
	Models  []string // ascending
	Longest int      // most prompt tokens that any worker takes; 0: unknown for one of them
	Plain   int      // workers that encode control tokens in messages as text
	Ready   int      // healthy workers
	Total   int      // workers in any state
}

// snapshotOf makes a snapshot of the members with an ID.
func snapshotOf(claims map[uint64]*Member, total int) *Snapshot {
	s := &Snapshot{ByID: map[kv.WorkerID]*Member{}, Served: map[string]int{}, LoRAs: map[string]bool{}, Tokens: map[string]int{}, Total: total}
	unlimited := false
	for id, m := range claims {
		s.ByID[kv.WorkerID(id)] = m
		m.mu.Lock()
		c, healthy := m.description.card, 0
		if m.state == Healthy {
			healthy = 1
		}
		for name, adapter := range m.description.loras {
			s.LoRAs[name] = s.LoRAs[name] || adapter
		}
		m.mu.Unlock()
		s.Ready += healthy
		if c.ControlTokens == chat.Text.String() {
			s.Plain++
		}
		most := c.MaxModelTokens
		unlimited = unlimited || most <= 0
		s.Longest = max(s.Longest, most)
		for _, name := range c.Models {
			s.Served[name] += healthy
			if most > 0 && (s.Tokens[name] == 0 || most < s.Tokens[name]) {
				s.Tokens[name] = most
			}
		}
	}
	if unlimited {
		s.Longest = 0
	}
	for name := range s.Served {
		s.Models = append(s.Models, name)
	}
	slices.Sort(s.Models)
	return s
}
