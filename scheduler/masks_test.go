package scheduler

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler/internal/masks"
)

// TestMasksAreSetOnce checks that requests of one format share the masks of its states,
// and that a later request finds all of them.
func TestMasksAreSetOnce(t *testing.T) {
	const format = "[ab]{2}[cd]{2}[ef]{4}"
	b, vocab := formatBed(t)
	add := func(id RequestID) {
		if err := b.s.Add(b.now, Request{ID: id, Prompt: seq(int(id), 20), MaxTokens: 30, Format: compiled(t, vocab, format)}); err != nil {
			t.Fatal(err)
		}
	}
	for id := range RequestID(6) {
		add(id + 1)
	}
	for id, e := range b.run() {
		if e.Reason != Stop || e.OutputTokens != 8 {
			t.Errorf("request %d ends with %+v", id, e)
		}
	}
	m := b.s.Metrics()
	if m.MaskedRows != 48 || m.MasksSet != 3 {
		t.Errorf("%d masks are set for %d rows, want 3 for 48", m.MasksSet, m.MaskedRows)
	}
	add(7)
	b.run()
	if again := b.s.Metrics(); again.MaskedRows != 56 || again.MasksSet != 3 {
		t.Errorf("%d masks are set for %d rows after a request of the same format, want 3 for 56", again.MasksSet, again.MaskedRows)
	}
}

// TestFormatMasksAreTheMatchers checks that a row's mask is its matcher's, whichever
// request has set it: requests share formats, and differ in stop tokens, MinTokens and
// AllowedTokens.
func TestFormatMasksAreTheMatchers(t *testing.T) {
	b, vocab := formatBed(t)
	b.s.info.MaxMasks = 16 // for 8 rows in 2 plans, so ids are reused
	b.s.plans.masks = masks.New(&b.s.info, 16)
	formats := []*grammar.Grammar{compiled(t, vocab, "([ab]{2}[cd]?)*"), compiled(t, vocab, "(x[a-f]{0,3}y){1,4}|z+")}
	rng := rand.New(rand.NewPCG(1, 1))
	rows := 0
	for id := RequestID(1); id < 200; id++ {
		req := Request{ID: id, Prompt: seq(int(id), 5), MaxTokens: 20, Samples: 1 + rng.IntN(2), Format: formats[rng.IntN(2)]}
		if rng.IntN(2) == 0 {
			req.StopTokens = seq(int(rng.IntN(3)), 2)
		}
		if rng.IntN(3) == 0 {
			req.MinTokens = rng.IntN(4)
		}
		if rng.IntN(4) == 0 {
			but := 'a' - 32 + rng.IntN(2)
			req.AllowedTokens = slices.Delete(seq(0, 97), but, but+1)
		}
		if err := b.s.Add(b.now, req); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			p := b.s.Next(b.now)
			if p == nil {
				break
			}
			for i := range p.Batch.Rows {
				if id, q := p.Batch.Rows[i].Mask, p.rows[i].q; id != 0 {
					base, late := q.group.allowed.always, int(p.Batch.Rows[i].SampleIndex) >= q.req.MinTokens
					if !late {
						base = q.group.allowed.early
					}
					want := maskOf(q.text.matcher, make([]uint64, b.s.info.MaskWords()), base, q.req.StopTokens, late && q.text.matcher.CanEnd())
					rows++
					for token := range kv.Token(b.s.info.Vocab) {
						if got := p.masks.Allows(id, token); got != (want[token/64]>>(token%64)&1 == 1) {
							t.Fatalf("request %d, token %d of output: its mask allows token %d: %v", q.req.ID, q.outputTokens(), token, got)
						}
					}
				}
			}
			res, err := b.sim.run(&p.Batch)
			if err != nil {
				t.Fatal(err)
			}
			b.s.Complete(b.now, p, res, nil)
		}
	}
	if rows < 500 {
		t.Errorf("%d rows with masks", rows)
	}
}

// TestNoMasks checks that a backend without masks gets no request that needs one.
func TestNoMasks(t *testing.T) {
	b, vocab := formatBed(t)
	b.s.info.MaxMasks = 0
	for field, req := range map[string]Request{
		"Format":        {Format: compiled(t, vocab, "a")},
		"AllowedTokens": {AllowedTokens: seq(1, 3)},
		"MinTokens":     {StopTokens: seq(1, 3), MinTokens: 1, MaxTokens: 2},
	} {
		req.ID, req.Prompt = 1, seq(0, 5)
		var f *FieldError
		if err := b.s.Add(0, req); !errors.As(err, &f) || f.Field != field || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := b.s.Add(0, Request{ID: 1, Prompt: seq(0, 5), StopTokens: seq(1, 3)}); err != nil {
		t.Errorf("a request without masks: %v", err)
	}
}

// formatBed returns a bed whose tokens are the bytes of its vocabulary.
func formatBed(t *testing.T) (*bed, *grammar.Vocabulary) {
	t.Helper()
	tokens := make([][]byte, 97)
	for i := range tokens {
		tokens[i] = []byte{byte(32 + i)}
	}
	vocab := grammar.NewVocabulary(len(tokens), func(t kv.Token) []byte { return tokens[t] })
	return newBed(t, Config{Vocabulary: vocab, MaxInflight: 2}, 4, 200), vocab
}

// compiled returns the format of a regular expression.
func compiled(tb testing.TB, vocab *grammar.Vocabulary, pattern string) *grammar.Grammar {
	tb.Helper()
	rules, err := grammar.ParseRegexp(pattern)
	if err != nil {
		tb.Fatal(err)
	}
	c, err := grammar.NewCompiler(vocab, rules, grammar.Limits{})
	for done := false; err == nil && !done; {
		done, err = c.Run(1 << 30)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return c.Grammar()
}

// BenchmarkMasks measures steps whose rows write JSON of one schema, answered with random
// allowed tokens, on a vocabulary of 32,768. It reports the bytes of masks that go to the
// backend in a step, and the bytes if each row brought its own.
func BenchmarkMasks(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	tokens := make([][]byte, 1<<15)
	for i := range tokens {
		for range 1 + min(i/256, 1)*rng.IntN(7) {
			tokens[i] = append(tokens[i], "abcdefghijklmnopqrstuvwxyz0123456789 \",:{}[]"[rng.IntN(44)])
		}
		if i < 256 {
			tokens[i] = []byte{byte(i)}
		}
	}
	vocab := grammar.NewVocabulary(len(tokens), func(t kv.Token) []byte { return tokens[t] })
	for _, rows := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			l := newLoaded(b, Config{MaxInflight: 1}, rows, 0, 64)
			l.s.info.Vocab, l.s.info.MaxMasks = len(tokens), max(2*rows, 256)
			l.s.plans.masks = masks.New(&l.s.info, rows)
			for i := range rows {
				l.out = l.s.Abort(0, RequestID(i), errors.New("not of this benchmark"), l.out[:0])
			}
			format := compiled(b, vocab, `\{"name": "[a-z ]{1,40}", "age": [0-9]{1,3}, "tags": \["[a-z]{1,12}"(, "[a-z]{1,12}"){0,3}\], "text": "[a-z0-9 ,.:]{0,400}"\}`)
			var bytes, named int
			var spent time.Duration
			id := RequestID(1 << 20)
			step := func() {
				for l.s.Open() < rows {
					id++
					if err := l.s.Add(0, Request{ID: id, Prompt: seq(int(id), 64), MaxTokens: 300, Format: format}); err != nil {
						b.Fatal(err)
					}
				}
				start := time.Now()
				p := l.s.Next(0)
				spent += time.Since(start)
				for _, m := range p.Batch.Masks {
					bytes += 8 * len(m.Bits)
				}
				l.res.Seq, l.res.Out = p.Batch.Seq, l.res.Out[:0]
				for i := range p.Batch.Rows {
					r := &p.Batch.Rows[i]
					if !r.Sample {
						continue
					}
					named++
					t := kv.Token(rng.IntN(len(tokens)))
					for !p.masks.Allows(r.Mask, t) {
						t = (t + 1) % kv.Token(len(tokens))
					}
					l.res.Out = append(l.res.Out, engine.RowOut{Row: i, Token: t})
				}
				l.out = l.s.Complete(0, p, &l.res, l.out[:0])
			}
			for range 300 {
				step()
			}
			bytes, named, spent = 0, 0, 0
			for b.Loop() {
				step()
			}
			b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "next-ns/step")
			b.ReportMetric(float64(bytes)/float64(b.N), "mask-B/step")
			b.ReportMetric(float64(named*8*len(tokens)/64)/float64(b.N), "rows-B/step")
		})
	}
}
