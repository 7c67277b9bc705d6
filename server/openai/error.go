package openai

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	coppice "github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Error is OpenAI's error object, and the HTTP status that goes with it.
type Error struct {
	Status  int
	Message string
	Type    string // "invalid_request_error"; what is to be done: correct, wait, report
	Param   string // the field at fault, "messages[2].content"; "" is null
	Code    string // for programs: "context_length_exceeded"; "" is null
}

// The values of Error.Type.
const (
	invalidRequest = "invalid_request_error"
	rateLimit      = "rate_limit_error"
	timedOut       = "timeout_error"
	serverError    = "server_error"
)

// unsupported is Error.Code where a parameter means something that is not done here.
const unsupported = "unsupported_parameter"

func (e *Error) Error() string { return e.Message }

// Append writes {"error":{...}}.
func (e *Error) Append(dst []byte) []byte {
	dst = append(dst, `{"error":{"message":`...)
	dst = appendString(dst, e.Message)
	dst = append(dst, `,"type":`...)
	dst = appendString(dst, e.Type)
	dst = append(dst, `,"param":`...)
	dst = appendOptional(dst, e.Param)
	dst = append(dst, `,"code":`...)
	dst = appendOptional(dst, e.Code)
	return append(dst, "}}"...)
}

// invalid is the fault of a request.
func invalid(param, code, format string, args ...any) *Error {
	return &Error{http.StatusBadRequest, fmt.Sprintf(format, args...), invalidRequest, param, code}
}

// ModelNotFound refuses a request for a model that the server does not have.
func ModelNotFound(id string) *Error {
	return &Error{http.StatusNotFound, fmt.Sprintf("the model %q is not served here; /v1/models lists those that are", clip(id)), invalidRequest, "model", "model_not_found"}
}

// causes maps what a node and a chat template refuse. Errors that come wrapped in
// another one of the list stand before it.
var causes = []struct {
	is     error
	status int
	kind   string
	param  string
	code   string
}{
	{coppice.ErrQueueFull, http.StatusTooManyRequests, rateLimit, "", "server_busy"},
	{coppice.ErrDisplaced, http.StatusTooManyRequests, rateLimit, "", "displaced"},
	{coppice.ErrTenantFull, http.StatusTooManyRequests, rateLimit, "", "rate_limit_exceeded"},
	{coppice.ErrPromptTooLong, http.StatusBadRequest, invalidRequest, "", "context_length_exceeded"},
	{coppice.ErrTooLarge, http.StatusBadRequest, invalidRequest, "", "request_too_large"},
	{coppice.ErrEmptyPrompt, http.StatusBadRequest, invalidRequest, "prompt", "empty_prompt"},
	{coppice.ErrFormatTimeout, http.StatusBadRequest, invalidRequest, "response_format", "format_timeout"},
	{coppice.ErrInvalid, http.StatusBadRequest, invalidRequest, "", "invalid_value"},
	{coppice.ErrDeadline, http.StatusRequestTimeout, timedOut, "", "deadline_exceeded"},
	{coppice.ErrQueueTimeout, http.StatusRequestTimeout, timedOut, "", "queue_timeout"},
	{coppice.ErrClosed, http.StatusServiceUnavailable, serverError, "", "shutting_down"},
	{coppice.ErrContract, http.StatusInternalServerError, serverError, "", "backend_fault"},
	{coppice.ErrLogits, http.StatusInternalServerError, serverError, "", "backend_fault"},
	{chat.ErrControl, http.StatusBadRequest, invalidRequest, "messages", "control_token"},
	{chat.ErrRefused, http.StatusBadRequest, invalidRequest, "messages", "template_refused"},
	{chat.ErrRender, http.StatusBadRequest, invalidRequest, "messages", "template_failed"},
	{chat.ErrLimit, http.StatusBadRequest, invalidRequest, "messages", "template_limit"},
}

// Blame is ErrorOf for a request with these parameters: what the node refuses because
// of one field names the parameter that it came from.
func (p *Params) Blame(err error) error {
	var field *coppice.FieldError
	if !errors.As(err, &field) {
		return err
	}
	e := *ErrorOf(err)
	switch field.Field {
	case "Format":
		e.Param = p.format
	case "Samples":
		e.Param = "n"
	case "MaxTokens":
		e.Param = p.limit
	case "MinTokens":
		e.Param = "min_tokens"
	case "Prompt":
		e.Param = p.prompt
	case "StopTokens":
		e.Param = "stop_token_ids"
	case "AllowedTokens":
		e.Param = "allowed_token_ids"
	case "Logprobs":
		e.Param, e.Code = "logprobs", unsupported
	case "PromptLogprobs":
		if e.Param, e.Code = "echo", unsupported; p.PromptLogprobs {
			e.Param = "prompt_logprobs"
		}
	case "Penalties":
		e.Code = unsupported
	}
	return &e
}

// Fits tells whether all tokens that the parameters name are of a vocabulary of so many
// tokens. The error is an *Error.
func (p *Params) Fits(vocab int) error {
	biased := make([]kv.Token, len(p.request.Sampling.Bias))
	for i, b := range p.request.Sampling.Bias {
		biased[i] = b.Token
	}
	return cmp.Or(fit("stop_token_ids", p.request.StopTokens, vocab), fit("allowed_token_ids", p.request.AllowedTokens, vocab), fit("logit_bias", biased, vocab))
}

// Fits tells whether the tokens are of a vocabulary of so many. The error is an *Error.
func (d *Detokenize) Fits(vocab int) error { return fit("tokens", d.Tokens, vocab) }

func fit(param string, tokens []kv.Token, vocab int) error {
	for _, t := range tokens {
		if uint64(t) >= uint64(vocab) {
			return invalid(param, "invalid_value", "%s has token %d, the vocabulary has %d", param, t, vocab)
		}
	}
	return nil
}

// ErrorOf is what a caller is told of err: an Error in it as it is, the errors of
// package coppice and of chat templates by their kind and with their text. What else
// happens is the server's own affair: status 500, and the text is not told.
func ErrorOf(err error) *Error {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e
	}
	for _, c := range causes {
		if errors.Is(err, c.is) {
			return &Error{c.status, err.Error(), c.kind, c.param, c.code}
		}
	}
	return &Error{http.StatusInternalServerError, "the server failed at this request; its log says why", serverError, "", "internal_error"}
}
