package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda"
	"github.com/coppice-llm/coppice/engine/enginetest"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/kv"
)

// tester implements the methods of testing.TB that the suite calls, because a command runs it.
type tester struct {
	testing.TB // nil: the suite calls no other methods
	err        error
}

// stopped is the value that Fatal panics with.
type stopped struct{ err error }

func (t *tester) Helper()                   {}
func (t *tester) Logf(string, ...any)       {}
func (t *tester) Errorf(f string, a ...any) { t.err = errors.Join(t.err, fmt.Errorf(f, a...)) }
func (t *tester) Fatal(a ...any)            { panic(stopped{errors.New(fmt.Sprint(a...))}) }
func (t *tester) Fatalf(f string, a ...any) { panic(stopped{fmt.Errorf(f, a...)}) }

// tried runs a check with a tester, and returns its errors.
func tried(check func(t *tester) error) (err error) {
	t := &tester{}
	defer func() {
		switch x := recover().(type) {
		case nil:
		case stopped:
			err = errors.Join(t.err, x.err)
		default:
			panic(x)
		}
	}()
	err = check(t)
	return errors.Join(err, t.err)
}

// driverSuite runs the checks of drivers, but for those after which the device is lost.
func driverSuite(ctx context.Context, cfg *Config, r *Report) error {
	for _, c := range DriverChecks() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !c.Loses {
			r.check(cfg, "driver/"+c.Name, tried(func(t *tester) error { c.Run(t, cfg.Driver, cfg.Device); return nil }), "")
		}
	}
	return nil
}

// nano opens the small model of the suite. Its files are mapped and need no names after that.
func nano() (*model.Model, error) {
	dir, err := os.MkdirTemp("", "coppice-gpucheck-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := random.Generate(dir, random.Spec{Preset: random.Nano, Seed: 1}); err != nil {
		return nil, err
	}
	return model.Open(dir)
}

// open opens a backend with the options of the suite.
func open(cfg *Config, m *model.Model, o enginetest.Options) (*cuda.Backend, error) {
	return cuda.Open(m, cuda.Config{Driver: cfg.Driver, Device: cfg.Device, MemoryFraction: cfg.MemoryFraction, PageTokens: o.PageTokens, Pages: o.Pages,
		MaxSlots: o.MaxSlots, MaxRows: o.MaxRows, MaxTokens: o.MaxTokens, MaxInflight: o.MaxInflight})
}

// conformance runs the suite of all backends.
func conformance(ctx context.Context, cfg *Config, r *Report) error {
	m, err := nano()
	if err != nil {
		return err
	}
	defer m.Close()
	factory := func(t testing.TB, o enginetest.Options) engine.Backend {
		b, err := open(cfg, m, o)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, c := range enginetest.Checks() {
		if cfg.Checks != nil && !slices.Contains(cfg.Checks, c.Name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		r.check(cfg, "conformance/"+c.Name, tried(func(t *tester) error { return enginetest.Try(t, factory, c.Name) }), "")
	}
	return nil
}

// invariance compares the bits of prompts that run alone with those of the same prompts in chunks, in
// other pages and in batches with other rows.
func invariance(ctx context.Context, cfg *Config, r *Report) error {
	m, err := nano()
	if err != nil {
		return err
	}
	defer m.Close()
	b, err := open(cfg, m, enginetest.Options{PageTokens: 16, Pages: 256, MaxSlots: 8, MaxRows: 8, MaxTokens: 512, MaxInflight: 2})
	if err != nil {
		return err
	}
	f := &fuzzer{b: b, rand: rand.New(rand.NewPCG(uint64(r.Date.UnixNano()), 3)), info: b.Info()}
	trials, end := 0, time.Now().Add(cfg.Fuzz)
	for err == nil && (trials == 0 || time.Now().Before(end)) && ctx.Err() == nil {
		err = f.trial()
		trials++
	}
	r.check(cfg, "bits do not depend on the batch", errors.Join(err, b.Close()), fmt.Sprintf("%d prompts", trials))
	return nil
}

// fuzzer makes random batches.
type fuzzer struct {
	b    *cuda.Backend
	rand *rand.Rand
	info engine.Info
	seq  uint64
}

func (f *fuzzer) tokens(n int) []kv.Token {
	t := make([]kv.Token, n)
	for i := range t {
		t[i] = kv.Token(f.rand.IntN(f.info.Vocab))
	}
	return t
}

// run submits a batch and returns the digest of its first row.
func (f *fuzzer) run(b *engine.Batch) (uint64, error) {
	f.seq++
	b.Seq = f.seq
	t, err := f.b.Submit(b)
	if err != nil {
		return 0, err
	}
	<-t.Done()
	res, err := t.Result()
	if err != nil || len(res.Out) == 0 || res.Out[0].Row != 0 {
		return 0, err
	}
	return res.Out[0].Digest, res.Out[0].Err
}

// trial runs one prompt alone, then in chunks together with others.
func (f *fuzzer) trial() error {
	n := 1 + f.rand.IntN(300)
	prompt := f.tokens(n)
	pages := make([]kv.PageID, f.info.NumPages)
	for i, p := range f.rand.Perm(f.info.NumPages) {
		pages[i] = kv.PageID(p)
	}
	take := func(tokens int) []kv.PageID {
		k := kv.CeilPages(tokens, f.info.PageTokens)
		p := pages[:k]
		pages = pages[k:]
		return p
	}
	alone, err := f.run(&engine.Batch{Binds: []engine.SlotBind{{}}, Rows: []engine.Row{{Tokens: prompt, Pages: take(n), Sample: true, Digest: true}}})
	if err != nil {
		return err
	}
	binds := []engine.SlotBind{{Slot: 1, Pages: take(n)}}
	for at := 0; at < n; {
		piece := 1 + f.rand.IntN(n-at)
		rows := []engine.Row{{Slot: 1, Start: int32(at), Tokens: prompt[at : at+piece], Sample: at+piece == n, Digest: at+piece == n}}
		for s := range engine.Slot(f.rand.IntN(5)) {
			other := 1 + f.rand.IntN(20)
			rows = append(rows, engine.Row{Slot: 2 + s, Tokens: f.tokens(other), Sample: true})
			bind := engine.SlotBind{Slot: 2 + s}
			if len(pages) < 8 {
				rows = rows[:len(rows)-1]
				break
			}
			bind.Pages = take(other)
			binds = append(binds, bind)
		}
		digest, err := f.run(&engine.Batch{Binds: binds, Rows: rows})
		if err != nil {
			return err
		}
		binds = nil
		if at += piece; at == n && digest != alone {
			return fmt.Errorf("%d tokens: logits %016x in chunks with other rows, %016x alone", n, digest, alone)
		}
	}
	return nil
}
