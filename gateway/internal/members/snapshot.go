package members

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Snapshot describes the workers at one time. It never changes, so it is read without a lock.
type Snapshot struct {
	ByID   map[kv.WorkerID]*Member // workers that have answered and were not refused
	Served map[string]int          // by model: number of healthy workers that serve it
	LoRAs  map[string]bool         // models that are adapters
	// Tokens is, by model, the most tokens of prompt and output together that every worker of
	// the model takes. Workers whose limit is unknown do not count.
	Tokens  map[string]int
	Models  []string // ascending
	Longest int      // most prompt tokens that any worker takes; 0: the limit of some worker is unknown
	Plain   int      // workers that encode control tokens in messages as text
	Ready   int      // healthy workers
	Total   int      // workers in any state
}

// snapshotOf makes a snapshot of the joined members, given by ID in claims. total is the number
// of all members.
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
