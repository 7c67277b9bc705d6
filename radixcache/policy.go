package radixcache

import (
	"bytes"

	"github.com/coppice-llm/coppice/internal/enum"
)

// policies lists the policies by number. Each has a file with its constant and its ranking. A
// new policy adds itself to the list. CONTRIBUTING.md has the recipe.
var policies = [...]policy{
	LRU:       {"lru", newLRU},
	LFU:       {"lfu", newLFU},
	FIFO:      {"fifo", newFIFO},
	MRU:       {"mru", newMRU},
	SLRU:      {"slru", newSLRU},
	Priority:  {"priority", newPriority},
	CostAware: {"cost-aware", newCostAware},
	Session:   {"session", newSession},
}

// policy describes a Policy.
type policy struct {
	name  string               // as flags take it
	ranks func(Config) ranking // makes the ranking of one cache
}

var policyNames = enum.New[Policy]("radixcache", "policy", namesOf(policies[:])...)

func namesOf(all []policy) (names []string) {
	for i := range all {
		names = append(names, all[i].name)
	}
	return names
}

// Policies returns all policies, in the order of their numbers.
func Policies() []Policy { return policyNames.Values() }

// String returns the policy's name, as flags take it, such as "cost-aware".
func (p Policy) String() string { return policyNames.Name(p) }

// UnmarshalText accepts the names that String returns, in upper or lower case. The
// error for any other text lists them.
func (p *Policy) UnmarshalText(text []byte) error { return policyNames.Read(p, bytes.ToLower(text)) }
