package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestServeChoices: coppice serve takes as many choices as its document says.
func TestServeChoices(t *testing.T) {
	t.Parallel()
	w := startCoppice(t, "worker", "serve", "--addr", "127.0.0.1:0", "--backend", "sim", "--profile", "h200", "--no-page")
	var document struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct{ Maximum int }
			}
		}
	}
	if w.document("/openapi.json", &document); document.Components.Schemas["CompletionRequest"].Properties["n"].Maximum != 128 {
		t.Error("the document does not say 128")
	}
	for n, status := range map[string]int{"128": http.StatusOK, "129": http.StatusBadRequest} {
		body := `{"prompt":"What is light?","max_tokens":1,"n":` + n + `}`
		res, err := asker.Post(w.url+"/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var a struct{ Choices []any }
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err == nil {
			err = json.Unmarshal(text, &a)
		}
		if err != nil || res.StatusCode != status || status == http.StatusOK && len(a.Choices) != 128 {
			t.Errorf("n %s: %s, %d choices, %v: %.200s", n, res.Status, len(a.Choices), err, text)
		}
	}
	w.kill()
}
