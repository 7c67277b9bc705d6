package actors

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/storetest"
	"github.com/coppice-llm/coppice/mempool/tiering"
)

const (
	begins = "tier begins to fail"
	works  = "tier works again"
)

// simDevice opens a simulated device with a small pool.
func simDevice(t *testing.T) *sim.Backend {
	t.Helper()
	b, err := sim.Open(sim.Config{PageTokens: 16, Pages: tierPool / 16, Vocab: nano.Config().Vocab})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestTierSpeaks: while a disk fails, the log has one line that says so, with the cause; when the disk
// works again, one more. The figures count the failures by reason.
func TestTierSpeaks(t *testing.T) {
	for _, tc := range []struct {
		fault string
		cause string
		count func(f *TierFailures) int64
	}{
		{"EIO", "input/output error", func(f *TierFailures) int64 { return f.IOErrors }},
		{"ENOSPC", "no space left", func(f *TierFailures) int64 { return f.Full }},
	} {
		b, in := simDevice(t), &storetest.Injector{}
		logs := &logs{}
		s := start(t, Config{Backend: b, Log: logs.logger(slog.LevelInfo), Tiers: Tiers{
			Stores: []mempool.Store{tierStore(t, kv.TierDisk, t.TempDir(), b.Info(), in)}, Write: tiering.Through, Flush: -1, TokenSeconds: 1e-3,
		}}, cpu.Config{})
		asked := 0
		askUntil := func(message string) TierFailures {
			t.Helper()
			ctx := patience(t)
			for len(logs.of(message)) == 0 && ctx.Err() == nil {
				tierAsk(t, s, asked)
				asked++
			}
			st, err := s.Stats(ctx)
			if n := len(logs.of(message)); n != 1 || err != nil {
				t.Fatalf("%d lines %q: %v", n, message, err)
			}
			return st.Tiers[0].TierFailures
		}
		faults := storetest.Faults()
		in.Plant(storetest.AtWrite, faults[slices.IndexFunc(faults, func(f storetest.Fault) bool { return f.String() == tc.fault })], 1, true)
		if f := askUntil(begins); f.Failing != 1 || tc.count(&f) == 0 {
			t.Errorf("while writes fail: %+v", f)
		}
		line := logs.of(begins)[0]
		if cause, _ := line["error"].(string); !strings.Contains(cause, tc.cause) || line["tier"] != "disk" || line["operation"] != "put" {
			t.Errorf("the line has %v, want the cause %q", line, tc.cause)
		}
		for range 4 {
			tierAsk(t, s, asked)
			asked++
		}
		if n := len(logs.of(works)) + len(logs.of(begins)); n != 1 {
			t.Errorf("%d lines while writes fail, want 1", n)
		}
		in.Clear()
		// A write that failed before may end after one that succeeds, and then there are two lines more, one of each.
		for ctx := patience(t); ; {
			tierAsk(t, s, asked)
			asked++
			st, err := s.Stats(ctx)
			if err != nil {
				t.Fatalf("the disk works again, and %d lines say so after %d that it fails: %v", len(logs.of(works)), len(logs.of(begins)), err)
			}
			if n := len(logs.of(works)); n > 0 && n == len(logs.of(begins)) && st.Tiers[0].Failing == 0 {
				break
			}
		}
		closeTiers(t, s)
	}
}

// TestTierLate: a single late operation is counted but not logged, three in a row are.
func TestTierLate(t *testing.T) {
	b, in := simDevice(t), &storetest.Injector{}
	defer b.Close()
	logs := &logs{}
	dir := t.TempDir()
	w := watchStore(tierStore(t, kv.TierDisk, dir, b.Info(), in), logs.logger(slog.LevelInfo))
	defer w.Close()
	l := w.Info().Identity.Layout
	x := l.AppendExtents(nil, kv.Namespace{}, make([]kv.Token, l.ExtentTokens()), nil)[0]
	id := mempool.OpID(0)
	do := func(kind mempool.OpKind, late bool) {
		t.Helper()
		id++
		op := mempool.Op{ID: id, Kind: kind, Extent: x}
		for range l.ExtentPages {
			op.Pages = append(op.Pages, make([]byte, l.PageBytes))
		}
		if err := w.Submit(op); err != nil {
			t.Fatal(err)
		}
		if late {
			w.Cancel(id, mempool.ErrDeadline)
		}
		for len(w.Poll(nil)) == 0 {
			<-w.Ready()
		}
	}
	do(mempool.Put, false)
	in.Plant(storetest.AtRead, storetest.Slow, 1, true)
	for n := 1; n <= 4; n++ {
		do(mempool.Get, true)
		f, lines := w.counts(), len(logs.of(begins))
		if f.Late != int64(n) || (f.Failing == 1) != (n >= lateFails) || (lines == 1) != (n >= lateFails) {
			t.Errorf("after %d late reads: %+v, %d lines", n, f, lines)
		}
	}
	in.Clear()
	for n := 1; n <= leastGood; n++ {
		do(mempool.Get, false)
		if lines := len(logs.of(works)); (lines == 1) != (n == leastGood) {
			t.Errorf("after %d good reads: %d lines", n, lines)
		}
	}
	if f := w.counts(); f.Failing != 0 || f.Late != 4 {
		t.Errorf("at the end: %+v", f)
	}
}

// TestTierReasons: each reason of a failure has its own count.
func TestTierReasons(t *testing.T) {
	for err, want := range map[error]TierFailures{
		mempool.ErrDeadline: {Late: 1},
		mempool.ErrStuck:    {Late: 1},
		mempool.ErrFull:     {Full: 1},
		mempool.ErrForeign:  {Foreign: 1},
		mempool.ErrCorrupt:  {Damaged: 1},
		ErrClosed:           {IOErrors: 1},
		mempool.ErrMiss:     {},
		mempool.ErrCanceled: {},
	} {
		var f TierFailures
		if n := f.of(err); n != nil {
			*n++
		}
		if f != want {
			t.Errorf("%v is counted as %+v", err, f)
		}
	}
}
