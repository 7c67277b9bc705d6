package drafts

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// text makes tokens of a small vocabulary that repeat earlier parts of themselves with changes.
func text(rng *rand.Rand, n, vocab int) []kv.Token {
	var all []kv.Token
	for len(all) < n {
		if len(all) > 20 && rng.IntN(2) == 0 {
			from := rng.IntN(len(all) - 10)
			all = append(all, all[from:min(from+5+rng.IntN(40), len(all))]...)
		}
		all = append(all, kv.Token(rng.IntN(vocab)))
	}
	return all[:n]
}

// longestMatch finds by comparison of all places what ngrams.find finds: the length of the longest
// match of the last tokens, and whether a token at one of the places with that match is t.
func longestMatch(all []kv.Token) (length int) {
	for p := least; p < len(all); p++ {
		if n := agree(all[:p], all); n >= least {
			length = max(length, n)
		}
	}
	return length
}

// guesses returns a draft of d without its classes, of which there must be as many.
func guesses(d drafter, text []kv.Token, most int) []kv.Token {
	tokens, classes := d.draft(text, most, nil, nil)
	if len(tokens) != len(classes) {
		panic("a guess has no class")
	}
	return tokens
}

// TestOwnFindsTheLongest: a guess follows as long a match as there is, if it is among the last tries
// places of its n-gram, and the text before the guess is that of the match.
func TestOwnFindsTheLongest(t *testing.T) {
	found, longer := 0, 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		all := text(rng, 300, 40)
		o := newOwn(len(all))
		o.read(all[:100])
		for n := 100; n < len(all); n++ {
			if n > 100 {
				o.take(all[:n])
			}
			want, got := longestMatch(all[:n]), place{}
			if o.best >= 0 {
				got = o.places[o.best]
			}
			if (got.length > 0) != (want > 0) || got.length > want || (o.guess() == none) != (want == 0) {
				t.Fatalf("seed %d: after %d tokens the match has %d tokens, want %d", seed, n, got.length, want)
			}
			if got.length == 0 {
				continue
			}
			if n := agree(all[:got.at], all[:n]); n < got.length {
				t.Fatalf("seed %d: %d tokens agree with place %d, the match says %d", seed, n, got.at, got.length)
			}
			found++
			if got.length < want {
				longer++
			}
		}
	}
	if found < 1000 || longer > found/20 {
		t.Errorf("%d matches, of which %d were not the longest", found, longer)
	}
}

// TestOwnByParts: reading a prompt by parts gives the same guesses as at once.
func TestOwnByParts(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	all := text(rng, 2000, 30)
	var whole, parts Record
	a, b := NewSequence(Origin{Prompt: 1500, Limit: 500}), NewSequence(Origin{Prompt: 1500, Limit: 500})
	if n := a.Take(all, len(all), &whole); n != len(all) {
		t.Fatalf("%d tokens taken at once, want %d", n, len(all))
	}
	for n := 0; n < len(all); {
		n += b.Take(all, 1+rng.IntN(90), &parts)
	}
	if whole != parts || a.record != b.record {
		t.Error("reading by parts learns something else")
	}
	var arena Arena
	x, okX := a.Offer(all, 16, 0, &whole, &arena)
	y, okY := b.Offer(all, 16, 0, &whole, &arena)
	if okX != okY || !slices.Equal(x.Tokens, y.Tokens) || !slices.Equal(x.Gains, y.Gains) {
		t.Errorf("the offers differ: %+v and %+v", x, y)
	}
	if _, ok := a.Offer(all, 16, x.Gains[0], &whole, &arena); ok {
		t.Error("a guess at the floor got an offer")
	}
	if _, ok := a.Offer(append(all, 1), 16, 0, &whole, &arena); ok {
		t.Error("a token that was not taken got an offer")
	}
}

// TestWindow: places further back than the window are not found, and the memory is bounded.
func TestWindow(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 1))
	all := make([]kv.Token, window+3000)
	for i := range all {
		all[i] = kv.Token(rng.Uint32() >> 1)
	}
	o := newOwn(1 << 30)
	if n := 4 * (len(o.index.heads) + len(o.index.prev)); n != 1<<20 {
		t.Errorf("the index has %d bytes, want a MiB", n)
	}
	old, late := all[1000:1010], all[5000:5010]
	o.read(all)
	for _, tc := range []struct {
		again []kv.Token
		want  int
	}{{old, 0}, {late, 10}} {
		o.read(append(slices.Clone(all), tc.again...))
		got := 0
		if o.best >= 0 {
			got = o.places[o.best].length
		}
		if got != tc.want {
			t.Errorf("the match has %d tokens, want %d", got, tc.want)
		}
	}
}

// TestPeriod: a draft goes on where the text that it copies ends.
func TestPeriod(t *testing.T) {
	all := []kv.Token{9, 1, 2, 1, 2, 1, 2}
	o := newOwn(64)
	o.read(all)
	if got, want := guesses(o, all, 5), []kv.Token{1, 2, 1, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("the draft is %v, want %v", got, want)
	}
}

// TestPrediction: a prediction is followed from its start, found again after tokens that were
// replaced, inserted or left out, and ends with its last token.
func TestPrediction(t *testing.T) {
	guess := []kv.Token{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	output := []kv.Token{1, 2, 3, 99, 5, 6, 7, 8, 77, 78, 9, 10, 11, 14, 15, 16}
	wrong := map[int]bool{3: true, 8: true, 13: true} // by index in output
	without := map[int]bool{4: true, 5: true, 6: true, 9: true, 10: true, 11: true, 12: true, 14: true, 15: true}
	p := newPrediction(guess)
	for i := range output {
		c, right := p.take(output[:i+1])
		if (c != none && !right) != wrong[i] || c == none && !without[i] {
			t.Errorf("token %d: class %d, right %v", output[i], c, right)
		}
	}
	if p.guess() != none {
		t.Error("a guess follows the end of the prediction")
	}
	// Of two places with equal matches, the one nearest to the lost place counts.
	again := slices.Concat(guess[:8], []kv.Token{50, 1, 2, 3, 60})
	p = newPrediction(again)
	for _, n := range []int{1, 2, 3, 4} {
		p.take([]kv.Token{40, 1, 2, 3}[:n])
	}
	if got := guesses(p, nil, 2); !slices.Equal(got, []kv.Token{4, 5}) {
		t.Errorf("the draft is %v, want that of the near place", got)
	}
}

// TestLongPrediction: a long prediction is found again too, in the part that comes.
func TestLongPrediction(t *testing.T) {
	guess := make([]kv.Token, 50_000)
	for i := range guess {
		guess[i] = kv.Token(i)
	}
	output := slices.Concat(guess[:30_000], []kv.Token{99_999}, guess[30_001:30_100], []kv.Token{99_999}, guess[33_000:33_010], guess[40_000:40_010])
	p, misses := newPrediction(guess), 0
	for i := range output {
		if _, right := p.take(output[:i+1]); !right {
			misses++
		}
	}
	if p.guess() == none || misses != 2+3+3+3 {
		t.Errorf("class %d, %d tokens without a right guess", p.guess(), misses)
	}
}

// TestAllocs: taking and offering allocates nothing.
func TestAllocs(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 1))
	all := text(rng, 6000, 50)
	var record Record
	var arena Arena
	cache, err := radixcache.New(radixcache.Config{PageTokens: 4})
	if err != nil {
		t.Fatal(err)
	}
	texts := NewTexts(cache, 1<<16)
	pages := make([]kv.PageID, len(all)/4)
	for i := range pages {
		pages[i] = kv.PageID(i)
	}
	id, _ := cache.Extend(radixcache.Root, radixcache.Key{Tokens: all}, pages, nil)
	texts.Add(0, kv.Namespace{}, all, 0, len(all), id)
	s := NewSequence(Origin{Prompt: 1000, Limit: 5000, Expect: all[500:700], Texts: texts})
	s.Take(all[:2000], 2000, &record)
	s.Offer(all[:2000], 32, 0, &record, &arena)
	n := 2000
	if allocs := testing.AllocsPerRun(1000, func() {
		n++
		s.Take(all[:n], 1, &record)
		arena.Reset()
		s.Offer(all[:n], 8, 0, &record, &arena)
	}); allocs > 0 {
		t.Errorf("%v allocations a token", allocs)
	}
}

// TestRates: a record moves from the prior to what it sees, a sequence's own counts more, and old
// guesses are forgotten.
func TestRates(t *testing.T) {
	var all, one Record
	short, middle := ofLength(3, lone), ofLength(5, lone)
	if got := all.rate(&one, Own, short); math.Abs(got-prior(short)) > 1e-9 {
		t.Errorf("the rate of an empty record is %v", got)
	}
	if !(prior(ofLength(5, sure)) > prior(middle) && prior(middle) > prior(ofLength(5, split)) && prior(middle) > prior(short)) {
		t.Error("priors are not in order")
	}
	for range 200 {
		all.learn(Own, middle, true)
	}
	if got := all.rate(&one, Own, ofLength(6, lone)); got < 0.95 {
		t.Errorf("the rate after 200 right guesses is %v", got)
	}
	for what, got := range map[string]float64{"another source": all.rate(&one, Tree, middle), "another view": all.rate(&one, Own, ofLength(5, most))} {
		if got > 0.6 {
			t.Errorf("the rate of %s is %v", what, got)
		}
	}
	for range 16 {
		one.learn(Own, middle, false)
	}
	if got := all.rate(&one, Own, middle); got > 0.25 {
		t.Errorf("the rate of a sequence with 16 wrong guesses is %v", got)
	}
	for range 300 {
		all.learn(Own, middle, false)
	}
	if got := all.rate(&Record{}, Own, middle); got > 0.1 {
		t.Errorf("the rate after 300 wrong guesses is %v", got)
	}
}

// TestViews: the places that match tell how sure a guess is, also after the first token of a draft.
func TestViews(t *testing.T) {
	//           three places of 1 2 3: twice 4 5 6 follows, once 4 7 8
	all := []kv.Token{1, 2, 3, 4, 5, 6, 20, 1, 2, 3, 4, 7, 8, 21, 1, 2, 3, 4, 5, 9, 22, 1, 2, 3}
	o := newOwn(64)
	o.read(all)
	tokens, classes := o.draft(all, 4, nil, nil)
	if want := []kv.Token{4, 5, 9, 22}; !slices.Equal(tokens, want) {
		t.Fatalf("the draft is %d, want %d", tokens, want)
	}
	want := []class{ofLength(3, sure), ofLength(4, most), ofLength(5, most), ofLength(6, lone)}
	if !slices.Equal(classes, want) || o.guess() != want[0] {
		t.Errorf("the classes are %d, want %d", classes, want)
	}
}

// BenchmarkRead measures the reading of a prompt, by the token.
func BenchmarkRead(b *testing.B) {
	all := text(rand.New(rand.NewPCG(6, 1)), 1<<17, 50_000)
	for b.Loop() {
		o := newOwn(len(all))
		o.read(all)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(all)), "ns/token")
}

// BenchmarkTake measures a token of an output, with the offer after it.
func BenchmarkTake(b *testing.B) {
	all := text(rand.New(rand.NewPCG(7, 1)), 1<<16, 200)
	var record Record
	var arena Arena
	s, n := NewSequence(Origin{Prompt: 1000, Limit: len(all)}), 1000
	s.Take(all[:n], n, &record)
	for b.Loop() {
		if n++; n == len(all) {
			s, n = NewSequence(Origin{Prompt: 1000, Limit: len(all)}), 1001
			s.Take(all[:1000], n, &record)
		}
		s.Take(all[:n], 1, &record)
		arena.Reset()
		s.Offer(all[:n], 16, 0.3, &record, &arena)
	}
}
