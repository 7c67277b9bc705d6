package grammar

import (
	"fmt"
	"unicode/utf8"
)

const (
	maxStops      = 64
	maxStopsBytes = 1 << 14
)

// Stops finds the first occurrence of any of some strings in a text that arrives in pieces. It
// is the automaton of Aho and Corasick (1975) with all transitions filled in. It is immutable
// and may be shared by any number of goroutines.
type Stops struct {
	strings []string
	class   [256]uint8 // by byte; 0 if no string has it
	classes int
	next    []uint16 // [state*classes+class]
	found   []int16  // by state: index of the longest string that ends there, -1 for none
	depth   []uint16 // by state: length of the longest prefix of a string that ends there
}

// StopState is the state after the text so far. The zero value is the beginning of a text.
type StopState uint16

// NewStops takes 1 to 64 strings of valid UTF-8, none empty, with at most 16,384 bytes in all;
// otherwise it returns [ErrInvalid]. The automaton takes at most 512 bytes of memory for each
// byte of the strings.
func NewStops(strings []string) (*Stops, error) {
	if len(strings) == 0 || len(strings) > maxStops {
		return nil, fmt.Errorf("%w: %d stop strings: want 1 to %d", ErrInvalid, len(strings), maxStops)
	}
	total := 0
	for i, text := range strings {
		if text == "" || !utf8.ValidString(text) {
			return nil, fmt.Errorf("%w: stop string %d is %.100q: want UTF-8 that is not empty", ErrInvalid, i, text)
		}
		total += len(text)
	}
	if total > maxStopsBytes {
		return nil, fmt.Errorf("%w: stop strings of %d bytes together: at most %d", ErrInvalid, total, maxStopsBytes)
	}
	return searchFor(strings), nil
}

// searchFor returns the automaton of strings, of which none is empty.
func searchFor(strings []string) *Stops {
	s := &Stops{strings: append([]string(nil), strings...)}
	for _, text := range strings {
		for j := range len(text) {
			if c := &s.class[text[j]]; *c == 0 {
				s.classes++
				*c = uint8(s.classes)
			}
		}
	}
	s.classes++
	s.build()
	return s
}

// build makes the trie of the strings, and then completes it to an automaton.
func (s *Stops) build() {
	state := func(depth int) uint16 {
		s.next = append(s.next, make([]uint16, s.classes)...)
		s.found = append(s.found, -1)
		s.depth = append(s.depth, uint16(depth))
		return uint16(len(s.found) - 1)
	}
	state(0)
	for i, text := range s.strings {
		at := uint16(0)
		for j := range len(text) {
			slot := int(at)*s.classes + int(s.class[text[j]])
			if s.next[slot] == 0 {
				to := state(j + 1)
				s.next[slot] = to
			}
			at = s.next[slot]
		}
		if s.found[at] < 0 { // the first of equal strings
			s.found[at] = int16(i)
		}
	}
	// Breadth first: fill in missing transitions and strings from the state of the longest
	// proper suffix, which is shallower and so complete.
	suffix := make([]uint16, len(s.found))
	queue := []uint16{0}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		if s.found[at] < 0 {
			s.found[at] = s.found[suffix[at]]
		}
		for c := range s.classes {
			slot := int(at)*s.classes + c
			beyond := uint16(0)
			if at != 0 {
				beyond = s.next[int(suffix[at])*s.classes+c]
			}
			if to := s.next[slot]; to != 0 {
				suffix[to] = beyond
				queue = append(queue, to)
			} else {
				s.next[slot] = beyond
			}
		}
	}
}

// Next reads the bytes b, which follow the text that led to state, and returns the state after
// them. If a string ends within b, Next returns the string's index as which, and as end the
// number of bytes of b up to the string's end. If several strings end in b, the one that ends
// first wins; of several that end together, the longest. If no string ends in b, which is -1 and
// end is len(b). After a string was found, the returned state must not be used.
func (s *Stops) Next(state StopState, b []byte) (_ StopState, which, end int) {
	at := int(state)
	for i, c := range b {
		at = int(s.next[at*s.classes+int(s.class[c])])
		if s.found[at] >= 0 {
			return StopState(at), int(s.found[at]), i + 1
		}
	}
	return StopState(at), -1, len(b)
}

// Held returns how many of the last bytes of the text that led to state may be the beginning of a
// stop string. A stream must hold them back until more text decides.
func (s *Stops) Held(state StopState) int { return int(s.depth[state]) }

// Len returns the number of strings.
func (s *Stops) Len() int { return len(s.strings) }

// String returns the string with index which.
func (s *Stops) String(which int) string { return s.strings[which] }
