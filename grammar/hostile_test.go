package grammar

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

func wantError(t *testing.T, rules Rules, limits Limits, want error, says string) {
	t.Helper()
	_, err := compile(vocabularyOf(byteTokens), rules, limits, 1<<16)
	if !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), says) {
		t.Errorf("error %v, want %v with %q", err, want, says)
	}
}

func TestInvalidRulesAreRefused(t *testing.T) {
	cycle := seq(lit("a"))
	cycle.Sub = append(cycle.Sub, cycle)
	for says, rules := range map[string]Rules{
		"there are none":        {},
		"nil expression":        {seq(nil)},
		"rule 1: nil":           {lit("a"), nil},
		"call of rule 3":        {ref(3)},
		"call of rule -1":       {ref(-1)},
		"want 0 ≤ Lo":           {runes('b', 'a')},
		"0x110000":              {runes('b', 0x110000)},
		"repeat from -1":        {times(lit("a"), -1, 2)},
		"repeat from 3 to 2":    {times(lit("a"), 3, 2)},
		"repeat from 0 to -2":   {times(lit("a"), 0, -2)},
		"2000000000":            {times(lit("a"), 0, 2000000000)},
		"repeat with 0":         {{Op: Repeat}},
		"it has none":           {{Op: Text, Sub: []*Expr{lit("a")}}},
		"unknown operation 9":   {{Op: 9}},
		"part of itself":        {cycle},
		"rule 0 calls itself":   {either(lit("a"), seq(ref(0), lit("a")))},
		"rule 1 calls itself":   {seq(lit("x"), ref(1)), either(lit("a"), seq(star(lit("b")), ref(1)))},
		"rule 0 calls itself b": {either(lit("a"), seq(times(lit("b"), 0, 90), ref(0)))},
	} {
		wantError(t, rules, Limits{}, ErrInvalid, says)
		if err := rules.Validate(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: Validate: %v", says, err)
		}
	}
	wantError(t, Rules{seq(lit("a"), ref(0))}, Limits{}, ErrNothing, "no text")
	wantError(t, Rules{either()}, Limits{}, ErrNothing, "no text")
	wantError(t, Rules{seq(lit("a"), runes(0xd800, 0xdfff))}, Limits{}, ErrNothing, "no text")
}

func TestLimits(t *testing.T) {
	var many []*Expr
	for i := range 3000 {
		many = append(many, lit(fmt.Sprintf("%d-%d", i*7919%10007, i)))
	}
	rules := Rules{either(many...)}
	wantError(t, rules, Limits{Exprs: 1000}, ErrTooLarge, "Limits.Exprs")
	wantError(t, rules, Limits{Nodes: 1000}, ErrTooLarge, "Limits.Nodes")
	wantError(t, rules, Limits{Bytes: 20000}, ErrTooLarge, "Limits.Bytes")
	if _, err := compile(vocabularyOf(byteTokens), rules, Limits{Exprs: 6002, Nodes: 40000, Bytes: 4 << 20}, 100); err != nil {
		t.Error(err)
	}
}

func TestHostileRules(t *testing.T) {
	deep := lit("x")
	for range 100_000 {
		deep = seq(lit("("), deep, lit(")"))
	}
	deepOnly := lit("x")
	for range 100_000 {
		deepOnly = times(seq(deepOnly), 0, 3)
	}
	doubled := lit("x")
	for range 60 {
		doubled = seq(doubled, doubled)
	}
	var chain, mesh, tails Rules
	for i := range 8_000 {
		chain = append(chain, seq(lit("a"), ref((i+1)%8_000), lit("b")))
	}
	for i := range 8_000 {
		tails = append(tails, either(seq(lit("a"), ref((i+1)%8_000)), seq(lit("b"), ref((i+8_000-1)%8_000)), lit(".")))
	}
	chain[77] = either(chain[77], lit("."))
	for i := range 300 {
		mesh = append(mesh, either(lit("x"), seq(lit("a"), ref(i*7%300), ref(i*13%300)), seq(lit("a"), ref(i*11%300)), seq(lit("b"), ref(i*3%300))))
	}
	twice := lit("a")
	for range 12 {
		twice = times(either(twice, seq(twice, twice)), 1, 40)
	}
	var optional []*Expr
	for range 3000 {
		optional = append(optional, times(lit("a"), 0, 1))
	}
	for name, rules := range map[string]Rules{
		"deep": {deep}, "deep repeats": {deepOnly}, "doubled": {doubled}, "chain": chain, "tails": tails, "mesh": mesh, "ambiguous": {twice},
		"billion": {times(lit("a"), 0, 1_000_000_000)}, "billion and more": {times(lit("a"), 1_000_000_000, Unlimited)},
		"billions": {times(times(times(runes('a', 'z'), 0, 1<<30), 0, 1<<30), 0, 1<<30)}, "a or aa": {times(either(lit("a"), lit("aa")), 0, 1<<30)},
		"a or aa, nested": {star(times(either(lit("a"), lit("aa"), star(lit("a"))), 0, 1000))}, "optional": {seq(optional...)},
		"blow-up":        {seq(star(runes('a', 'b')), lit("a"), times(runes('a', 'b'), 40, 40))},
		"nothing, often": {times(seq(lit("a"), either()), 0, 1<<30)}, "empty, often": {seq(times(lit(""), 1<<30, 1<<30), lit("a"))},
		"two stacks each": {either(lit("x"), seq(lit("a"), ref(1)), seq(lit("a"), ref(2))), seq(ref(0), lit("b")), seq(ref(0), lit("c"))},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			tokens := append(byteTokens, "aaaaaaaa", "aaaabbbb", "((((", "aaaa")
			g, err := compile(vocabularyOf(tokens), rules, Limits{Exprs: 1 << 22}, 1<<16)
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > 1<<30 {
				t.Errorf("%d MiB allocated", used>>20)
			}
			if err != nil {
				if !errors.Is(err, ErrTooLarge) {
					t.Fatal(err)
				}
				t.Log(err)
				return
			}
			m := g.NewMatcher()
			mask := make([]uint64, 5)
			for n := range 400 {
				m.Mask(mask)
				allowed := -1
				for i := range tokens {
					if has(mask, i) {
						allowed = i
						if n%3 == 0 {
							break
						}
					}
				}
				if allowed < 0 {
					break
				}
				if !m.Accept(kv.Token(allowed)) {
					t.Fatalf("token %d %q is in the mask and not accepted", n, tokens[allowed])
				}
			}
			if m.MustEnd() != (m.CanEnd() && len(m.set) == 0) {
				t.Error("MustEnd without CanEnd")
			}
		})
	}
}

func TestLongOutputsTakeBoundedMemory(t *testing.T) {
	v := vocabularyOf(byteTokens)
	g, err := compile(v, Rules{seq(lit("["), times(seq(jsonString(), lit(",")), 0, 1<<30), lit("]")), lit("")}, Limits{Memo: 1 << 16}, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	m := g.NewMatcher()
	mask := make([]uint64, v.words())
	most := 0
	m.AcceptBytes([]byte("["))
	for range 50_000 {
		if !m.AcceptBytes([]byte(`"a",`)) {
			t.Fatal("not allowed")
		}
		m.Mask(mask)
		most = max(most, g.pool.bytes)
	}
	if most > 1<<16 {
		t.Errorf("%d bytes of stacks remembered", most)
	}
	if !m.AcceptBytes([]byte("]")) || !m.MustEnd() {
		t.Error("does not end")
	}
}

func TestCallsAtTheEndLeaveNoFrames(t *testing.T) {
	rules := Rules{either(lit("."), seq(lit("a"), ref(0)), seq(lit("("), ref(0), lit(")")))}
	g, err := compile(vocabularyOf(byteTokens), rules, Limits{}, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	m := g.NewMatcher()
	for range 1000 {
		m.AcceptBytes([]byte("a"))
	}
	if g.pool.n > 4 {
		t.Errorf("%d cells after as many calls as bytes, all at the end of their rule", g.pool.n)
	}
	if !m.AcceptBytes([]byte("((.")) || m.CanEnd() || !m.AcceptBytes([]byte("))")) || !m.MustEnd() {
		t.Error("parentheses do not balance")
	}
}

func TestMatchersAllocateNothing(t *testing.T) {
	v := largeVocabulary()
	g := mustCompile(t, v, toolRules(40))
	tokens := split(v, toolText)
	mask := make([]uint64, v.words())
	m := g.NewMatcher()
	play := func() {
		m.Reset()
		for _, token := range tokens {
			m.Mask(mask)
			m.Accept(token)
		}
		m.CanEnd()
		m.MustEnd()
	}
	play()
	if n := testing.AllocsPerRun(10, play); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := testing.AllocsPerRun(10, func() {
		for i := range g.memo.slots {
			g.memo.slots[i].used = 0
		}
		play()
	}); n > 1 {
		t.Errorf("%v allocations where no mask is remembered", n)
	}
}

// Reading rules takes time linear in their size, however many parts an expression has and whether
// or not its parts are equal. Recursive rules take twice that time.
func TestWideRulesAreReadOnce(t *testing.T) {
	const wide = 2000
	same, other, calls := &Expr{Op: Seq}, &Expr{Op: Either}, &Expr{Op: Either}
	rules := Rules{&Expr{Op: Seq, Sub: []*Expr{same, other, calls}}}
	x := &Expr{Op: Repeat, Sub: []*Expr{{Op: Text, Text: "x"}}, Max: 1}
	for i := range wide {
		same.Sub = append(same.Sub, x)
		other.Sub = append(other.Sub, &Expr{Op: Text, Text: fmt.Sprint(i)})
		calls.Sub = append(calls.Sub, &Expr{Op: Call, Rule: i + 1})
		rules = append(rules, &Expr{Op: Either, Sub: []*Expr{
			{Op: Text, Text: fmt.Sprint("y", i)}, {Op: Seq, Sub: []*Expr{{Op: Text, Text: fmt.Sprint("z", i)}, {Op: Call, Rule: i + 1}}}}})
	}
	terms, err := newTerms(rules, Limits{}.WithDefaults(), allBytes, nil)
	if err != nil {
		t.Fatal(err)
	}
	nullable, nonEmpty := terms.nullable, terms.nonEmpty
	terms.nullable, terms.nonEmpty = make([]bool, len(terms.all)), make([]bool, len(terms.all))
	edges, read := 0, 0
	for i := range terms.all {
		edges += 1 + len(terms.all[i].sub)
	}
	terms.settle(func(i int32) (bool, bool) {
		read += 1 + len(terms.all[i].sub)
		return terms.judge(i)
	})
	if read > 3*edges {
		t.Errorf("%d edges are read %d times", edges, read)
	}
	if !slices.Equal(terms.nullable, nullable) || !slices.Equal(terms.nonEmpty, nonEmpty) {
		t.Error("it does not settle")
	}
	for name, walk := range map[string]func(edges func(int32) []int32){
		"onCycle":   func(edges func(int32) []int32) { onCycle(len(terms.all), edges) },
		"postorder": func(edges func(int32) []int32) { postorder(len(terms.all), []int32{terms.roots[0]}, edges) },
	} {
		asked := map[int32]int{}
		walk(func(i int32) []int32 {
			if asked[i]++; asked[i] > 1 {
				t.Fatalf("%s asks for the edges of a term again", name)
			}
			return terms.all[i].sub
		})
	}
}

// If many units may begin at a byte, the byte takes time linear in their number: a pending unit
// is found by its target and taken by its order without a scan of the others.
func TestStepsTakeTimeInProportionToCalls(t *testing.T) {
	work := func(units int) int {
		rules := Rules{nil, either(lit("<abc"), seq(lit("("), ref(1), lit(")")))}
		root := &Expr{Op: Either}
		for i := range units {
			rules = append(rules, either(ref(1), seq(lit(fmt.Sprintf("%c%d=", '0'+i%40, i)), ref(i+2))))
			root.Sub = append(root.Sub, ref(i+2))
		}
		rules[0] = star(seq(root, lit(";")))
		g := mustCompile(t, vocabularyOf(byteTokens), rules)
		m := g.NewMatcher()
		if !m.AcceptBytes([]byte("(<abc);")) || !m.CanEnd() || !m.AcceptBytes([]byte("(")) {
			t.Fatal("a text that every unit allows is not allowed")
		}
		if n := len(m.set); n != 1 {
			t.Errorf("%d stacks where all units go the same way", n)
		}
		return g.stepper.work
	}
	if once, twice := work(250), work(500); twice > 5*once/2 {
		t.Errorf("a step looks at %d things with 250 units, at %d with 500", once, twice)
	}
}

// No call of Run takes much longer than the work asked for, even if each state of an automaton
// has epsilon arcs to all later ones.
func TestCompilingStops(t *testing.T) {
	var parts []*Expr
	for range 40 {
		e := lit("a")
		for range 200 {
			e = times(e, 0, 1)
		}
		parts = append(parts, e)
	}
	for name, slack := range map[string]int{"deterministic": 1 << 20, "given up": -1 << 20} {
		limits := Limits{slack: slack}.WithDefaults()
		terms, err := newTerms(Rules{seq(parts...)}, limits, allBytes, nil)
		if err != nil {
			t.Fatal(err)
		}
		p := newPlan(terms, limits)
		for int(p.next) < len(terms.all) {
			p.decide()
		}
		s, err := p.build(p.jobs[len(p.jobs)-1])
		if err != nil {
			t.Fatal(err)
		}
		size, runs, done := len(s.nfa.head)+len(s.nfa.arcs), 0, false
		for ; !done && err == nil; runs++ {
			const work = 100
			left, moves := work, s.moves
			done, err = s.run(&left)
			// 2*size: the node in progress when the work was used up.
			if moved := s.moves - moves; moved > 16*work+2*size {
				t.Fatalf("%s: %d moves for %d of work, in an automaton of %d states and arcs", name, moved, work, size)
			}
		}
		if runs < 10 {
			t.Errorf("%s: done after %d runs: %v", name, runs, err)
		}
	}
}
