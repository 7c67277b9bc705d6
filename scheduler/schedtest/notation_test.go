package schedtest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

func TestTokens(t *testing.T) {
	s := NewScript()
	o := &order{req: scheduler.Request{Prompt: []kv.Token{1, 2, 3}}, samples: []*sample{{got: []kv.Token{9, 8}}}}
	s.orders = map[scheduler.RequestID]*order{7: o}
	for _, tc := range []struct {
		items string
		want  []kv.Token
		err   string
	}{
		{"17", []kv.Token{17}, ""},
		{"0..3", []kv.Token{0, 1, 2, 3}, ""},
		{"ab", []kv.Token{97, 98}, ""},
		{"ab*2, 5*3", []kv.Token{97, 98, 97, 98, 5, 5, 5}, ""},
		{"@7", []kv.Token{1, 2, 3, 9, 8}, ""},
		{"@7.out", []kv.Token{9, 8}, ""},
		{"@7.prompt:2, 4", []kv.Token{1, 2, 4}, ""},
		{"5*0", nil, ""},
		{"", nil, ""},
		{"3..1", nil, "want a range"},
		{"0..99999999", nil, "want a range"},
		{"a*x", nil, "how often"},
		{"A", nil, "want a number"},
		{"@8", nil, "no such request"},
		{"@7.end", nil, "want .prompt or .out"},
		{"@7:6", nil, "want a cut"},
	} {
		got, err := s.parseTokens(strings.Split(tc.items, ","))
		if tc.err == "" && (err != nil || !slices.Equal(got, tc.want)) {
			t.Errorf("%q: %v, %v, want %v", tc.items, got, err, tc.want)
		}
		if tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%q: error %v, want one with %q", tc.items, err, tc.err)
		}
	}
}

// TestTokensReadAsWritten: parseTokens parses the output of formatTokens.
func TestTokensReadAsWritten(t *testing.T) {
	rng := newStream(1, "tokens")
	s := NewScript()
	for range 200 {
		var tokens []kv.Token
		for range rng.IntN(6) {
			first := kv.Token(rng.IntN(128))
			for k := range kv.Token(rng.between(1, 5)) {
				tokens = append(tokens, pick(rng, first, first+k))
			}
		}
		text := formatTokens(tokens)
		got, err := s.parseTokens(strings.Split(text, ","))
		if err != nil || !slices.Equal(got, tokens) {
			t.Fatalf("%v is written %q and read %v, %v", tokens, text, got, err)
		}
	}
}

// TestBadCommands: an invalid command returns an error, and the script continues.
func TestBadCommands(t *testing.T) {
	s := NewScript()
	arg := func(key string, vals ...string) Arg { return Arg{key, vals} }
	for _, tc := range []struct {
		cmd  string
		args []Arg
		want string
	}{
		{"add", nil, "init comes first"},
		{"init", []Arg{arg("policy", "best")}, "unknown policy"},
		{"init", []Arg{arg("pages", "0x")}, "pages: want a number"},
		{"init", []Arg{arg("lease", "1", "2")}, "lease: want"},
		{"init", []Arg{arg("step-tokens", "-1")}, "StepTokens is -1"},
		{"init", []Arg{arg("pages", "8"), arg("colour", "red")}, "colour: there is no such argument"},
		{"init", nil, "ok"},
		{"jump", nil, "no command"},
		{"complete", nil, "no plan runs"},
		{"why", []Arg{arg("id", "3")}, "no such request"},
		{"tick", []Arg{arg("soon")}, "want a time"},
		{"add", []Arg{arg("prompt", "a"), arg("deadline", "never")}, "deadline: want a time"},
		{"add", []Arg{arg("prompt", "a"), arg("temp", "hot")}, "temp: want a number"},
		{"add", []Arg{arg("prompt", "a"), arg("seed", "5")}, "ok"},
		{"add", []Arg{arg("prompt", "a"), arg("seed", "5")}, "seed 5 is an open request's"},
		{"run", nil, "1 step"},
	} {
		if tc.cmd == "run" {
			s.Do("abort", arg("id", "1"))
			s.Do("add", arg("prompt", "a"), arg("max", "1"))
		}
		if got := s.Do(tc.cmd, tc.args...); !strings.Contains(got, tc.want) {
			t.Errorf("%s %v: %q, want %q", tc.cmd, tc.args, got, tc.want)
		}
	}
}

func TestOptions(t *testing.T) {
	o := Options{Seed: 3, Faults: true}.WithDefaults()
	if got, want := o.Command(), "coppice sim --seed 3 --steps 300 --faults"; got != want {
		t.Errorf("command %q, want %q", got, want)
	}
	_, err := Run(Options{Steps: -1})
	if err == nil || !strings.Contains(err.Error(), "Steps is -1") {
		t.Errorf("error %v, want one that names Steps", err)
	}
}

// TestFailureIsOneLine: the line has the checker, the seed, the step, the fault and the
// command.
func TestFailureIsOneLine(t *testing.T) {
	_, err := Run(Options{Seed: 1, Steps: 60}.planted(GrantTwice))
	for seed := uint64(2); err == nil && seed < 50; seed++ {
		_, err = Run(Options{Seed: seed, Steps: 60}.planted(GrantTwice))
	}
	var f *Failure
	if !errors.As(err, &f) {
		t.Fatalf("error %v, want a failure", err)
	}
	text := f.Error()
	for _, want := range []string{"ledger: ", "seed ", "step ", "page ", "replay: coppice sim --seed "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
	if strings.Contains(text, "\n") {
		t.Errorf("%q is more than a line", text)
	}
}

func TestReportString(t *testing.T) {
	r := Report{
		Options: Options{Seed: 9}, World: "40 pages of 4", Digest: 0xabc, Steps: make([]uint64, 3), Requests: 5, Refused: 2,
		OutputTokens: 12, RanTokens: 70, PromptTokens: 80, CachedTokens: 20, CopiedPages: 1, Preemptions: 1, Messages: 4, Events: 6, Compared: 2, Time: 5e6,
	}
	r.Endings[scheduler.Stop], r.Endings[scheduler.Abort] = 3, 2
	want := `world:    seed 9: 40 pages of 4
steps:    3 in 5ms of virtual time, 70 tokens run
requests: 5 accepted, 2 refused, 0 samples displaced, 1 preemptions
endings:  3 stop, 2 abort
tokens:   80 prompt, 20 cached (25.0 %), 12 output, 1 boundary pages copied
traffic:  4 messages to and from the pool, 6 cache events, 2 comparisons with the tree
digest:   0000000000000abc
`
	if got := r.String(); got != want {
		t.Errorf("report\n%s\nwant\n%s", got, want)
	}
}
