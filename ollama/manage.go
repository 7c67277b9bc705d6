package ollama

import (
	"net/http"
	"slices"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/bail"
	"github.com/coppice-llm/coppice/internal/jsonbody"
)

// Named is a request about a model: to /api/show, or to manage models. Its other fields are not read.
type Named struct {
	Model  string
	Stream bool
}

// DecodeNamed decodes the body of such a request. The error is a *conversation.Error.
func DecodeNamed(body []byte) (n Named, err error) {
	defer conversation.OfFault(&err)
	defer bail.Recover(&err)
	d := jsonbody.Decoder{Ignores: func(string) bool { return true }}
	n.Stream = true
	older := "" // the field's older name
	d.Fields(jsonbody.Parse(body), "", map[string]func(value){
		"model":  func(v value) { n.Model = d.Text(v) },
		"name":   func(v value) { older = d.Text(v) },
		"stream": func(v value) { n.Stream = d.Flag(v) },
	})
	if n.Model == "" {
		n.Model = older
	}
	if n.Model == "" {
		d.Missing(jsonbody.Param("model"))
	}
	return n, nil
}

// ErrManages refuses requests that change the models of a server.
var ErrManages = conversation.NewError(http.StatusBadRequest, "unsupported", "this server does not store or change models: coppice serve --model chooses the one that it serves")

// CantPull returns the error for a request to pull a model that is not served.
func CantPull(model string, served []string) error {
	return conversation.NewError(http.StatusNotFound, "model_not_found", "the model %q is not served here, and this server pulls none: it serves %q; coppice serve --model downloads and serves another", jsonbody.Clip(model), served)
}

// Pulled is the answer of /api/pull for a model that is served, whole or as a stream of one line.
const Pulled = `{"status":"success"}`

// Serves reports whether one of names is the model, with or without a tag.
func Serves(model string, names []string) bool {
	return slices.Contains(names, model) || slices.Contains(names, Untagged(model))
}
