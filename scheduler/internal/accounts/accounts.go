// Package accounts owns the accounts of tenants: the samples that each has open, the tokens that
// it was served, and under the policy DLPM its position on a line of rounds. It never chooses a
// sequence and knows none: the queue asks in which round a tenant is. The owner of the scheduler
// calls it.
package accounts

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/internal/heap"
	"github.com/coppice-llm/coppice/scheduler/internal/planted"
)

// Accounts are the tenants. With rounds, each tenant has a position: the tokens that it was
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
type Accounts struct {
	cfg     Config
	known   map[string]*Tenant // by name: open, or resting
	resting resting            // subset of known, without open requests
	round   int64              // the current one
	rounds  bool               // see KeepRounds
	fault   planted.Fault
}

// Config says how long accounts without open requests are kept.
type Config struct {
	// Quantum, MaxDebtors and DebtAge are those of scheduler.Config.
	Quantum, MaxDebtors int
	DebtAge             time.Duration
}

// New returns the accounts of no tenants.
func New(cfg Config) *Accounts {
	return &Accounts{cfg: cfg, known: make(map[string]*Tenant)}
}

// Plant puts a fault into a that package schedtest must find.
func (a *Accounts) Plant(fault planted.Fault) { a.fault = fault }

// KeepRounds turns rounds on, before the first account is made. Without them tenants have no
// positions, and an account is closed with its last sample.
func (a *Accounts) KeepRounds() { a.rounds = true }

// Known returns the account of a tenant, nil if there is none.
func (a *Accounts) Known(name string) *Tenant { return a.known[name] }

// All returns the accounts, sorted by name.
func (a *Accounts) All() []*Tenant {
	return slices.SortedFunc(maps.Values(a.known), func(x, y *Tenant) int { return cmp.Compare(x.Name, y.Name) })
}

// Round returns the number of the current round.
func (a *Accounts) Round() int64 { return a.round }

// Reach notes that a tenant in round n goes next: n is the current round if it is the highest.
func (a *Accounts) Reach(n int64) { a.round = max(a.round, n) }

// Admit charges t, at the first admission of a sample, for the prompt tokens that will be
// computed; cached is the number of the other ones. Charging tokens as they are computed would
// let a tenant have many prompts admitted in one pass before the first is counted.
func (a *Accounts) Admit(t *Tenant, computed, cached int) {
	t.Serve(computed)
	if a.fault == planted.ChargeCached {
		t.position += int64(cached)
	}
}

// start returns the position at which a new account of t would begin: without debt, and
// with the full credit of one round.
func (a *Accounts) start(t *Tenant) int64 { return max(a.round-1, 0) * t.share }

// Lift removes the part of a tenant's credit beyond one round.
func (a *Accounts) Lift(t *Tenant) {
	if a.fault != planted.KeepCredit {
		t.position = max(t.position, a.start(t))
	}
}

// Left returns how many tokens t may still be charged before it passes the end of the
// current round; negative if t is beyond it. Without rounds it returns 0.
func (a *Accounts) Left(t *Tenant) int64 {
	if !a.rounds {
		return 0
	}
	return (a.round+1)*t.share - max(t.position, a.start(t))
}

// Find returns the account of the tenant name, to count a request in it, and makes the
// account if there is none, with a weight of at least 1 and the most samples that it may run, 0
// for no limit. If the tenant had no open request, and for longer than DebtAge,
// its debt is forgiven.
func (a *Accounts) Find(now time.Duration, name string, weight, maxRunning int) *Tenant {
	t := a.known[name]
	if t == nil {
		t = &Tenant{Name: name, maxRunning: maxRunning, share: int64(weight) * int64((a.cfg.Quantum+1)/2)}
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

// Rest is called when a sample of t has ended. If t has no open request left, its account
// is closed; with rounds it is kept as long as its position is beyond that of a new account.
// If more than MaxDebtors accounts are kept, those with the lowest evenAt are closed first.
func (a *Accounts) Rest(now time.Duration, t *Tenant) {
	if t.Open > 0 {
		return
	}
	if !a.rounds || a.fault == planted.ForgiveDebts {
		delete(a.known, t.Name)
		return
	}
	t.rests = now
	a.resting.Push(restPlaces{}, rested{t.evenAt(), t})
	for n := len(a.resting.Items); n > a.cfg.MaxDebtors || n > 0 && a.even(a.resting.Items[0].t); n-- {
		delete(a.known, a.resting.take(0).Name)
	}
}

// even reports whether t's position is at or below that of a new account, so that closing
// the account changes nothing.
func (a *Accounts) even(t *Tenant) bool {
	return t.position <= a.start(t) && a.fault != planted.KeepCredit
}

// Tenant is an account. It exists while the tenant has open requests, and with rounds while
// its position differs from that of a new tenant. The caller counts the samples.
type Tenant struct {
	Name    string
	Open    int    // samples that have not ended
	Waiting int    // of Open, those in the queue
	Running int    // of Open, those with a slot
	Served  uint64 // uncached prompt tokens and output tokens since the account was opened

	maxRunning int           // 0: no limit
	position   int64         // with rounds: tokens charged, on the line of rounds of Accounts
	share      int64         // tokens per round: half a quantum times the weight
	rests      time.Duration // when Open became 0
	restAt     int           // index in Accounts.resting plus 1; 0: not resting
}

// Limited reports whether there is a limit to the samples that the tenant may run.
func (t *Tenant) Limited() bool { return t.maxRunning > 0 }

// AtLimit reports whether the tenant runs as many samples as it may.
func (t *Tenant) AtLimit() bool { return t.maxRunning > 0 && t.Running >= t.maxRunning }

// Serve charges tokens that were computed for the tenant or will be. A negative number
// refunds tokens that were not computed after all.
func (t *Tenant) Serve(tokens int) {
	t.Served += uint64(tokens)
	t.position += int64(tokens)
}

// Round returns the number of the round in which the tenant's next token is charged.
func (t *Tenant) Round() int64 { return t.position / t.share }

// Never is a round that no tenant reaches.
const Never = math.MaxInt64

// resting are the accounts without open requests, in a heap by evenAt.
type resting struct{ heap.Heap[rested, restPlaces] }

// rested is an account in the heap of resting, with its key evenAt. Accounts with equal
// keys are ordered by name.
type rested struct {
	evenAt int64
	t      *Tenant
}

// Before implements heap.Element.
func (a rested) Before(b rested) bool {
	return a.evenAt < b.evenAt || a.evenAt == b.evenAt && a.t.Name < b.t.Name
}

// restPlaces tells tenants their place in the heap.
type restPlaces struct{}

// Place implements heap.Places.
func (restPlaces) Place(x rested, at int) { x.t.restAt = at + 1 }

// take removes the account at index at of the heap and returns it.
func (r *resting) take(at int) *Tenant {
	t := r.Remove(restPlaces{}, at).t
	t.restAt = 0
	return t
}

// evenAt returns the first round that begins at or beyond the tenant's position: once it is
// current, a new account would have no lower position. With 2,048 tokens a round, evenAt of
// a position of 5,000 is 4, since the start is (4-1)·2048 = 6,144.
func (t *Tenant) evenAt() int64 { return (t.position+t.share-1)/t.share + 1 }

// Check checks that each has open requests or is in the heap of
// resting ones.
func (a *Accounts) Check() error {
	resting := 0
	for name, t := range a.known { // any order: only checks
		if t.Name != name || (t.Open > 0) != (t.restAt == 0) || t.Waiting+t.Running > t.Open {
			return fmt.Errorf("scheduler: tenant %q has %d samples open, %d waiting, %d running, and index %d in resting", name, t.Open, t.Waiting, t.Running, t.restAt)
		}
		if t.restAt > 0 {
			resting++
			if a.resting.Items[t.restAt-1].t != t {
				return fmt.Errorf("scheduler: tenant %q is not at index %d of resting", name, t.restAt)
			}
		}
	}
	if resting != len(a.resting.Items) || resting > a.cfg.MaxDebtors {
		return fmt.Errorf("scheduler: %d of %d accounts are resting, at most %d may be, %d are listed", resting, len(a.known), a.cfg.MaxDebtors, len(a.resting.Items))
	}
	return nil
}
