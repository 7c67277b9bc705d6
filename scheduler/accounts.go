package scheduler

import (
	"math"
	"time"

	"github.com/coppice-llm/coppice/internal/heap"
	"github.com/coppice-llm/coppice/scheduler/internal/planted"
)

// accounts are the tenants. Under DLPM each tenant has a position: the tokens that it was
// charged, on a line divided into rounds of w·r tokens, where r is half a quantum and w its
// weight. Among the tenants that could be served now, one in the lowest round goes next.
// The highest round chosen so far is the current one.
//
// A tenant without open requests keeps two things. It keeps its debt, which is the part of
// its position beyond the current round, for Config.DebtAge; and it keeps at most one round
// of its credit. Both rules matter to a tenant that sends its next request when the last
// has ended: without the first it would escape its debt each time, without the second it
// would lose its turn each time. A tenant that was away for long is served at most one
// round ahead of the others.
//
// For example, with Quantum 4096 and weight 1 a round is 2,048 tokens. In round 5 a new
// tenant starts at (5-1)·2048 = 8,192. A tenant at 3,000 tokens is lifted to 8,192; a
// tenant at 20,000 is in round 9 and waits until no other tenant has a lower round.
//
// The proof of DLPM's promise: take a time during which the tenant f is choosable
// throughout, and let g be any other tenant. With round the current round, w the weights,
// and over = P + R·O, which is the most by which a position may pass the end of its round
// (a prompt, and the outputs of R samples):
//
//	position(f) at the start ≤ w(f)·(round + r) + over(f)
//	position(g) at the start ≥ w(g)·(round − r), or it is lifted there
//	position(g) at the end   ≤ w(g)/w(f)·position(f) at the end + w(g)·r + over(g)
//
// Here round is in tokens. Subtract, and divide by the weights: g was served at most 3r +
// over(f)/w(f) + over(g)/w(g) more than f per weight. With r half a quantum that is less
// than the promised 2·Quantum plus the same.
type accounts struct {
	cfg     *Config
	known   map[string]*tenant // by name: open, or resting
	resting resting            // subset of known, without open requests
	round   int64              // the current one
	fault   planted.Fault
}

func newAccounts(cfg *Config) accounts {
	return accounts{cfg: cfg, known: make(map[string]*tenant)}
}

// start returns the position at which a new account of t would begin: without debt, and
// with the full credit of one round.
func (a *accounts) start(t *tenant) int64 { return max(a.round-1, 0) * t.share }

// lift removes the part of a tenant's credit beyond one round.
func (a *accounts) lift(t *tenant) {
	if a.fault != planted.KeepCredit {
		t.position = max(t.position, a.start(t))
	}
}

// left returns how many tokens t may still be charged before it passes the end of the
// current round; negative if t is beyond it. Under policies other than DLPM it returns 0.
func (a *accounts) left(t *tenant) int64 {
	if a.cfg.Policy != DLPM {
		return 0
	}
	return (a.round+1)*t.share - max(t.position, a.start(t))
}

// find returns the account of the tenant name, to count a request in it, and makes the
// account if there is none. If the tenant had no open request, and for longer than DebtAge,
// its debt is forgiven.
func (a *accounts) find(now time.Duration, name string) *tenant {
	t := a.known[name]
	if t == nil {
		t = &tenant{name: name, cfg: a.cfg.tenantConfig(name)}
		t.share = int64(t.cfg.Weight) * int64((a.cfg.Quantum+1)/2)
		t.position = a.start(t)
		a.known[name] = t
		return t
	}
	if t.restAt > 0 {
		a.resting.take(t.restAt - 1)
		if now-t.rests > a.cfg.DebtAge {
			t.position = min(t.position, a.start(t))
		}
	}
	return t
}

// rest is called when a sample of t has ended. If t has no open request left, its account
// is closed; under DLPM it is kept as long as its position is beyond that of a new account.
// If more than MaxDebtors accounts are kept, those with the lowest evenAt are closed first.
func (a *accounts) rest(now time.Duration, t *tenant) {
	if t.open > 0 {
		return
	}
	if a.cfg.Policy != DLPM || a.fault == planted.ForgiveDebts {
		delete(a.known, t.name)
		return
	}
	t.rests = now
	a.resting.Push(restPlaces{}, rested{t.evenAt(), t})
	for n := len(a.resting.Items); n > a.cfg.MaxDebtors || n > 0 && a.even(a.resting.Items[0].t); n-- {
		delete(a.known, a.resting.take(0).name)
	}
}

// even reports whether t's position is at or below that of a new account, so that closing
// the account changes nothing.
func (a *accounts) even(t *tenant) bool {
	return t.position <= a.start(t) && a.fault != planted.KeepCredit
}

// never is a round that no tenant reaches.
const never = math.MaxInt64

// resting are the accounts without open requests, in a heap by evenAt.
type resting struct{ heap.Heap[rested, restPlaces] }

// rested is an account in the heap of resting, with its key evenAt. Accounts with equal
// keys are ordered by name.
type rested struct {
	evenAt int64
	t      *tenant
}

// Before implements heap.Element.
func (a rested) Before(b rested) bool {
	return a.evenAt < b.evenAt || a.evenAt == b.evenAt && a.t.name < b.t.name
}

// restPlaces tells tenants their place in the heap.
type restPlaces struct{}

// Place implements heap.Places.
func (restPlaces) Place(x rested, at int) { x.t.restAt = at + 1 }

// take removes the account at index at of the heap and returns it.
func (r *resting) take(at int) *tenant {
	t := r.Remove(restPlaces{}, at).t
	t.restAt = 0
	return t
}

// evenAt returns the first round that begins at or beyond the tenant's position: once it is
// current, a new account would have no lower position. With 2,048 tokens a round, evenAt of
// a position of 5,000 is 4, since the start is (4-1)·2048 = 6,144.
func (t *tenant) evenAt() int64 { return (t.position+t.share-1)/t.share + 1 }
