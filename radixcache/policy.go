package radixcache

import (
	"fmt"
	"strings"
)

// policies are the policies by number. Each has a file with its constant and its
// ranking; a new one adds its line here, with the next number. CONTRIBUTING.md has
// the recipe.
var policies = [...]struct {
	name string
	new  func(Config) ranking
}{
	LRU:       {"lru", newLRU},
	LFU:       {"lfu", newLFU},
	FIFO:      {"fifo", newFIFO},
	MRU:       {"mru", newMRU},
	SLRU:      {"slru", newSLRU},
	Priority:  {"priority", newPriority},
	CostAware: {"cost-aware", newCostAware},
}

// newRanking starts the policy of a valid configuration.
func newRanking(cfg Config) ranking { return policies[cfg.Policy].new(cfg) }

// known reports whether there is a policy of this number.
func (p Policy) known() bool { return int(p) < len(policies) }

// Policies lists all policies, in the order of their numbers.
func Policies() []Policy {
	all := make([]Policy, len(policies))
	for i := range all {
		all[i] = Policy(i)
	}
	return all
}

func (p Policy) String() string {
	if p.known() {
		return policies[p].name
	}
	return fmt.Sprintf("policy(%d)", uint8(p))
}

// UnmarshalText takes the names that String gives, in any case.
func (p *Policy) UnmarshalText(text []byte) error {
	var names []string
	for at, known := range policies {
		if strings.EqualFold(known.name, string(text)) {
			*p = Policy(at)
			return nil
		}
		names = append(names, known.name)
	}
	return fmt.Errorf("radixcache: unknown policy %q, want %s", text, strings.Join(names, ", "))
}
