package scheduler

import (
	"cmp"
	"fmt"
	"slices"
)

// TenantConfig is what a tenant may have. The zero value sets no limit.
type TenantConfig struct {
	// MaxQueued and MaxRunning bound its waiting and its running samples; 0 for no
	// limit but those for all.
	MaxQueued, MaxRunning int
	// Weight is, under DLPM, its share in proportion to others'. Default 1.
	Weight int
}

func (c TenantConfig) validate(name string) error {
	if c.MaxQueued < 0 || c.MaxRunning < 0 || c.Weight < 0 || c.Weight > 1<<20 {
		return fmt.Errorf("scheduler: %s is %+v, want limits of 0 (none) or more and a weight of 0 (1) to %d", name, c, 1<<20)
	}
	return nil
}

// tenantConfig is that of one tenant.
func (c *Config) tenantConfig(name string) TenantConfig {
	t, special := c.Tenants[name]
	if !special {
		t = c.Tenant
	}
	t.Weight = max(t.Weight, 1)
	return t
}

// tenant is an account that has requests open.
type tenant struct {
	name    string
	cfg     TenantConfig
	open    int
	waiting int
	running int
	served  uint64 // un-cached prompt and output tokens
	deficit int64  // under DLPM: what is left of its share, negative if overdrawn
	round   uint64 // in which it last got a quantum
}

func (t *tenant) atLimit() bool { return t.cfg.MaxRunning > 0 && t.running >= t.cfg.MaxRunning }

// serve charges tokens that were computed for the tenant.
func (t *tenant) serve(tokens int) {
	t.served += uint64(tokens)
	t.deficit -= int64(tokens)
}

// tenantOf finds or opens an account.
func (s *Scheduler) tenantOf(name string) *tenant {
	t := s.tenants[name]
	if t == nil {
		t = &tenant{name: name, cfg: s.cfg.tenantConfig(name)}
		s.tenants[name] = t
	}
	return t
}

// closeTenant forgets an account without open requests. What it had left or owed
// is gone with it: a share is for those who wait.
func (s *Scheduler) closeTenant(t *tenant) {
	if t.open == 0 {
		delete(s.tenants, t.name)
	}
}

// TenantUsage is what one tenant has open, and what it was served since it last
// had nothing open.
type TenantUsage struct {
	Tenant           string
	Waiting, Running int
	ServedTokens     uint64 // un-cached prompt tokens at first admission, and output tokens
	Deficit          int64  // under DLPM: tokens left of its share, negative if overdrawn
}

// Tenants are those with requests open, by name.
func (s *Scheduler) Tenants() []TenantUsage {
	var all []TenantUsage
	for _, t := range s.tenants {
		all = append(all, TenantUsage{t.name, t.waiting, t.running, t.served, t.deficit})
	}
	slices.SortFunc(all, func(a, b TenantUsage) int { return cmp.Compare(a.Tenant, b.Tenant) })
	return all
}
