package scheduler

import (
	"github.com/coppice-llm/coppice/internal/enum"
)

// Policy orders the waiting requests.
type Policy uint8

// The policies. Cached and un-cached tokens are those of a request's prompt; work
// is the tokens that the device has computed. Under all but FCFS and DLPM,
// Config.OldestEvery bounds the waiting; under LPM and DLPM also Config.Aging.
const (
	// FCFS serves in order of arrival.
	FCFS Policy = iota
	// LPM serves the longest cached prefix first (SGLang's lpm), so that what is
	// cached is used before it is evicted. Waiting counts as cached tokens.
	LPM
	// DFSWeight goes depth first through the prefix tree, subtrees for which most
	// requests wait first (SGLang's dfs-weight).
	DFSWeight
	// LOF serves the longest output limit first (SGLang's lof).
	LOF
	// HRRN serves the highest response ratio next: work since arrival over
	// un-cached tokens (Brinch Hansen 1971; over un-cached tokens in SGLang's hrrn).
	HRRN
	// Random serves in an order that Config.Seed and the ID give.
	Random
	// Priority serves the highest Request.Priority first, equal ones by arrival, and
	// a waiting request may take the place of a running one of lower priority.
	Priority
	// DLPM is deficit longest prefix match: LPM among tenants that have some of their
	// share left, charged by un-cached prompt and output tokens (Cao et al. 2025,
	// "Locality-aware Fair Scheduling in LLM Serving"). While a tenant has a waiting
	// request that could be admitted (it follows no prompt in flight, waits for no fetch,
	// is below the tenant's limit, is not among long prompts that wait for others, and
	// fits), no other tenant of equal weight is served more than it by more than
	//
	//	2·(Quantum + P + R·O)
	//
	// tokens, with P the longest un-cached prompt, R the most samples that one tenant
	// runs at a time and O the longest output; so two that both wait all the time
	// differ by no more. The other tenant may do what it likes: have many requests
	// open or one at a time, come and go. With weights it is tokens per weight, and
	// 2·Quantum plus P + R·O of each by its weight. What a request has computed when it
	// is given up or fails is counted, and no more; a tenant whose admitted prompt was
	// not computed for that is promised nothing for the turn that it lost. Debts are
	// remembered within MaxDebtors and DebtAge.
	DLPM
)

var policyNames = enum.New[Policy]("scheduler", "policy", "fcfs", "lpm", "dfs-weight", "lof", "hrrn", "random", "priority", "dlpm")

// Policies are all of them.
func Policies() []Policy { return policyNames.Values() }

// usesMatches reports whether the order depends on what is cached.
func (p Policy) usesMatches() bool {
	return p == LPM || p == DFSWeight || p == HRRN || p == DLPM
}

func (p Policy) String() string { return policyNames.Name(p) }

// UnmarshalText reads a policy's name.
func (p *Policy) UnmarshalText(text []byte) error { return policyNames.Read(p, text) }
