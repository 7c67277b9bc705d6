package server

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/openai"
)

// described is the document's description of a path: the answers by method and status.
type described map[string]struct {
	Responses map[string]struct {
		Ref     string `json:"$ref"`
		Content map[string]any
	}
	Security *[]any
}

// readDescribed decodes a document.
func readDescribed(t testing.TB, text []byte) (paths map[string]described, security []any) {
	t.Helper()
	var doc struct {
		Paths    map[string]described
		Security []any
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Paths, doc.Security
}

// documented fails the test if the document does not describe res, the answer to this method and
// path: its status or the type of its body is unknown.
func (b *bed) documented(method, path string, res *http.Response) {
	b.Helper()
	for _, tree := range []struct{ prefix, path string }{{"/v1/models/", "/v1/models/{id}"}, {"/debug/pprof/", "/debug/pprof/"}} {
		if strings.HasPrefix(path, tree.prefix) {
			path = tree.path
		}
	}
	if method == http.MethodHead {
		method = http.MethodGet
	}
	at, ok := b.paths[path][strings.ToLower(method)]
	if !ok {
		return // another path, a refused method, or a file of the page
	}
	described, ok := at.Responses[strconv.Itoa(res.StatusCode)]
	if !ok {
		b.Errorf("%s %s answers with status %d, which the document does not have", method, path, res.StatusCode)
	}
	kind, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	if described.Ref != "" {
		if kind != "application/json" {
			b.Errorf("%s %s, status %d: the body is %s", method, path, res.StatusCode, kind)
		}
	} else if _, ok := described.Content[kind]; !ok && path != "/debug/pprof/" { // there the type depends on the profile
		b.Errorf("%s %s, status %d: the body is %s, and the document has %v", method, path, res.StatusCode, kind, described.Content)
	}
}

// TestDocumentOfAServer: the document has the server's own limits, and says which endpoints need
// which keys.
func TestDocumentOfAServer(t *testing.T) {
	b := start(t, setup{Server: Config{
		MaxChoices: 3, Aliases: []string{"small"}, Version: "v1.2.3", Keys: []Key{{Secret: "secret-of-a", Tenant: "a"}},
		Sampling: &engine.SamplingParams{Temperature: 0.5, TopK: 20},
	}})
	text := string(b.do("GET", "/openapi.json", "").body)
	for _, want := range []string{`"maximum": 3`, `"nano or small. Default: nano."`, `"version": "v1.2.3"`, `"default": 0.5`, `"default": 20`,
		`"maximum": ` + strconv.Itoa(b.node.Info().Vocab-1), strconv.Itoa(8<<20) + " bytes"} {
		if !strings.Contains(text, want) {
			t.Errorf("the document lacks %s", want)
		}
	}
	paths, security := readDescribed(t, []byte(text))
	if len(security) != 1 {
		t.Errorf("security is %v with keys", security)
	}
	for path, methods := range paths {
		for method, described := range methods {
			open := described.Security != nil && len(*described.Security) == 0
			want := 401
			if open {
				want = 200
			}
			if a := b.do(strings.ToUpper(method), path, ""); a.StatusCode != want {
				t.Errorf("%s %s without a key: status %d, and the document says %v", method, path, a.StatusCode, described.Security)
			}
		}
	}
	if _, security := readDescribed(t, openai.Facts{Vocab: 1}.Document()); len(security) != 0 {
		t.Errorf("security is %v without keys", security)
	}
}
