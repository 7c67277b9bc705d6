package scheduler

import (
	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/scheduler/internal/accounts"
)

// Policy orders the waiting requests. Cached and uncached tokens are those of a request's prompt;
// work is the number of tokens that the device has computed. Under a policy that Starves,
// Config.OldestEvery bounds the wait of any request; under LPM and DLPM, Config.Aging does too.
type Policy uint8

// policies lists the policies by number. Each has a file with its constant, its description and its
// ordering. A new policy adds itself to the list. CONTRIBUTING.md has the recipe.
var policies = [...]policy{
	FCFS:      fcfs,
	LPM:       lpm,
	DFSWeight: dfsWeight,
	LOF:       lof,
	HRRN:      hrrn,
	Random:    random,
	Priority:  priority,
	DLPM:      dlpm,
}

// policy describes a Policy.
type policy struct {
	name  string // as flags take it
	about string // for the help of flags, after the name; empty if the name says it
	// order makes the ordering of one queue.
	order func(cfg *Config, tenants *accounts.Accounts) ordering
	// byCache: the rank depends on cached tokens, so a sequence is ranked again when more of it is
	// cached.
	byCache bool
	// byTenant: each tenant has lanes of its own.
	byTenant bool
	// What the policy promises: see [Policy.Fair], [Policy.Starves] and [Policy.Preempts].
	fair, starves, preempts bool
}

// ordering is the implementation of a policy in one queue. It changes no sequence but its mark and
// its rank. An implementation embeds [plainOrdering], which has all methods but rank.
type ordering interface {
	// rank returns q's rank: of the sequences in a lane, the one with the lowest rank goes first,
	// and of equal ranks the oldest. A rank is set when q enters a lane, so it must not depend on
	// what changes while q waits, except q.wait.cached, with policy.byCache.
	rank(q *sequence) int64
	// class returns the class of q: sequences of different classes are in different lanes. An
	// ordering whose ranks can't compare all sequences gives those that they can one class, and
	// compares the heads of lanes in best.
	class(q *sequence) int
	// best returns the sequence to take next, nil if there is none: the head of a lane that is not
	// closed. work is Scheduler.work.
	best(w *queue, work uint64) *sequence
	// tries records that q, which best returned, is about to be tried.
	tries(q *sequence)
	// passes records the sequences that did not fit so far in a pass.
	passes(unfit []*sequence)
	// hasTurn reports whether no other sequence goes before q, so that pages may be kept for q.
	hasTurn(w *queue, q *sequence) bool
}

// plainOrdering implements all methods of an ordering but rank, for a policy that ranks alone
// decide.
type plainOrdering struct{}

func (plainOrdering) class(*sequence) int            { return 0 }
func (plainOrdering) tries(*sequence)                {}
func (plainOrdering) passes([]*sequence)             {}
func (plainOrdering) hasTurn(*queue, *sequence) bool { return true }
func (plainOrdering) best(w *queue, _ uint64) (best *sequence) {
	for _, l := range w.lanes {
		if w.closed(l) {
			continue
		}
		if q := l.head(); best == nil || q.outranks(best) {
			best = q
		}
	}
	return best
}

var policyNames = enum.New[Policy]("scheduler", "policy", namesOf(policies[:])...)

func namesOf(all []policy) (names []string) {
	for i := range all {
		names = append(names, all[i].name)
	}
	return names
}

// Policies returns all policies.
func Policies() []Policy { return policyNames.Values() }

// About describes p in a few words, for the help of a flag: its name, and for most policies in
// brackets what goes first. p must be one of Policies.
func (p Policy) About() string {
	if about := policies[p].about; about != "" {
		return policies[p].name + " (" + about + ")"
	}
	return policies[p].name
}

// Fair reports whether p shares the device fairly among tenants, as the bound at [DLPM] says. Package
// schedtest checks in random worlds what a policy promises by Fair, Starves and Preempts.
func (p Policy) Fair() bool { return policies[p].fair }

// Starves reports whether p itself would let newer requests overtake one without end, so that each
// Config.OldestEvery-th admission goes to the oldest. A policy that is neither fair nor starves serves
// in order of arrival.
func (p Policy) Starves() bool { return policies[p].starves }

// Preempts reports whether priorities order the queue and the prompts of a step, and a waiting request
// may preempt running ones of lower priority, see Config.PreemptThreshold.
func (p Policy) Preempts() bool { return policies[p].preempts }

func (p Policy) String() string { return policyNames.Name(p) }

// UnmarshalText sets p from a policy's name, such as "lpm". It fails for an unknown name.
func (p *Policy) UnmarshalText(text []byte) error { return policyNames.Read(p, text) }

// byPriority reports whether priorities order more than preemption for lack of pages.
func (c *Config) byPriority() bool { return c.Policy.Preempts() }
