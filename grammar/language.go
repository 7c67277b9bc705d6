package grammar

// Format is a language of texts. The zero value is all texts.
type Format struct {
	// Language says how Text is read: RE2 here, and those of package jsonschema.
	Language Language
	Text     string
}

// Language reads the texts of formats. It stands behind an interface so that a program links only the languages that it names. Its
// dynamic type must be comparable: equal formats are compiled once.
type Language interface {
	// Read reads the description of a language of texts. Cost: O(text); the rules are made later.
	Read(text string) (Described, error)
}

// Described is the language of texts that the text of a format describes.
type Described struct {
	// Rules makes the rules of the texts.
	Rules func() (Rules, error)
	// Free describes the text around texts of the rules, for Compiler.Around. nil: there is none.
	Free *Free
	// Loose makes rules to be used if those of Rules can't be made or compiled. nil: there are none.
	Loose func() (Rules, error)
}

// RE2 is the language of regular expressions in RE2's syntax: a text matches from beginning to end. See ParseRegexp.
type RE2 struct{}

// Read implements Language.
func (RE2) Read(expression string) (Described, error) {
	return Described{Rules: func() (Rules, error) { return ParseRegexp(expression) }}, nil
}
