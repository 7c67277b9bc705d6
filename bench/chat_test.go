package bench

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

var nano *model.Model

func TestMain(m *testing.M) {
	os.Exit(func() int {
		tmp, err := os.MkdirTemp("", "coppice-bench-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(tmp)
		if err := random.Generate(filepath.Join(tmp, "nano"), random.Spec{Preset: random.Nano, Seed: 1}); err != nil {
			panic(err)
		}
		if nano, err = model.Open(filepath.Join(tmp, "nano")); err != nil {
			panic(err)
		}
		defer nano.Close()
		return m.Run()
	}())
}

// late is a device that returns no result before all clients have submitted a request,
// so that the clients run concurrently.
type late struct {
	engine.Backend
	begun chan struct{}
}

func (l late) Submit(b *engine.Batch) (engine.Ticket, error) {
	ticket, err := l.Backend.Submit(b)
	return lateTicket{ticket, l.begun}, err
}

type lateTicket struct {
	engine.Ticket
	begun <-chan struct{}
}

func (l lateTicket) Result() (*engine.Result, error) {
	<-l.begun
	return l.Ticket.Result()
}

func play(t *testing.T, load *Chat, cpuCfg cpu.Config, cfg scheduler.Config) (*Run, Summary, coppice.Stats) {
	t.Helper()
	backend, err := cpu.Open(nano, cpuCfg)
	if err != nil {
		t.Fatal(err)
	}
	d := late{backend, make(chan struct{})}
	node, err := coppice.Open(coppice.Config{Backend: d, Tokenizer: nano.Tokenizer(), Scheduler: cfg})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer close(d.begun)
		for open := 0; open < min(load.cfg.Clients, len(load.conversations)); {
			st, err := node.Stats(ctx)
			if err != nil {
				return
			}
			open = st.Scheduler.Running + st.Scheduler.Waiting
		}
	}()
	run, err := load.Play(ctx, node, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Close(); err != nil {
		t.Fatal(err)
	}
	st, err := node.Stats(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	s, err := Summarise(run, st)
	if err != nil {
		t.Fatal(err)
	}
	return run, s, st
}

func small(t *testing.T) *Chat {
	t.Helper()
	cfg := ChatConfig{Requests: 30, Turns: 3, SystemPrompts: 2, SystemBytes: 250, OutputTokens: 6, Clients: 4, Seed: 7}
	if underRace {
		cfg.Requests, cfg.Turns, cfg.SystemPrompts, cfg.SystemBytes = 6, 2, 1, 150
	}
	load, err := NewChat(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return load
}

// TestCacheSavesWorkAndChangesNothing runs the chat benchmark at a small size: with the
// cache fewer tokens are computed, all bits are equal, the hit rate is close to the
// ideal, and no page leaks.
func TestCacheSavesWorkAndChangesNothing(t *testing.T) {
	load := small(t)
	on, s, _ := play(t, load, cpu.Config{KVTokens: 1 << 15}, scheduler.Config{})
	off, cold, _ := play(t, load, cpu.Config{KVTokens: 1 << 15}, scheduler.Config{DisableCache: true})
	if same, why := Identical(on, off); !same {
		t.Error(why)
	}
	if s.Requests != load.Requests() || s.PromptTokens != cold.PromptTokens {
		t.Errorf("loads differ: %+v, %+v", s, cold)
	}
	for _, s := range []Summary{s, cold} {
		if s.ComputedTokens != s.PromptTokens-s.CachedTokens || s.LeakedPages != 0 {
			t.Errorf("books do not balance: %+v", s)
		}
	}
	if cold.CachedTokens != 0 || s.HitRate < 0.98*s.IdealHitRate || s.IdealHitRate < 0.5 {
		t.Errorf("hit rate %.4f of an ideal of %.4f; off %.4f", s.HitRate, s.IdealHitRate, cold.HitRate)
	}
}

// TestSameAnswersHoweverScheduled is the metamorphic test of the whole system: page
// size, chunking, policy and forced preemption change when and where tokens are
// computed, but no bit of the results.
func TestSameAnswersHoweverScheduled(t *testing.T) {
	load := small(t)
	want, _, _ := play(t, load, cpu.Config{KVTokens: 1 << 15}, scheduler.Config{})
	for _, tc := range []struct {
		name string
		cpu  cpu.Config
		cfg  scheduler.Config
	}{
		{name: "page=1", cpu: cpu.Config{KVTokens: 1 << 15, PageTokens: 1}},
		{name: "page=64", cpu: cpu.Config{KVTokens: 1 << 15, PageTokens: 64}},
		{name: "chunk=7", cpu: cpu.Config{KVTokens: 1 << 15}, cfg: scheduler.Config{StepTokens: 7}},
		{name: "chunk=512 one at a time", cpu: cpu.Config{KVTokens: 1 << 15}, cfg: scheduler.Config{StepTokens: 512, MaxRunning: 1}},
		{name: "lpm", cpu: cpu.Config{KVTokens: 1 << 15}, cfg: scheduler.Config{Policy: scheduler.LPM}},
		{name: "one thread", cpu: cpu.Config{KVTokens: 1 << 15, Threads: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, s, _ := play(t, load, tc.cpu, tc.cfg)
			if same, why := Identical(want, got); !same {
				t.Error(why)
			}
			if s.LeakedPages != 0 {
				t.Errorf("%d pages leaked", s.LeakedPages)
			}
		})
	}
}

// TestSameAnswersUnderPreemption runs on a pool for about one and a half requests,
// which their long answers outgrow. The first grant has all pages: with smaller grants
// requests would be admitted one after another, and none would be preempted.
func TestSameAnswersUnderPreemption(t *testing.T) {
	cfg, poolTokens := ChatConfig{Requests: 8, Turns: 1, SystemPrompts: 1, SystemBytes: 120, OutputTokens: 200, Clients: 4, Seed: 7}, 700
	if underRace {
		cfg.Requests, cfg.OutputTokens, poolTokens = 3, 60, 448
	}
	load, err := NewChat(cfg)
	if err != nil {
		t.Fatal(err)
	}
	want, _, _ := play(t, load, cpu.Config{KVTokens: 1 << 15}, scheduler.Config{})
	for _, disable := range []bool{false, true} {
		got, s, st := play(t, load, cpu.Config{KVTokens: poolTokens, PageTokens: 4},
			scheduler.Config{DisableCache: disable, LeaseBulkPages: poolTokens / 4, LeaseHighPages: poolTokens / 4})
		if same, why := Identical(want, got); !same {
			t.Error(why)
		}
		// Under the race detector the load is small enough for the pool, if cached.
		if s.LeakedPages != 0 || st.Scheduler.Preemptions == 0 && (disable || !underRace) {
			t.Errorf("leaked pages, or nothing preempted:\n%v", st.Scheduler)
		}
	}
}

func TestIdenticalSeesDifferences(t *testing.T) {
	run := func(change func(x *exchange)) *Run {
		r := &Run{exchanges: []exchange{
			{conversation: 1, prompt: []kv.Token{1}, output: []kv.Token{2, 3}, logitDigest: 9},
			{conversation: 0, prompt: []kv.Token{4}, output: []kv.Token{5}, logitDigest: 8},
		}}
		change(&r.exchanges[0])
		return r
	}
	same := run(func(*exchange) {})
	if ok, why := Identical(same, run(func(*exchange) {})); !ok {
		t.Errorf("equal runs differ: %v", why)
	}
	for name, change := range map[string]func(*exchange){
		"token":        func(x *exchange) { x.output[1] = 4 },
		"length":       func(x *exchange) { x.output = x.output[:1] },
		"bits":         func(x *exchange) { x.logitDigest = 7 },
		"no digest":    func(x *exchange) { x.logitDigest = 0 },
		"prompt":       func(x *exchange) { x.prompt = []kv.Token{2} },
		"conversation": func(x *exchange) { x.conversation = 2 },
	} {
		if ok, _ := Identical(same, run(change)); ok {
			t.Errorf("another %s passes as identical", name)
		}
	}
	turned := &Run{exchanges: []exchange{same.exchanges[1], same.exchanges[0]}}
	for name, other := range map[string]*Run{
		"token":  run(func(x *exchange) { x.output[1] = 4 }),
		"length": run(func(x *exchange) { x.output = x.output[:1] }),
		"bits":   run(func(x *exchange) { x.logitDigest = 7 }),
	} {
		if other.Digest() == same.Digest() || turned.Digest() != same.Digest() {
			t.Errorf("digest %s, with another %s %s, in another order of submission %s", same.Digest(), name, other.Digest(), turned.Digest())
		}
	}
	if ok, _ := Identical(same, &Run{}); ok {
		t.Error("a run without requests passes as identical")
	}
}

func TestNewChatIsSeeded(t *testing.T) {
	a, _ := NewChat(ChatConfig{Seed: 3})
	b, _ := NewChat(ChatConfig{Seed: 3})
	c, _ := NewChat(ChatConfig{Seed: 4})
	text := func(l *Chat) string {
		var all []string
		for _, conv := range l.conversations {
			all = append(all, conv.turns...)
		}
		return strings.Join(all, "\n")
	}
	if text(a) != text(b) || text(a) == text(c) {
		t.Error("the seed does not decide the load")
	}
	if n := strings.Count(text(a), "user<|end_header_id|>"); n != a.Requests() || n < 200 {
		t.Errorf("%d questions in a load of %d", n, a.Requests())
	}
	if _, err := NewChat(ChatConfig{SystemBytes: 2}); err != nil { // shorter than the first word
		t.Error(err)
	}
	if _, err := NewChat(ChatConfig{Requests: -1, Turns: -2}); err == nil || !strings.Contains(err.Error(), "Turns is -2") {
		t.Errorf("negative sizes: %v", err)
	}
}

// The wait for a first piece of several tokens is TTFT, not a gap between tokens.
func TestTokensThatComeTogether(t *testing.T) {
	var x exchange
	x.hear(90*time.Millisecond, []kv.Token{1, 2, 3})
	x.hear(10*time.Millisecond, []kv.Token{4, 5})
	gaps := []time.Duration{0, 0, 5 * time.Millisecond, 5 * time.Millisecond}
	if x.ttft != 90*time.Millisecond || !slices.Equal(x.gaps, gaps) || !slices.Equal(x.output, []kv.Token{1, 2, 3, 4, 5}) {
		t.Errorf("TTFT %v, gaps %v, output %v", x.ttft, x.gaps, x.output)
	}
}

func TestPercentile(t *testing.T) {
	var d []time.Duration
	for i := range 101 {
		d = append(d, time.Duration(100-i)*time.Millisecond)
	}
	if p50, p99 := Percentile(d, 50), Percentile(slices.Clone(d), 99); p50 != 50 || p99 != 99 {
		t.Errorf("p50 %v p99 %v", p50, p99)
	}
	// By definition: the smallest value that at least p percent of values do not exceed.
	for n := 1; n <= 300; n++ {
		d = d[:0]
		for i := range n {
			d = append(d, time.Duration(i+1)*time.Millisecond)
		}
		for _, p := range []int{1, 50, 90, 99, 100} {
			want := 1
			for 100*want < n*p {
				want++
			}
			if got := Percentile(d, p); got != float64(want) {
				t.Fatalf("p%d of 1 to %d ms is %v, want %d", p, n, got, want)
			}
		}
	}
	if Percentile(nil, 50) != 0 {
		t.Error("percentile of nothing")
	}
}

func TestJSONHasTheFields(t *testing.T) {
	got := reread[struct {
		On        map[string]any `json:"cache_on"`
		Off       map[string]any `json:"cache_off"`
		Identical bool           `json:"identical"`
	}](t, &Comparison{Identical: true})
	if !got.Identical {
		t.Errorf("%+v", got)
	}
	for _, figures := range []map[string]any{got.On, got.Off} {
		checkKeys(t, figures, `requests prompt_tokens computed_tokens cached_tokens hit_rate ideal_hit_rate
			ttft_ms_p50 ttft_ms_p99 itl_ms_p50 itl_ms_p99 output_tokens_per_s wall_s leaked_pages`)
	}
}
