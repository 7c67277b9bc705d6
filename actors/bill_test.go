package actors

import "testing"

// A bill is the same in whatever order its samples end.
func TestBillInAnyOrder(t *testing.T) {
	whole := func(cached int) Ending {
		return Ending{PromptTokens: 50, CachedTokens: cached, ComputedTokens: 50 - cached, OutputTokens: 4}
	}
	waited := Ending{PromptTokens: 50}
	begun := Ending{PromptTokens: 50, CachedTokens: 16, ComputedTokens: 8} // given up on the way
	failed := whole(16)
	failed.OutputTokens = 0
	for name, tc := range map[string]struct {
		endings []Ending
		want    Bill
	}{
		"all":                 {[]Ending{whole(16), whole(49), whole(49)}, Bill{50, 16, 36, 12}},
		"one only waited":     {[]Ending{whole(0), waited, whole(49)}, Bill{50, 0, 51, 8}},
		"all only waited":     {[]Ending{waited, waited}, Bill{}},
		"one was given up":    {[]Ending{begun, whole(24), whole(49)}, Bill{50, 16, 35, 8}},
		"the first failed":    {[]Ending{failed, whole(49), whole(49)}, Bill{50, 16, 36, 8}},
		"nothing was found":   {[]Ending{whole(0), whole(0)}, Bill{50, 0, 100, 8}},
		"given up, and alone": {[]Ending{begun}, Bill{50, 16, 8, 0}},
	} {
		n := 0
		permute(tc.endings, func(order []Ending) {
			var got Bill
			for i := range order {
				got.Add(&order[i])
			}
			if n++; got != tc.want {
				t.Errorf("%s, order %d: %+v, want %+v", name, n, got, tc.want)
			}
		})
	}
}

// permute calls f with each order of the endings.
func permute(rest []Ending, f func([]Ending), chosen ...Ending) {
	if len(rest) == 0 {
		f(chosen)
	}
	for i := range rest {
		others := append(append([]Ending(nil), rest[:i]...), rest[i+1:]...)
		permute(others, f, append(chosen[:len(chosen):len(chosen)], rest[i])...)
	}
}
