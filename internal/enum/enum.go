// Package enum converts the values of an enumeration to their names and back. It owns tables of
// names and nothing else. A [Table] is read only, so any goroutine may use it.
//
//	var colours = enum.New[Colour]("paint", "colour", "red", "green")
//
//	func (c Colour) String() string               { return colours.Name(c) }
//	func (c *Colour) UnmarshalText(b []byte) error { return colours.Read(c, b) }
package enum

import (
	"fmt"
	"slices"
	"strings"
)

// Table holds the names of the values 0, 1 and so on.
type Table[E ~uint8] struct {
	owner, kind string
	names       []string
}

// New returns the table of an enumeration. owner is the package's name and kind the enumeration's,
// both for errors; names are those of the values 0, 1 and so on.
func New[E ~uint8](owner, kind string, names ...string) Table[E] {
	return Table[E]{owner, kind, names}
}

// Name returns a value's name, or for a value without one its kind and number, as "colour(7)".
func (t *Table[E]) Name(e E) string {
	if t.Has(e) {
		return t.names[e]
	}
	return fmt.Sprintf("%s(%d)", t.kind, e)
}

// Has reports whether a value has a name.
func (t *Table[E]) Has(e E) bool { return int(e) < len(t.names) }

// Names lists all names in order, as "a, b or c".
func (t *Table[E]) Names() string { return list(t.names) }

func list(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// Values returns all values in order.
func (t *Table[E]) Values() []E {
	all := make([]E, len(t.names))
	for i := range all {
		all[i] = E(i)
	}
	return all
}

// Read sets e to the value whose name is text. For an unknown name it leaves e unchanged and returns
// an error that lists the names.
func (t *Table[E]) Read(e *E, text []byte) error {
	at := slices.Index(t.names, string(text))
	if at < 0 {
		return fmt.Errorf("%s: unknown %s %.40q, want %s", t.owner, t.kind, text, t.Names())
	}
	*e = E(at)
	return nil
}

// Pick sets e to the text if it is one of names, of which there are several. Otherwise it leaves e
// unchanged and returns an error that lists the names; owner and kind are as in New.
func Pick[E ~string](owner, kind string, e *E, text []byte, names ...E) error {
	var all []string
	for _, name := range names {
		all = append(all, string(name))
	}
	if !slices.Contains(all, string(text)) {
		return fmt.Errorf("%s: unknown %s %.40q, want %s", owner, kind, text, list(all))
	}
	*e = E(text)
	return nil
}
