package schedtest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/coppice-llm/coppice/scheduler"
)

// scriptConfig parses the scheduler's fields of an init.
func scriptConfig(a *args, pages int) (scheduler.Config, error) {
	cfg := scheduler.Config{
		StepTokens: a.number("step-tokens", 0), AttentionTokens: a.number("attention-tokens", 0),
		MaxRunning: a.number("max-running", 0), MaxQueued: a.number("max-queued", 0), MaxSamples: a.number("max-samples", 0),
		MaxPrefilling: a.number("max-prefilling", 0), MaxInflight: a.number("max-inflight", 0),
		DefaultMaxTokens: a.number("default-max-tokens", 0), ShareTokens: a.number("share-tokens", 0),
		MaxBypass: a.number("max-bypass", 0), OldestEvery: a.number("oldest-every", 0), Aging: a.number("aging", 0),
		Quantum: a.number("quantum", 0), Tenant: scheduler.TenantConfig{MaxQueued: a.number("tenant-queued", 0), MaxRunning: a.number("tenant-running", 0)},
		PromptFloor: a.number("prompt-floor", 0), PreemptThreshold: a.number("preempt-threshold", 0), Displace: a.has("displace"),
		BlockTokens: a.number("block-tokens", 0), DisableCache: a.has("disable-cache"), Events: a.has("events"),
	}
	cfg.LeaseLowPages, cfg.LeaseBulkPages, cfg.LeaseHighPages = pages, pages, pages
	marks := []*int{&cfg.LeaseLowPages, &cfg.LeaseBulkPages, &cfg.LeaseHighPages}
	if lease := a.values("lease"); lease != nil {
		if len(lease) != len(marks) {
			a.fail("lease: want (low, bulk, high)")
		}
		for i := range min(len(lease), len(marks)) {
			n, err := strconv.Atoi(lease[i])
			if err != nil {
				a.fail("lease: want (low, bulk, high)")
			}
			*marks[i] = n
		}
	}
	err := cfg.Policy.UnmarshalText([]byte(a.text("policy", "fcfs")))
	return cfg, err
}

// scriptRequest parses the other fields of a request. Times are relative to now.
func (s *Script) scriptRequest(req *scheduler.Request, a *args) {
	req.Tenant, req.Class = a.text("tenant", ""), a.text("class", "")
	req.Priority, req.Samples, req.Timeline = int32(a.number("priority", 0)), a.number("samples", 0), a.has("timeline")
	if d := a.duration("deadline"); d > 0 {
		req.Deadline = s.rig.clock.Now() + d
	}
	req.QueueTimeout = a.duration("queue-timeout")
}

// expire ends the requests past their deadline.
func (s *Script) expire(a *args) (string, error) {
	if err := a.done(); err != nil {
		return "", err
	}
	s.rig.expire()
	return s.told(), nil
}

// why shows the reason that each sample of a request waits.
func (s *Script) why(a *args) (string, error) {
	id := scheduler.RequestID(a.number("id", 0))
	if err := a.done(); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, w := range s.rig.sched.Why(id) {
		fmt.Fprintf(&b, "%v\n", w)
	}
	if b.Len() == 0 {
		return "", errors.New("no such request is open")
	}
	return b.String(), nil
}

// tenants shows the requests and shares of each tenant.
func (s *Script) tenants(a *args) (string, error) {
	if err := a.done(); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, t := range s.rig.sched.Tenants() {
		fmt.Fprintf(&b, "%q: %d waiting, %d running, %d tokens served, %d left\n", t.Tenant, t.Waiting, t.Running, t.ServedTokens, t.Deficit)
	}
	return b.String(), nil
}
