package jsonschema

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/internal/bail"
)

// Rules returns the grammar of JSON texts that are valid against schema, in the forms listed in
// the package comment. The error is an *Error, or that of cfg.Validate. Time and memory are
// linear in the size of the rules, which MaxSize bounds.
func Rules(schema []byte, cfg Config) (grammar.Rules, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return translate(schema, cfg.WithDefaults(), false)
}

// Object returns the grammar of any JSON object, for the response format json_object: Rules of
// the schema {"type": "object"}.
func Object() grammar.Rules {
	rules, err := Rules([]byte(anyObject), Config{})
	if err != nil {
		panic(fmt.Sprintf("jsonschema: a schema of our own: %v", err))
	}
	return rules
}

const anyObject = `{"type": "object"}`

// translate is Rules for a cfg with all defaults. With object set, the texts are JSON objects.
func translate(schema []byte, cfg Config, object bool) (rules grammar.Rules, err error) {
	defer bail.Recover(&err)
	root := decode(schema, cfg)
	schemas := []*value{root}
	if kind := root.get("type"); object && (kind == nil || kind.text != "object") { // may allow other types
		also := decode([]byte(anyObject), cfg)
		also.id = -1 // root has values with the ids from 0 on
		schemas = append(schemas, also)
	}
	b := newBuilder(root, cfg)
	return b.finish(b.compile(schemas)), nil
}

// builder makes rules from a schema. It compiles conjunctions: sets of schemas that all apply
// to one value, because allOf and $ref combine schemas whose properties must be combined as
// well. A conjunction that occurs again becomes a rule.
type builder struct {
	cfg      Config
	root     *value
	rules    grammar.Rules // [0] is filled by finish
	shared   map[string]*grammar.Expr
	literals map[*value]*grammar.Expr
	targets  map[*value]*value // cache of target: by schema with a $ref, the schema that it names
	done     map[string]*conjunction
	active   map[*value]bool // schemas being applied to this value, to detect cycles of $ref
	level    int             // arrays and objects around the schema being compiled
	spent    int             // work so far, see spend
	size     int             // expressions so far, as counted by made

	// recursive is set if a rule calls itself. Without such rules the constructors of expressions
	// find out whether there is any text.
	recursive bool
}

// conjunction is the state of a set of schemas whose compilation has begun.
type conjunction struct {
	expr  *grammar.Expr // nil while it is being compiled
	rule  int           // its rule; 0 if it has none
	level int
}

func newBuilder(root *value, cfg Config) *builder {
	return &builder{
		cfg:      cfg,
		root:     root,
		rules:    make(grammar.Rules, 1),
		shared:   make(map[string]*grammar.Expr),
		literals: make(map[*value]*grammar.Expr),
		targets:  make(map[*value]*value),
		done:     make(map[string]*conjunction),
		active:   make(map[*value]bool),
	}
}

// finish makes e rule 0 and returns the rules. It bails out with ErrLimit if they are too large, and
// with ErrSchema if they match no text.
func (b *builder) finish(e *grammar.Expr) grammar.Rules {
	b.rules[0] = e
	size := 0
	for _, r := range b.rules {
		if size += cost(r, b.cfg.MaxSize); size > b.cfg.MaxSize {
			b.tooLarge(b.root)
		}
	}
	if e == nothing || b.recursive && errors.Is(b.rules.Validate(), grammar.ErrNothing) {
		wrong(b.root, "", "no value in the forms of this package is valid against it")
	}
	return b.rules
}

// spend adds n units of work, and fails with ErrLimit when the total exceeds MaxSize. at is the
// schema that caused the work, for the error.
func (b *builder) spend(n int, at *value) {
	if b.spent += n; b.spent > b.cfg.MaxSize {
		b.tooLarge(at)
	}
}

// made adds the expressions of e, a part of the grammar, to b.size, and fails with ErrLimit when
// the total exceeds MaxSize. One line of a schema may make a thousand expressions; made stops
// early then. at is the schema that e is for.
func (b *builder) made(e *grammar.Expr, at *value) {
	if b.size += cost(e, b.cfg.MaxSize); b.size > b.cfg.MaxSize {
		b.tooLarge(at)
	}
}

func (b *builder) tooLarge(at *value) {
	tooMuch(at, "", "the grammar would have over MaxSize, %d, expressions", b.cfg.MaxSize)
}

// rule makes e a rule and returns a call of the rule. If e has fewer than 12 expressions, it
// returns e itself.
func (b *builder) rule(e *grammar.Expr) *grammar.Expr {
	if cost(e, 12) < 12 {
		return e
	}
	b.rules = append(b.rules, e)
	return &grammar.Expr{Op: grammar.Call, Rule: len(b.rules) - 1}
}

// compile returns the expression of the values that are valid against all of schemas. While a
// conjunction is being compiled, it may occur again deeper in arrays or objects; then compile
// returns a call of a recursive rule. If it occurs again at the same level, a $ref refers to
// itself, which is an error.
func (b *builder) compile(schemas []*value) *grammar.Expr {
	schemas, reached := b.resolve(schemas)
	if len(schemas) == 0 {
		return b.any()
	}
	b.spend(len(schemas), schemas[0])
	key := keyOf(schemas)
	c := b.done[key]
	switch {
	case c == nil:
		c = &conjunction{level: b.level}
		b.done[key] = c
	case c.expr != nil:
		c.expr = b.rule(c.expr)
		return c.expr
	case c.level == b.level:
		wrong(schemas[0], "$ref", "refers to itself, so it restricts nothing")
	default:
		if c.rule == 0 {
			b.rules = append(b.rules, nil)
			c.rule, b.recursive = len(b.rules)-1, true
		}
		return &grammar.Expr{Op: grammar.Call, Rule: c.rule}
	}
	e := b.build(schemas)
	switch {
	case c.rule != 0:
		b.rules[c.rule] = e
		e = &grammar.Expr{Op: grammar.Call, Rule: c.rule}
	case reached:
		e = b.rule(e)
	}
	c.expr = e
	return e
}

// keyOf returns a key for a set of schemas. The key does not depend on their order.
func keyOf(schemas []*value) string {
	ids := make([]int, len(schemas))
	for i, s := range schemas {
		ids[i] = s.id
	}
	slices.Sort(ids)
	var key strings.Builder
	for _, id := range ids {
		key.WriteString(strconv.Itoa(id))
		key.WriteByte(' ')
	}
	return key.String()
}

// resolve replaces each schema whose only keyword is $ref by its target, and removes duplicates
// and schemas that restrict nothing. reached reports whether it followed a $ref. It fails if a
// $ref is circular.
func (b *builder) resolve(schemas []*value) (out []*value, reached bool) {
	seen := make(map[*value]bool)
	for _, s := range schemas {
		from := s
		var passed map[*value]bool
		for s.kind == object {
			if name, only := onlyKeyword(s); !only || name != "$ref" {
				break
			}
			if passed[s] {
				wrong(from, "$ref", "is circular")
			}
			if passed == nil {
				passed = make(map[*value]bool)
			}
			passed[s] = true
			b.spend(1, s)
			s = b.target(s)
			reached = true
		}
		name, only := onlyKeyword(s)
		restricts := s.kind != object || name != "" || !only
		if restricts && !seen[s] && !(s.kind == boolean && s.yes) {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out, reached
}

// onlyKeyword returns the keyword of s that is not an annotation, or "" if s has none. It returns
// false if s has several.
func onlyKeyword(s *value) (string, bool) {
	found := ""
	for _, name := range s.names {
		if _, ok := keywords[name]; ok {
			if found != "" {
				return "", false
			}
			found = name
		}
	}
	return found, true
}

// build returns the expression of a conjunction that compile has not seen before. A single schema
// with only anyOf, oneOf or allOf is compiled branch by branch, so that branches can become
// rules.
func (b *builder) build(schemas []*value) *grammar.Expr {
	if s := schemas[0]; len(schemas) == 1 && s.kind == object {
		switch name, _ := onlyKeyword(s); name {
		case "anyOf", "oneOf", "allOf":
			parts := list(s, name)
			if name == "allOf" {
				return b.compile(parts)
			}
			return b.anyOf(parts)
		}
	}
	alternatives := []*flat{newFlat()}
	for _, s := range schemas {
		alternatives = b.apply(alternatives, s)
	}
	out := make([]*grammar.Expr, len(alternatives))
	for i, f := range alternatives {
		out[i] = b.emit(f, schemas[0])
	}
	return either(out...)
}

func (b *builder) anyOf(branches []*value) *grammar.Expr {
	out := make([]*grammar.Expr, len(branches))
	for i, s := range branches {
		out[i] = b.compile([]*value{s})
	}
	return either(out...)
}

// maxLevel bounds the recursion of compile.
const maxLevel = 10_000

// inside compiles schemas, those of an element or property, one level deeper.
func (b *builder) inside(schemas []*value) *grammar.Expr {
	if b.level++; b.level > maxLevel {
		tooMuch(b.root, "$ref", "makes values over %d deep without repeating a schema", maxLevel)
	}
	active := b.active
	b.active = make(map[*value]bool)
	e := b.compile(schemas)
	b.active = active
	b.level--
	return e
}

// list returns the schemas in s's allOf, anyOf or oneOf. It fails if there are none.
func list(s *value, keyword string) []*value {
	v := s.get(keyword)
	if v.kind != array || len(v.members) == 0 {
		wrong(s, keyword, "must be an array of at least one schema")
	}
	return v.members
}
