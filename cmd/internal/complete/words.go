package complete

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Candidate is a word that may stand at the end of a line.
type Candidate struct {
	Word string
	Help string // one sentence; may be ""
}

// Values returns the values that a flag or an argument may have, as far as they are known. It returns nil for values
// that only files can complete.
type Values func(v *kong.Value) []Candidate

// Words returns the candidates for the last of words, the words after the program's name. Files reports whether names
// of files may stand there too. values adds values of flags and arguments; nil: there are none.
func Words(app *kong.Application, words []string, values Values) (found []Candidate, files bool) {
	if values == nil {
		values = func(*kong.Value) []Candidate { return nil }
	}
	if len(words) == 0 {
		words = []string{""}
	}
	node, flags, args, waiting := walk(app.Node, words[:len(words)-1])
	last := words[len(words)-1]
	if waiting != nil {
		return valuesOf(waiting, last, "", values)
	}
	if name, value, ok := strings.Cut(last, "="); ok && strings.HasPrefix(last, "--") {
		if f := flagOf(flags, name); f != nil {
			return valuesOf(f.Value, value, name+"=", values)
		}
		return nil, false
	}
	if strings.HasPrefix(last, "-") {
		for _, f := range flags {
			for _, name := range namesOf(f) {
				found = append(found, Candidate{name, sentence(f.Help)})
			}
		}
		return starting(found, last), false
	}
	for _, c := range node.Children {
		if !c.Hidden {
			found = append(found, Candidate{c.Name, sentence(c.Help)})
		}
	}
	found = starting(found, last)
	if at := min(args, len(node.Positional)-1); at >= 0 {
		more, plain := valuesOf(node.Positional[at], last, "", values)
		return append(found, more...), plain
	}
	return found, false
}

// walk follows the words of a line. It returns the command that they reach, its flags, the number of its arguments, and
// the flag whose value the next word is, or nil.
func walk(node *kong.Node, words []string) (at *kong.Node, flags []*kong.Flag, args int, waiting *kong.Value) {
	flags = visible(node)
	for _, w := range words {
		switch {
		case waiting != nil:
			waiting = nil
		case strings.HasPrefix(w, "--"):
			if f := flagOf(flags, w); f != nil && !f.IsBool() && !strings.Contains(w, "=") {
				waiting = f.Value
			}
		default:
			if child := childOf(node, w); child != nil {
				node = child
				flags = append(flags, visible(node)...)
			} else {
				args++
			}
		}
	}
	if node.DefaultCmd != nil {
		flags = append(flags, visible(node.DefaultCmd)...)
	}
	return node, flags, args, waiting
}

func childOf(node *kong.Node, name string) *kong.Node {
	for _, c := range node.Children {
		if c.Name == name || slices.Contains(c.Aliases, name) {
			return c
		}
	}
	return nil
}

func visible(node *kong.Node) []*kong.Flag {
	return slices.DeleteFunc(slices.Clone(node.Flags), func(f *kong.Flag) bool { return f.Hidden })
}

// flagOf returns the flag that a word names, with or without a value; nil if there is none.
func flagOf(flags []*kong.Flag, word string) *kong.Flag {
	name, _, _ := strings.Cut(word, "=")
	for _, f := range flags {
		if slices.Contains(namesOf(f), name) {
			return f
		}
	}
	return nil
}

// namesOf returns the long forms of a flag, with the dashes.
func namesOf(f *kong.Flag) []string {
	if f.Tag != nil && f.Tag.Negatable != "" && f.IsBool() {
		return []string{"--" + f.Name, "--no-" + f.Name}
	}
	return []string{"--" + f.Name}
}

// valuesOf returns the values of v that begin with last, each after prefix.
func valuesOf(v *kong.Value, last, prefix string, values Values) (found []Candidate, files bool) {
	all := values(v)
	if v.Enum != "" {
		for _, e := range v.EnumSlice() {
			all = append(all, Candidate{Word: e})
		}
	}
	for _, c := range starting(all, last) {
		found = append(found, Candidate{prefix + c.Word, c.Help})
	}
	return found, v.Enum == "" && mayBeFile(v)
}

// mayBeFile reports whether names of files are sensible values of v: those of texts, not of numbers.
func mayBeFile(v *kong.Value) bool {
	t := v.Target.Type()
	return !v.IsBool() && (t.Kind().String() == "string" || t.Kind().String() == "slice" || t.Kind().String() == "struct")
}

func starting(all []Candidate, with string) []Candidate {
	return slices.DeleteFunc(slices.Clone(all), func(c Candidate) bool { return !strings.HasPrefix(c.Word, with) })
}

// sentence returns the first sentence of a help text without its period, on one line.
func sentence(text string) string {
	first, _, _ := strings.Cut(text, ". ")
	return strings.TrimSuffix(strings.ReplaceAll(strings.ReplaceAll(first, "\n", " "), "\t", " "), ".")
}
