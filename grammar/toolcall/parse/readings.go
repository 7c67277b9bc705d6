package parse

// reading describes the calls that the parser takes besides those that a grammar writes. A call is a JSON
// object with name and arguments, or, where names may stand without quotes, a name and its
// arguments; the texts stand around and within it, with white space between them. No text of a
// place is the beginning of another.
type reading struct {
	marks   []pair   // begin calls wherever they stand
	first   bool     // calls may begin the output without a mark, if they name a tool
	lines   bool     // likewise each line
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

// readings lists the readings of all forms, by name.
var readings = map[string]*reading{
	"hermes":           &hermesReads,
	"mistral":          &mistralReads,
	"mistral_args":     &mistralReads,
	"functionary_v3.1": &functionReads,
	"functionary_v3.2": {marks: []pair{{open: ">>>"}}, first: true, names: true, known: true, content: "all"},
	"deepseek_v3":      &deepseekReads,
	"deepseek_v31":     &deepseekReads,
	"openai":           {channels: true},
	"llama3_json":      &llamaReads,
	"pythonic":         &pythonReads,
}

// hermesReads reads what models of the Hermes form write. Qwen2.5-Coder is asked for it by its
// template, with braces doubled by mistake, and writes it without the tags: in a fenced block,
// bare, or in the tags <tools> of its prompt.
//
// Source: vLLM's issue 32926.
var hermesReads = reading{
	marks: []pair{{open: "<tool_call>"}}, close: "</tool_call>", first: true, lines: true,
	around: []pair{fence, {"[", "]"}, {"<tools>", "</tools>"}}, before: []string{"json", ",", ";"},
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

// pythonReads reads what is around calls that are written as Python does.
//
// Source: vLLM's parsers lfm2 and llama4_pythonic.
var pythonReads = reading{
	marks: []pair{{"<|tool_call_start|>", "<|tool_call_end|>"}, {"<|python_start|>", "<|python_end|>"}}, first: true,
	around: llamaReads.around, before: llamaReads.before,
}
