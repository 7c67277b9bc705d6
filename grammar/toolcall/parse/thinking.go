package parse

import (
	"strings"

	"github.com/coppice-llm/coppice/grammar/toolcall"
)

// thinking separates reasoning from the text of an output, which arrives in pieces of any size.
// The reasoning is the text between <think> and </think> at the beginning of the output. White
// space around the reasoning is dropped. thinking delays at most heldSpace bytes of white space
// and the beginning of a tag.
//
// Source: the chat templates of Qwen/Qwen3 and deepseek-ai/DeepSeek-R1.
type thinking struct {
	inside bool   // inside the reasoning; set from the start if the prompt ends with the tag
	done   bool   // the reasoning has ended, or there is none
	begun  bool   // some text of the current part was given: stop dropping white space
	held   string // delayed text
}

// next returns the reasoning and the content in text, the next piece of the output. last says that
// the output has ended: next then returns all delayed text too.
func (t *thinking) next(text string, last bool) (thought, rest string) {
	if t.done && t.begun && t.held == "" {
		return "", text
	}
	text = t.held + text
	t.held = ""
	if !t.inside && !t.done {
		begin := trimSpaceLeft(text)
		near := len(text)-len(begin) <= heldSpace
		switch {
		case near && strings.HasPrefix(begin, toolcall.OpenThinking):
			t.inside, text = true, begin[len(toolcall.OpenThinking):]
		case near && !last && strings.HasPrefix(toolcall.OpenThinking, begin):
			t.held = text
			return "", ""
		default:
			t.done, t.begun = true, true
			return "", text
		}
	}
	if t.inside {
		if thought, text = t.within(text, last); t.inside {
			return thought, ""
		}
	}
	if !t.begun { // first content after the reasoning
		text = trimSpaceLeft(text)
		t.begun = text != ""
	}
	return thought, text
}

// within scans text of the reasoning. It returns the reasoning in it, and in rest the text after
// the closing tag. It delays text that may begin the closing tag, unless last says that the output
// has ended.
func (t *thinking) within(text string, last bool) (thought, rest string) {
	if !t.begun {
		text = trimSpaceLeft(text)
	}
	end := strings.Index(text, toolcall.CloseThinking)
	if end >= 0 {
		thought, rest = trimSpaceRight(text[:end]), text[end+len(toolcall.CloseThinking):]
		t.inside, t.done, t.begun = false, true, false
		return thought, rest
	}
	if last {
		return trimSpaceRight(text), ""
	}
	keep := len(trimSpaceRight(text[:len(text)-begins(text, toolcall.CloseThinking)]))
	t.begun = t.begun || keep > 0
	t.held = text[keep:]
	return text[:keep], ""
}

// begins returns the length of the beginning of tag with which text ends, 0 if it ends with none.
func begins(text, tag string) int {
	n := min(len(tag)-1, len(text))
	for !strings.HasSuffix(text, tag[:n]) {
		n--
	}
	return n
}

const spaces = " \n\r\t"

func trimSpaceLeft(s string) string { return strings.TrimLeft(s, spaces) }

// trimSpaceRight drops at most heldSpace bytes.
func trimSpaceRight(s string) string {
	least := max(len(s)-heldSpace, 0)
	return s[:least] + strings.TrimRight(s[least:], spaces)
}

// OpensThinking reports whether a rendered conversation ends with the opening tag of the
// model's reasoning.
func OpensThinking(rendered string) bool {
	return strings.HasSuffix(trimSpaceRight(rendered), toolcall.OpenThinking)
}
