package openai

import (
	"slices"

	"github.com/coppice-llm/coppice/internal/enum"
)

// UnknownFields selects the treatment of fields that are neither read, nor refused by name, nor
// known to be harmless.
type UnknownFields uint8

// Values of UnknownFields.
const (
	RefuseUnknown UnknownFields = iota
	IgnoreUnknown
)

var unknownFields = enum.New[UnknownFields]("openai", "choice for unknown fields", "refuse", "ignore")

// String returns "refuse" or "ignore".
func (u UnknownFields) String() string { return unknownFields.Name(u) }

// UnmarshalText decodes the result of String.
func (u *UnknownFields) UnmarshalText(text []byte) error { return unknownFields.Read(u, text) }

// Ignores reports whether the unknown field name is ignored: each one with IgnoreUnknown, and always those that are known to
// have no influence on the output.
func (u UnknownFields) Ignores(name string) bool {
	_, found := slices.BinarySearch(harmless, name)
	return found || u == IgnoreUnknown
}

// harmless are fields of other servers and of client libraries without influence on the output,
// at any level. Their values are not checked; [Params.Ignored] names them.
var harmless = []string{
	"annotations",              // OpenAI: of an answer that is sent back
	"cache_control",            // Anthropic: where a cached prefix may end; not needed here
	"cache_prompt",             // llama.cpp: prompts are always cached
	"chat_id",                  // Open WebUI
	"custom_llm_provider",      // LiteLLM
	"data_parallel_rank",       // vLLM, SGLang: which replica computes
	"extra_content",            // Gemini: of an answer that is sent back
	"guided_decoding_backend",  // vLLM: which library compiles a schema
	"id_slot",                  // llama.cpp
	"images",                   // LiteLLM: of an answer that is sent back
	"include_usage",            // some clients send it next to stream_options
	"keep_alive",               // Ollama: how long the model stays in memory
	"litellm_call_id",          //
	"litellm_metadata",         //
	"litellm_session_id",       //
	"litellm_trace_id",         //
	"num_ctx",                  // Ollama: size of the context in memory
	"parsed",                   // OpenAI's clients: of an answer that is sent back
	"parsed_arguments",         // OpenAI's clients: of a call that is sent back
	"provider",                 // OpenRouter: for routers
	"provider_specific_fields", // LiteLLM: of an answer that is sent back
	"reasoning_details",        // OpenRouter: of an answer that is sent back
	"request_id",               // vLLM
	"return_progress",          // llama.cpp
	"rid",                      // SGLang: the request's id
	"session_id",               //
	"slot_id",                  // llama.cpp
	"thinking_blocks",          // LiteLLM: of an answer that is sent back
	"timings_per_token",        // llama.cpp
	"trace_id",                 //
	"transforms",               // OpenRouter
	"ttl",                      // LM Studio: how long the model stays in memory
	"verbosity",                // OpenAI: models here have no such setting
}
