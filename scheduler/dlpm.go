package scheduler

import "github.com/coppice-llm/coppice/scheduler/internal/accounts"

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
const DLPM Policy = 7

var dlpm = policy{
	name:     "dlpm",
	about:    "lpm with fair shares of tenants",
	byCache:  true,
	byTenant: true,
	fair:     true,
	order: func(cfg *Config, tenants *accounts.Accounts) ordering {
		tenants.KeepRounds()
		return &dlpmOrdering{lpmOrdering: newLPM(cfg), tenants: tenants, skipped: accounts.Never}
	},
}

// dlpmOrdering is LPM within the lowest round of tenants. It is fair without the oldest's turn,
// which would break the promise to other tenants.
type dlpmOrdering struct {
	lpmOrdering
	tenants *accounts.Accounts
	skipped int64 // within a pass: lowest round of the tenants that did not fit
}

// best takes, among the tenants of the lowest round, the best sequence in the order of LPM. If a
// sequence whose tenant is in a lower round did not fit in this pass, best returns nil rather than a
// sequence of a later round: otherwise others would get rounds ahead of a tenant whose request is
// large.
func (o *dlpmOrdering) best(w *queue, _ uint64) (best *sequence) {
	lowest := o.skipped
	for _, l := range w.lanes {
		if !w.closed(l) {
			o.tenants.Lift(l.key.tenant)
			lowest = min(lowest, l.key.tenant.Round())
		}
	}
	if lowest == accounts.Never {
		return nil
	}
	for _, l := range w.lanes {
		if w.closed(l) {
			continue
		}
		if q := l.head(); l.key.tenant.Round() == lowest && (best == nil || q.outranks(best)) {
			best = q
		}
	}
	return best
}

// tries makes the round of q's tenant the current one, if it is a later one. best does not, since a
// look ahead must not end the credit of tenants that it passes.
func (o *dlpmOrdering) tries(q *sequence) { o.tenants.Reach(q.group.tenant.Round()) }

// passes sets o.owed to the lowest round among the tenants of the waiting sequences in unfit, to
// accounts.Never if there are none.
func (o *dlpmOrdering) passes(unfit []*sequence) {
	o.skipped = accounts.Never
	for _, q := range unfit {
		if q.place == waiting {
			o.skipped = min(o.skipped, q.group.tenant.Round())
		}
	}
}

// hasTurn reports whether no tenant in a lower round than that of q could be served. A tenant that
// is more than one round below the current one counts as if it were one round below.
func (o *dlpmOrdering) hasTurn(w *queue, q *sequence) bool {
	for _, l := range w.lanes {
		if !w.closed(l) && max(l.key.tenant.Round(), o.tenants.Round()-1) < q.group.tenant.Round() {
			return false
		}
	}
	return true
}
