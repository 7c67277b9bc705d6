package sim

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

var errPlanted = errors.New("planted")

func failRow(seq uint64, row int) func(uint64, int) error {
	return func(s uint64, r int) error {
		if s == seq && r == row {
			return errPlanted
		}
		return nil
	}
}

// TestRowFaultInFlight checks that rows which may have been planned before a failure was known
// fail if they read the failed row's KV, and do no other harm. Later rows that read that KV end
// the device with ErrCorrupt.
func TestRowFaultInFlight(t *testing.T) {
	for i := range 2 * len(allModes) {
		mode, late := allModes[i/2], i%2 == 1
		t.Run(mode.String(), func(t *testing.T) {
			d := newBed(t, Config{Sanitize: mode, Faults: Faults{Row: failRow(1, 0)}})
			first := d.submit(rows(prefill(0, tokens(1, 10), 0, 1, 2), prefill(1, tokens(50, 10), 4, 5, 6)))
			for late && d.clock.Step() { // planned before, submitted after the first is complete
			}
			second := d.submit(rows(deferred(0, 10, 0, 1, 2), deferred(1, 10, 4, 5, 6), next(2, 8, tokens(9, 1), 0, 1, 7)))
			for d.clock.Step() {
			}
			res, err := first.Result()
			if err != nil {
				t.Fatal(err)
			}
			if !errors.Is(res.Out[0].Err, errPlanted) || res.Out[1].Err != nil || res.Stats.Samples != 1 || res.Stats.GivenTokens != 20 {
				t.Errorf("the batch with the fault: %+v", res)
			}
			if res, err = second.Result(); err != nil {
				t.Fatal(err)
			}
			for row, fails := range []bool{true, false, true} {
				if errors.Is(res.Out[row].Err, engine.ErrLogits) != fails {
					t.Errorf("row %d after the fault: %v", row, res.Out[row].Err)
				}
			}
			want := d.b.Expect(tokens(50, 10), engine.SamplingParams{}, 2, nil)
			if res.Out[1].Token != want[1] {
				t.Errorf("the neighbour got %d, want %d", res.Out[1].Token, want[1])
			}
			_, err = d.try(rows(next(3, 8, tokens(9, 1), 0, 1, 8)))
			if errors.Is(err, ErrCorrupt) != (mode != Off) {
				t.Errorf("a row on KV that is known to have failed: %v", err)
			}
		})
	}
}

// TestFailedSampleIsHarmless checks that a deferred row fails if the last sample of its slot
// failed, without ending the device, and that the slot works again after a bind.
func TestFailedSampleIsHarmless(t *testing.T) {
	d := newBed(t, Config{Logits: true, Faults: Faults{Row: failRow(2, 0)}})
	d.run(rows(prefill(0, tokens(1, 10), 0, 1, 2)))
	d.run(rows(deferred(0, 10, 0, 1, 2)))
	if res := d.run(rows(deferred(0, 11, 0, 1, 2))); res.Out[0].Err == nil {
		t.Error("a deferred row without a token did not fail")
	}
	b := rows(prefill(0, tokens(1, 10), 0, 1, 2))
	b.Binds = []engine.SlotBind{{Slot: 0}}
	if got, want := d.run(b).Out[0].Token, d.b.Expect(tokens(1, 10), engine.SamplingParams{}, 1, nil)[0]; got != want {
		t.Errorf("after a bind: token %d, want %d", got, want)
	}
}

func TestDeviceFault(t *testing.T) {
	lost := func(seq uint64) error {
		if seq == 2 {
			return errPlanted
		}
		return nil
	}
	d := newBed(t, Config{MaxInflight: 3, Faults: Faults{Device: lost}})
	var tickets []engine.Ticket
	for range 3 {
		tickets = append(tickets, d.submit(rows(prefill(0, tokens(1, 3), 0))))
	}
	host := make([]byte, d.b.Info().PageBytes)
	d.move(1, toHost, 0, host)
	d.clock.Step()
	if _, err := tickets[0].Result(); err != nil {
		t.Errorf("the batch before: %v", err)
	}
	if _, err := tickets[1].Result(); !errors.Is(err, engine.ErrPending) {
		t.Errorf("the device is lost early: %v", err)
	}
	for d.clock.Step() {
	}
	var fatal *engine.Error
	for i, x := range tickets[1:] {
		if _, err := x.Result(); !errors.As(err, &fatal) || !errors.Is(err, errPlanted) || fatal.Op != "step" {
			t.Errorf("ticket %d ends with %v", i+1, err)
		}
		<-x.Done()
	}
	if _, err := d.b.Submit(&engine.Batch{Seq: 9}); !errors.Is(err, errPlanted) {
		t.Errorf("Submit on a lost device: %v", err)
	}
	if moved := d.b.Moved(nil); len(moved) != 1 || moved[0].ID != 1 || !errors.Is(moved[0].Err, errPlanted) {
		t.Errorf("the move ends with %v", moved)
	}
	if err := d.b.Move(&engine.Move{ID: 2, To: kv.TierHost}, nil); !errors.Is(err, errPlanted) {
		t.Errorf("Move on a lost device: %v", err)
	}
}

// TestTimeline checks the times of steps and moves. Steps run one after another, none before it is
// planned, and longer if a fault says so. Moves run in parallel to steps, one direction
// independent of the other, and after the steps that were submitted before them.
func TestTimeline(t *testing.T) {
	p, err := ProfileByName("h200")
	if err != nil {
		t.Fatal(err)
	}
	slow := func(seq uint64) float64 { return []float64{1, 1, 3, -1}[min(seq, 3)] }
	d := newBed(t, Config{Profile: p, Faults: Faults{Slow: slow}, PageTokens: 4, Pages: 32, MaxInflight: 4})
	d.clock.At(time.Second, func() {})
	d.clock.Step()
	b := rows(prefill(0, tokens(1, 10), 0, 1, 2))
	step, host := p.Step(&b, d.b.pageBytes), p.Host(1)
	ends := []time.Duration{time.Second + host + step, 0, 0}
	ends[1] = ends[0] + 3*step
	ends[2] = ends[1] + step
	var all []engine.Ticket
	for range 3 {
		all = append(all, d.submit(b))
	}
	for i, m := range []direction{toHost, fromHost, toHost} {
		d.move(engine.MoveID(i+1), m, kv.PageID(9+i), make([]byte, d.b.Info().PageBytes))
	}
	moved := []time.Duration{ends[2] + p.Transfer(d.b.pageBytes), ends[2] + p.Transfer(d.b.pageBytes), ends[2] + 2*p.Transfer(d.b.pageBytes)}
	for i, x := range all {
		if at, ok := d.b.ReadyAt(x); !ok || at != ends[i] {
			t.Errorf("ticket %d is ready at %v, %v, want %v", i, at, ok, ends[i])
		}
	}
	var order []time.Duration
	done := 0
	for d.clock.Step() {
		for i, x := range all {
			if _, err := x.Result(); (err == nil) != (ends[i] <= d.clock.Now()) {
				t.Errorf("at %v ticket %d, which ends at %v: %v", d.clock.Now(), i, ends[i], err)
			}
		}
		order = append(order, d.clock.Now())
		for _, m := range d.b.Moved(nil) {
			if want := moved[m.ID-1]; m.Err != nil || d.clock.Now() != want {
				t.Errorf("move %d ends at %v with %v, want %v", m.ID, d.clock.Now(), m.Err, want)
			}
			done++
		}
	}
	if want := append(ends, moved[1:]...); done != 3 || !slices.Equal(order, want) {
		t.Errorf("%d moves, events at %v, want %v", done, order, want)
	}
	res, err := all[1].Result()
	if err != nil || res.Stats.Nanos != 3*step.Nanoseconds() {
		t.Errorf("a slowed step: %+v, %v, want %v", res, err, 3*step)
	}
	if _, ok := d.b.ReadyAt(nil); ok {
		t.Error("ReadyAt knows a ticket of no backend")
	}
}

// TestAfterDelays: a batch waits on the device for the moves that it names.
func TestAfterDelays(t *testing.T) {
	p, err := ProfileByName("h200")
	if err != nil {
		t.Fatal(err)
	}
	p.Device.PCIeLat = 1
	for _, after := range [][]engine.MoveID{{1}, {2, 1}, {2}, nil} {
		d := newBed(t, Config{Profile: p, PageTokens: 4, Pages: 32})
		d.move(1, fromHost, 9, make([]byte, d.b.Info().PageBytes))
		b := rows(prefill(0, tokens(1, 2), 0))
		b.After = after
		want := p.Host(1) + p.Step(&b, d.b.pageBytes)
		if slices.Contains(after, 1) {
			want = p.Transfer(d.b.pageBytes) + p.Step(&b, d.b.pageBytes)
		}
		if at, _ := d.b.ReadyAt(d.submit(b)); at != want {
			t.Errorf("after %v the batch ends at %v, want %v", after, at, want)
		}
	}
}

func TestOpenRefusesConfigs(t *testing.T) {
	for _, c := range []Config{
		{PageTokens: 3}, {PageTokens: 512}, {PageTokens: -1}, {Pages: -1}, {Pages: 1 << 25, PageTokens: 256}, {MaxInflight: 1},
		{MaxRows: -1}, {MaxTokens: -1}, {MaxSlots: -1}, {MaxPositions: -1}, {Vocab: 1}, {Sanitize: 3}, {Profile: Profile{Name: "x"}},
	} {
		if b, err := Open(c); err == nil {
			b.Close()
			t.Errorf("Open(%+v) made a backend", c)
		}
	}
	b := newBed(t, Config{PageTokens: 16}).b
	if i := b.Info(); i.NumPages != 4096 || i.MaxSlots != 256 || i.MaxRows != 256 || i.MaxTokens != 8192 || i.MaxInflight != 2 ||
		i.MaxPositions != 131072 || i.Vocab != 128 || i.PageBytes != 256 || i.KVType != kv.F32 || i.Cost != (engine.StepCost{}) || !i.Deterministic {
		t.Errorf("info of a default backend: %+v", i)
	}
	p, err := ProfileByName("h200")
	if err != nil {
		t.Fatal(err)
	}
	if i := newBed(t, Config{Profile: p, PageTokens: 16, Seed: 3}).b.Info(); i.NumPages != p.KVTokens()/16 || i.KVType != kv.BF16 ||
		i.Cost != p.Cost() || i.ModelID != "sim/h200/hash/vocab-128/seed-3" {
		t.Errorf("info of a simulated H200: %+v", i)
	}
	for m := Full; m <= Off; m++ {
		var got Mode
		if err := got.UnmarshalText([]byte(m.String())); err != nil || got != m {
			t.Errorf("mode %v reads back as %v, %v", m, got, err)
		}
	}
	if err := new(Mode).UnmarshalText([]byte("half")); err == nil {
		t.Error("a mode of \"half\"")
	}
}

// TestSeedsAreModels checks that another Seed gives other outputs, and the same Seed the same
// outputs.
func TestSeedsAreModels(t *testing.T) {
	expect := func(seed uint64, logits bool) []kv.Token {
		return newBed(t, Config{Seed: seed, Logits: logits}).b.Expect(tokens(1, 5), engine.SamplingParams{Temperature: 1, Seed: 4}, 20, nil)
	}
	for _, logits := range []bool{false, true} {
		a := expect(1, logits)
		if len(a) != 20 || !slices.Equal(a, expect(1, logits)) || slices.Equal(a, expect(2, logits)) {
			t.Errorf("logits %v: seed 1 gives %v, seed 2 %v", logits, a, expect(2, logits))
		}
	}
}

// TestFinishKeepsOrder delivers real-time events in another order than they were set for. A caller
// that sees a ticket complete must find all batches and moves that ended before it complete, and
// the late events must do nothing.
func TestFinishKeepsOrder(t *testing.T) {
	p, err := ProfileByName("h200")
	if err != nil {
		t.Fatal(err)
	}
	d := newBed(t, Config{Profile: p, PageTokens: 4, Pages: 32, MaxInflight: 3})
	d.move(1, fromHost, 9, make([]byte, d.b.Info().PageBytes))
	var all []engine.Ticket
	for range 3 {
		all = append(all, d.submit(rows(prefill(0, tokens(1, 3), 0))))
	}
	d.b.finish(all[1].(*ticket))
	for i, x := range all {
		if _, err := x.Result(); errors.Is(err, engine.ErrPending) != (i == 2) {
			t.Errorf("ticket %d after the second batch: %v", i, err)
		}
	}
	if moved := d.b.Moved(nil); len(moved) != 1 {
		t.Errorf("after the second batch %v are moved", moved)
	}
	if d.clock.Len() != 1 {
		t.Errorf("%d events are left, want the last batch's", d.clock.Len())
	}
	d.b.finish(all[0].(*ticket)) // late, to no effect
	for d.clock.Step() {
	}
	if res, err := all[2].Result(); err != nil || res.Seq != 3 {
		t.Errorf("the last batch: %+v, %v", res, err)
	}
}
