package members

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Snapshot is who is there, to be read without a lock. It is never changed.
type Snapshot struct {
	ByID    map[kv.WorkerID]*Member // those that have answered and were not refused
	Served  map[string]int          // by model: healthy workers that serve it
	LoRAs   map[string]bool         // models that are adapters
	Tokens  map[string]int          // by model: prompt and output of a request, at the worker that takes least of those that say
	Models  []string                // ascending
	Longest int                     // tokens of a prompt that some worker may take; 0: one does not say
	Plain   int                     // workers that encode control tokens in messages as text
	Ready   int                     // healthy workers
	Total   int                     // workers, in whatever state
}

// snapshotOf is made of the members that have a number.
func snapshotOf(claims map[uint64]*Member, total int) *Snapshot {
	s := &Snapshot{ByID: map[kv.WorkerID]*Member{}, Served: map[string]int{}, LoRAs: map[string]bool{}, Tokens: map[string]int{}, Total: total}
	unlimited := false
	for id, m := range claims {
		s.ByID[kv.WorkerID(id)] = m
		m.mu.Lock()
		c, healthy := m.said.card, 0
		if m.state == Healthy {
			healthy = 1
		}
		for name, adapter := range m.said.loras {
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
