package sim

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// bed drives a backend with pages of 4 tokens in virtual time.
type bed struct {
	t testing.TB
	b *Backend
	// listed takes rows that list all their pages.
	listed engine.Backend
	clock  *Clock
	seq    uint64
}

func newBed(t testing.TB, cfg Config) *bed {
	t.Helper()
	if cfg.Clock == nil {
		cfg.Clock = NewClock()
	}
	if cfg.PageTokens == 0 {
		cfg.PageTokens, cfg.Pages, cfg.MaxSlots = 4, 32, 8
	}
	b, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return &bed{t: t, b: b, listed: engine.Listed(b), clock: cfg.Clock}
}

func (d *bed) submit(b engine.Batch) engine.Ticket {
	d.t.Helper()
	d.seq++
	b.Seq = d.seq
	t, err := d.listed.Submit(&b)
	if err != nil {
		d.t.Fatal(err)
	}
	return t
}

// try runs a batch to its end.
func (d *bed) try(b engine.Batch) (*engine.Result, error) {
	d.t.Helper()
	t := d.submit(b)
	for d.clock.Step() {
	}
	return t.Result()
}

func (d *bed) run(b engine.Batch) *engine.Result {
	d.t.Helper()
	res, err := d.try(b)
	if err != nil {
		d.t.Fatal(err)
	}
	return res
}

func rows(r ...engine.Row) engine.Batch { return engine.Batch{Rows: r} }

// tokens returns n successive tokens, beginning with first.
func tokens(first, n int) []kv.Token {
	t := make([]kv.Token, n)
	for i := range t {
		t[i] = kv.Token(first + i)
	}
	return t
}

func prefill(slot engine.Slot, t []kv.Token, p ...kv.PageID) engine.Row {
	return engine.Row{Slot: slot, Tokens: t, Pages: p, Sample: true}
}

func next(slot engine.Slot, start int32, t []kv.Token, p ...kv.PageID) engine.Row {
	return engine.Row{Slot: slot, Start: start, Tokens: t, Pages: p, Sample: true}
}

func deferred(slot engine.Slot, start int32, p ...kv.PageID) engine.Row {
	return engine.Row{Slot: slot, Start: start, Deferred: true, Sample: true, Pages: p}
}

var (
	allModes = []Mode{Full, Boundary, Off}
	checked  = []Mode{Full, Boundary}
)

// TestSanitizerCatches plants faults of a scheduler, one by one. Before each, slot 0 has run
// tokens 1..10 on pages 0, 1, 2, and slot 1 tokens 50..59 on pages 4, 5, 6.
func TestSanitizerCatches(t *testing.T) {
	copied := func(start int32, c ...engine.PageCopy) engine.Batch {
		b := rows(next(2, start, tokens(90, 1), 0, 8))
		b.Binds = []engine.SlotBind{{Slot: 2}}
		b.Copies = c
		return b
	}
	cases := []struct {
		name  string
		modes []Mode
		batch engine.Batch
		want  string
	}{
		{"wrong last page", checked, rows(deferred(0, 10, 0, 1, 6)), "another prefix"},
		{"wrong page in the middle", []Mode{Full}, rows(deferred(0, 10, 0, 5, 2)), "position 4, page 5: reads token 54 after another prefix"},
		{"wrong page in the middle, new row", checked, rows(next(3, 10, tokens(20, 1), 0, 5, 2)), "position 4, page 5"},
		{"swapped pages", checked, rows(next(3, 10, tokens(20, 1), 1, 0, 2)), "position 0, page 1: reads the slot of position 4"},
		{"a whole context of another", checked, rows(deferred(0, 10, 4, 5, 6)), "reads another prefix than the last row of slot 0"},
		{"early reuse", checked, rows(prefill(3, tokens(70, 4), 2), deferred(0, 10, 0, 1, 2)), "reads the slot of position"},
		{"early reuse by a later row", checked, rows(deferred(0, 10, 0, 1, 2), prefill(3, tokens(70, 4), 2)), "overwrites position 8, which an earlier row"},
		{"missing copy", checked, copied(6), "reads a slot that was never written"},
		{"short copy", checked, copied(7, engine.PageCopy{Src: 1, Dst: 8, Tokens: 2}), "never written"},
		{"copy of another's page", checked, copied(6, engine.PageCopy{Src: 5, Dst: 8, Tokens: 2}), "after another prefix"},
		{"copy of a page never written", checked, copied(6, engine.PageCopy{Src: 9, Dst: 8, Tokens: 2}), "copy 0: copy of 2 slots"},
		{"copy past what was written", checked, copied(7, engine.PageCopy{Src: 2, Dst: 8, Tokens: 3}), "copy 0"},
		{"stale deferred token", checked, rows(deferred(0, 11, 0, 1, 2)), "deferred, but the last token of slot 0 belongs at position 10"},
		{"deferred again", checked, rows(deferred(0, 9, 0, 1, 2)), "belongs at position 10"},
		{"two writers", checked, rows(deferred(0, 10, 0, 1, 2), next(3, 10, tokens(20, 1), 0, 1, 2)), "a second write to slot 2"},
		{"a page twice in one row", checked, rows(prefill(3, tokens(1, 8), 9, 9)), "a second write"},
		{"read of what was never written", checked, rows(next(3, 3, tokens(1, 1), 9)), "never written"},
		{"read past the end", checked, rows(next(3, 11, tokens(1, 1), 0, 1, 2)), "position 10, page 2: reads a slot that was never written"},
		{"read of what a later row writes", checked, rows(next(3, 4, tokens(5, 2), 9, 10), prefill(4, tokens(1, 4), 9)), "never written"},
	}
	for _, c := range cases {
		for _, mode := range allModes {
			t.Run(c.name+"/"+mode.String(), func(t *testing.T) {
				d := newBed(t, Config{Sanitize: mode})
				d.run(rows(prefill(0, tokens(1, 10), 0, 1, 2), prefill(1, tokens(50, 10), 4, 5, 6)))
				_, err := d.try(c.batch)
				if !slices.Contains(c.modes, mode) {
					if err != nil {
						t.Errorf("mode %v is not to see it: %v", mode, err)
					}
					return
				}
				var lost *engine.Error
				if !errors.As(err, &lost) || lost.Op != "sanitizer" || !errors.Is(err, ErrCorrupt) {
					t.Fatalf("%v, want the sanitizer's *engine.Error", err)
				}
				if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "batch 2") {
					t.Errorf("%v\nwant a text with %q and the batch", err, c.want)
				}
				if _, again := d.b.Submit(&engine.Batch{Seq: 9}); !errors.Is(again, ErrCorrupt) {
					t.Errorf("a batch on a lost device: %v", again)
				}
			})
		}
	}
}

// TestOutputsTell checks that with the checks off, the outputs still depend on the KV that rows
// read.
func TestOutputsTell(t *testing.T) {
	d := newBed(t, Config{Sanitize: Off, Vocab: 1 << 20})
	prompt := tokens(1, 10)
	want := d.b.Expect(prompt, engine.SamplingParams{}, 3, nil)
	first := d.run(rows(prefill(0, prompt, 0, 1, 2), prefill(1, tokens(50, 10), 4, 5, 6)))
	second := d.run(rows(deferred(0, 10, 0, 1, 2)))
	if got := []kv.Token{first.Out[0].Token, second.Out[0].Token}; !slices.Equal(got, want[:2]) {
		t.Fatalf("tokens %v, want %v", got, want)
	}
	if wrong := d.run(rows(deferred(0, 11, 0, 1, 6))); wrong.Out[0].Token == want[2] {
		t.Error("a wrong page gives the right token")
	}
}

// TestLegalSharing checks that the sanitizer allows batches that look like a fault and are none.
func TestLegalSharing(t *testing.T) {
	for _, mode := range allModes {
		t.Run(mode.String(), func(t *testing.T) {
			d := newBed(t, Config{Sanitize: mode})
			// Rows read what earlier rows of the batch write; two chunks in one batch.
			d.run(rows(prefill(0, tokens(1, 8), 0, 1), next(1, 8, tokens(20, 3), 0, 1, 2), next(2, 4, tokens(5, 4), 0, 3)))
			d.run(rows(prefill(3, tokens(60, 6), 4, 5), next(3, 6, tokens(66, 4), 4, 5, 6)))
			// A copy whose source is rewritten by the same batch, and a chain of copies.
			b := rows(prefill(4, tokens(80, 4), 1), next(5, 7, tokens(9, 2), 0, 8, 9))
			b.Copies = []engine.PageCopy{{Src: 1, Dst: 7, Tokens: 4}, {Src: 7, Dst: 8, Tokens: 3}}
			d.run(b)
			// The same content again, from the start and in the place that others read.
			d.run(rows(prefill(4, tokens(80, 4), 1), prefill(0, tokens(1, 4), 0)))
			d.run(rows(next(6, 4, tokens(30, 1), 0, 10), prefill(0, tokens(1, 4), 0)))
		})
	}
}

// TestMarksSurviveTheirCounter checks that marks set before the counter of batches wraps to 1 are
// not taken for new ones.
func TestMarksSurviveTheirCounter(t *testing.T) {
	d := newBed(t, Config{})
	d.run(rows(prefill(0, tokens(1, 10), 0, 1, 2), next(1, 4, tokens(5, 2), 0, 3)))
	d.b.pool.batch = math.MaxUint32
	d.run(rows(prefill(2, tokens(50, 10), 0, 1, 2)))
	if _, err := d.try(rows(deferred(2, 10, 0, 1, 2), prefill(3, tokens(1, 1), 2))); !errors.Is(err, ErrCorrupt) {
		t.Errorf("after the count wrapped: %v, want ErrCorrupt", err)
	}
}

// TestMixedPage overwrites the first KV slots of a page with tokens of another sequence. All
// positions on the page are then right, but the chain of hashes is broken: reading and copying the
// page must be detected.
func TestMixedPage(t *testing.T) {
	copied := rows(prefill(3, tokens(1, 1), 9))
	copied.Copies = []engine.PageCopy{{Src: 4, Dst: 8, Tokens: 3}}
	for name, b := range map[string]engine.Batch{"read": rows(next(2, 3, tokens(9, 1), 4)), "copied": copied} {
		for _, mode := range checked {
			d := newBed(t, Config{Sanitize: mode})
			d.run(rows(prefill(0, tokens(50, 4), 4)))
			d.run(rows(prefill(1, tokens(70, 2), 4)))
			if _, err := d.try(b); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "position 2, page 4: reads token 52 after another prefix") {
				t.Errorf("%s, mode %v: %v", name, mode, err)
			}
		}
	}
}

// TestCopyOfFailedRow checks that a batch may copy KV of a failed row if the scheduler could not
// know of the failure when it planned the batch, and that later batches may not.
func TestCopyOfFailedRow(t *testing.T) {
	d := newBed(t, Config{Faults: Faults{Row: failRow(1, 0)}})
	copies := func(row engine.Row) engine.Batch {
		b := rows(row)
		b.Copies = []engine.PageCopy{{Src: 1, Dst: 8, Tokens: 2}}
		return b
	}
	d.submit(rows(prefill(0, tokens(1, 10), 0, 1, 2)))
	if res := d.run(copies(next(1, 6, tokens(90, 1), 0, 8))); !errors.Is(res.Out[0].Err, engine.ErrLogits) {
		t.Errorf("a row on a copy of what failed: %v", res.Out[0].Err)
	}
	if _, err := d.try(copies(prefill(2, tokens(1, 1), 9))); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "failed row of batch 1") {
		t.Errorf("a copy of what is known to have failed: %v", err)
	}
}
