package enum

import (
	"slices"
	"strings"
	"testing"
)

type colour uint8

var colours = New[colour]("paint", "colour", "red", "green", "blue")

func TestTable(t *testing.T) {
	for i, want := range []string{"red", "green", "blue", "colour(3)"} {
		if got := colours.Name(colour(i)); got != want || colours.Has(colour(i)) != (i < 3) {
			t.Errorf("%d is %q, want %q", i, got, want)
		}
	}
	if got := colours.Values(); !slices.Equal(got, []colour{0, 1, 2}) {
		t.Errorf("values %v", got)
	}
	c := colour(1)
	if err := colours.Read(&c, []byte("blue")); err != nil || c != 2 {
		t.Errorf("%v, %v", c, err)
	}
	err := colours.Read(&c, []byte(strings.Repeat("mauve", 100)))
	if err == nil || c != 2 || len(err.Error()) > 120 || !strings.HasSuffix(err.Error(), "want red, green or blue") {
		t.Errorf("%v, %v", c, err)
	}
}

func TestPick(t *testing.T) {
	type shape string
	s := shape("disc")
	if err := Pick("paint", "shape", &s, []byte("ring"), "disc", "ring", "bar"); err != nil || s != "ring" {
		t.Errorf("%v, %v", s, err)
	}
	err := Pick("paint", "shape", &s, []byte("cube"), "disc", "ring", "bar")
	if want := `paint: unknown shape "cube", want disc, ring or bar`; err == nil || err.Error() != want || s != "ring" {
		t.Errorf("%v, %v, want %s", s, err, want)
	}
}
