package opticks

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTextIsClean(t *testing.T) {
	s := Text()
	if n := len(s); n < 150_000 || n > 200_000 {
		t.Errorf("the text has %d bytes, want 150 to 200 KB", n)
	}
	if !utf8.ValidString(s) || strings.ContainsRune(s, utf8.RuneError) {
		t.Error("the text is not clean UTF-8")
	}
	for _, bad := range []string{
		"_", "\r", "\t", "  ", "\n\n\n", "|", "Illustration:", "Sidenote", "Transcriber", "Greek:",
		"pgdp", "Proofread", "Gutenberg", "FOOTNOTE", "* *", "\ufeff",
	} {
		if i := strings.Index(s, bad); i >= 0 {
			t.Errorf("the text holds %q: %q", bad, s[max(0, i-20):min(len(s), i+40)])
		}
	}
	for i, line := range strings.Split(strings.TrimSuffix(s, "\n"), "\n") {
		if (i%2 == 1) != (line == "") {
			t.Fatalf("line %d: paragraphs and blank lines do not alternate: %q", i+1, line)
		}
	}
}

func TestTextHoldsTheQueries(t *testing.T) {
	for _, want := range []string{
		"Query 1. Do not Bodies act upon Light at a distance",
		"Quest. 31. Have not the small Particles of Bodies certain Powers",
		"My Design in this Book is not to explain the Properties of Light by Hypotheses",
	} {
		if !strings.Contains(Text(), want) {
			t.Errorf("the text lacks %q", want)
		}
	}
	if !strings.HasSuffix(Text(), "before they corrupted themselves.\n") {
		t.Error("the text does not end as the book does")
	}
}

func TestParagraphs(t *testing.T) {
	p := Paragraphs()
	if len(p) < 100 {
		t.Errorf("%d paragraphs, want 100 or more", len(p))
	}
	rest := Text()
	for i, s := range p {
		if len(s) < minParagraphBytes || strings.Contains(s, "\n") {
			t.Errorf("paragraph %d: %q", i, s)
		}
		at := strings.Index(rest, s+"\n")
		if at < 0 {
			t.Fatalf("paragraph %d is not in the text, or out of order: %q", i, s)
		}
		rest = rest[at+len(s):]
	}
}

func TestQuestions(t *testing.T) {
	q := Questions()
	if len(q) < 60 {
		t.Errorf("%d questions, want 60 or more", len(q))
	}
	first := "Do not Bodies act upon Light at a distance, and by their action bend its Rays; " +
		"and is not this action (cæteris paribus) strongest at the least distance?"
	if q[0] != first {
		t.Errorf("the first question is %q", q[0])
	}
	for i, s := range q {
		if len(s) < minQuestionBytes || len(s) > maxQuestionBytes || !strings.HasSuffix(s, "?") {
			t.Errorf("question %d: %q", i, s)
		}
		if !strings.Contains(Text(), s) {
			t.Errorf("question %d is not in the text: %q", i, s)
		}
		if strings.ContainsAny(s[:len(s)-1], "!") || strings.HasPrefix(s, "Qu.") {
			t.Errorf("question %d is more than one sentence: %q", i, s)
		}
	}
}

func TestSentenceEnd(t *testing.T) {
	for _, tc := range []struct{ in, first string }{
		{"Qu. 5. Do not Bodies act?", "Qu. 5."},
		{"Is it so? And how?", "Is it so?"},
		{"Is it so? and how?", "Is it so? and how?"},
		{"As Mr. Boyle saw in Fig. 3. of it. Then", "As Mr. Boyle saw in Fig. 3. of it."},
		{"Is it? 'Tis.", "Is it?"},
		{"", ""},
		{"No end", "No end"},
	} {
		if got := tc.in[:sentenceEnd(tc.in)]; got != tc.first {
			t.Errorf("%q: first sentence %q, want %q", tc.in, got, tc.first)
		}
	}
}
