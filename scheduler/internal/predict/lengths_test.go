package predict

import (
	"fmt"
	"testing"
)

// TestClassesLearn checks that a class learns the lengths of its outputs and forgets old
// ones.
func TestClassesLearn(t *testing.T) {
	cs := NewLengths()
	k := cs.Of("a")
	if k != cs.Of("a") || k == cs.Of("b") {
		t.Error("classes are told apart otherwise than by name")
	}
	if got := k.remaining(0, 1000); got != 700 {
		t.Errorf("of one unknown: %d", got)
	}
	for range 50 {
		k.Learn(100)
	}
	if got := k.remaining(0, 1000); got < 100 || got > 105 {
		t.Errorf("after outputs of 100: %d more", got)
	}
	if got := k.remaining(60, 1000); got < 40 || got > 45 {
		t.Errorf("after 60 of 100: %d more", got)
	}
	if got := k.remaining(90, 92); got != 2 {
		t.Errorf("near the limit: %d more", got)
	}
	for range 50 {
		k.Learn(20)
	}
	if got := k.remaining(0, 1000); got < 20 || got > 25 {
		t.Errorf("after outputs of 20: %d more", got)
	}
	for i := range 2 * maxClasses {
		cs.Of(fmt.Sprint(i))
	}
	if len(cs.byName) > maxClasses {
		t.Errorf("%d classes", len(cs.byName))
	}
	cs.Caution()
	was := cs.care
	for range 1000 {
		cs.Decay()
	}
	if was != careOne*3/2 || cs.care != careOne {
		t.Errorf("care %d, then %d", was, cs.care)
	}
}
