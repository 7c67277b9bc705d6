package scheduler

import (
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	device "github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
)

// timed is a scheduler on a simulated device whose Info may be wrong about its costs.
type timed struct {
	t     *testing.T
	clock *device.Clock
	b     *device.Backend
	s     *Scheduler
	out   []Output

	mixed  []time.Duration // durations of steps with decode rows and prompts
	alone  []int           // tokens of steps without decode rows
	firsts map[RequestID]time.Duration
}

func newTimed(t *testing.T, profile string, wrong float64, target time.Duration) *timed {
	t.Helper()
	p, err := device.ProfileByName(profile)
	if err != nil {
		t.Fatal(err)
	}
	w := &timed{t: t, clock: device.NewClock(), firsts: map[RequestID]time.Duration{}}
	w.b, err = device.Open(device.Config{Profile: p, Clock: w.clock, Pages: 8192, MaxSlots: 32, MaxRows: 32, MaxTokens: 4096})
	if err != nil {
		t.Fatal(err)
	}
	info := w.b.Info()
	for _, f := range []*float64{&info.Cost.Step, &info.Cost.Row, &info.Cost.Token, &info.Cost.Pair, &info.Cost.Context} {
		*f *= wrong
	}
	n := info.NumPages
	w.s, err = New(Config{StepTokens: 4096, ChunkTokens: 4096, ITLTarget: target, LeaseLowPages: n, LeaseBulkPages: n, LeaseHighPages: n}, info)
	if err != nil {
		t.Fatal(err)
	}
	pages := make([]kv.PageID, w.s.Want())
	for i := range pages {
		pages[i] = kv.PageID(i)
	}
	w.s.Grant(pages, 0)
	return w
}

func (w *timed) add(id RequestID, prompt, output int) {
	w.t.Helper()
	tokens := make([]kv.Token, prompt)
	for i := range tokens {
		tokens[i] = kv.Token((int(id)*7919 + i*i) % 128)
	}
	if err := w.s.Add(w.clock.Now(), Request{ID: id, Prompt: tokens, MaxTokens: output}); err != nil {
		w.t.Fatal(err)
	}
}

// step runs a step, and reports whether there was one.
func (w *timed) step() bool {
	w.t.Helper()
	p := w.s.Next(w.clock.Now())
	if p == nil {
		return false
	}
	decodes, prompts := 0, 0
	for i := range p.Batch.Rows {
		if r := &p.Batch.Rows[i]; r.Deferred {
			decodes++
		} else {
			prompts += r.Len()
		}
	}
	ticket, err := w.b.Submit(&p.Batch)
	if err != nil {
		w.t.Fatal(err)
	}
	for w.clock.Step() {
	}
	res, err := ticket.Result()
	if err != nil {
		w.t.Fatal(err)
	}
	switch {
	case decodes > 0 && prompts > 0:
		w.mixed = append(w.mixed, time.Duration(res.Stats.Nanos))
	case prompts > 0:
		w.alone = append(w.alone, prompts)
	}
	w.out = w.s.Complete(w.clock.Now(), p, res, w.out[:0])
	for _, o := range w.out {
		if _, ok := w.firsts[o.Request]; !ok && o.Sampled {
			w.firsts[o.Request] = w.clock.Now()
		}
	}
	return true
}

// TestStepsFitTheTarget checks that while sequences decode, steps with prompts keep the
// target, however wrong the backend is about its costs, and that prompts finish. Without a
// target the steps take several times as long; a prompt alone gets whole steps.
func TestStepsFitTheTarget(t *testing.T) {
	for _, c := range []struct {
		profile string
		target  time.Duration
		prompt  int
	}{{"h200", 25 * time.Millisecond, 12000}, {"cpu2", 300 * time.Millisecond, 600}} {
		for _, wrong := range []float64{1, 1.0 / 8, 5} {
			w := newTimed(t, c.profile, wrong, c.target)
			w.add(1, c.prompt, 1)
			for w.step() {
			}
			if most := min(c.prompt, 4096); w.alone[0] < most*8/10 { // context counts against the budget
				t.Errorf("%s, costs x %v: a prompt alone gets %d tokens a step, want about %d", c.profile, wrong, w.alone[0], most)
			}
			for id := RequestID(2); id < 10; id++ {
				w.add(id, 20, 400)
			}
			w.step()
			w.step()
			for id := RequestID(10); id < 16; id++ {
				w.add(id, c.prompt, 1)
			}
			for w.step() {
			}
			settled := w.mixed[min(len(w.mixed)-1, 12):]
			worst := slices.Max(settled)
			t.Logf("%s, costs x %v: %d mixed steps, slowest %v, and %v once corrected", c.profile, wrong, len(w.mixed), slices.Max(w.mixed), worst)
			if worst > c.target*5/4 {
				t.Errorf("%s, costs x %v: a step takes %v while others decode, want at most about %v", c.profile, wrong, worst, c.target)
			}
			if slices.Max(settled) < c.target/2 {
				t.Errorf("%s, costs x %v: steps take %v at most, %v was allowed", c.profile, wrong, worst, c.target)
			}
			if len(w.firsts) != 15 {
				t.Errorf("%s: %d of 15 requests got a token", c.profile, len(w.firsts))
			}
		}
		w := newTimed(t, c.profile, 1, 0)
		w.add(2, 20, 400)
		w.step()
		w.step()
		w.add(3, c.prompt, 1)
		for w.step() {
		}
		if most := slices.Max(w.mixed); most < 2*c.target {
			t.Errorf("%s: without a target the slowest step takes %v: the world shows nothing", c.profile, most)
		}
	}
}

// TestDefaultsFollowCost checks the defaults that depend on Info.Cost: a step has at least
// the tokens that the device computes while it reads its weights, and two plans are in
// flight where launching takes long.
func TestDefaultsFollowCost(t *testing.T) {
	info := engine.Info{MaxSlots: 8, MaxRows: 8, MaxTokens: 4096, MaxInflight: 3}
	if c := (Config{}).WithDefaults(info); c.StepTokens != 256 || c.MaxInflight != 1 || c.AttentionTokens != -1 {
		t.Errorf("of unknown costs: %d tokens, %d in flight, %d", c.StepTokens, c.MaxInflight, c.AttentionTokens)
	}
	info.Cost = engine.StepCost{Step: 5e-3, Token: 5e-6, Pair: 5e-9, Host: 1e-3}
	if c := (Config{}).WithDefaults(info); c.StepTokens != 1000 || c.MaxInflight != 2 || c.AttentionTokens != 1000 {
		t.Errorf("of 5 ms and 5 µs: %d tokens, %d in flight, %d", c.StepTokens, c.MaxInflight, c.AttentionTokens)
	}
	info.Cost.Host, info.MaxTokens = 0, 512
	if c := (Config{}).WithDefaults(info); c.StepTokens != 512 || c.MaxInflight != 1 {
		t.Errorf("of batches of 512: %d tokens, %d in flight", c.StepTokens, c.MaxInflight)
	}
}
