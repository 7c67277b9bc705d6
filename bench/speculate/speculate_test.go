package speculate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/scheduler"
)

// speaking is a small model of this repository that has a tokenizer and a template.
const speaking = "../../cmd/internal/speak/speak.gguf"

// nodes opens nodes of the speaking model.
func nodes(drafts bool, around func(engine.Backend) engine.Backend) (*coppice.Node, error) {
	speculate := scheduler.SpeculateOff
	if drafts {
		speculate = 8 // not SpeculateAuto, which measures times
	}
	m, err := local.Open(speaking, local.Options{
		Node: coppice.Config{Scheduler: scheduler.Config{MaxInflight: 2, Speculate: speculate}},
		Backend: func(m *model.Model, _ *coppice.Config) (engine.Backend, error) {
			b, err := cpu.Open(m, cpu.Config{KVTokens: 8192, MaxRows: 16, MaxSlots: 16})
			if err != nil {
				return nil, err
			}
			return around(b), nil
		},
	})
	if err != nil {
		return nil, err
	}
	return m.Node, nil
}

// Each output is its script, with a schema and without, one task and sixteen at a time, while
// deferred rows are in flight, and with drafts, some of which are refused. ask fails if an output is
// another one, and Compare if drafts change the logits.
func TestForcedOutput(t *testing.T) {
	for _, name := range []string{"calls", "streams"} {
		load, err := Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if load.Parallel == 1 {
			load.Tasks = load.Tasks[:2]
		} else { // short prompts: the model has few positions
			load.Tasks = slices.DeleteFunc(load.Tasks, func(t Task) bool { return len(t.Messages[0].Content) > 1200 })
		}
		cfg, spent := Config{Open: nodes, Runs: 1, OutputTokens: 32}, time.Duration(0)
		cfg.Processor = func() time.Duration { spent += time.Millisecond; return spent } // a wave looks twice
		steps := 0
		c, err := Compare(context.Background(), load, cfg, func() { steps++ })
		if err != nil {
			t.Fatal(err)
		}
		if steps != cfg.Steps(load) || c.Tasks != len(load.Tasks) || c.OutputTokens < 10*c.Tasks || c.Off.TokensPerSecond <= 0 || !c.Identical {
			t.Errorf("%d steps of progress: %+v", steps, c)
		}
		waves := (c.Tasks + load.Parallel - 1) / load.Parallel
		if want := float64(waves) / float64(c.OutputTokens); c.Off.ProcessorMS != want || c.On.ProcessorMS != want {
			t.Errorf("%v and %v ms of the processors for a token, want %v", c.Off.ProcessorMS, c.On.ProcessorMS, want)
		}
		if on := c.On; c.Off.Drafted > 0 || on.Accepted == 0 || on.Accepted == on.Drafted || len(on.Sources) == 0 {
			t.Errorf("off: %+v, on: %+v", c.Off, on)
		}
		drafted, accepted := 0, 0
		for _, d := range c.On.Sources {
			drafted, accepted = drafted+d.Drafted, accepted+d.Accepted
		}
		if drafted != c.On.Drafted || accepted != c.On.Accepted {
			t.Errorf("the sources have %d of %d drafts: %+v", accepted, drafted, c.On)
		}
	}
}

// Without scripts the model answers as it wants.
func TestFreeOutput(t *testing.T) {
	load, err := Open("chat")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Compare(context.Background(), load, Config{Open: nodes, Runs: 1, Tasks: 1, OutputTokens: 20, Free: true}, nil)
	if err != nil || c.OutputTokens == 0 || !c.Identical {
		t.Errorf("%+v, %v", c, err)
	}
}

// Compare finds a backend that changes a bit of the logits with drafts on, though the scripts are followed.
func TestComparisonDiffers(t *testing.T) {
	load, err := Open("chat")
	if err != nil {
		t.Fatal(err)
	}
	open := func(drafts bool, around func(engine.Backend) engine.Backend) (*coppice.Node, error) {
		return nodes(drafts, func(b engine.Backend) engine.Backend {
			if drafts {
				b = digests{b}
			}
			return around(b)
		})
	}
	c, err := Compare(context.Background(), load, Config{Open: open, Runs: 1, Tasks: 1, OutputTokens: 4}, nil)
	if !errors.Is(err, errDiffers) || c == nil || c.Identical {
		t.Errorf("%+v, %v", c, err)
	}
}

// Tokens count in all runs, bits only where a run has them.
func TestTakeCompares(t *testing.T) {
	of := func(digest uint64, tokens ...kv.Token) *run {
		return &run{answers: []answer{{output: tokens, digest: digest}}}
	}
	for _, tc := range []struct {
		later *run
		bits  bool
		same  bool
	}{{of(5, 1, 2), true, true}, {of(0, 1, 2), false, true}, {of(6, 1, 2), true, false}, {of(5, 1, 3), false, false}, {of(0, 1), false, false}} {
		c := &Comparison{Identical: true}
		c.take(of(5, 1, 2), false, true)
		if c.take(tc.later, true, tc.bits); c.Identical != tc.same || c.OutputTokens != 2 {
			t.Errorf("%+v: %+v", tc.later, c)
		}
	}
}

// digests is a backend with other digests of logits.
type digests struct{ engine.Backend }

func (d digests) Submit(b *engine.Batch) (engine.Ticket, error) {
	t, err := d.Backend.Submit(b)
	return spoilt{t}, err
}

type spoilt struct{ engine.Ticket }

func (s spoilt) Result() (*engine.Result, error) {
	r, err := s.Ticket.Result()
	if err == nil {
		for i := range r.Out {
			r.Out[i].Digest++
		}
	}
	return r, err
}

// Each sample of a row with drafts is that of the script: right drafts are confirmed, and others refused.
func TestForcedDrafts(t *testing.T) {
	m, err := model.Open(speaking)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b, err := cpu.Open(m, cpu.Config{KVTokens: 64, MaxRows: 2, MaxSlots: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	script := []kv.Token{40, 41, 42, 43, 44, 45, 46, 47}
	f := force(b, [][]kv.Token{script})
	info, seq, at := b.Info(), uint64(1), int32(3)
	batch := &engine.Batch{Seq: seq, Binds: []engine.SlotBind{{Pages: []kv.PageID{0}, Sampling: engine.SamplingParams{Seed: seed(0)}}},
		Rows: []engine.Row{{Tokens: []kv.Token{1, 2, 3}, Sample: true}}}
	if got := forcedOut(t, f, batch); got.Token != script[0] {
		t.Fatalf("the first token is %d", got.Token)
	}
	all := slices.Repeat([]uint64{^uint64(0)}, info.MaskWords())
	all[info.MaskWords()-1] >>= 64*info.MaskWords() - info.Vocab
	n := int32(1) // tokens of the script that were sampled
	for _, tc := range []struct {
		drafts    []kv.Token
		confirmed int32
	}{{nil, 0}, {[]kv.Token{42, 43, 7}, 2}, {[]kv.Token{9, 46}, 0}, {[]kv.Token{46}, 1}} {
		seq++
		batch := &engine.Batch{Seq: seq, Rows: []engine.Row{{Start: at, Tokens: script[n-1 : n], Drafts: tc.drafts, Sample: true, SampleIndex: n}}}
		if tc.confirmed > 0 { // the request's own masks allow all
			batch.Masks, batch.Rows[0].Mask = []engine.MaskSet{{ID: 5, Bits: all}}, 5
			batch.Rows[0].DraftMasks = slices.Repeat([]engine.MaskID{5}, len(batch.Rows[0].Drafts))
		}
		got := forcedOut(t, f, batch)
		if got.Confirmed != tc.confirmed || got.Token != script[n+tc.confirmed] {
			t.Errorf("drafts %d after %d: %d confirmed and token %d, want %d and %d", tc.drafts, script[n-1], got.Confirmed, got.Token, tc.confirmed, script[n+tc.confirmed])
		}
		at, n = at+1+tc.confirmed, n+1+tc.confirmed
	}
	if n != int32(len(script)) {
		t.Errorf("%d tokens of the script were sampled", n)
	}
	// The mask after a draft counts only if the drafts until then are the script's tokens.
	only := make([]uint64, info.MaskWords())
	only[0] = 1 << 7
	batch = &engine.Batch{Seq: seq + 1, Masks: []engine.MaskSet{{ID: 1, Bits: only}},
		Rows: []engine.Row{{Start: at, Tokens: []kv.Token{1}, Sample: true, SampleIndex: 5, Drafts: []kv.Token{45}, DraftMasks: []engine.MaskID{1}}}}
	if _, err = f.Submit(batch); !errors.Is(err, engine.ErrInvalid) || !strings.Contains(err.Error(), "forbids token 6") {
		t.Errorf("a draft's mask of another token: %v", err)
	}
	if batch.Rows[0].Drafts[0] = 7; forcedOut(t, f, batch).Token != 45 {
		t.Error("a row with a wrong draft samples another token than the script's")
	}
}

// forcedOut runs a batch of one row.
func forcedOut(t *testing.T, f *forced, b *engine.Batch) engine.RowOut {
	t.Helper()
	ticket, err := f.Submit(b)
	if err != nil {
		t.Fatal(err)
	}
	<-ticket.Done()
	res, err := ticket.Result()
	if err != nil || len(res.Out) != 1 || res.Out[0].Err != nil {
		t.Fatalf("%+v, %v", res, err)
	}
	return res.Out[0]
}

// Submit refuses what a script can't follow.
func TestForcedRefuses(t *testing.T) {
	b, err := sim.Open(sim.Config{PageTokens: 16, Pages: 8, MaxSlots: 2, MaxRows: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	info, seq := b.Info(), uint64(0)
	f := force(b, [][]kv.Token{{3, 5}})
	words := make([]uint64, info.MaskWords())
	words[0] = 1 << 7
	for _, tc := range []struct {
		name   string
		seed   uint64
		index  int32
		mask   engine.MaskID
		reason string
	}{
		{"right", seed(0), 1, 0, ""},
		{"no script", seed(1), 0, 0, "has no script"},
		{"seed 0", 0, 0, 0, "has no script"},
		{"past the end", seed(0), 2, 0, "which has 2 tokens"},
		{"a mask of another token", seed(0), 0, 1, "forbids token 0"},
	} {
		seq++
		batch := &engine.Batch{Seq: seq, Binds: []engine.SlotBind{{Sampling: engine.SamplingParams{Seed: tc.seed}}},
			Rows: []engine.Row{{Tokens: []kv.Token{1}, Pages: []kv.PageID{0}, Sample: true, SampleIndex: tc.index, Mask: tc.mask}}}
		if tc.mask != 0 {
			batch.Masks = []engine.MaskSet{{ID: tc.mask, Bits: words}}
		}
		ticket, err := f.Submit(batch)
		switch {
		case tc.reason == "" && err != nil:
			t.Errorf("%s: %v", tc.name, err)
		case tc.reason != "" && (!errors.Is(err, engine.ErrInvalid) || !strings.Contains(err.Error(), tc.reason)):
			t.Errorf("%s: %v, want %q", tc.name, err, tc.reason)
		case err == nil:
			<-ticket.Done()
			if res, err := ticket.Result(); err != nil || res.Out[0].Token != 5 {
				t.Errorf("%s: %+v, %v", tc.name, res, err)
			}
			if batch.Rows[0].Mask != 0 || batch.Masks != nil {
				t.Errorf("%s: Submit has changed the batch", tc.name)
			}
		}
	}
}

// The loads are whole.
func TestLoads(t *testing.T) {
	want := map[string]int{"rewrite": 24, "records": 12, "calls": 12, "chat": 10, "streams": 16}
	for _, name := range names() {
		l, err := Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(l.Tasks) != want[name] || l.Parallel == 0 {
			t.Errorf("%s: %d tasks, %d at a time", name, len(l.Tasks), l.Parallel)
		}
		for i := range l.Tasks {
			task := &l.Tasks[i]
			if (name == "calls") != (task.Schema != nil) && name != "streams" {
				t.Errorf("%s has the schema %s", task.Name, task.Schema)
			}
			if file := strings.Count(task.Output, "\n"); name == "rewrite" && (file < 130 || file > 170) {
				t.Errorf("%s has %d lines", task.Name, file)
			}
		}
	}
	for _, bad := range []string{"{}", `{"name":"a","output":"b"}`, `{"name":"a","output":"b","prompt":"c","messages":[{}]}`, `{"nam":"a"}`, "plain text", "\n"} {
		if _, err := read("bad", 1, strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), taskForm) {
			t.Errorf("%s: error %v does not say that a task has %s", bad, err, taskForm)
		}
	}
	for _, bad := range []string{"absent", "absent.jsonl"} {
		if _, err := Open(bad); err == nil || !strings.Contains(err.Error(), "records, calls, chat") {
			t.Errorf("%s: error %v does not name the loads", bad, err)
		}
	}
}
