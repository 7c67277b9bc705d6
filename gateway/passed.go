package gateway

import (
	"net/http"
	"strings"

	"github.com/coppice-llm/coppice/openai/responses"
)

// passedPaths are the paths of workers to which the gateway passes a POST by load: it goes to a worker of the model that the body
// names, or to any worker. Each computes an answer from its body, and changes nothing at the worker. All other paths of a worker
// are refused, so that no client of the gateway reaches those that change it: vLLM's and SGLang's for LoRA adapters, sleep, caches,
// weights and profiles (docs/fleet.md has the list).
var passedPaths = []string{
	"/tokenize", "/detokenize", // of Coppice and vLLM
	"/v1/messages/count_tokens",
	"/pooling", "/classify", "/v1/classify", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank", // of vLLM, some of SGLang
	"/v1/completions/render", "/v1/chat/completions/render", // of vLLM: the tokens of a request
}

// mountPassed sets up the routes to paths of workers that are not routed by a prompt.
func (g *Gateway) mountPassed() {
	for _, path := range passedPaths {
		g.on(path, map[string]http.HandlerFunc{"POST": g.forward})
	}
	anybody := func(*http.Request) (string, bool, error) { return "", false, nil } // as at the workers
	g.on("/version", map[string]http.HandlerFunc{"GET": g.proxied(anybody, byModel)})
	g.on(responses.Path+"/{id}", map[string]http.HandlerFunc{"GET": g.stored(), "DELETE": g.stored()})
	g.on(responses.Path+"/{id}/input_items", map[string]http.HandlerFunc{"GET": g.stored()})
	g.on(responses.Path+"/{id}/cancel", map[string]http.HandlerFunc{"POST": g.stored()})
}

// byModel prepares a request that any worker with the model can answer.
func byModel(p *proxiedRequest, _ *http.Request, _ string) error { return p.readModel() }

// forward handles requests that any worker with the model can answer.
func (g *Gateway) forward(w http.ResponseWriter, r *http.Request) {
	g.proxied(g.cfg.Tenant, byModel)(w, r)
}

// stored returns the handler for requests about a stored response, which the worker that has it answers.
func (g *Gateway) stored() http.HandlerFunc {
	return g.proxied(g.cfg.Tenant, func(p *proxiedRequest, r *http.Request, _ string) error {
		id := r.PathValue("id")
		if strings.ContainsFunc(id, notOfID) { // "..%2F..%2Fsleep": a proxy before the worker may follow the dots
			return responses.NotFound(id)
		}
		return p.readStored(id)
	})
}

// notOfID reports whether no id of a response has the character c.
func notOfID(c rune) bool {
	return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-')
}
