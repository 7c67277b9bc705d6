package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/kv"
)

// seer is a scheduler on a device that knows each request's output beforehand. A row takes no time to
// compute, and a step what the costs of info say.
type seer struct {
	t     *testing.T
	s     *Scheduler
	info  engine.Info
	truth engine.StepCost // of the device; info.Cost may be wrong
	want  map[RequestID][]kv.Token
	got   map[RequestID][]kv.Token
	ends  map[RequestID]Ending
	now   time.Duration
	log   []string // of the latest plan: "id[start,end)+drafts=confirmed"
}

func newSeer(t *testing.T, cfg Config, cost engine.StepCost) *seer {
	t.Helper()
	b := &seer{t: t, truth: cost, want: map[RequestID][]kv.Token{}, got: map[RequestID][]kv.Token{}, ends: map[RequestID]Ending{}}
	b.info = engine.Info{Name: "seer", Vocab: 1000, MaxPositions: 4096, PageTokens: 16, NumPages: 2048, MaxSlots: 16, MaxRows: 16, MaxTokens: 512,
		MaxInflight: 2, MaxMasks: 64, MaxDrafts: 16, Cost: cost, Capabilities: engine.AllCapabilities()}
	cfg.LeaseLowPages, cfg.LeaseBulkPages, cfg.LeaseHighPages = 2048, 2048, 2048
	var err error
	if b.s, err = New(cfg, b.info); err != nil {
		t.Fatal(err)
	}
	pages := make([]kv.PageID, b.s.Want())
	for i := range pages {
		pages[i] = kv.PageID(i)
	}
	b.s.Grant(pages, 0)
	return b
}

// add adds a request whose output will be want.
func (b *seer) add(req Request, want []kv.Token) {
	b.t.Helper()
	if req.MaxTokens = cmp.Or(req.MaxTokens, len(want)); req.Prompt == nil {
		req.Prompt = []kv.Token{1}
	}
	if err := b.s.Add(b.now, req); err != nil {
		b.t.Fatal(err)
	}
	b.want[req.ID] = want
}

// answer computes the result of p, and its duration.
func (b *seer) answer(p *Plan) *engine.Result {
	res := &engine.Result{Seq: p.Batch.Seq}
	for i := range p.Batch.Rows {
		r := &p.Batch.Rows[i]
		id, _ := p.Request(i)
		if !r.Sample {
			continue
		}
		out := engine.RowOut{Row: i}
		want := b.want[id][r.SampleIndex:]
		for int(out.Confirmed) < len(r.Drafts) && r.Drafts[out.Confirmed] == want[out.Confirmed] {
			out.Confirmed++
		}
		out.Token = want[out.Confirmed]
		res.Out = append(res.Out, out)
		b.log = append(b.log, fmt.Sprintf("%d[%d,%d)+%d=%d", id, r.Start, int(r.Start)+r.Own(), len(r.Drafts), out.Confirmed))
	}
	shape := p.shape()
	took := time.Duration((b.truth.Fixed(&shape) + b.truth.Prompts(&shape)) * 1e9)
	res.Stats.Nanos = took.Nanoseconds()
	b.now += took + 1
	return res
}

// step runs one plan at a time, and reports whether there was one.
func (b *seer) step() bool {
	b.t.Helper()
	b.log = b.log[:0]
	p := b.s.Next(b.now)
	if p == nil {
		return false
	}
	b.complete(p)
	return true
}

func (b *seer) complete(p *Plan) {
	b.t.Helper()
	for _, o := range b.s.Complete(b.now, p, b.answer(p), nil) {
		if o.Sampled {
			b.got[o.Request] = append(b.got[o.Request], o.Token)
		}
		if o.Ending.Reason != NotEnded {
			b.ends[o.Request] = o.Ending
		}
	}
	if err := b.s.Check(); err != nil {
		b.t.Fatal(err)
	}
}

// finish runs all requests to their ends, checks their outputs, and returns the number of steps.
func (b *seer) finish() (steps int) {
	b.t.Helper()
	for b.step() {
		steps++
	}
	for id, want := range b.want {
		if e := b.ends[id]; e.Reason != Length || !slices.Equal(b.got[id], want) {
			b.t.Errorf("request %d ends by %v with %v after %d tokens, want %d: %v, want %v", id, e.Reason, e.Err, len(b.got[id]), len(want), b.got[id], want)
		}
	}
	return steps
}

// fill fills the pool with cached prompts.
func (b *seer) fill() {
	b.t.Helper()
	for i := range b.info.NumPages*b.info.PageTokens/4000 + 1 {
		prompt := make([]kv.Token, 4000)
		for j := range prompt {
			prompt[j] = kv.Token((i + j*(i+1)) % 1000)
		}
		b.add(Request{ID: RequestID(1000 + i), Prompt: prompt}, []kv.Token{1})
		b.finish()
	}
	if m := b.s.Metrics(); m.IdlePages > 1 {
		b.t.Fatalf("%d pages are idle", m.IdlePages)
	}
}

// TestDraftsInAFullPool: where all pages are cached, drafts reach the page after that of their sequence.
func TestDraftsInAFullPool(t *testing.T) {
	text := upFrom(100, 60)
	prompt := append(slices.Clone(text), text[:4]...)
	output := append(slices.Clone(text[4:40]), upFrom(300, 4)...)
	for _, tc := range []struct{ most, steps int }{{8, 8}, {16, 7}} {
		b := newSeer(t, Config{Speculate: Speculate(tc.most)}, engine.StepCost{})
		b.fill()
		b.add(Request{ID: 1, Prompt: prompt}, output)
		if steps := b.finish(); steps != tc.steps {
			t.Errorf("%d drafts: %d steps, want %d", tc.most, steps, tc.steps)
		}
	}
}

// upFrom returns n tokens from one on.
func upFrom(from, n int) []kv.Token {
	all := make([]kv.Token, n)
	for i := range all {
		all[i] = kv.Token(from + i)
	}
	return all
}

// TestDraftsOfTheOwnText: an output that repeats the prompt verifies what followed there, up to the
// number that the configuration or the request allows; a request or a configuration without drafts has
// none. Right guesses are billed as output, with their source.
func TestDraftsOfTheOwnText(t *testing.T) {
	text := upFrom(100, 60)
	prompt := append(slices.Clone(text), text[:4]...)
	output := append(slices.Clone(text[4:40]), upFrom(300, 4)...)
	for _, tc := range []struct {
		config, request Speculate
		steps           int
	}{
		{SpeculateOff, SpeculateAuto, 40}, {SpeculateDefault, 4, 12}, {8, SpeculateOff, 40}, {8, SpeculateDefault, 8}, {4, SpeculateDefault, 12}, {8, 4, 12}, {100, 0, 7},
	} {
		b := newSeer(t, Config{Speculate: tc.config}, engine.StepCost{})
		b.add(Request{ID: 1, Prompt: prompt, Speculate: tc.request}, output)
		if steps := b.finish(); steps != tc.steps {
			t.Errorf("%v and %v: %d steps, want %d", tc.config, tc.request, steps, tc.steps)
		}
		e, m := b.ends[1], b.s.Metrics()
		drafted, accepted := e.Drafts.Sum()
		if e.OutputTokens != 40 || m.OutputTokens != 40 || m.Drafts != e.Drafts || m.VoidTokens != 0 || (drafted > 0) != (tc.steps < 40) {
			t.Errorf("%v and %v: %d tokens of output, metrics %d, drafts %v and %v, %d void", tc.config, tc.request, e.OutputTokens, m.OutputTokens, e.Drafts, m.Drafts, m.VoidTokens)
		}
		if drafted > 0 && (accepted != uint64(40-tc.steps) || e.Drafts.Accepted[DraftOwn] != accepted) {
			t.Errorf("%v and %v: %v accepted in %d steps", tc.config, tc.request, e.Drafts, tc.steps)
		}
	}
}

// TestPrediction: an output that is the expected one but for a few tokens takes a part of the steps.
func TestPrediction(t *testing.T) {
	expect := upFrom(100, 200)
	output := slices.Concat(expect[:50], upFrom(400, 3), expect[50:120], expect[125:])
	b := newSeer(t, Config{Speculate: 16}, engine.StepCost{})
	b.add(Request{ID: 1, Prediction: expect}, output)
	if steps := b.finish(); steps > 25 {
		t.Errorf("%d steps for %d tokens", steps, len(output))
	}
	if e := b.ends[1]; e.Drafts.Accepted[DraftPrediction] < 160 {
		t.Errorf("drafts %+v", e.Drafts)
	}
	if err := b.s.Add(0, Request{ID: 2, Prompt: expect, Prediction: []kv.Token{1000}}); err == nil || !strings.Contains(err.Error(), "prediction token 0") {
		t.Errorf("a prediction that is not of the vocabulary: %v", err)
	}
}

// TestDraftsEnd: drafts end before the limit, the model's positions, and stop tokens; a guess that is
// right after a stop string is dropped.
func TestDraftsEnd(t *testing.T) {
	text := upFrom(100, 60)
	b := newSeer(t, Config{Speculate: 16}, engine.StepCost{})
	b.add(Request{ID: 1, Prompt: append(slices.Clone(text), text[:4]...)}, text[4:16])
	b.step()
	for b.s.Open() > 0 {
		b.step()
	}
	if want := "1[64,65)+10=10"; !slices.Contains(b.log, want) {
		t.Errorf("the last row is %v, want %s", b.log, want)
	}
	b = newSeer(t, Config{Speculate: 16}, engine.StepCost{})
	b.want[1] = text[4:30]
	if err := b.s.Add(0, Request{ID: 1, Prompt: append(slices.Clone(text), text[:4]...), StopTokens: text[14:15], MaxTokens: 26}); err != nil {
		t.Fatal(err)
	}
	for b.step() {
	}
	if e := b.ends[1]; e.Reason != Stop || e.OutputTokens != 11 || b.s.Metrics().VoidTokens != 0 {
		t.Errorf("ending %+v", e)
	}
}

// TestDraftsLeaveTheFloor: while prompts are computed, drafts leave them the floor of each step, and
// with decode rows no step exceeds its budget.
func TestDraftsLeaveTheFloor(t *testing.T) {
	text := upFrom(100, 60)
	b := newSeer(t, Config{Speculate: 16, StepTokens: 64, PromptFloor: 24}, engine.StepCost{})
	for id := RequestID(1); id <= 6; id++ {
		b.add(Request{ID: id, Prompt: append(slices.Clone(text), text[:4]...)}, slices.Concat(text[4:], text[:40]))
	}
	for range 4 {
		b.step()
	}
	b.add(Request{ID: 7, Prompt: upFrom(500, 300)}, upFrom(1, 3))
	drafted := 0
	for range 8 {
		p := b.s.Next(b.now)
		if p == nil {
			break
		}
		prompts := 0
		for i := range p.Batch.Rows {
			if !p.Batch.Rows[i].Deferred {
				prompts += p.Batch.Rows[i].Len()
			}
			drafted += len(p.Batch.Rows[i].Drafts)
		}
		if p.Tokens() > 64 || prompts > 0 && prompts < 24 && len(b.s.running.prefilling) > 0 {
			t.Errorf("a step has %d tokens, %d of prompts", p.Tokens(), prompts)
		}
		b.complete(p)
	}
	if drafted < 50 {
		t.Errorf("%d drafts", drafted)
	}
	b.finish()
}

// auto plays requests, the first of which copy their prompts, as many as copies says, with the given costs, and returns the time
// relative to that without drafts.
func auto(t *testing.T, cost, truth engine.StepCost, inflight, requests, copies int) float64 {
	t.Helper()
	var times [2]time.Duration
	for i, s := range []Speculate{SpeculateOff, SpeculateAuto} {
		b := newSeer(t, Config{Speculate: s, MaxInflight: inflight, DisableCache: true}, cost)
		b.truth = truth
		for id := 1; id <= requests; id++ {
			prompt, output := upFrom(10*id, 100), []kv.Token{}
			for j := range 600 {
				switch {
				case id <= copies && j%30 > 1: // a part of the prompt, with a change now and then
					output = append(output, prompt[(j+7*id)%len(prompt)])
				default:
					output = append(output, kv.Token(200+(j*j*7+13*j+id*31)%800))
				}
			}
			b.add(Request{ID: RequestID(id), Prompt: prompt}, output)
		}
		if inflight == 1 {
			b.finish()
		} else {
			b.overlap()
		}
		times[i] = b.now
	}
	return float64(times[1]) / float64(times[0])
}

// overlap runs all requests with two plans in flight. The device waits for the host's time where no plan
// waits for it.
func (b *seer) overlap() {
	b.t.Helper()
	host := time.Duration(b.info.Cost.Host * 1e9)
	var plans []*Plan
	for {
		if p := b.s.Next(b.now); p != nil {
			if len(plans) == 0 {
				b.now += host
			}
			plans = append(plans, p)
			continue
		}
		if len(plans) == 0 {
			break
		}
		b.complete(plans[0])
		plans = plans[1:]
	}
	for id, want := range b.want {
		if !slices.Equal(b.got[id], want) {
			b.t.Errorf("request %d got %v, want %v", id, b.got[id], want)
		}
	}
}

// TestAutoGains: drafts that are worth it save time, and drafts that are not cost next to nothing, also if
// the backend is wrong about its costs.
func TestAutoGains(t *testing.T) {
	cost := engine.StepCost{Step: 40e-3, Row: 1e-3, Token: 10e-3, Pair: 1e-7, Context: 1e-6, Draft: 12e-3}
	cheap, dear, wide := cost, cost, cost
	cheap.Draft, dear.Draft, wide.Draft = 3e-3, 60e-3, 0.3e-3
	hosted, wideHosted := cheap, wide
	hosted.Host, wideHosted.Host = 5e-3, 5e-3
	for _, tc := range []struct {
		name               string
		cost, truth        engine.StepCost
		inflight, requests int
		copies             int
		least, most        float64
	}{
		{"one copies", cost, cost, 1, 1, 1, 0, 0.65},
		{"one copies, cheap", cheap, cheap, 1, 1, 1, 0, 0.42},
		{"one copies, dear", dear, dear, 1, 1, 1, 1, 1.01},
		{"one copies, cheaper than known", dear, cheap, 1, 1, 1, 0, 0.8},
		{"one copies, dearer than known", cheap, dear, 1, 1, 1, 0, 1.1},
		{"sixteen copy", wide, wide, 1, 16, 16, 0, 0.75},
		{"one writes", cheap, cheap, 1, 1, 0, 0.9, 1.02},
		{"sixteen write", cheap, cheap, 1, 16, 0, 0.9, 1.02},
		{"one copies, two plans", hosted, hosted, 2, 1, 1, 0, 0.45},
		{"sixteen copy, two plans", wideHosted, wideHosted, 2, 16, 16, 0, 0.8},
		{"eight of sixteen copy, two plans", wideHosted, wideHosted, 2, 16, 8, 0, 0.97},
		{"one of sixteen copies, two plans", wideHosted, wideHosted, 2, 16, 1, 0, 1.02},
		{"sixteen write, two plans", hosted, hosted, 2, 16, 0, 0.9, 1.02},
	} {
		got := auto(t, tc.cost, tc.truth, tc.inflight, tc.requests, tc.copies)
		t.Logf("%s: %.3f of the time", tc.name, got)
		if got < tc.least || got > tc.most {
			t.Errorf("%s: %.3f of the time without drafts, want %.3f to %.3f", tc.name, got, tc.least, tc.most)
		}
	}
}

// TestForcedDrafts: what a format leaves no choice about is drafted with the masks after each guess, and
// a sequence of one format takes fewer steps than tokens.
func TestForcedDrafts(t *testing.T) {
	tokens := []string{"", "{", "}", `"`, `{"`, `":`, "name", "na", "1", "2", ",", `,"`, "age"}
	vocab := grammar.NewVocabulary(1000, func(t kv.Token) []byte {
		if int(t) < len(tokens) {
			return []byte(tokens[t])
		}
		return nil
	})
	format := compiled(t, vocab, `\{"name":[12],"age":[12]\}`)
	want := []kv.Token{4, 6, 5, 8, 11, 12, 5, 9, 2}
	b := newSeer(t, Config{Speculate: 8}, engine.StepCost{})
	b.want[1] = append(slices.Clone(want), 0)
	if err := b.s.Add(0, Request{ID: 1, Prompt: []kv.Token{20}, MaxTokens: 30, Format: format}); err != nil {
		t.Fatal(err)
	}
	rows := 0
	for {
		p := b.s.Next(b.now)
		if p == nil {
			break
		}
		rows++
		for i := range p.Batch.Rows {
			r := &p.Batch.Rows[i]
			for j := range r.Drafts {
				if !p.masks.Allows(r.MaskAt(j), r.Drafts[j]) || p.masks.Allows(r.MaskAt(j), 13) {
					t.Errorf("row %d: the mask of guess %d, token %d, is not that of its place", rows, j, r.Drafts[j])
				}
			}
		}
		b.complete(p)
	}
	e := b.ends[1]
	if e.Reason != Stop || !slices.Equal(b.got[1], want) || rows != 4 || e.Drafts.Accepted[DraftGrammar] != 5 {
		t.Errorf("%d rows give %d, ending %+v", rows, b.got[1], e)
	}
}

// TestTreeDrafts: a request goes on as another one of its namespace did; one of another namespace, and
// one without a cache, does not.
func TestTreeDrafts(t *testing.T) {
	for _, tc := range []struct {
		salt     string
		public   int
		uncached bool
		accepted bool
	}{{"a", 0, false, true}, {"b", 0, false, false}, {"", 0, false, false}, {"a", 0, true, false}, {"b", 64, false, false}} {
		b := newSeer(t, Config{Speculate: 16, DisableCache: tc.uncached}, engine.StepCost{})
		prompt, output := upFrom(100, 64), upFrom(500, 80)
		b.add(Request{ID: 1, Prompt: append(slices.Clone(prompt), 1), Namespace: kv.Namespace{Salt: "a"}, PublicTokens: tc.public}, output)
		b.finish()
		b.add(Request{ID: 2, Prompt: append(slices.Clone(prompt), 2), Namespace: kv.Namespace{Salt: tc.salt}, PublicTokens: tc.public}, append(upFrom(500, 60), 3))
		b.finish()
		if got := b.ends[2].Drafts.Accepted[DraftTree]; got > 0 != tc.accepted || got > 0 && got < 40 {
			t.Errorf("%+v: %d tokens of the tree are right", tc, got)
		}
		b = newSeer(t, Config{Speculate: 16}, engine.StepCost{}) // a prompt that another salt has, public or not
		b.add(Request{ID: 1, Prompt: prompt, Namespace: kv.Namespace{Salt: "a"}, PublicTokens: tc.public}, upFrom(1, 2))
		b.finish()
		b.add(Request{ID: 2, Prompt: append([]kv.Token{9}, prompt[:8]...), Namespace: kv.Namespace{Salt: tc.salt}}, prompt[8:40])
		b.finish()
		if got := b.ends[2].Drafts.Accepted[DraftTree] > 0; got != (tc.salt == "a") {
			t.Errorf("%+v: another prompt suggests tokens: %v", tc, got)
		}
	}
}

// TestDraftsKeepTheTarget: drafts take the part of a step's target time that the rows leave, and prompts
// what drafts leave, but their least.
func TestDraftsKeepTheTarget(t *testing.T) {
	cost := engine.StepCost{Step: 40e-3, Row: 1e-3, Token: 0.5e-3, Draft: 2e-3}
	const target = 60 * time.Millisecond
	b := newSeer(t, Config{Speculate: 16, ITLTarget: target, StepTokens: 256, PromptFloor: 16}, cost)
	text := upFrom(100, 80)
	for id := RequestID(1); id <= 2; id++ {
		b.add(Request{ID: id, Prompt: append(slices.Clone(text), text[:4]...)}, slices.Concat(text[4:], text, text[:60]))
	}
	b.step() // the prompts alone
	b.add(Request{ID: 3, Prompt: upFrom(300, 400)}, upFrom(1, 2))
	drafted, prompts := 0, 0
	for b.s.Open() > 0 {
		p := b.s.Next(b.now)
		shape := p.shape()
		if took := time.Duration(1e9 * (cost.Fixed(&shape) + cost.Prompts(&shape))); took > target*21/20 && shape.Rows > 1 {
			t.Errorf("a step of %d rows, %d drafts and %d tokens of prompts takes %v, want at most %v", shape.Rows, shape.Drafts, shape.PromptTokens, took, target)
		}
		drafted, prompts = drafted+shape.Drafts, prompts+shape.PromptTokens
		b.complete(p)
	}
	if drafted < 100 || prompts < 380 { // a chunk of one token counts as a row
		t.Errorf("%d drafts and %d tokens of prompts", drafted, prompts)
	}
}

// TestDraftsBeyondTheTarget: where a row alone takes longer than the target, as with large models, drafts go
// on: as many as are worth it for one sequence, and until they double the step beside others.
func TestDraftsBeyondTheTarget(t *testing.T) {
	cost := engine.StepCost{Step: 60e-3, Row: 1e-3, Token: 4e-3, Draft: 8e-3}
	for _, tc := range []struct{ requests, least, most int }{{1, 15, 64}, {2, 6, 8}} {
		b := newSeer(t, Config{Speculate: SpeculateAuto, ITLTarget: 50 * time.Millisecond}, cost)
		text := upFrom(100, 80)
		for id := range RequestID(tc.requests) {
			b.add(Request{ID: id + 1, Prompt: append(slices.Clone(text), text[:4]...)}, slices.Concat(text[4:], text, text[:60]))
		}
		drafted := 0
		for b.s.Open() > 0 {
			p := b.s.Next(b.now)
			if shape := p.shape(); shape.Rows == tc.requests {
				drafted = max(drafted, shape.Drafts)
			}
			b.complete(p)
		}
		if drafted < tc.least || drafted > tc.most {
			t.Errorf("%d requests: at most %d drafts in a step, want %d to %d", tc.requests, drafted, tc.least, tc.most)
		}
	}
}
