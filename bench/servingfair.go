package bench

import "github.com/coppice-llm/coppice/scheduler"

// fairness measures how evenly tenants are served while they wait. A tenant is
// backlogged between two calls of look if it has waiting requests at both calls. The
// service of a tenant is counted in tokens: the un-cached tokens of a prompt, at first
// admission, and the tokens of its answer.
//
// difference is the largest gap between the service of two tenants over any period in
// which both were backlogged throughout.
//
// Jain's index (Jain, Chiu, Hawe 1984) is over the shares that the tenants received.
// Let x be a tenant's service while it and another tenant were backlogged, and e its
// equal share of the service of all backlogged tenants at these times. Then
//
//	J = (sum of e·(x/e))² / (sum of e · sum of e·(x/e)²) = sum of x / sum of x²/e
//
// with each share x/e weighted by e, so that a tenant that rarely waits counts little.
// J is 1 if all shares were equal, or if two tenants never waited at once; lower is
// less fair.
type fairness struct {
	index   map[string]int // tenant to its number
	now     []account      // by tenant, at the latest look
	was     []account      // scratch: the look before
	pairs   []pair         // of tenants i < j, at i*n+j
	got     []float64      // by tenant: x above
	equal   []float64      // by tenant: e above
	waiting []int          // scratch: backlogged tenants

	contended  int64 // tokens served to backlogged tenants while there were several
	difference int   // in tokens, between any two tenants
	running    int   // most requests of one tenant that ran at once
}

// account is the state of a tenant at one call of fairness.look.
type account struct {
	waits  bool
	served int64 // tokens so far
}

// pair is the range of tenant i's lead over tenant j, in tokens served, in the current
// period in which both are backlogged.
type pair struct {
	lasts    bool // the period has not ended; min and max are valid
	min, max int64
}

func newFairness(tenants []string) *fairness {
	n := len(tenants)
	f := &fairness{index: make(map[string]int, n), now: make([]account, n), was: make([]account, n), pairs: make([]pair, n*n), got: make([]float64, n), equal: make([]float64, n)}
	for i, name := range tenants {
		f.index[name] = i
	}
	return f
}

// look updates the accounts. Call it after every call of the scheduler that may admit,
// serve or end requests.
func (f *fairness) look(tenants []scheduler.TenantUsage) {
	was := f.now
	f.now, f.was = f.was, was
	clear(f.now)
	for _, u := range tenants {
		f.now[f.index[u.Tenant]] = account{u.Waiting > 0, int64(u.ServedTokens)}
		f.running = max(f.running, u.Running)
	}
	f.waiting = f.waiting[:0]
	total := int64(0)
	for i := range f.now {
		if was[i].waits && f.now[i].waits {
			f.waiting = append(f.waiting, i)
			total += f.now[i].served - was[i].served
		}
	}
	f.compare()
	if len(f.waiting) < 2 {
		return
	}
	f.contended += total
	for _, i := range f.waiting {
		f.got[i] += float64(f.now[i].served - was[i].served)
		f.equal[i] += float64(total) / float64(len(f.waiting))
	}
}

// compare updates the period of each pair of tenants. If one of the tenants is not backlogged, it
// ends the period; if both are backlogged for the first time, it begins a period; otherwise it
// extends the range of the lead, and f.difference if the range is larger.
func (f *fairness) compare() {
	n := len(f.now)
	for i := range n {
		for j := i + 1; j < n; j++ {
			p := &f.pairs[i*n+j]
			lead := f.now[i].served - f.now[j].served
			switch {
			case !f.now[i].waits || !f.now[j].waits:
				p.lasts = false
			case !p.lasts:
				*p = pair{true, lead, lead}
			default:
				p.min, p.max = min(p.min, lead), max(p.max, lead)
				f.difference = max(f.difference, int(p.max-p.min))
			}
		}
	}
}

// jain returns Jain's index, in (0, 1].
func (f *fairness) jain() float64 {
	sum, squares := 0.0, 0.0
	for i, x := range f.got {
		if f.equal[i] > 0 {
			sum += x
			squares += float64(x*x) / f.equal[i]
		}
	}
	if squares == 0 {
		return 1
	}
	return sum / squares
}
