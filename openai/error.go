package openai

import (
	"net/http"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsontext"
)

// AppendError writes OpenAI's error object, {"error":{...}}. Its type is the class of the error: correct
// the request, retry later, or report it.
func AppendError(dst []byte, e *conversation.Error) []byte {
	kind := "invalid_request_error"
	switch {
	case e.Status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case e.Status == http.StatusRequestTimeout:
		kind = "timeout_error"
	case e.Status >= http.StatusInternalServerError:
		kind = "server_error"
	}
	dst = append(dst, `{"error":{"message":`...)
	dst = jsontext.AppendString(dst, e.Message)
	dst = append(dst, `,"type":"`...)
	dst = append(dst, kind...)
	dst = append(dst, `","param":`...)
	dst = jsontext.AppendOptional(dst, e.Param)
	dst = append(dst, `,"code":`...)
	dst = jsontext.AppendOptional(dst, e.Code)
	return append(dst, "}}"...)
}
