package schedtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// habit is the arrival pattern of a tenant in a fair world.
type habit uint8

const (
	openLoop habit = iota // at random times, regardless of earlier requests
	agent                 // the next one when the previous one has ended
	crowd                 // several at a time, a new one for each that has ended
	visitor               // several at once, then none for a while
)

var habitNames = [...]string{"open loop", "agent", "crowd", "visitor"}

// caller is a tenant of a fair world.
type caller struct {
	tenant  string
	habit   habit
	width   int           // concurrent requests of a crowd or a visitor
	gap     time.Duration // mean time between arrivals, or length of a pause
	stem    []kv.Token    // common prefix of its prompts; nil: none
	prompt  int           // maximum number of tokens after the stem
	output  int
	samples int
	aborts  int // one request in this number is aborted; 0: none

	open int
}

func (c *caller) String() string {
	return fmt.Sprintf("%q: %s of %d, %d+%d tokens, %d samples", c.tenant, habitNames[c.habit], c.width, len(c.stem), c.prompt, c.samples)
}

// fair makes a world of tenants with different habits under a policy that is fair. Half of the
// tenants have weights.
func (w *setup) fair(seed uint64) {
	rng := newStream(seed, "fair")
	c := &w.cfg
	c.Policy = pick(newStream(seed, "fair policy"), slices.DeleteFunc(scheduler.Policies(), func(p scheduler.Policy) bool { return !p.Fair() })...)
	c.Quantum, c.MaxQueued = pick(rng, 1, 8, 40, 200), 128
	c.MaxRunning, c.Tenant = rng.between(1, 8), scheduler.TenantConfig{}
	c.Tenants = map[string]scheduler.TenantConfig{}
	weighted := rng.one(2)
	most := max(2, w.largest/2)
	for i := range rng.between(2, 6) {
		t := caller{
			tenant: string(rune('a' + i)), habit: pick(rng, openLoop, agent, crowd, visitor),
			width: 1, prompt: rng.between(1, most), output: rng.between(1, max(1, w.largest/4)), samples: 1, aborts: pick(rng, 0, 0, 0, 4),
		}
		switch i { // at least one always has waiting requests, and one sends them one at a time
		case 0:
			t.habit = crowd
		case 1:
			t.habit = agent
		}
		steps := 0 // of the gap
		switch t.habit {
		case openLoop:
			steps = rng.between(1, 30)
		case agent:
			steps = pick(rng, 0, 0, 1, 10)
		case crowd:
			steps, t.width = pick(rng, 0, 0, 1, 10), rng.between(2, 10)
		case visitor:
			steps, t.width = rng.between(20, 200), rng.between(2, 40)
		}
		t.gap = w.stepTime * time.Duration(steps)
		if rng.one(2) {
			t.stem = make([]kv.Token, rng.between(1, most))
			for j := range t.stem {
				t.stem[j] = kv.Token(rng.IntN(3))
			}
			t.prompt = min(t.prompt, 8)
		}
		if rng.one(4) {
			t.samples = rng.between(2, 4)
		}
		if weighted {
			c.Tenants[t.tenant] = scheduler.TenantConfig{Weight: pick(rng, 1, 2, 5)}
		}
		w.callers = append(w.callers, &t)
	}
}

// callAll starts the tenants of a fair world.
func (w *world) callAll() {
	w.callerOf = map[*order]*caller{}
	for _, c := range w.setup.callers {
		w.note("%v", c)
		for range c.width {
			w.later(w.when.wait(c.gap), func() { w.call(c) })
		}
	}
}

// call sends one request of a tenant.
func (w *world) call(c *caller) {
	if w.over || w.lost != nil {
		return
	}
	if c.habit == openLoop {
		w.later(1+w.when.wait(c.gap), func() { w.call(c) })
	}
	req := w.load.next()
	req.Tenant, req.Samples, req.MaxTokens = c.tenant, c.samples, w.load.rng.between(1, c.output)
	req.StopTokens = nil
	req.Prompt = append(append([]kv.Token(nil), c.stem...), w.load.tokens(w.load.rng.between(1, c.prompt))...)
	if c.stem == nil {
		req.Prompt[0] = kv.Token(3 + w.load.rng.IntN(w.load.vocab-3))
	}
	req.Prompt = req.Prompt[:min(len(req.Prompt), max(1, w.setup.largest-req.MaxTokens))]
	o, err := w.send(req, c.aborts)
	if err != nil {
		if c.habit != openLoop {
			w.later(w.setup.stepTime+w.when.wait(c.gap), func() { w.call(c) })
		}
		return
	}
	c.open++
	w.callerOf[o] = c
}

// answered is called when the request o has ended. It schedules the next request of the
// tenant that sent o, if the tenant's habit is to wait for an ending.
func (w *world) answered(o *order) {
	c := w.callerOf[o]
	if c == nil {
		return
	}
	delete(w.callerOf, o)
	c.open--
	switch {
	case c.habit == agent || c.habit == crowd:
		w.later(w.when.wait(c.gap), func() { w.call(c) })
	case c.habit == visitor && c.open == 0:
		away := w.when.wait(c.gap)
		for range c.width {
			w.later(away, func() { w.call(c) })
		}
	}
}
