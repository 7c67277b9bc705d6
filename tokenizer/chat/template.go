package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// ErrInvalid wraps errors about templates that are no Jinja and about files
// that hold none.
var ErrInvalid = errors.New("chat: invalid template")

// ErrUnsupported wraps errors about features of Jinja that are not implemented.
// The text names the feature.
var ErrUnsupported = errors.New("chat: unsupported")

// ErrRender wraps errors of a template that is sound but can't render what it was
// given: an undefined name is asked for something, a type does not fit.
var ErrRender = errors.New("chat: the template failed")

// ErrRefused wraps what a template says with raise_exception: it does not take
// such a conversation. The text is the template's own.
var ErrRefused = errors.New("chat: the template refuses the conversation")

// ErrLimit wraps errors about a limit that was reached; the text names it.
var ErrLimit = errors.New("chat: the template reached a limit")

// Limits bound what a template may do. The zero value of a field means its
// default.
type Limits struct {
	// TemplateBytes is the most bytes of one template; default 1 MiB. The longest
	// that are published have 20 KB.
	TemplateBytes int `default:"1<<20" min:"1" max:"16<<20"`
	// Steps is the most work of one Render: one step for each value computed,
	// statement run and element touched, one more for every 16 bytes of text.
	// Default 10 million, a second or two at worst; a conversation of 100 turns takes
	// some ten thousand. It bounds memory too: no step makes more than 16 bytes
	// of text or one element of a list.
	Steps int `default:"10000000" min:"1" max:"2000000000"`
	// OutputBytes is the most bytes of the prompt; default 16 MiB.
	OutputBytes int `default:"16<<20" min:"1" max:"1<<30"`
}

// WithDefaults returns l with the default where a field is 0.
func (l Limits) WithDefaults() Limits { return bounds.Fill(l) }

// Validate reports every field that is out of range, nil if none is.
func (l Limits) Validate() error { return bounds.Check("chat: Limits", l.WithDefaults()) }

// defaultName is the template that is used unless another is asked for, and
// toolName the one for conversations with tools, where a model has it.
const (
	defaultName = "default"
	toolName    = "tool_use"
)

// Template is the parsed chat template of a model, or several under names. It is
// immutable and safe for concurrent use. The zero value renders nothing; see
// [Open] and [New].
type Template struct {
	programs map[string]*program
	special  map[string]string // bos_token, eos_token and the like, as variables
	limits   Limits
}

// New parses template. bos and eos are what it sees as bos_token and eos_token;
// "" leaves them undefined. Errors wrap [ErrInvalid], [ErrUnsupported] or
// [ErrLimit] and say where in the template.
func New(template, bos, eos string) (*Template, error) {
	special := map[string]string{}
	if bos != "" {
		special["bos_token"] = bos
	}
	if eos != "" {
		special["eos_token"] = eos
	}
	return NewNamed(map[string]string{defaultName: template}, special, Limits{})
}

// NewNamed parses several templates. special are the variables of special
// tokens by name ("bos_token"). Both maps are the caller's again after the call.
func NewNamed(templates, special map[string]string, limits Limits) (*Template, error) {
	if err := limits.Validate(); err != nil {
		return nil, err
	}
	if len(templates) == 0 {
		return nil, fmt.Errorf("%w: no template is given", ErrInvalid)
	}
	t := &Template{programs: map[string]*program{}, special: maps.Clone(special), limits: limits.WithDefaults()}
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		p, err := parse(templates[name], t.limits)
		if err != nil {
			return nil, fmt.Errorf("template %q: %w", name, err)
		}
		t.programs[name] = p
	}
	return t, nil
}

// Names lists the templates in ascending order.
func (t *Template) Names() []string { return slices.Sorted(maps.Keys(t.programs)) }

// Render writes the prompt for a conversation. Errors wrap [ErrRender],
// [ErrRefused] or [ErrLimit]. It keeps nothing of what it is given.
func (t *Template) Render(messages []Message, o Options) (string, error) {
	return t.render(messages, o, nil)
}

// render has change, if not nil, change what the caller gives before the template sees it.
func (t *Template) render(messages []Message, o Options, change func(map[string]any)) (string, error) {
	p, err := t.choose(o)
	if err != nil {
		return "", err
	}
	expect := 256
	for i := range messages {
		expect += len(messages[i].Content) + 64
	}
	return p.render(t.limits, expect, func(globals map[string]any) error {
		for name, token := range t.special {
			globals[name] = token
		}
		given := map[string]any{}
		if err := o.variables(given, messages); err != nil {
			return err
		}
		if change != nil {
			change(given)
		}
		maps.Copy(globals, given)
		return nil
	})
}

// choose is the template by its name, as in Hugging Face's library: "tool_use"
// where there are tools and the model has such a template, else "default".
func (t *Template) choose(o Options) (*program, error) {
	name := o.Template
	if name == "" {
		name = defaultName
		if _, ok := t.programs[toolName]; ok && o.Tools != nil {
			name = toolName
		}
	}
	if p, ok := t.programs[name]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("%w: no template is called %q; there are %q", ErrRender, name, t.Names())
}

// decode reads one JSON value of the caller's; what names it in errors.
func decode(what string, data json.RawMessage) (any, error) {
	v, err := decodeJSON(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s is no JSON: %w", ErrRender, what, err)
	}
	return v, nil
}
