package scheduler

import (
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// served sums up the tokens of each tenant as the caller sees them: sampled tokens, and
// uncached prompt tokens from endings.
type served struct {
	b      *bed
	tokens map[string]int
	charge map[RequestID]string // tenant of each request
}

func newServed(b *bed) *served {
	return &served{b: b, tokens: map[string]int{}, charge: map[RequestID]string{}}
}

func (s *served) request(req Request) {
	s.b.request(req)
	s.charge[req.ID] = req.Tenant
}

// step runs one plan and reports how many requests of each tenant ended.
func (s *served) step() map[string]int {
	over := map[string]int{}
	for _, o := range s.b.step() {
		tenant := s.charge[o.Request]
		if o.Sampled {
			s.tokens[tenant]++
		}
		if o.Final {
			s.tokens[tenant] += o.Ending.PromptTokens - o.Ending.CachedTokens
			over[tenant]++
		}
	}
	return over
}

// unlike returns a prompt of n tokens that shares nothing with the prompt of another id.
func unlike(id RequestID, n int) []kv.Token {
	p := seq(int(id)*7, n)
	p[0], p[1] = kv.Token(id%97), kv.Token(id/97%97)
	return p
}

// TestDLPMKeepsDebts checks that a tenant that sends its next large request when the last
// has ended is served no more than one that always has many waiting.
func TestDLPMKeepsDebts(t *testing.T) {
	for _, slots := range []int{1, 4} {
		const quantum, large, small, output = 40, 150, 20, 2
		b := newBed(t, Config{Policy: DLPM, MaxRunning: slots, Quantum: quantum, DisableCache: true, StepTokens: 256}, 4, 400)
		s := newServed(b)
		id := RequestID(0)
		next := func(tenant string, n int) {
			id++
			s.request(Request{ID: id, Tenant: tenant, Prompt: unlike(id, n), MaxTokens: output})
		}
		for range 16 {
			next("many", small)
		}
		next("one", large)
		bound := 2 * (quantum + large + slots*output)
		for range 600 {
			over := s.step()
			for range over["many"] {
				next("many", small)
			}
			for range over["one"] {
				next("one", large)
			}
			if lead := s.tokens["one"] - s.tokens["many"]; lead > bound {
				t.Fatalf("%d slots: the tenant with one request open was served %d tokens, the other one %d: want at most %d apart",
					slots, s.tokens["one"], s.tokens["many"], bound)
			}
		}
		if s.tokens["one"] < s.tokens["many"]/20 {
			t.Errorf("%d slots: the tenant with one request open was served %d tokens, the other one %d", slots, s.tokens["one"], s.tokens["many"])
		}
	}
}

// TestDLPMServesTenantsWithOneRequestAtATime checks that a tenant that sends one request at a time,
// each smaller than a round, is served as much as one that always has many waiting, with
// cached prompts.
func TestDLPMServesTenantsWithOneRequestAtATime(t *testing.T) {
	const quantum, prompt, output = 400, 20, 2
	b := newBed(t, Config{Policy: DLPM, MaxRunning: 1, Quantum: quantum, Aging: 1 << 20}, 4, 100)
	s := newServed(b)
	id := RequestID(0)
	many := func() {
		id++
		s.request(Request{ID: id, Tenant: "many", Prompt: append(seq(30, 40), unlike(id, prompt)...), MaxTokens: output})
	}
	one := func() {
		id++
		s.request(Request{ID: id, Tenant: "one", Prompt: unlike(id, prompt), MaxTokens: output})
	}
	for range 16 {
		many()
	}
	one()
	bound := 2 * (quantum + 60 + output)
	for range 2000 {
		over := s.step()
		for range over["many"] {
			many()
		}
		for range over["one"] {
			one()
		}
		if apart := s.tokens["many"] - s.tokens["one"]; apart > bound || -apart > bound {
			t.Fatalf("the tenant with one request open was served %d tokens, the other one %d: want at most %d apart",
				s.tokens["one"], s.tokens["many"], bound)
		}
	}
}

// debtor returns a bed in which tenant "a" has a debt: it was served one large request.
func debtor(t *testing.T, cfg Config) *bed {
	t.Helper()
	cfg.Policy, cfg.MaxRunning, cfg.Quantum, cfg.DisableCache = DLPM, 1, 2, true
	b := newBed(t, cfg, 4, 100)
	b.request(Request{ID: 1, Tenant: "a", Prompt: unlike(1, 50)})
	b.run()
	return b
}

// ahead reports whether a request of "a" is served before a larger one of "b", as it is if
// "a" has no debt.
func ahead(b *bed) bool {
	b.request(Request{ID: 2, Tenant: "a", Prompt: unlike(2, 9)})
	b.request(Request{ID: 3, Tenant: "b", Prompt: unlike(3, 10)})
	for {
		for _, o := range b.step() {
			if o.Final {
				return o.Request == 2
			}
		}
	}
}

func TestDebtAge(t *testing.T) {
	for age, forgotten := range map[time.Duration]bool{time.Minute - 1: true, time.Minute: false, time.Minute + 1: false} {
		b := debtor(t, Config{DebtAge: age})
		b.now += time.Minute - time.Millisecond // request adds one more
		if ahead(b) != forgotten {
			t.Errorf("DebtAge %v: a debt of a minute, forgotten %v", age, !forgotten)
		}
	}
	if b := debtor(t, Config{DebtAge: -1}); !ahead(b) {
		t.Error("a negative DebtAge remembers")
	}
}

// TestMaxDebtors checks that beyond MaxDebtors the smallest debt is forgotten.
func TestMaxDebtors(t *testing.T) {
	for most := 1; most <= 3; most++ {
		b := debtor(t, Config{MaxDebtors: most})
		for i, name := range []string{"c", "d"} {
			b.request(Request{ID: RequestID(10 + i), Tenant: name, Prompt: unlike(RequestID(10+i), 60+10*i)})
			b.run()
		}
		if n := len(b.s.Tenants()); n != most {
			t.Errorf("MaxDebtors %d: %d accounts are kept", most, n)
		}
		if first := b.s.Tenants()[0]; (first.Tenant == "a") != (most == 3) || first.Deficit >= 0 {
			t.Errorf("MaxDebtors %d: %+v", most, first)
		}
	}
}

// TestBalancedAccountsAreClosed checks that an account without debt or credit is closed.
func TestBalancedAccountsAreClosed(t *testing.T) {
	b := debtor(t, Config{})
	for id := RequestID(10); id < 20; id++ {
		b.request(Request{ID: id, Tenant: "b", Prompt: unlike(id, 20)})
	}
	b.run()
	if u := b.s.Tenants(); len(u) != 1 || u[0].Tenant != "b" {
		t.Errorf("accounts %+v", u)
	}
}

// TestAbortedIsChargedAsComputed checks that prompt tokens of an admitted request that
// were not computed are refunded to its tenant.
func TestAbortedIsChargedAsComputed(t *testing.T) {
	b := newBed(t, Config{Policy: DLPM, StepTokens: 8}, 4, 100)
	b.request(Request{ID: 1, Tenant: "a", Prompt: unlike(1, 50)})
	b.step()
	if u := b.s.Tenants(); u[0].ServedTokens != 50 {
		t.Errorf("at admission %+v", u)
	}
	out := b.s.Abort(b.now, 1, nil, nil)
	if e := out[0].Ending; e.ComputedTokens != 8 || e.PromptTokens != 50 || e.CachedTokens != 0 {
		t.Errorf("bill %+v", e)
	}
	if u := b.s.Tenants(); len(u) != 1 || u[0].ServedTokens != 8 || u[0].Deficit != 2048-8 {
		t.Errorf("in the end %+v", u)
	}
}
