package toolcall

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
}

// Hermes is the form of most models, and that of the tools prompt of our own.
//
// Source: the chat templates of NousResearch/Hermes-2-Pro and Qwen/Qwen2.5.
var Hermes = &Form{
	Name: "hermes", About: "Hermes, Qwen 2.5 and 3, Granite 4",
	Open: "<tool_call>\n{\"name\": ", Arguments: ", \"arguments\": ", Close: "}\n</tool_call>", Gap: "\n",
	Mark: "<tool_call>",
}

// forms lists all forms. parse.FormOf takes the first that a template writes.
//
// Sources: the chat templates of mistralai/Mistral-Nemo-Instruct-2407 and unsloth's of
// Devstral-Small-2507 (mistral), meta-llama/Llama-3.1-8B-Instruct (llama3_json),
// meetkai/functionary-medium-v3.1 and -v3.2, deepseek-ai/DeepSeek-R1 and -V3.1 (deepseek_v3 and
// _v31), openai/gpt-oss-120b and openai's page on the Harmony response format (openai),
// LiquidAI/LFM2-8B-A1B and meta-llama/Llama-3.2-3B-Instruct's model card (pythonic). The names are
// those of vLLM's parsers.
var forms = []*Form{
	Hermes,
	{
		Name: "mistral", About: "Mistral Nemo, Mistral Large 2",
		Begin: "[TOOL_CALLS][", Open: `{"name": `, Arguments: `, "arguments": `, Close: "}", Gap: ", ", End: "]",
		Mark: "[TOOL_CALLS]",
	},
	{
		Name: "mistral_args", About: "Devstral, Mistral Small 3.2, Ministral 3",
		Open: "[TOOL_CALLS]", Bare: true, Arguments: "[ARGS]",
		Mark: "[TOOL_CALLS]",
	},
	{
		Name: "functionary_v3.1", About: "Functionary 3.1, Llama 3.1's custom calls",
		Open: "<function=", Bare: true, Arguments: ">", Close: "</function>",
		Mark: "<function=",
	},
	{
		Name: "functionary_v3.2", About: "Functionary 3.2", // the prompt ends with the first >>>
		Open: ">>>", Bare: true, Arguments: "\n",
		Mark: ">>>",
	},
	{
		Name: "deepseek_v3", About: "DeepSeek V3, R1 and R1's distillations",
		Begin: "<｜tool▁calls▁begin｜>", End: "<｜tool▁calls▁end｜>", Gap: "\n",
		Open: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", Bare: true, Arguments: "\n```json\n", Close: "\n```<｜tool▁call▁end｜>",
		Mark: "<｜tool▁calls▁begin｜>",
	},
	{
		Name: "deepseek_v31", About: "DeepSeek V3.1",
		Begin: "<｜tool▁calls▁begin｜>", End: "<｜tool▁calls▁end｜>",
		Open: "<｜tool▁call▁begin｜>", Bare: true, Arguments: "<｜tool▁sep｜>", Close: "<｜tool▁call▁end｜>",
		Mark: "<｜tool▁calls▁begin｜>",
	},
	{
		Name: "openai", About: "gpt-oss, in Harmony's channels",
		Open: "<|channel|>commentary to=functions.", Bare: true, Arguments: " <|constrain|>json<|message|>", Close: "<|call|>", Gap: "<|start|>assistant",
		Mark: "<|channel|>commentary to=functions.",
	},
	{
		Name: "llama3_json", About: "Llama 3.1 to 3.3",
		Open: `{"name": `, Arguments: `, "parameters": `, Close: "}", Gap: "; ",
	},
	{
		Name: "pythonic", About: "Llama 3.2 and 4, LFM2", Python: true,
		Open: `{"name": `, Arguments: `, "arguments": `, Close: "}", Gap: "; ",
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

// The tags around a model's reasoning.
//
// Source: the chat templates of Qwen/Qwen3 and deepseek-ai/DeepSeek-R1.
const OpenThinking, CloseThinking = "<think>", "</think>"
