package sim

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// drafted returns row r with drafts.
func drafted(r engine.Row, drafts ...kv.Token) engine.Row {
	r.Drafts = drafts
	return r
}

// TestSanitizerKnowsRefusedDrafts reads the KV of drafts in several ways, after a batch with a prompt
// of ten tokens and four drafts, the first two of them right. What is confirmed may be read, copied and
// moved at, the rest is garbage.
func TestSanitizerKnowsRefusedDrafts(t *testing.T) {
	prompt := tokens(1, 10)
	twelve := func(d *bed) []kv.Token { return d.b.Expect(prompt, engine.SamplingParams{}, 4, nil) }
	for _, c := range []struct {
		name  string
		batch func(want []kv.Token) engine.Batch
		fault string // "" if the batch is right
	}{
		{"the next row", func([]kv.Token) engine.Batch { return rows(deferred(0, 12, 0, 1, 2, 3)) }, ""},
		{"another row on what is confirmed", func([]kv.Token) engine.Batch { return rows(next(1, 12, tokens(5, 1), 0, 1, 2, 3)) }, ""},
		{"a row past the end", func(want []kv.Token) engine.Batch { return rows(next(0, 13, want[3:], 0, 1, 2, 3)) }, "position 12, page 3: reads the KV of a draft that batch 1 refused"},
		{"another row past the end", func([]kv.Token) engine.Batch { return rows(next(1, 14, tokens(5, 1), 0, 1, 2, 3)) }, "a draft that batch 1 refused"},
		{"a deferred row at the end of the drafts", func([]kv.Token) engine.Batch { return rows(deferred(0, 14, 0, 1, 2, 3)) }, "belongs at position 12"},
		{"a copy", func([]kv.Token) engine.Batch {
			return engine.Batch{Copies: []engine.PageCopy{{Src: 3, Dst: 9, Tokens: 1}}}
		}, "a draft that batch 1 refused"},
	} {
		for _, mode := range checked {
			d := newBed(t, Config{Sanitize: mode})
			want := twelve(d)
			res := d.run(rows(drafted(prefill(0, prompt, 0, 1, 2, 3), want[0], want[1], want[2]^1, want[3])))
			if o := res.Out[0]; o.Confirmed != 2 || o.Token != want[2] {
				t.Fatalf("%d drafts are confirmed, then comes %d; want 2 and %d", o.Confirmed, o.Token, want[2])
			}
			res, err := d.try(c.batch(want))
			if c.fault == "" && err != nil || c.fault != "" && (!errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.fault)) {
				t.Errorf("%s, mode %v: %v, want %q", c.name, mode, err, c.fault)
			} else if c.name == "the next row" && res.Out[0].Token != want[3] {
				t.Errorf("mode %v: then comes %d, want %d", mode, res.Out[0].Token, want[3])
			}
		}
	}
}

// TestRowsWaitForDrafts checks that no row may follow one with drafts before that one's result.
// Afterwards any row may,
// and a row of another sequence before.
func TestRowsWaitForDrafts(t *testing.T) {
	d := newBed(t, Config{})
	first := d.submit(rows(drafted(prefill(0, tokens(1, 10), 0, 1, 2, 3), 1)))
	if _, err := d.try(rows(deferred(0, 10, 0, 1, 2, 3))); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "before batch 1 was complete") {
		t.Errorf("a row after one with drafts in flight: %v", err)
	}
	if _, err := first.Result(); err != nil {
		t.Errorf("the row before it: %v", err)
	}
	d = newBed(t, Config{})
	d.run(rows(drafted(prefill(0, tokens(1, 10), 0, 1, 2, 3), 1)))
	d.submit(rows(prefill(1, tokens(50, 3), 4)))
	d.run(rows(deferred(0, 10, 0, 1, 2, 3)))
	d.submit(rows(drafted(prefill(2, tokens(70, 3), 5), 1)))
	b := rows(prefill(2, tokens(80, 3), 5))
	b.Binds = []engine.SlotBind{{Slot: 2}} // another sequence: the one before was given up
	d.run(b)
}

// TestDraftsFitTheConfig has backends with few drafts, with none, and with as many as a batch has room for.
func TestDraftsFitTheConfig(t *testing.T) {
	for _, c := range []struct{ most, tokens, want int }{{0, 0, 64}, {3, 0, 3}, {-1, 0, 0}, {0, 8, 7}} {
		d := newBed(t, Config{MaxDrafts: c.most, MaxTokens: c.tokens})
		if got := d.b.Info().MaxDrafts; got != c.want {
			t.Errorf("MaxDrafts %d with batches of %d tokens is %d drafts, want %d", c.most, c.tokens, got, c.want)
		}
	}
}

// TestDraftsCost checks that drafts cost time, less than the rows whose tokens they guess, and that
// that the estimate in Info for one draft more is never below.
func TestDraftsCost(t *testing.T) {
	for _, p := range profiles(t) {
		cost, before, estimate := p.Cost(), time.Duration(0), 0.0
		for d := range 40 {
			b := batchOf(0, shape{4, 1, 1000, true})
			var shape engine.StepShape
			for i := range b.Rows {
				b.Rows[i].Drafts = make([]kv.Token, d)
				shape.Add(1000, 1)
				shape.AddDrafts(1001, d)
			}
			took := p.Step(b, 0)
			if took < before {
				t.Errorf("%s: %d drafts take %v, one less %v", p.Name, d, took, before)
			}
			if more := (took - before).Seconds(); d > 0 && more > 1.01*(cost.Fixed(&shape)-estimate) {
				t.Errorf("%s: draft %d takes %.3g s more, the estimate says %.3g", p.Name, d, more, cost.Fixed(&shape)-estimate)
			}
			before, estimate = took, cost.Fixed(&shape)
			if plain := p.Step(batchOf(0, shape4(d+1)), 0); d > 0 && took >= plain {
				t.Errorf("%s: rows with %d drafts take %v, as many rows more %v", p.Name, d, took, plain)
			}
		}
	}
}

// shape4 returns n times four decode rows.
func shape4(n int) shape { return shape{4 * n, 1, 1000, true} }
