package grammar

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// firstStop finds the first stop string by comparing at every position.
func firstStop(stops []string, text string) (which, end int) {
	for end := 1; end <= len(text); end++ {
		which = -1
		for i, s := range stops {
			if strings.HasSuffix(text[:end], s) && (which < 0 || len(s) > len(stops[which])) {
				which = i
			}
		}
		if which >= 0 {
			return which, end
		}
	}
	return -1, len(text)
}

// held returns the length of the longest proper prefix of a stop string that text ends with.
func held(stops []string, text string) int {
	longest := 0
	for _, s := range stops {
		for n := longest + 1; n < len(s); n++ {
			if strings.HasSuffix(text, s[:n]) {
				longest = n
			}
		}
	}
	return longest
}

func compareStops(t *testing.T, stops []string, text string, r *rand.Rand) {
	s, err := NewStops(stops)
	if err != nil {
		t.Fatal(err)
	}
	wantWhich, wantEnd := firstStop(stops, text)
	var state StopState
	for at := 0; at < len(text); {
		n := r.IntN(min(5, len(text)-at) + 1) // 0 to 5 bytes
		next, which, end := s.Next(state, []byte(text[at:at+n]))
		if which >= 0 {
			if which != wantWhich || at+end != wantEnd {
				t.Fatalf("%q in %q: %d up to %d, want %d up to %d", stops, text, which, at+end, wantWhich, wantEnd)
			}
			if s.String(which) != stops[wantWhich] {
				t.Fatalf("String(%d) is %q", which, s.String(which))
			}
			return
		}
		if end != n {
			t.Fatalf("none found, %d of %d bytes taken", end, n)
		}
		at += n
		state = next
		if s.Held(state) != held(stops, text[:at]) {
			t.Fatalf("%q after %q: %d bytes held, want %d", stops, text[:at], s.Held(state), held(stops, text[:at]))
		}
	}
	if wantWhich >= 0 {
		t.Fatalf("%q in %q: not found", stops, text)
	}
}

func randomStops(r *rand.Rand) (stops []string, text string) {
	word := func(n int) (w string) {
		for range n {
			w += pieces[r.IntN(len(pieces)/2)]
		}
		return w
	}
	for range 1 + r.IntN(5) {
		stops = append(stops, word(1+r.IntN(4)))
	}
	return stops, word(r.IntN(20))
}

func TestStopsAreFoundInAnyPieces(t *testing.T) {
	for seed := range uint64(20000) {
		r := rand.New(rand.NewPCG(seed, 2))
		stops, text := randomStops(r)
		compareStops(t, stops, text, r)
	}
}

func FuzzStops(f *testing.F) {
	f.Add("ab", "b", "aab", uint64(1))
	f.Add("</s>", "s>", "<</s></s>", uint64(2))
	f.Fuzz(func(t *testing.T, a, b, text string, seed uint64) {
		stops := []string{a, b}
		if _, err := NewStops(stops); err != nil || len(a)+len(b)+len(text) > 1000 {
			return
		}
		compareStops(t, stops, text, rand.New(rand.NewPCG(seed, 3)))
	})
}

func TestInvalidStops(t *testing.T) {
	many := make([]string, maxStops+1)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for name, stops := range map[string][]string{
		"none": nil, "empty": {"a", ""}, "not UTF-8": {"\xff"}, "many": many,
		"long": {strings.Repeat("a", maxStopsBytes+1)},
	} {
		if _, err := NewStops(stops); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, stops := range map[string][]string{
		"one": {"a"}, "as many as may be": many[:maxStops], "as long as may be": {strings.Repeat("ab", maxStopsBytes/2)},
	} {
		s, err := NewStops(stops)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, which, end := s.Next(0, []byte(stops[0])); which != 0 || end != len(stops[0]) || s.Len() != len(stops) {
			t.Errorf("%s: found %d up to %d", name, which, end)
		}
	}
}

func TestStopsAllocateNothing(t *testing.T) {
	s, err := NewStops([]string{"\n\n", "<|end|>"})
	if err != nil {
		t.Fatal(err)
	}
	text := []byte("some text <|en and more\n")
	if n := testing.AllocsPerRun(100, func() {
		state, _, _ := s.Next(0, text)
		s.Held(state)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
