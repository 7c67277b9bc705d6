package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// ErrInvalid is wrapped by errors about templates that are not valid Jinja, and about files without a
// template.
var ErrInvalid = errors.New("chat: invalid template")

// ErrUnsupported is wrapped by errors about unsupported features of Jinja, from parsing and from
// rendering. The text names the feature.
var ErrUnsupported = errors.New("chat: unsupported")

// ErrRender is wrapped by errors of a valid template that can't render its inputs, for example because
// an undefined name is used or a type does not fit.
var ErrRender = errors.New("chat: the template failed")

// ErrRefused is wrapped by errors with the message of a template that calls raise_exception because it does not
// accept the conversation.
var ErrRefused = errors.New("chat: the template refuses the conversation")

// ErrLimit is wrapped by errors about a limit that was reached; the text names it.
var ErrLimit = errors.New("chat: the template reached a limit")

// ErrTooLong is wrapped by the error for a prompt of over Options.MaxBytes.
var ErrTooLong = errors.New("chat: the prompt is too long")

// Limits bound the resources of a template. A zero field means its default.
type Limits struct {
	// TemplateBytes bounds the size of a template; default 1 MiB. The longest published ones
	// have 20 KB.
	TemplateBytes int `default:"1<<20" min:"1" max:"16<<20"`
	// Steps bounds the work of one Render: one step per computed value, executed statement and
	// visited element, plus one per 16 bytes of text. Default 10 million, a second or two at
	// worst; a conversation of 100 turns takes some ten thousand. It also bounds memory: no step
	// makes more than 16 bytes, and it is spent before they are made.
	Steps int `default:"10000000" min:"1" max:"2000000000"`
	// OutputBytes bounds the size of the prompt, and of every text from which it is made; default
	// 16 MiB.
	OutputBytes int `default:"16<<20" min:"1" max:"1<<30"`
}

// WithDefaults returns l with defaults for zero fields.
func (l Limits) WithDefaults() Limits { return bounds.Fill(l) }

// Validate reports every field that is out of range.
func (l Limits) Validate() error { return bounds.Check("chat: Limits", l.WithDefaults()) }

// defaultName is the template that is used unless another is selected, and toolName the one for
// conversations with tools, if the model has it.
const (
	defaultName = "default"
	toolName    = "tool_use"
)

// Template is the parsed chat template of a model, or several with names. It is immutable and
// safe for concurrent use. The zero value can't render; see [Open] and [NewNamed].
type Template struct {
	programs map[string]*program
	special  map[string]string // variables such as bos_token and eos_token
	limits   Limits
}

// NewNamed parses templates by name; one called "default" must be there unless Options.Template
// selects another. special are the variables of special tokens by name ("bos_token"). Errors wrap
// [ErrInvalid], [ErrUnsupported] or [ErrLimit] and give the position in the template. It does not
// keep the maps.
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
		t.learn(p)
	}
	return t, nil
}

// Names lists the templates in ascending order.
func (t *Template) Names() []string { return slices.Sorted(maps.Keys(t.programs)) }

// Render returns the prompt for a conversation. Errors wrap [ErrRender], [ErrRefused],
// [ErrUnsupported], [ErrLimit] or [ErrToolsDropped]. It does not keep its arguments.
func (t *Template) Render(messages []Message, o Options) (string, error) {
	return t.render(messages, o, nil)
}

// render calls change, if not nil, with the caller's values before the template sees them.
func (t *Template) render(messages []Message, o Options, change func(map[string]any)) (string, error) {
	p, err := t.choose(o)
	if err != nil {
		return "", err
	}
	as, err := p.habits.plan(o.ToolsPrompt, len(o.Tools) > 0, told(messages))
	if err != nil {
		return "", err
	}
	if len(o.Tools) > 0 && p.habits.shows == sometimes && t.drops(p, messages, o, as) {
		if o.ToolsPrompt != AutoTools {
			return "", errTools("tools in this conversation")
		}
		as = p.habits.whole()
	}
	return t.run(p, messages, &o, as, change)
}

// drops reports whether p makes the same of a conversation with and without its tools.
func (t *Template) drops(p *program, messages []Message, o Options, as plan) bool {
	with, err := t.run(p, messages, &o, as, nil)
	if err != nil {
		return false
	}
	o.Tools = nil
	without, err := t.run(p, messages, &o, as, nil)
	return err == nil && with == without
}

// run renders a conversation with p, after the changes of as and change.
func (t *Template) run(p *program, messages []Message, o *Options, as plan, change func(map[string]any)) (string, error) {
	expect := 256
	for i := range messages {
		expect += len(messages[i].Content) + 64
	}
	if o.MaxBytes > 0 {
		expect = min(expect, o.MaxBytes)
	}
	if o.Charge != nil {
		if err := o.Charge(expect + o.decodedBytes(messages)); err != nil {
			return "", err
		}
	}
	return p.render(t.limits, o, expect, func(r *run, globals map[string]any) error {
		for name, token := range t.special {
			globals[name] = token
		}
		given := map[string]any{}
		if err := o.variables(given, messages, p.parts); err != nil {
			return err
		}
		if change != nil {
			change(given)
		}
		now := "unknown"
		if !o.Now.IsZero() {
			now = o.Now.Format(time.DateTime + " MST")
		}
		(&adapter{run: r, plan: as, now: now}).adapt(given)
		maps.Copy(globals, given)
		return nil
	})
}

// choose returns the template that o selects. Without o.Template, as in Hugging Face's library,
// that is "tool_use" if there are tools and the model has such a template, else "default".
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

// decode decodes one JSON value of the caller; what is its name in errors.
func decode(what string, data json.RawMessage) (any, error) {
	v, err := decodeJSON(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s is no JSON: %w", ErrRender, what, err)
	}
	return v, nil
}
