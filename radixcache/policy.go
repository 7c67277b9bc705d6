package radixcache

import (
	"fmt"
	"strings"
)

// policies lists the policies by number. Each has a file with its constant and its
// ranking. A new policy adds its line here, with the next number. CONTRIBUTING.md has
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

// newRanking returns the ranking of a valid configuration's policy.
func newRanking(cfg Config) ranking { return policies[cfg.Policy].new(cfg) }

// known reports whether a policy of this number exists.
func (p Policy) known() bool { return int(p) < len(policies) }

// Policies returns all policies, in the order of their numbers.
func Policies() []Policy {
	all := make([]Policy, len(policies))
	for i := range all {
		all[i] = Policy(i)
	}
	return all
}

// String returns the policy's name, as flags take it, such as "cost-aware".
func (p Policy) String() string {
	if p.known() {
		return policies[p].name
	}
	return fmt.Sprintf("policy(%d)", uint8(p))
}

// UnmarshalText accepts the names that String returns, in upper or lower case. The
// error for any other text lists them.
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
