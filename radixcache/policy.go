package radixcache

import (
	"bytes"

	"github.com/coppice-llm/coppice/internal/enum"
)

// policyNames and rankings list the policies by number. Each has a file with its constant
// and its ranking. A new policy adds itself to both lists, with the next number.
// CONTRIBUTING.md has the recipe.
var (
	policyNames = enum.New[Policy]("radixcache", "policy", "lru", "lfu", "fifo", "mru", "slru", "priority", "cost-aware", "session")
	rankings    = [...]func(Config) ranking{newLRU, newLFU, newFIFO, newMRU, newSLRU, newPriority, newCostAware, newSession}
)

// Policies returns all policies, in the order of their numbers.
func Policies() []Policy { return policyNames.Values() }

// String returns the policy's name, as flags take it, such as "cost-aware".
func (p Policy) String() string { return policyNames.Name(p) }

// UnmarshalText accepts the names that String returns, in upper or lower case. The
// error for any other text lists them.
func (p *Policy) UnmarshalText(text []byte) error { return policyNames.Read(p, bytes.ToLower(text)) }
