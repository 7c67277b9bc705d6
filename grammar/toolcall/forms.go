package toolcall

import "strings"

// Form is how the models of a family write the calls of an output:
//
//	Begin  Open name Arguments {…} Close  Gap  Open name Arguments {…} Close  End
//
// The name is a JSON string, or stands without quotes if Bare is set. The arguments are a JSON
// object, unless Python is set. A Form is immutable.
type Form struct {
	Name  string // the form's name, as --tool-parser takes it
	About string // the models that write it, for help texts

	Begin, End string // around all calls of an output
	Gap        string // between two calls
	Open       string // before a name
	Bare       bool
	Arguments  string // between a name and its arguments
	Close      string // after the arguments

	// Mark is the text with which a call begins wherever it stands in an output. If it is empty,
	// a call begins at the beginning of the output only.
	Mark string
	// Python says that models write calls as Python does: [weather(city="Paris"), now()]. The
	// other fields then describe what a grammar makes them write, which the parser reads as well.
	Python bool

	reads reading
}

// reading describes the calls that the parser takes besides those that a grammar writes. A call is a JSON
// object with name and arguments, or, where names may stand without quotes, a name and its
// arguments; the texts stand around and within it, with white space between them. No text of a
// place is the beginning of another.
type reading struct {
	marks   []pair   // begin calls wherever they stand
	first   bool     // calls may begin the output without a mark, if they name a tool
	around  []pair   // may stand around calls
	before  []string // may stand before a call
	names   bool     // a name may stand without quotes after a mark
	known   bool     // without one as well, and it always has to be that of a tool
	content string   // a name after which comes text
	between []string // may stand between a name and the arguments
	id      string   // the text of between after which comes an id
	renames string   // the text of between after which the name may come once more
	after   []string // may stand between a call and close
	close   string   // closes a call after a mark; may be missing at the end of the output

	channels bool // the output has channels, and calls begin in their headers
}

// pair is a text and the one that closes it, if any.
type pair struct{ open, close string }

// Hermes is the form of most models, and that of the tools prompt of our own.
//
// Qwen2.5-Coder is asked for it by its template, with braces doubled by mistake, and writes it
// without the tags: in a fenced block, bare, or in the tags <tools> of its prompt.
//
// Sources: the chat templates of NousResearch/Hermes-2-Pro and Qwen/Qwen2.5; vLLM's issue 32926.
var Hermes = &Form{
	Name: "hermes", About: "Hermes, Qwen 2.5 and 3, Granite 4",
	Open: "<tool_call>\n{\"name\": ", Arguments: ", \"arguments\": ", Close: "}\n</tool_call>", Gap: "\n",
	Mark: "<tool_call>",
	reads: reading{
		marks: []pair{{open: "<tool_call>"}}, close: "</tool_call>", first: true,
		around: []pair{fence, {"[", "]"}, {"<tools>", "</tools>"}}, before: []string{"json", ",", ";"},
	},
}

var fence = pair{"```", "```"}

// mistralReads reads what all of Mistral's models write, from lists of objects to names with ids
// and names followed by arguments at once.
//
// Source: vLLM, MistralToolParser.
var mistralReads = reading{
	marks: []pair{{open: "[TOOL_CALLS]"}}, around: []pair{{"[", "]"}}, before: []string{","},
	names: true, between: []string{"[CALL_ID]", "[ARGS]"}, id: "[CALL_ID]",
}

// deepseekReads reads what DeepSeek's models write before V3.2: the type of the call and the fence
// may be there or not.
var deepseekReads = reading{
	marks:  []pair{{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"}},
	before: []string{"<｜tool▁call▁begin｜>"},
	names:  true, between: []string{"<｜tool▁sep｜>", "```", "json"}, renames: "<｜tool▁sep｜>",
	after: []string{"```"}, close: "<｜tool▁call▁end｜>",
}

// functionReads reads what Functionary 3.1 and, where the prompt asks for it, Llama 3 write.
//
// Sources: the template of functionary-medium-v3.1; ToolUtils in meta-llama/llama-models.
var functionReads = reading{marks: []pair{{open: "<function="}}, names: true, between: []string{">"}, close: "</function>"}

// llamaReads reads the objects that Llama 3 writes at the beginning of an output only, after the
// mark of a call of a built-in tool or not, and its custom calls.
//
// Sources: ToolUtils in meta-llama/llama-models; vLLM, Llama3JsonToolParser.
var llamaReads = reading{
	first: true, around: []pair{{"[", "]"}}, before: []string{"<|python_tag|>", ",", ";"},
	marks: functionReads.marks, names: true, between: functionReads.between, close: functionReads.close,
}

// forms lists all forms. FormOf takes the first that a template writes.
//
// Sources: the chat templates of mistralai/Mistral-Nemo-Instruct-2407 and unsloth's of
// Devstral-Small-2507 (mistral), meta-llama/Llama-3.1-8B-Instruct (llama3_json),
// meetkai/functionary-medium-v3.1 and -v3.2, deepseek-ai/DeepSeek-R1 and -V3.1 (deepseek_v3 and
// _v31), openai/gpt-oss-120b and openai's page on the Harmony response format (openai),
// LiquidAI/LFM2-8B-A1B and meta-llama/Llama-3.2-3B-Instruct's model card (pythonic); vLLM's
// parsers lfm2 and llama4_pythonic for the marks around Python's calls. The names are those of
// vLLM's parsers.
var forms = []*Form{
	Hermes,
	{
		Name: "mistral", About: "Mistral Nemo, Mistral Large 2",
		Begin: "[TOOL_CALLS][", Open: `{"name": `, Arguments: `, "arguments": `, Close: "}", Gap: ", ", End: "]",
		Mark: "[TOOL_CALLS]", reads: mistralReads,
	},
	{
		Name: "mistral_args", About: "Devstral, Mistral Small 3.2, Ministral 3",
		Open: "[TOOL_CALLS]", Bare: true, Arguments: "[ARGS]",
		Mark: "[TOOL_CALLS]", reads: mistralReads,
	},
	{
		Name: "functionary_v3.1", About: "Functionary 3.1, Llama 3.1's custom calls",
		Open: "<function=", Bare: true, Arguments: ">", Close: "</function>",
		Mark:  "<function=",
		reads: functionReads,
	},
	{
		Name: "functionary_v3.2", About: "Functionary 3.2", // the prompt ends with the first >>>
		Open: ">>>", Bare: true, Arguments: "\n",
		Mark:  ">>>",
		reads: reading{marks: []pair{{open: ">>>"}}, first: true, names: true, known: true, content: "all"},
	},
	{
		Name: "deepseek_v3", About: "DeepSeek V3, R1 and R1's distillations",
		Begin: "<｜tool▁calls▁begin｜>", End: "<｜tool▁calls▁end｜>", Gap: "\n",
		Open: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", Bare: true, Arguments: "\n```json\n", Close: "\n```<｜tool▁call▁end｜>",
		Mark: "<｜tool▁calls▁begin｜>", reads: deepseekReads,
	},
	{
		Name: "deepseek_v31", About: "DeepSeek V3.1",
		Begin: "<｜tool▁calls▁begin｜>", End: "<｜tool▁calls▁end｜>",
		Open: "<｜tool▁call▁begin｜>", Bare: true, Arguments: "<｜tool▁sep｜>", Close: "<｜tool▁call▁end｜>",
		Mark: "<｜tool▁calls▁begin｜>", reads: deepseekReads,
	},
	{
		Name: "openai", About: "gpt-oss, in Harmony's channels",
		Open: "<|channel|>commentary to=functions.", Bare: true, Arguments: " <|constrain|>json<|message|>", Close: "<|call|>", Gap: "<|start|>assistant",
		Mark:  "<|channel|>commentary to=functions.",
		reads: reading{channels: true},
	},
	{
		Name: "llama3_json", About: "Llama 3.1 to 3.3",
		Open: `{"name": `, Arguments: `, "parameters": `, Close: "}", Gap: "; ",
		reads: llamaReads,
	},
	{
		Name: "pythonic", About: "Llama 3.2 and 4, LFM2", Python: true,
		Open: `{"name": `, Arguments: `, "arguments": `, Close: "}", Gap: "; ",
		reads: reading{
			marks: []pair{{"<|tool_call_start|>", "<|tool_call_end|>"}, {"<|python_start|>", "<|python_end|>"}}, first: true,
			around: llamaReads.around, before: llamaReads.before,
		},
	},
}

// Forms returns all forms. The caller must not change the slice.
func Forms() []*Form { return forms }

// FormByName returns the form with this name, nil if there is none.
func FormByName(name string) *Form {
	for _, f := range forms {
		if f.Name == name {
			return f
		}
	}
	return nil
}

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
func FormOf(rendered string) *Form {
	rendered = bare(rendered)
	for _, f := range forms {
		if f.written(rendered) {
			return f
		}
	}
	return nil
}

// written reports whether text, which has no white space, contains a call of ProbeName with
// ProbeArguments in this form. The tools in front of a conversation have ProbeName as well, but
// not its arguments.
func (f *Form) written(text string) bool {
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
