package scheduler

import (
	"github.com/coppice-llm/coppice/internal/enum"
)

// Policy orders the waiting requests.
type Policy uint8

// The policies. Cached and uncached tokens are those of a request's prompt; work is the
// number of tokens that the device has computed. Under all policies except FCFS and DLPM,
// Config.OldestEvery bounds the wait of any request; under LPM and DLPM, Config.Aging does
// too.
const (
	// FCFS serves in order of arrival.
	FCFS Policy = iota
	// LPM serves the longest cached prefix first (SGLang: lpm), so that cached prefixes
	// are used before they are evicted. Waiting time counts as cached tokens, see
	// Config.Aging.
	LPM
	// DFSWeight goes depth first through the prefix tree, and visits first the subtrees
	// for which most requests wait (SGLang: dfs-weight).
	DFSWeight
	// LOF serves the longest output limit first (SGLang: lof).
	LOF
	// HRRN serves the highest response ratio: work since arrival over uncached tokens
	// (Brinch Hansen 1971; SGLang: hrrn).
	HRRN
	// Random serves in an order that Config.Seed and the request's ID determine.
	Random
	// Priority serves the highest Request.Priority first, then by arrival. A waiting
	// request may preempt a running one of lower priority, see Config.PreemptThreshold.
	Priority
	// DLPM is deficit longest prefix match: LPM among the tenants that have some of their
	// share left, charged by uncached prompt tokens and output tokens (Cao et al. 2025,
	// "Locality-aware Fair Scheduling in LLM Serving").
	//
	// The promise: take any time throughout which a tenant has an admissible request. Another
	// tenant of equal weight is served at most
	//
	//	2·(Quantum + P + R·O)
	//
	// tokens more than that tenant in this time, where P is the longest uncached prompt, R
	// the most samples that one tenant runs at a time, and O the longest output. A request
	// is admissible unless it follows a prompt in flight, waits for a fetch, meets its
	// tenant's limit, is a long prompt that waits for other long prompts, or does not fit.
	// Two tenants that both wait all the time differ by no more than that.
	//
	// The other tenant may do anything: have many requests open or one at a time, come and
	// go. With weights, count tokens per weight: 2·Quantum, plus P + R·O of each tenant
	// divided by its weight. A request that is aborted or fails is charged for the tokens
	// that it computed and no others. A tenant whose admitted prompt was not computed for
	// that reason is promised nothing for the turn that it lost. Debts are remembered
	// within MaxDebtors and DebtAge.
	DLPM
)

var policyNames = enum.New[Policy]("scheduler", "policy", "fcfs", "lpm", "dfs-weight", "lof", "hrrn", "random", "priority", "dlpm")

// Policies returns all policies.
func Policies() []Policy { return policyNames.Values() }

// usesMatches reports whether the order of waiting requests under p depends on how much of
// each prompt is cached.
func (p Policy) usesMatches() bool {
	return p == LPM || p == DFSWeight || p == HRRN || p == DLPM
}

func (p Policy) String() string { return policyNames.Name(p) }

// UnmarshalText sets p from a policy's name, such as "lpm". It fails for an unknown name.
func (p *Policy) UnmarshalText(text []byte) error { return policyNames.Read(p, text) }
