package openai

import "github.com/coppice-llm/coppice/internal/enum"

// UnknownFields says what becomes of fields of a request that are neither read nor in a
// list of those that change the output, or don't.
type UnknownFields uint8

// The choices.
const (
	RefuseUnknown UnknownFields = iota
	IgnoreUnknown
)

var unknownFields = enum.New[UnknownFields]("openai", "choice for unknown fields", "refuse", "ignore")

// String is "refuse" or "ignore".
func (u UnknownFields) String() string { return unknownFields.Name(u) }

// UnmarshalText takes what String gives.
func (u *UnknownFields) UnmarshalText(text []byte) error { return unknownFields.Read(u, text) }

// harmless are fields of other servers and of client libraries that say nothing about the
// output, wherever they stand. They may be anything; [Params.Ignored] names them.
var harmless = []string{
	"annotations",              // OpenAI: of an answer that is given back
	"cache_control",            // Anthropic: where a cached prefix may end; ours are found
	"cache_prompt",             // llama.cpp: prompts are always cached
	"chat_id",                  // Open WebUI
	"custom_llm_provider",      // LiteLLM
	"data_parallel_rank",       // vLLM, SGLang: which replica computes
	"extra_content",            // Gemini: of an answer that is given back
	"guided_decoding_backend",  // vLLM: which library compiles a schema
	"id_slot",                  // llama.cpp
	"images",                   // LiteLLM: of an answer that is given back
	"include_usage",            // beside stream_options, some clients
	"keep_alive",               // Ollama: how long the model stays in memory
	"litellm_call_id",          //
	"litellm_metadata",         //
	"litellm_session_id",       //
	"litellm_trace_id",         //
	"num_ctx",                  // Ollama: how much of the context is kept in memory
	"parsed",                   // OpenAI's clients: of an answer that is given back
	"parsed",                   // OpenAI's libraries: of an answer that is given back
	"parsed_arguments",         // the same, of a call
	"parsed_arguments",         // OpenAI's libraries: of a call that is given back
	"provider",                 // OpenRouter: for routers
	"provider_specific_fields", // LiteLLM: of an answer that is given back
	"reasoning_details",        // OpenRouter: of an answer that is given back
	"request_id",               // vLLM
	"return_progress",          // llama.cpp
	"rid",                      // SGLang: the request's id
	"session_id",               //
	"slot_id",                  // llama.cpp
	"thinking_blocks",          // LiteLLM: of an answer that is given back
	"timings_per_token",        // llama.cpp
	"trace_id",                 //
	"transforms",               // OpenRouter
	"ttl",                      // LM Studio: how long the model stays in memory
	"verbosity",                // OpenAI: models here have no such setting
}
