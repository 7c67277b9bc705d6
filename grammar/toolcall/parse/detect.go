package parse

import (
	"strings"

	"github.com/coppice-llm/coppice/grammar/toolcall"
)

// ProbeName and ProbeArguments are a call that a conversation needs, so that FormOf finds the form
// in its text.
const (
	ProbeName      = "probe_tool"
	ProbeArguments = `{"probe_key":"probe_value"}`
)

// FormOf returns the form of the call of ProbeName in a conversation that a model's chat template
// has rendered, or nil if it finds none. White space doesn't matter, nor what stands between a
// name and its arguments besides the form's own text, such as a call's id. The arguments may be
// encoded as a string, as some templates write those that come as a string.
func FormOf(rendered string) *toolcall.Form {
	rendered = bare(rendered)
	for _, f := range toolcall.Forms() {
		if writtenIn(f, rendered) {
			return f
		}
	}
	return nil
}

// writtenIn reports whether text, which has no white space, contains a call of ProbeName with
// ProbeArguments in this form. The tools in front of a conversation have ProbeName as well, but
// not its arguments.
func writtenIn(f *toolcall.Form, text string) bool {
	name := `"` + ProbeName + `"`
	switch {
	case f.Python: // the templates of LFM2 print no calls, but mark the tools
		return strings.Contains(text, "["+ProbeName+"(") || strings.Contains(text, "<|tool_list_start|>")
	case f.Name == "openai": // a template names the recipient in the header of the message, before the channel
		return strings.Contains(text, "to=functions."+ProbeName)
	case f.Bare:
		name = ProbeName
	}
	for {
		_, after, ok := strings.Cut(text, bare(f.Begin+f.Open)+name)
		if !ok {
			return false
		}
		between, _, _ := strings.Cut(after, "{")
		arguments := after[len(between):]
		if unquoted, ok := strings.CutSuffix(between, `"`); ok {
			between, arguments = unquoted, strings.ReplaceAll(clip(arguments, 2*len(ProbeArguments)), `\"`, `"`)
		}
		if strings.HasSuffix(between, bare(f.Arguments)) && strings.HasPrefix(arguments, ProbeArguments) {
			return true
		}
		text = after
	}
}

// clip returns the first n bytes of text, all if there are fewer.
func clip(text string, n int) string { return text[:min(n, len(text))] }

// bare returns text without white space.
func bare(text string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(spaces, r) {
			return -1
		}
		return r
	}, text)
}
