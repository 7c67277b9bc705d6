package scheduler

import "fmt"

// TenantConfig limits a tenant. The zero value sets no limit.
type TenantConfig struct {
	// MaxQueued and MaxRunning bound the tenant's waiting and running samples; 0 is no
	// limit besides those for all tenants.
	MaxQueued, MaxRunning int
	// Weight is the tenant's share under DLPM, in proportion to the weights of others.
	// Default 1.
	Weight int
}

// validate returns an error if a field of c is out of range. name says in the error which
// configuration c is, such as "Tenant".
func (c TenantConfig) validate(name string) error {
	if c.MaxQueued < 0 || c.MaxRunning < 0 || c.Weight < 0 || c.Weight > 1<<20 {
		return fmt.Errorf("scheduler: %s is %+v, want limits of 0 (none) or more and a weight of 0 (1) to %d", name, c, 1<<20)
	}
	return nil
}
