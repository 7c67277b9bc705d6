package toolcall

import "strings"

// variants has, by the name of a form, the texts that its models write around calls besides those of
// the form, or instead of them.
//
// Sources: the tokenizers of mistralai/Mistral-Small-3.2-24B-Instruct-2506, meta-llama/Llama-3.1-8B-Instruct,
// meta-llama/Llama-4-Scout-17B-16E-Instruct and LiquidAI/LFM2-8B-A1B; openai's page on the Harmony
// response format.
var variants = map[string][]string{
	"mistral":          {"[CALL_ID]", "[ARGS]"},
	"mistral_args":     {"[CALL_ID]"},
	"functionary_v3.1": {"<|python_tag|>"},
	"llama3_json":      {"<|python_tag|>"},
	"pythonic":         {"<|python_tag|>", "<|python_start|>", "<|python_end|>", "<|tool_call_start|>", "<|tool_call_end|>"},
	"openai":           {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"},
}

// Marks returns those of a vocabulary's control tokens, given by their texts, that stand around the
// calls of an output. A Parser needs their texts, which control tokens otherwise don't have.
func (f *Form) Marks(control []string) (marks []string) {
	written := strings.Join(append([]string{f.Begin, f.Open, f.Arguments, f.Close, f.Gap, f.End}, variants[f.Name]...), "\x00")
	for _, token := range control {
		if strings.Contains(written, token) {
			marks = append(marks, token)
		}
	}
	return marks
}

// Frames reports whether models put marks around the text of an answer too, so that an output needs
// a Parser even where no tools are given.
func (f *Form) Frames() bool { return f.Name == "openai" || f.Name == "functionary_v3.2" }
