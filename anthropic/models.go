package anthropic

import (
	"net/http"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/internal/jsontext"
)

// RequestHeader is the header of an answer with the request's id.
const RequestHeader = "Request-Id"

// Path is the path of requests for text.
const Path = "/v1/messages"

// Speaks reports whether a request is one to this API: by its path, or by a header that all clients of this API
// send. Other APIs have some paths too, such as /v1/models.
func Speaks(r *http.Request) bool {
	return r.URL.Path == Path || strings.HasPrefix(r.URL.Path, Path+"/") || r.Header.Get("Anthropic-Version") != ""
}

// Model is an element of the list of models.
type Model struct {
	ID      string
	Created time.Time
	// MaxTokens is the most prompt plus output tokens; 0: unknown.
	MaxTokens int
}

// AppendModel writes the answer of /v1/models/{id}.
func AppendModel(dst []byte, m Model) []byte {
	dst = append(dst, `{"type":"model","id":`...)
	dst = jsontext.AppendString(dst, m.ID)
	dst = append(dst, `,"display_name":`...)
	dst = jsontext.AppendString(dst, m.ID)
	dst = append(dst, `,"created_at":"`...)
	dst = m.Created.UTC().AppendFormat(dst, time.RFC3339)
	dst = append(dst, `","lifecycle":"active"`...)
	if m.MaxTokens > 0 {
		dst = append(dst, `,"max_input_tokens":`...)
		dst = jsontext.AppendInt(dst, m.MaxTokens)
		dst = append(dst, `,"max_tokens":`...)
		dst = jsontext.AppendInt(dst, m.MaxTokens)
	}
	return append(dst, '}')
}

// AppendModels writes the answer of /v1/models: all models on one page.
func AppendModels(dst []byte, all []Model) []byte {
	dst = jsontext.AppendList(append(dst, `{"data":`...), all, AppendModel)
	dst = append(dst, `,"has_more":false,"first_id":`...)
	first, last := "", ""
	if n := len(all); n > 0 {
		first, last = all[0].ID, all[n-1].ID
	}
	dst = jsontext.AppendOptional(dst, first)
	dst = append(dst, `,"last_id":`...)
	return append(jsontext.AppendOptional(dst, last), '}')
}

// AppendCount writes the answer of /v1/messages/count_tokens.
func AppendCount(dst []byte, tokens int) []byte {
	dst = append(dst, `{"input_tokens":`...)
	return append(jsontext.AppendInt(dst, tokens), '}')
}
