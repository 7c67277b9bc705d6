package scheduler

import (
	"math"
	"time"

	"github.com/coppice-llm/coppice/internal/heap"
	"github.com/coppice-llm/coppice/internal/scheduler/planted"
)

// accounts are the tenants. Under DLPM each has a position on a line of rounds: what
// it was charged, a round being half a quantum times its weight. Of the tenants that
// could be served now, those with the lowest round are served. The round of the
// latest choice is the current one.
//
// A tenant that had nothing to be served keeps its debt, which is the part of its
// position beyond the current round, for Config.DebtAge; and of its credit no more
// than one round. So a tenant that sends its next request when the last has ended
// neither escapes what it was served nor loses its turn for having been away for a
// moment, and a tenant that was away for long is served at most one round ahead of
// the others.
//
// Of any two tenants f and g, with f choosable all the time (see choosable) and g
// doing what it likes, with r the round in tokens, w the weights and
// over = P + R·O, which is what a position may pass the end of a round by:
//
//	position(f) at the start ≤ w(f)·(round + r) + over(f)
//	position(g) at the start ≥ w(g)·(round − r), or it is lifted there
//	position(g) at the end   ≤ w(g)/w(f)·position(f) at the end + w(g)·r + over(g)
//
// hence g was served, per weight, at most 3r + over(f)/w(f) + over(g)/w(g) more than
// f. With r half a quantum that is within what DLPM promises.
type accounts struct {
	cfg     *Config
	known   map[string]*tenant
	resting resting
	round   int64
	fault   planted.Fault
}

func newAccounts(cfg *Config) accounts {
	return accounts{cfg: cfg, known: make(map[string]*tenant)}
}

// start is the position of a tenant without debt and with as much credit as there may be.
func (a *accounts) start(t *tenant) int64 { return max(a.round-1, 0) * t.share }

// lift takes away what credit a tenant has beyond that.
func (a *accounts) lift(t *tenant) {
	if a.fault != planted.KeepCredit {
		t.position = max(t.position, a.start(t))
	}
}

// left is what remains of the current round's share.
func (a *accounts) left(t *tenant) int64 {
	if a.cfg.Policy != DLPM {
		return 0
	}
	return (a.round+1)*t.share - max(t.position, a.start(t))
}

// find returns a tenant's account, a new one if there is none, for a request to be
// counted in.
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

// rest closes the account of a tenant without open requests, or keeps it while its
// position says anything. Of too many, those go that are the first to be even.
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

// even reports whether an account says no more than a new one.
func (a *accounts) even(t *tenant) bool {
	return t.position <= a.start(t) && a.fault != planted.KeepCredit
}

// never is a round that is not reached.
const never = math.MaxInt64

// resting are the accounts without open requests, those first whose credit and debt
// are gone first.
type resting struct{ heap.Heap[rested, restPlaces] }

// rested is an account by evenAt, equal ones by name.
type rested struct {
	evenAt int64
	t      *tenant
}

// Before implements heap.Element.
func (a rested) Before(b rested) bool {
	return a.evenAt < b.evenAt || a.evenAt == b.evenAt && a.t.name < b.t.name
}

type restPlaces struct{}

// Place implements heap.Places.
func (restPlaces) Place(x rested, at int) { x.t.restAt = at + 1 }

func (r *resting) take(at int) *tenant {
	t := r.Remove(restPlaces{}, at).t
	t.restAt = 0
	return t
}

// evenAt is the first round at which a tenant's position says no more than a new one's.
func (t *tenant) evenAt() int64 { return (t.position+t.share-1)/t.share + 1 }
