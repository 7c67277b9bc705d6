package load

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

func TestSchedule(t *testing.T) {
	base := Arrivals{Rate: 20, Seed: 5}
	got := base.Schedule(2000, 0)
	if !reflect.DeepEqual(got, base.Schedule(2000, 0)) || !slices.IsSorted(got) || len(got) != 2000 {
		t.Fatal("not the same twice, or not ascending")
	}
	if last := got[len(got)-1]; last < 100*time.Second-time.Microsecond || last > 100*time.Second+time.Microsecond {
		t.Errorf("2000 at 20/s end at %v", last)
	}
	if other := (Arrivals{Rate: 20, Seed: 6}).Schedule(2000, 0); reflect.DeepEqual(got, other) {
		t.Error("another seed gives the same")
	}
	if cut := base.Schedule(2000, 10*time.Second); !reflect.DeepEqual(cut, got[:len(cut)]) || cut[len(cut)-1] >= 10*time.Second || got[len(cut)] < 10*time.Second {
		t.Errorf("cut at 10 s: %d, the last at %v", len(cut), cut[len(cut)-1])
	}
	for _, tc := range []struct {
		burstiness, deviation, within float64 // deviation of the gaps over their mean: 1/sqrt(shape)
	}{{1, 1, 0.1}, {0.25, 2, 0.3}, {4, 0.5, 0.05}, {0.5, math.Sqrt2, 0.2}, {math.Inf(1), 0, 1e-6}} {
		a := base
		a.Burstiness = tc.burstiness
		if d := deviation(a.Schedule(4000, 0)); math.Abs(d-tc.deviation) > tc.within {
			t.Errorf("burstiness %v: gaps deviate by %.3f of their mean, want %.3f", tc.burstiness, d, tc.deviation)
		}
	}
	open := base.Schedule(0, 100*time.Second)
	if n := len(open); n < 1850 || n > 2150 { // about 3 standard deviations of a Poisson count of 2000
		t.Errorf("%d in 100 s at 20/s", n)
	}
	if at := (Arrivals{Rate: math.Inf(1)}).Schedule(3, 0); !reflect.DeepEqual(at, []time.Duration{0, 0, 0}) {
		t.Errorf("all at once: %v", at)
	}
}

func deviation(at []time.Duration) float64 {
	var gaps []float64
	sum, squares := 0.0, 0.0
	for i, t := range at {
		if i > 0 {
			gaps = append(gaps, (t - at[i-1]).Seconds())
		}
	}
	for _, g := range gaps {
		sum += g
	}
	mean := sum / float64(len(gaps))
	for _, g := range gaps {
		squares += (g - mean) * (g - mean)
	}
	return math.Sqrt(squares/float64(len(gaps))) / mean
}

func TestRamps(t *testing.T) {
	for ramp, middle := range map[Ramp]float64{Linear: 50.5, Exponential: 10} {
		a := Arrivals{Rate: 100, From: 1, Ramp: ramp, Burstiness: math.Inf(1)}
		at := a.Schedule(1001, 0)
		for i, want := range map[int]float64{1: 1, 500: middle, 1000: 100} {
			if rate := 1 / (at[i] - at[i-1]).Seconds(); math.Abs(rate-want)/want > 0.11 {
				t.Errorf("%v: %.2f/s at request %d, want %.2f", ramp, rate, i, want)
			}
		}
		timed := a.Schedule(0, 20*time.Second)
		early, late := 0, 0
		for _, at := range timed {
			if at < 10*time.Second {
				early++
			} else {
				late++
			}
		}
		if early == 0 || late < 2*early {
			t.Errorf("%v over 20 s: %d, then %d", ramp, early, late)
		}
	}
}

func TestRandomLengths(t *testing.T) {
	d := ids(100, 10)
	d.RangeRatio = 0.3
	seen := map[int]bool{}
	for i := range 2000 {
		turn := d.Session(i).Turns[0]
		n := len(turn.User.Tokens)
		seen[n] = true
		if n < 70 || n > 130 || turn.OutputTokens < 7 || turn.OutputTokens > 13 {
			t.Fatalf("%d in, %d out", n, turn.OutputTokens)
		}
		for _, id := range turn.User.Tokens {
			if id < 1000 || id >= 32000 {
				t.Fatalf("token %d", id)
			}
		}
	}
	if len(seen) != 61 {
		t.Errorf("%d lengths of 61", len(seen))
	}
	if !reflect.DeepEqual(d.Session(7), d.Session(7)) || reflect.DeepEqual(d.Session(7), d.Session(8)) {
		t.Error("a session is not the same twice, or all are")
	}
	text := (&Random{InputTokens: 12, OutputTokens: 1}).Session(0).Turns[0].User
	if len(strings.Fields(text.Text)) != 12 || text.Len() != 12 || text.Tokens != nil {
		t.Errorf("%+v", text)
	}
	for _, bad := range []*Random{ids(0, 1), ids(1, 0), ids(MaxLength+1, 1), {InputTokens: 1, OutputTokens: 1, RangeRatio: 1}, {InputTokens: 1, OutputTokens: 1, RangeRatio: math.NaN()}} {
		if bad.Validate() == nil {
			t.Errorf("%v is taken", bad)
		}
	}
	if err := ids(MaxLength, 1).Validate(); err != nil {
		t.Error(err)
	}
}

func TestWordsAreDistinct(t *testing.T) {
	sorted := slices.Sorted(slices.Values(words))
	if len(slices.Compact(sorted)) != len(words) || len(words) < 500 {
		t.Errorf("%d words, %d of them different", len(words), len(slices.Compact(sorted)))
	}
}

func TestSharedPrefixes(t *testing.T) {
	cfg := SharedPrefix{Vocabulary: VocabularyOf(500), Groups: 5, PromptsPerGroup: 7, PrefixTokens: 30, SuffixTokens: 4, OutputTokens: 2, Seed: 1}
	for _, cfg.Ordered = range []bool{false, true} {
		d, err := NewSharedPrefix(cfg)
		if err != nil || d.Sessions() != 35 {
			t.Fatal(d, err)
		}
		prefixes, prompts, changes := map[string]int{}, map[string]bool{}, 0
		last := ""
		for i := range d.Sessions() {
			s := d.Session(i)
			p := fmt.Sprint(s.System.Tokens)
			if prefixes[p]++; p != last {
				changes++
			}
			last = p
			prompts[p+fmt.Sprint(s.Turns[0].User.Tokens)] = true
			if len(s.System.Tokens) != 30 || len(s.Turns[0].User.Tokens) != 4 {
				t.Fatalf("%+v", s)
			}
		}
		if len(prefixes) != 5 || len(prompts) != 35 || (changes == 5) != cfg.Ordered {
			t.Errorf("%d prefixes, %d prompts, %d changes", len(prefixes), len(prompts), changes)
		}
		for _, n := range prefixes {
			if n != 7 {
				t.Errorf("a prefix with %d prompts", n)
			}
		}
	}
	cfg.Groups = 0
	if _, err := NewSharedPrefix(cfg); err == nil {
		t.Error("no groups are taken")
	}
	cfg.Groups, cfg.PromptsPerGroup = 1<<12, 1<<12
	if _, err := NewSharedPrefix(cfg); err == nil {
		t.Error("16 million prompts are taken")
	}
}

const trace = `{"timestamp": 0, "input_length": 1100, "output_length": 50, "hash_ids": [0, 1, 2]}

{"timestamp": 3000, "input_length": 1024, "output_length": 0, "hash_ids": [0, 1], "more": true}
{"timestamp": 3000, "input_length": 600, "output_length": 7, "hash_ids": [5, 1]}
`

// mooncake reads a trace from a text.
func mooncake(text string, cfg TraceConfig) (*mooncakeTrace, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	return readTrace(strings.NewReader(text), cfg)
}

func TestTrace(t *testing.T) {
	d, err := mooncake(trace, TraceConfig{Vocabulary: VocabularyOf(32000), Speedup: 2})
	if err != nil || d.Sessions() != 3 {
		t.Fatal(d, err)
	}
	a, b, c := d.Session(0), d.Session(1), d.Session(2)
	ta, tb, tc := a.Turns[0].User.Tokens, b.Turns[0].User.Tokens, c.Turns[0].User.Tokens
	if len(ta) != 1100 || len(tb) != 1024 || len(tc) != 600 || a.At != 0 || b.At != 1500*ms || c.At != 1500*ms || a.Turns[0].OutputTokens != 50 || b.Turns[0].OutputTokens != 1 {
		t.Fatalf("lengths %d, %d, %d at %v, %v, %v", len(ta), len(tb), len(tc), a.At, b.At, c.At)
	}
	if shared(ta, tb) != 1024 || shared(ta, tc) != 0 || !slices.Equal(tc[512:], ta[512:600]) {
		t.Errorf("shared %d and %d", shared(ta, tb), shared(ta, tc))
	}
	small, err := mooncake(trace, TraceConfig{Vocabulary: VocabularyOf(250), Scale: 32})
	if err != nil {
		t.Fatal(err)
	}
	ta, tb = small.Session(0).Turns[0].User.Tokens, small.Session(1).Turns[0].User.Tokens
	if len(ta) != 35 || len(tb) != 32 || shared(ta, tb) != 32 || small.Session(0).Turns[0].OutputTokens != 2 {
		t.Errorf("scaled: %d and %d, shared %d", len(ta), len(tb), shared(ta, tb))
	}
	words, err := mooncake(trace, TraceConfig{})
	if err != nil || !strings.HasPrefix(words.Session(0).Turns[0].User.Text, words.Session(1).Turns[0].User.Text+" ") {
		t.Errorf("words do not share: %v", err)
	}
}

func shared(a, b []kv.Token) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func TestBadTraces(t *testing.T) {
	for text, want := range map[string]string{
		"": "empty", "{": "line 1: want a JSON object", `{"timestamp":0}`: "missing",
		`{"timestamp":0,"input_length":513,"output_length":1,"hash_ids":[1]}`:           "1 hash_ids for input_length 513, want 2",
		`{"timestamp":-1,"input_length":5,"output_length":1,"hash_ids":[1]}`:            "timestamp is -1",
		`{"timestamp":0,"input_length":0,"output_length":1,"hash_ids":[]}`:              "input_length is 0",
		`{"timestamp":0,"input_length":1,"output_length":-1,"hash_ids":[1]}`:            "output_length is -1",
		`{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[-1]}`:            "line 1",
		strings.Split(trace, "\n")[2] + "\n" + strings.Split(trace, "\n")[0]:            "line 2: timestamp 0 comes after 3000",
		trace + `{"timestamp":1e300,"input_length":1,"output_length":1,"hash_ids":[1]}`: "line 5: timestamp",
	} {
		if _, err := mooncake(text, TraceConfig{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for _, cfg := range []TraceConfig{{Speedup: -1}, {Scale: 3}, {Scale: 1024}, {Speedup: math.NaN()}} {
		if _, err := mooncake(trace, cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
	if _, err := OpenTrace("no/such/file", AnyFormat, TraceConfig{}); err == nil {
		t.Error("a file that is not there")
	}
}

func TestPromptFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	p, err := OpenPrompts(write("a.jsonl", `{"prompt":"What is light?","output_tokens":9}`+"\n\n"+`{"prompt":"And heat?","more":1}`+"\n"), 5)
	if err != nil || p.Sessions() != 2 || p.String() != "prompts: 2 of a.jsonl" {
		t.Fatal(p, err)
	}
	if a, b := p.Session(0).Turns[0], p.Session(1).Turns[0]; a.User.Text != "What is light?" || a.OutputTokens != 9 || b.User.Text != "And heat?" || b.OutputTokens != 5 {
		t.Errorf("%+v, %+v", a, b)
	}
	p, err = OpenPrompts(write("a.txt", "one\r\n{\"prompt\"}\n"), 5)
	if err != nil || p.Sessions() != 2 || p.Session(0).Turns[0].User.Text != "one" || p.Session(1).Turns[0].User.Text != `{"prompt"}` {
		t.Errorf("%+v, %v", p, err)
	}
	for text, want := range map[string]string{"": "empty", "x": "line 1", `{"prompt":""}`: "missing", `{"prompt":"a","output_tokens":0}`: "output_tokens is 0"} {
		if _, err := OpenPrompts(write("bad.jsonl", text), 5); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestObjectives(t *testing.T) {
	var o Objectives
	if err := o.UnmarshalText([]byte("ttft:200ms, itl:50ms,tpot:1s,e2el:2m")); err != nil || o.String() != "ttft:200ms,tpot:1s,itl:50ms,e2el:2m0s" {
		t.Errorf("%v, %v", o, err)
	}
	for _, bad := range []string{"", "ttft", "ttft:5", "ttft:-1s", "speed:1s", "ttft:1s,ttft:2s"} {
		if o.UnmarshalText([]byte(bad)) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestRecord(t *testing.T) {
	slo := &Objectives{TTFT: 5 * ms}
	begin := time.Unix(0, 0)
	r := newRecord()
	for i := range 100 {
		s := &sample{sent: begin.Add(time.Duration(i) * 50 * ms), ttft: time.Duration(i+1) * ms / 10, gaps: []time.Duration{ms, 2 * ms}, e2el: time.Second, output: 3, prompt: 9, cached: i%3 - 1, lag: -1}
		if i%10 == 0 {
			s.failure, s.err = Busy, fmt.Errorf("busy %d", i)
		}
		r.add(s, begin, slo)
	}
	sum := 0.0
	for _, tokens := range r.seconds {
		sum += tokens
	}
	if d := r.itl.distribution(nil); len(r.seconds) != 5 || sum != 270 || d.Count != 180 || d.Min != ms || d.Max != 2*ms || d.Mean != 3*ms/2 {
		t.Errorf("%v tokens in %d seconds, gaps %+v", sum, len(r.seconds), d)
	}
	if r.completed != 90 || r.failed[Busy] != 10 || r.good != 45 || r.cached != 30 || r.cacheable != 60*9 || r.first[Busy].Error() != "busy 0" {
		t.Errorf("%+v", r)
	}
}
