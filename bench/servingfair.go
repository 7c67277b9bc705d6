package bench

import "github.com/coppice-llm/coppice/scheduler"

// fairness watches what tenants are served while they wait. A tenant is backlogged
// from one look to the next if a request of it waits at both. Served are the
// un-cached tokens of prompts, at first admission, and the tokens of answers.
//
// The difference is the most by which what any two tenants were served, over any
// time in which both were backlogged all along, differs.
//
// Jain's index (Jain, Chiu, Hawe 1984) is over the shares that the tenants got:
// with x what one was served while it and another one were backlogged, and e the
// equal share of what all the backlogged ones were served at these times,
//
//	J = (sum of e·(x/e))² / (sum of e · sum of e·(x/e)²) = sum of x / sum of x²/e
//
// each share x/e weighted by e, so that who hardly ever waits hardly counts. It is
// 1 if everyone got an equal share, or if never two waited; lower is less fair.
type fairness struct {
	index   map[string]int
	now     []account
	was     []account // scratch
	pairs   []pair    // of tenants i < j, row by row
	got     []float64
	equal   []float64
	waiting []int // scratch: tenants that are backlogged

	contended  int64 // tokens that backlogged tenants were served while there were several
	difference int   // largest between any two
	running    int   // most samples that one tenant ran
}

// account is what is known of a tenant at the last look.
type account struct {
	waits  bool
	served int64
}

// pair is the range of one tenant's lead over the other while both are backlogged.
type pair struct {
	lasts    bool
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

// look takes account after a call that may have changed what waits or is served.
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

// compare goes on with the pairs that are both backlogged still.
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
