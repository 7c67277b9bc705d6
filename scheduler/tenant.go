package scheduler

import (
	"fmt"
	"time"
)

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

// tenant is an account. It exists while the tenant has open requests, and under DLPM while
// its position differs from that of a new tenant.
type tenant struct {
	name    string
	cfg     TenantConfig
	open    int    // samples that have not ended
	waiting int    // of open, those in the queue
	running int    // of open, those with a slot
	served  uint64 // uncached prompt tokens and output tokens since the account was opened

	position int64         // under DLPM: tokens charged, on the line of rounds of accounts
	share    int64         // tokens per round: half a quantum times the weight
	rests    time.Duration // when open became 0
	restAt   int           // index in accounts.resting plus 1; 0: not resting
}

// atLimit reports whether the tenant runs as many samples as it may.
func (t *tenant) atLimit() bool { return t.cfg.MaxRunning > 0 && t.running >= t.cfg.MaxRunning }

// serve charges tokens that were computed for the tenant or will be. A negative number
// refunds tokens that were not computed after all.
func (t *tenant) serve(tokens int) {
	t.served += uint64(tokens)
	t.position += int64(tokens)
}

// round returns the number of the round in which the tenant's next token is charged.
func (t *tenant) round() int64 { return t.position / t.share }
