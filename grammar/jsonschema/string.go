package jsonschema

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/internal/runeset"
)

// sharedRule returns a call of the rule called name. The first time, make builds the rule, which
// may call itself by name.
func (b *builder) sharedRule(name string, make func() *grammar.Expr) *grammar.Expr {
	if call := b.shared[name]; call != nil {
		return call
	}
	b.rules = append(b.rules, nil)
	rule := len(b.rules) - 1
	call := &grammar.Expr{Op: grammar.Call, Rule: rule}
	b.shared[name] = call
	b.rules[rule] = make()
	return call
}

// char returns the expression of one code point of a string in any form that JSON allows (RFC
// 8259, section 7). Surrogates must come in pairs; a pair is one code point.
func (b *builder) char() *grammar.Expr {
	return either(runes(raw...), b.sharedRule("escape", func() *grammar.Expr {
		set := func(s string) *grammar.Expr {
			var ranges []grammar.Range
			for i := 0; i < len(s); i += 2 {
				ranges = append(ranges, grammar.Range{Lo: rune(s[i]), Hi: rune(s[i+1])})
			}
			return runes(ranges...)
		}
		hex := set("09AFaf")
		return seq(lit(`\`), either(
			set(`""//\\bbffnnrrtt`),
			seq(lit("u"), either(
				seq(set("09ACEFacef"), repeat(hex, 3, 3)),
				seq(set("DDdd"), either(
					seq(set("07"), repeat(hex, 2, 2)),
					seq(set("89ABab"), repeat(hex, 2, 2), lit(`\u`), set("DDdd"), set("CFcf"), repeat(hex, 2, 2)),
				)),
			)),
		))
	}))
}

// restOfString returns the expression of any characters up to and including the closing quote.
func (b *builder) restOfString() *grammar.Expr {
	return b.sharedRule("rest of a string", func() *grammar.Expr {
		return seq(repeat(b.char(), 0, grammar.Unlimited), lit(`"`))
	})
}

func (b *builder) anyString() *grammar.Expr { return seq(lit(`"`), b.restOfString()) }

// string returns the expression of f's strings, with quotes. It fails if f has more than one
// pattern, or more than one format and no pattern.
func (b *builder) string(f *flat) *grammar.Expr {
	constraint, keyword := f.patterns, "pattern"
	if len(constraint) == 0 {
		constraint, keyword = f.formats, "format"
	}
	switch {
	case len(constraint) > 1:
		unsupported(constraint[1].parent, keyword, "a second one for the same string")
	case len(constraint) == 1:
		return b.patterned(f, constraint[0], keyword)
	case f.minLength == 0 && f.maxLength == grammar.Unlimited:
		return b.anyString()
	}
	return seq(lit(`"`), repeat(b.char(), f.minLength, f.maxLength), lit(`"`))
}

// patterned returns the expression of strings, with quotes, that have f's lengths and match arg,
// the argument of keyword, which is pattern, format or patternProperties. It makes one expression
// for equal arguments.
func (b *builder) patterned(f *flat, arg *value, keyword string) *grammar.Expr {
	source := arg.text
	if keyword == "format" {
		source = formats[source]
	}
	name := fmt.Sprintf("%d %d %s", f.minLength, f.maxLength, source)
	if e := b.shared[name]; e != nil {
		return e
	}
	properties := strings.Count(source, `\p`) + strings.Count(source, `\P`) // hundreds of ranges each
	b.spend(len(source)+500*properties, arg.parent)
	e, err := pattern(source)
	if fault := (syntaxError{}); errors.As(err, &fault) {
		wrong(arg.parent, keyword, "%.50q: %v", source, err)
	} else if err != nil {
		unsupported(arg.parent, keyword, "%.50q has %v", source, err)
	}
	b.made(e, arg.parent) // written copies shared parts each time they occur
	e, ok := bounded(e, f.minLength, f.maxLength)
	if !ok {
		unsupported(arg.parent, keyword,
			"together with minLength or maxLength, while more than one part of it has no fixed length; bound its parts instead, as in {1,20}")
	}
	e = b.rule(seq(lit(`"`), written(e), lit(`"`)))
	b.shared[name] = e
	return e
}

// notNamed returns the expression of a quoted name that is not in names. A matcher follows the
// trie of names and leaves it where a character differs. Up to that character a name must be
// written in the one form that escape returns, so that "\u0061" is not accepted as a name other
// than "a".
func (b *builder) notNamed(names []string) *grammar.Expr {
	root := &trie{}
	for _, name := range names {
		root.add(name)
	}
	return seq(lit(`"`), b.leave(root))
}

// trie holds property names by their runes.
type trie struct {
	ends  bool // a name ends here
	runes []rune
	next  []*trie
}

func (t *trie) add(name string) {
	for _, r := range name {
		at := slices.Index(t.runes, r)
		if at < 0 {
			at = len(t.runes)
			t.runes = append(t.runes, r)
			t.next = append(t.next, &trie{})
		}
		t = t.next[at]
	}
	t.ends = true
}

// leave returns the expression of the rest of a name whose beginning led to node t of the trie,
// up to the closing quote. The name may end here if no property name does; it may follow the
// trie; or it may leave the trie and continue with any characters.
func (b *builder) leave(t *trie) *grammar.Expr {
	if len(t.runes) == 0 && !t.ends {
		return b.restOfString()
	}
	var on []grammar.Range
	parts := make([]*grammar.Expr, 0, len(t.runes)+2)
	for i, r := range t.runes {
		on = append(on, grammar.Range{Lo: r, Hi: r})
		parts = append(parts, seq(lit(escape(string(r))), b.leave(t.next[i])))
	}
	others := runeset.New(on).Complement()
	parts = append(parts, seq(written(runes(others...)), b.restOfString()))
	if !t.ends {
		parts = append(parts, lit(`"`))
	}
	return either(parts...)
}

// longest returns the number of runes of the longest name. That is the depth of leave's
// recursion.
func longest(names []string) int {
	n := 0
	for _, name := range names {
		n = max(n, utf8.RuneCountInString(name))
	}
	return n
}
