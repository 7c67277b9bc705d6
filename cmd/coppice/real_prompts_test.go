package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/internal/opticks"
)

// realPrompt is a prompt for real models: text with the special tokens of ChatML, which SmolLM2 and Qwen2.5
// have both.
type realPrompt struct{ kind, text string }

// realKinds is the order of kinds, repeated: c for code, t for chats with tools, l for languages, n for long.
// Any first part of the prompts is a mixture.
const realKinds = "ctlnctlctlctlnlctlctlnctl"

// realPromptsHash is the hash of all prompts.
const realPromptsHash = "8ec36497572760d8"

// hashPrompts returns the hash of prompts: recorded answers are to these and no others.
func hashPrompts(all []realPrompt) string {
	sum := sha256.New()
	for _, p := range all {
		fmt.Fprintf(sum, "%d %s", len(p.text), p.text)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8])
}

// promptMaker makes prompts of the sources that testdata/real/README.md lists.
type promptMaker struct {
	rng        *rand.Rand
	code       []snippet
	tools      []realTool
	languages  []string
	sentences  map[string][]string
	paragraphs []string
}

type snippet struct{ language, text string }

// realTool is a tool with questions that it answers.
type realTool struct {
	Name, About string
	Parameters  json.RawMessage
	Required    []string
	Questions   []string
	Result      json.RawMessage
}

func newPromptMaker(t *testing.T) *promptMaker {
	t.Helper()
	m := &promptMaker{rng: rand.New(rand.NewPCG(30, 1)), paragraphs: opticks.Paragraphs(), sentences: map[string][]string{}}
	read := func(path string) []byte {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for _, part := range strings.Split(string(read("testdata/real/code.txt")), "=== ")[1:] {
		language, text, _ := strings.Cut(part, "\n")
		m.code = append(m.code, snippet{language, text})
	}
	if err := json.Unmarshal(read("testdata/real/tools.json"), &m.tools); err != nil {
		t.Fatal(err)
	}
	var texts []struct{ Kind, Text string }
	if err := json.Unmarshal(read("../../tokenizer/testdata/texts.json"), &texts); err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		switch text.Kind {
		case "code", "emoji", "white space", "corners", "mixed":
			continue
		}
		if m.sentences[text.Kind] == nil {
			m.languages = append(m.languages, text.Kind)
		}
		m.sentences[text.Kind] = append(m.sentences[text.Kind], text.Text)
	}
	return m
}

// makeRealPrompts returns the 500 prompts.
func makeRealPrompts(t *testing.T) []realPrompt {
	t.Helper()
	m, all, count, seen := newPromptMaker(t), make([]realPrompt, 500), map[byte]int{}, map[string]bool{}
	for i := range all {
		kind := realKinds[i%len(realKinds)]
		for all[i].text == "" || seen[all[i].text] {
			all[i] = m.prompt(kind, count[kind])
		}
		seen[all[i].text] = true
		count[kind]++
	}
	return all
}

// prompt returns a prompt of the kind, the n-th of it; another one when it is called again.
func (m *promptMaker) prompt(kind byte, n int) realPrompt {
	switch kind {
	case 'c':
		return realPrompt{"code", m.codePrompt(n)}
	case 't':
		return realPrompt{"tools", m.toolPrompt(n)}
	case 'l':
		return realPrompt{"language", m.languagePrompt(n)}
	default:
		return realPrompt{"long", m.longPrompt()}
	}
}

// chatML is a turn of a conversation in ChatML.
func chatML(role, text string) string { return "<|im_start|>" + role + "\n" + text + "<|im_end|>\n" }

// answerNow begins the model's turn.
const answerNow = "<|im_start|>assistant\n"

// codePrompt is a program cut off at a line, or a question about one.
func (m *promptMaker) codePrompt(n int) string {
	s := m.code[n%len(m.code)]
	lines := strings.SplitAfter(s.text, "\n")
	part := strings.Join(lines[:len(lines)/3+m.rng.IntN(len(lines)*2/3)], "")
	fenced := "```" + strings.ToLower(s.language) + "\n" + part + "```"
	other := m.code[(n+1+m.rng.IntN(len(m.code)-1))%len(m.code)].language
	switch n / len(m.code) % 4 {
	case 0:
		return part
	case 1:
		return chatML("user", "Explain what this "+s.language+" does, line by line.\n\n"+fenced) + answerNow
	case 2:
		return chatML("system", "You are a careful programmer.") + chatML("user", fenced+"\n\nWrite the same in "+other+".") + answerNow
	default:
		return chatML("user", "Find a fault in this, and complete it:\n\n"+fenced) + answerNow + "```" + strings.ToLower(s.language) + "\n" + lines[0]
	}
}

// toolPrompt is a chat in the Hermes form with one to four tools, of which the first answers the question: before its
// call, within the call, or after the tool's result.
func (m *promptMaker) toolPrompt(n int) string {
	at := n % len(m.tools)
	question := m.tools[at].Questions[n/len(m.tools)%3]
	var list []string
	for i := range 1 + m.rng.IntN(4) {
		tool := m.tools[(at+5*i)%len(m.tools)]
		required, _ := json.Marshal(tool.Required)
		list = append(list, fmt.Sprintf(`{"type": "function", "function": {"name": %q, "description": %q, "parameters": {"type": "object", "properties": %s, "required": %s}}}`,
			tool.Name, tool.About, compacted(tool.Parameters), required))
	}
	m.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	system := "You may call functions. Their signatures are within <tools></tools>:\n<tools>\n" + strings.Join(list, "\n") +
		"\n</tools>\nFor each call, return a JSON object with name and arguments within <tool_call></tool_call>."
	begun := chatML("system", system) + chatML("user", question) + answerNow
	call := fmt.Sprintf("<tool_call>\n{\"name\": %q, \"arguments\": {", m.tools[at].Name)
	switch m.rng.IntN(3) {
	case 0:
		return begun
	case 1:
		return begun + call
	default:
		return begun + call + "}}\n</tool_call><|im_end|>\n" + chatML("user", "<tool_response>\n"+compacted(m.tools[at].Result)+"\n</tool_response>") + answerNow
	}
}

func compacted(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		panic(err)
	}
	return b.String()
}

// languagePrompt is a text in one of twenty languages, to continue, to translate or to answer.
func (m *promptMaker) languagePrompt(n int) string {
	language := m.languages[n*7%len(m.languages)]
	texts := m.sentences[language]
	text := []rune(texts[m.rng.IntN(len(texts))])
	part := string(text[:len(text)/2+m.rng.IntN(len(text)/2)])
	other := m.languages[m.rng.IntN(len(m.languages))]
	switch n / len(m.languages) % 3 {
	case 0:
		return part
	case 1:
		return chatML("user", "Translate from "+language+" to "+other+": "+part) + answerNow
	default:
		return chatML("user", part+" … "+string(text)) + answerNow
	}
}

// longPrompt is 2,000 to 6,000 bytes of Newton's Opticks, most of them with a question.
func (m *promptMaker) longPrompt() string {
	var b strings.Builder
	most := 2000 + m.rng.IntN(4000)
	for at := m.rng.IntN(len(m.paragraphs)); b.Len() < most; at++ {
		b.WriteString(m.paragraphs[at%len(m.paragraphs)] + "\n\n")
	}
	text := strings.ToValidUTF8(b.String()[:most], "")
	if m.rng.IntN(3) == 0 {
		return text
	}
	questions := opticks.Questions()
	return chatML("system", "Answer from this text:\n\n"+text) + chatML("user", questions[m.rng.IntN(len(questions))]) + answerNow
}

// TestRealPrompts checks the number of prompts of each kind, that none comes twice, and their hash.
func TestRealPrompts(t *testing.T) {
	all := makeRealPrompts(t)
	count, seen := map[string]int{}, map[string]bool{}
	for i, p := range all {
		if seen[p.text] || p.text == "" {
			t.Errorf("prompt %d comes twice or is empty: %q", i, p.text)
		}
		seen[p.text] = true
		count[p.kind]++
	}
	if got := fmt.Sprint(count); len(all) != 500 || got != "map[code:140 language:160 long:60 tools:140]" {
		t.Errorf("%d prompts: %s", len(all), got)
	}
	if languages := len(newPromptMaker(t).languages); languages != 20 {
		t.Errorf("%d languages", languages)
	}
	if got := hashPrompts(all); got != realPromptsHash {
		t.Errorf("the prompts have the hash %s, want %s: recorded answers are to other prompts", got, realPromptsHash)
	}
}
