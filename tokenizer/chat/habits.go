package chat

import (
	"encoding/json"
	"errors"
	"strings"
	"time"
)

// habits are what a template does with tools, calls and results, found by rendering a few conversations when
// the template is opened.
type habits struct {
	shows shown
	own   plan // for a conversation whose tools the template prints
	fold  bool // it takes no system message
}

// shown says in which conversations a template prints the tools.
type shown uint8

const (
	sometimes shown = iota // in some; found out for each conversation
	always
	never
)

// probeBytes bounds the work of all trial renderings of a template, as Options.Charge counts: 16 bytes a step. The
// longest of the published templates takes a twentieth of it.
const probeBytes = 1 << 20

var errProbes = errors.New("chat: the trial renderings take too long")

// probe renders conversations with one template.
type probe struct {
	t       *Template
	p       *program
	plan    plan
	charged int
}

// Texts of the trial conversations. Each occurs nowhere else.
const (
	probeTool   = "look_up_weather"
	probeOther  = "look_up_time"
	probeSystem = "Answer in one sentence."
	probeValue  = "Lisbon"
	probeSecond = "Nairobi"
	probeResult = "sunny, 21 degrees"
	probeLater  = "ten past four"
)

var (
	probeTools = []json.RawMessage{json.RawMessage(`{"type":"function","function":{"name":"` + probeTool +
		`","description":"Looks something up.","parameters":{"type":"object","properties":{"city":{"type":"string","description":"A city."}},"required":["city"]}}}`)}
	bareTools = []json.RawMessage{
		json.RawMessage(`{"type":"function","function":{"name":"` + probeTool + `"}}`),
		json.RawMessage(`{"type":"function","function":{"name":"` + probeTool + `","description":"Looks something up.","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}`),
	}
	probeUser   = Message{Role: "user", Content: "How is it there?"}
	probeAnswer = Message{Role: "assistant", Content: "It is fine."}
	probeNext   = Message{Role: "user", Content: "And elsewhere?"}
	probeRules  = Message{Role: systemRole, Content: probeSystem}
	// The id has the form of those that servers make.
	probeCall  = ToolCall{ID: "call_0123456789abcdef_0_0", Name: probeTool, Arguments: json.RawMessage(`{"city":"` + probeValue + `"}`)}
	otherCall  = ToolCall{ID: "call_0123456789abcdef_0_1", Name: probeOther, Arguments: json.RawMessage(`{"city":"` + probeSecond + `"}`)}
	probeCalls = Message{Role: "assistant", ToolCalls: []ToolCall{probeCall}}
	bothCalls  = Message{Role: "assistant", ToolCalls: []ToolCall{probeCall, otherCall}}
	probeGot   = Message{Role: toolRole, ToolCallID: probeCall.ID, Content: probeResult}
	otherGot   = Message{Role: toolRole, ToolCallID: otherCall.ID, Content: probeLater}
)

// learn finds the habits of p.
func (t *Template) learn(p *program) {
	b := &probe{t: t, p: p}
	b.variables()
	p.habits.shows = b.shows()
	p.habits.fold = !b.prints(nil, []string{probeSystem}, probeRules, probeUser)
	if p.habits.shows != never {
		b.fill()
		b.calls()
	}
	p.habits.own = b.plan
}

// render renders a conversation as b.plan says.
func (b *probe) render(tools []json.RawMessage, messages ...Message) (string, error) {
	o := Options{AddGenerationPrompt: true, Tools: tools, Now: time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC)}
	o.Charge = func(bytes int) error {
		if b.charged += bytes; b.charged > probeBytes {
			return errProbes
		}
		return nil
	}
	return b.t.run(b.p, messages, &o, b.plan, nil)
}

// prints reports whether a conversation can be rendered, and all of want is in the text.
func (b *probe) prints(tools []json.RawMessage, want []string, messages ...Message) bool {
	text, err := b.render(tools, messages...)
	for _, w := range want {
		if err != nil || !strings.Contains(text, w) {
			return false
		}
	}
	return err == nil
}

// variables finds out whether the template needs the variable functions, or an empty list where there are no tools.
func (b *probe) variables() {
	if b.prints(nil, nil, probeUser) {
		return
	}
	if b.plan.empty = true; b.prints(nil, nil, probeUser) {
		return
	}
	b.plan.empty = false
	if b.prints(probeTools, nil, probeUser) {
		return
	}
	b.plan.functions = true
	b.plan.functions = b.prints(probeTools, []string{probeTool}, probeUser)
}

// shows finds out where the template prints tools. It may do so only beside a system message, or only in the
// first turn. Conversations that it refuses with and without tools don't count.
func (b *probe) shows() shown {
	printed, dropped := 0, 0
	for _, messages := range [][]Message{
		{probeUser}, {probeRules, probeUser}, {probeUser, probeAnswer, probeNext}, {probeRules, probeUser, probeAnswer, probeNext},
	} {
		switch {
		case b.prints(probeTools, []string{probeTool}, messages...):
			printed++
		case b.prints(probeTools, nil, messages...), b.prints(nil, nil, messages...):
			dropped++
		}
	}
	switch {
	case b.charged > probeBytes || printed > 0 == (dropped > 0):
		return sometimes
	case printed > 0:
		return always
	}
	return never
}

// fill finds out whether the template needs descriptions and parameters, which a tool may lack.
func (b *probe) fill() {
	for _, tool := range bareTools {
		tools := []json.RawMessage{tool}
		if b.prints(tools, []string{probeTool}, probeUser) || b.plan.fill {
			continue
		}
		b.plan.fill = true
		b.plan.fill = b.prints(tools, []string{probeTool}, probeUser)
	}
}

// calls finds out in which form the template takes calls and results, and adds that to the plan.
func (b *probe) calls() {
	as := b.plan
	for _, form := range []plan{{}, {text: true}, {short: true}, {text: true, short: true}} {
		b.plan.text, b.plan.short = form.text, form.short
		if b.prints(probeTools, []string{probeValue, probeResult}, probeUser, probeCalls, probeGot, probeAnswer, probeNext) {
			if two := []Message{probeUser, bothCalls, probeGot, otherGot, probeAnswer, probeNext}; !b.prints(probeTools, []string{probeValue, probeSecond, probeResult, probeLater}, two...) {
				b.plan.single = true
			}
			return
		}
	}
	// Calls are refused, or not printed.
	b.plan = as
	for _, form := range []plan{{calls: true}, {results: true}, {calls: true, results: true}} {
		b.plan.calls, b.plan.results = form.calls, form.results
		if b.prints(probeTools, []string{probeValue, probeResult}, probeUser, probeCalls, probeGot, probeAnswer, probeNext) {
			return
		}
	}
	if b.charged > probeBytes { // nothing was found out
		b.plan = as
	}
}
