package load

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/coppice-llm/coppice/internal/terminal"
)

// Said quotes a server's error for an error of ours: the message in its JSON, or else its text.
func Said(body []byte) string {
	var whole struct {
		Error   json.RawMessage
		Message string
	}
	if json.Unmarshal(body, &whole) != nil {
		return terminal.Quote(bytes.TrimSpace(body))
	}
	message := ""
	var inner struct{ Message string }
	if json.Unmarshal(whole.Error, &inner) == nil {
		message = inner.Message
	} else if json.Unmarshal(whole.Error, &message) != nil {
		message = "" // neither an object with a message nor a text
	}
	if text := cmp.Or(message, whole.Message); text != "" {
		return terminal.Quote(text)
	}
	return terminal.Quote(bytes.TrimSpace(body))
}

// StatusText returns the status of an answer with our words for it: those of the server are any text.
func StatusText(code int) string {
	return strings.TrimSpace(strconv.Itoa(code) + " " + http.StatusText(code))
}
