package drafts

import (
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/kv"
)

// forcedBy returns a drafter of a format over these tokens.
func forcedBy(t *testing.T, tokens []string, format string) *forced {
	t.Helper()
	vocab := grammar.NewVocabulary(len(tokens), func(t kv.Token) []byte { return []byte(tokens[t]) })
	rules, err := grammar.ParseRegexp(format)
	if err != nil {
		t.Fatal(err)
	}
	c, err := grammar.NewCompiler(vocab, rules, grammar.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for done := false; !done; {
		if done, err = c.Run(1000); err != nil {
			t.Fatal(err)
		}
	}
	return newForced(c.Grammar())
}

// TestForced: a format's fixed bytes are guessed, as the longest tokens for them, and nothing where there
// is a choice.
func TestForced(t *testing.T) {
	tokens := []string{"", "{", "}", `"`, `{"`, `":`, "name", "na", "n", "a", "m", "e", "1", "2", ":"}
	for _, tc := range []struct {
		output []kv.Token
		draft  []kv.Token
		match  int
	}{
		{nil, []kv.Token{4, 6, 5}, likely}, // then 1 or 2
		{[]kv.Token{1}, []kv.Token{3, 6, 5}, certain},
		{[]kv.Token{1, 3}, []kv.Token{6, 5}, likely},
		{[]kv.Token{1, 3, 8}, []kv.Token{9, 10, 11, 5}, certain},
		{[]kv.Token{4, 6, 5}, nil, 0},
		{[]kv.Token{4, 6, 5, 13}, []kv.Token{2}, certain},
		{[]kv.Token{4, 6, 5, 13, 2}, nil, 0},
		{[]kv.Token{4, 6, 5, 13, 2, 0}, nil, 0}, // a stop token
	} {
		f := forcedBy(t, tokens, `\{"name":[12]\}`)
		for i := range tc.output {
			guess, c := f.token, f.guess()
			if got, right := f.take(tc.output[:i+1]); got != c || right != (c != none && guess == tc.output[i]) {
				t.Errorf("taking token %d of %d: class %d, right %v", i, tc.output, got, right)
			}
		}
		if got := guesses(f, nil, 8); !slices.Equal(got, tc.draft) || f.length != tc.match {
			t.Errorf("after %d: the draft is %d with match %d, want %d with %d", tc.output, got, f.length, tc.draft, tc.match)
		}
		if got := guesses(f, nil, 0); len(got) > 0 {
			t.Errorf("a draft of no tokens is %d", got)
		}
	}
}

// TestForcedAgain: where the same tokens are allowed again, the one that came before is guessed, also where
// another one is longer.
func TestForcedAgain(t *testing.T) {
	f := forcedBy(t, []string{"", "x", "1", "2", "ab", "a", "b"}, `(ab[12]x){4}`)
	var output []kv.Token
	for i, want := range []struct {
		token kv.Token
		draft []kv.Token
		match int
	}{{5, []kv.Token{4}, likely}, {6, []kv.Token{6}, certain}, {3, nil, 0}, {1, []kv.Token{1, 5, 6, 3, 1}, certain}, {4, []kv.Token{5, 6, 3, 1}, again}, {3, []kv.Token{3, 1, 4, 3}, chosen}} {
		if got := guesses(f, output, len(want.draft)); !slices.Equal(got, want.draft) || f.length != want.match {
			t.Errorf("guess %d: the draft is %d with match %d, want %d with %d", i, got, f.length, want.draft, want.match)
		}
		output = append(output, want.token)
		f.take(output)
	}
}
