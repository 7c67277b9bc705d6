package scheduler

import (
	"fmt"
	"time"
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

// tenant is an account: it has requests open, or its position still matters.
type tenant struct {
	name    string
	cfg     TenantConfig
	open    int
	waiting int
	running int
	served  uint64 // un-cached prompt and output tokens

	position int64 // under DLPM: tokens charged; each share of them is a round
	share    int64
	rests    time.Duration // when it last had nothing open any more
	restAt   int           // place in accounts.resting, plus 1; 0: none
}

func (t *tenant) atLimit() bool { return t.cfg.MaxRunning > 0 && t.running >= t.cfg.MaxRunning }

// serve charges tokens that were computed for the tenant, or are going to be;
// negative ones if they were not after all.
func (t *tenant) serve(tokens int) {
	t.served += uint64(tokens)
	t.position += int64(tokens)
}

// round is the one that the tenant's next token belongs to.
func (t *tenant) round() int64 { return t.position / t.share }
