package parse

import (
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/grammar/toolcall"
)

// Marks returns those of a vocabulary's control tokens, given by their texts, that stand around the
// calls of an output in the form f. A Parser needs their texts, which control tokens otherwise don't have.
func Marks(f *toolcall.Form, control []string) (marks []string) {
	r := readings[f.Name]
	written := []string{f.Begin, f.Open, f.Arguments, f.Close, f.Gap, f.End, r.close}
	for _, p := range slices.Concat(r.marks, r.around) {
		written = append(written, p.open, p.close)
	}
	written = slices.Concat(written, r.before, r.between, r.after)
	if r.channels {
		written = append(written, markers...)
	}
	all := strings.Join(written, "\x00")
	for _, token := range control {
		if strings.Contains(all, token) {
			marks = append(marks, token)
		}
	}
	return marks
}

// Frames reports whether models of the form f put marks around the text of an answer too, so that an output needs
// a Parser even where no tools are given.
func Frames(f *toolcall.Form) bool {
	r := readings[f.Name]
	return r.channels || r.content != ""
}
