package load

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// agents returns the data set with its default sizes, divided by scale.
func agents(scale int) *Agents {
	return &Agents{Vocabulary: VocabularyOf(32000), TurnCount: 40, InputTokens: 140_000, OutputTokens: 150, Scale: scale, Think: time.Second, Seed: 1}
}

// TestAgentsAreLikeTheRecordedOnes checks the figures that the doc comment of Agents claims.
func TestAgentsAreLikeTheRecordedOnes(t *testing.T) {
	for _, tc := range []struct{ scale, sessions int }{{1, 20}, {128, 300}} {
		d := agents(tc.scale)
		if err := d.Validate(); err != nil {
			t.Fatal(err)
		}
		var all agentFigures
		for i := range tc.sessions {
			all.add(t, d, d.Session(i))
		}
		turns, longest := middle(all.turns, 50), middle(all.longest, 90)*tc.scale
		branching, fresh := float64(all.branching)/float64(tc.sessions), float64(all.fresh)/float64(all.prompts)
		pause := all.think / time.Duration(all.requests)
		if turns < 33 || turns > 47 || longest < 130_000 || branching < 0.3 || branching > 0.6 || fresh > 0.05 || pause < d.Think*4/5 || pause > d.Think*6/5 {
			t.Errorf("scale %d: median of %d turns, 90th percentile of the longest prompts %d, %.2f with sub-agents, %.3f of the input new, mean pause %v",
				tc.scale, turns, longest, branching, fresh, pause)
		}
		if !reflect.DeepEqual(d.Session(3), d.Session(3)) || reflect.DeepEqual(d.Session(3).Turns, d.Session(4).Turns) {
			t.Error("a session is not the same twice, or all are")
		}
	}
}

func middle(all []int, percentile int) int {
	slices.Sort(all)
	return all[len(all)*percentile/100]
}

// agentFigures sums up sessions.
type agentFigures struct {
	turns, longest                      []int // by session
	branching, prompts, fresh, requests int
	think                               time.Duration
}

// add checks the lengths in a session and counts it.
func (f *agentFigures) add(t *testing.T, d *Agents, s Session) {
	t.Helper()
	if f.turns = append(f.turns, len(s.Turns)); s.requests(0) > len(s.Turns) {
		f.branching++
	}
	length := f.walk(t, d, s, len(s.System.Tokens))
	f.longest = append(f.longest, length-s.Turns[len(s.Turns)-1].OutputTokens)
}

// walk counts the turns of a session after a conversation of length tokens, and returns its length
// at the end.
func (f *agentFigures) walk(t *testing.T, d *Agents, s Session, length int) int {
	t.Helper()
	most := kv.CeilPages(d.InputTokens, d.Scale)
	for n, turn := range s.Turns {
		in := len(turn.User.Tokens)
		length += in
		f.prompts, f.fresh, f.think, f.requests = f.prompts+length, f.fresh+in, f.think+turn.Think, f.requests+1
		if n > 0 && (in < 20/d.Scale || in > kv.CeilPages(20_000, d.Scale)) || length > most || turn.OutputTokens < leastAnswer {
			t.Fatalf("%s: a message of %d tokens in a prompt of %d, an answer of %d", s.Name, in, length, turn.OutputTokens)
		}
		length += turn.OutputTokens
		for _, a := range turn.Agents {
			if !strings.HasPrefix(a.Name, s.Name+"/") {
				t.Fatalf("a sub-agent of %s is %s", s.Name, a.Name)
			}
			f.walk(t, d, a, length)
		}
	}
	return length
}

// TestSubAgentsContinueTheConversation plays a session whose first turn starts two sub-agents, and
// checks the order, the prompts and the names of all requests, and the ideal hit rate.
func TestSubAgentsContinueTheConversation(t *testing.T) {
	for _, named := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			part := func(first kv.Token, n int) Segment {
				s := Segment{}
				for i := range n {
					s.Tokens = append(s.Tokens, first+kv.Token(i))
				}
				return s
			}
			turn := func(first kv.Token, think time.Duration) Turn {
				return Turn{User: part(first, 4), OutputTokens: 2, Think: think}
			}
			one := turn(100, 0)
			one.Agents = []Session{{Name: "a/1", Turns: []Turn{turn(200, 0), turn(300, time.Second)}}, {Name: "a/2", Turns: []Turn{turn(400, 0)}}}
			d := &fixed{[]Session{{Name: "a", System: part(10, 8), Turns: []Turn{one, turn(500, time.Minute)}}}}
			f := &fake{answer: func(w *writer, n int, q query) {
				time.Sleep(10 * ms)
				w.event(`{"choices":[{"text":"x","token_ids":[7]}]}`)
				w.event(`{"choices":[{"text":"y","token_ids":[8]}]}`)
				w.end(len(q.tokens), 2, `,"prompt_tokens_details":{"cached_tokens":8}`)
			}}
			begin := time.Now()
			r, err := Run(t.Context(), dialFake(t, f, ClientConfig{Options: Options{NoSessionNames: !named}}), d, Config{Concurrency: 1}, nil)
			if err != nil || r.Completed != 5 || len(r.Notes) != 0 {
				t.Fatalf("%v: %+v", err, r)
			}
			base := 8 + 4 + 2 // at the fork: system prompt, first message and its answer
			want := map[string]struct {
				at     time.Duration
				length int
			}{
				"[100]": {0, 12}, "[200]": {10 * ms, base + 4}, "[400]": {10 * ms, base + 4},
				"[300]": {time.Second + 20*ms, base + 4 + 2 + 4}, "[500]": {time.Minute + time.Second + 30*ms, base + 4},
			}
			names := map[string]string{"[100]": "a", "[200]": "a/1", "[300]": "a/1", "[400]": "a/2", "[500]": "a"}
			for _, q := range f.queries {
				key := fmt.Sprint(q.tokens[len(q.tokens)-4 : len(q.tokens)-3])
				if w := want[key]; q.at.Sub(begin) != w.at || len(q.tokens) != w.length {
					t.Errorf("%s came at %v with %d tokens, want %v with %d", key, q.at.Sub(begin), len(q.tokens), w.at, w.length)
				}
				name := any(names[key])
				if !named {
					name = nil
				}
				if q.body["prompt_cache_key"] != name || q.session != fmt.Sprint(name) && named || !named && q.session != "" {
					t.Errorf("%s is of session %v and %q, want %v", key, q.body["prompt_cache_key"], q.session, name)
				}
				delete(want, key)
			}
			// The first prompt is new, and so are the messages of 4 tokens and the last token of each
			// answer, the first time that it is in a prompt: the sub-agents and the second turn all
			// continue the first answer.
			ideal := 0 + (base - 1) + base + (base + 4 + 2 - 1) + base
			all := 12 + 3*(base+4) + base + 4 + 2 + 4
			if len(want) > 0 || r.IdealTokens != ideal || r.IdealOf != all || r.NewTokens != all-ideal || r.RecomputedTokens != ideal-4*8 {
				t.Errorf("ideal %d of %d, %d new and %d recomputed; want %d of %d", r.IdealTokens, r.IdealOf, r.NewTokens, r.RecomputedTokens, ideal, all)
			}
		})
	}
}

// fixed is a data set of given sessions.
type fixed struct{ sessions []Session }

func (d *fixed) Sessions() int                { return len(d.sessions) }
func (d *fixed) Requests() (fewest, most int) { return 1, 100 }
func (d *fixed) Session(i int) Session        { return d.sessions[i] }
func (d *fixed) String() string               { return "fixed" }

// TestSubAgentsOfAFailedTurn: a failed sub-agent ends alone, and a failed turn ends the session with
// the sub-agents that were to come.
func TestSubAgentsOfAFailedTurn(t *testing.T) {
	for fails, want := range map[string]struct{ completed, skipped int }{"first": {0, 4}, "agent": {3, 1}, "last": {4, 0}} {
		synctest.Test(t, func(t *testing.T) {
			say := func(text string) Turn { return Turn{User: Segment{Text: text, Words: 1}, OutputTokens: 1} }
			one := say("first")
			one.Agents = []Session{{Turns: []Turn{say("agent"), say("agent2")}}, {Turns: []Turn{say("other")}}}
			d := &fixed{[]Session{{Turns: []Turn{one, say("last")}}}}
			f := &fake{answer: func(w *writer, n int, q query) {
				if strings.HasSuffix(q.text, fails) {
					w.WriteHeader(500)
					return
				}
				steady(ms, ms, 1)(w, n, q)
			}}
			r, err := Run(t.Context(), dialFake(t, f, ClientConfig{}), d, Config{Concurrency: 1}, nil)
			if err != nil || r.Completed != want.completed || r.Failed != 1 || r.Skipped != want.skipped {
				t.Errorf("%s fails: %v, %d completed, %d failed, %d skipped, want %+v", fails, err, r.Completed, r.Failed, r.Skipped, want)
			}
		})
	}
}
