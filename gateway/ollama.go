package gateway

import (
	"net/http"
	"strconv"

	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/gateway/internal/prompt"
	"github.com/coppice-llm/coppice/ollama"
)

// mountOllama sets up the routes of Ollama's API. Requests for text are routed by their prompts, and descriptions of a model
// come from a worker that has it; the gateway itself knows the names of the models.
func (g *Gateway) mountOllama() {
	g.on("/api/chat", map[string]http.HandlerFunc{"POST": g.generate(prompt.OllamaChat)})
	g.on("/api/generate", map[string]http.HandlerFunc{"POST": g.generate(prompt.OllamaGenerate)})
	g.on("/api/embed", map[string]http.HandlerFunc{"POST": g.generate(prompt.Embeddings)})
	for _, path := range []string{"/api/show", "/api/embeddings"} {
		g.on(path, map[string]http.HandlerFunc{"POST": g.forward})
	}
	list := func(answer func(...ollama.Facts) []byte) http.HandlerFunc {
		return g.withKey(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, answer(g.facts()...)) })
	}
	g.on("/api/tags", map[string]http.HandlerFunc{"GET": list(ollama.Tags)})
	g.on("/api/ps", map[string]http.HandlerFunc{"GET": list(ollama.Running)})
	g.on("/api/version", map[string]http.HandlerFunc{"GET": func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, ollama.VersionAnswer(g.cfg.Version))
	}})
	g.on("/api/pull", map[string]http.HandlerFunc{"POST": g.withKey(g.pull)})
}

// facts describes the models of the fleet, as far as the gateway knows them.
func (g *Gateway) facts() (all []ollama.Facts) {
	fleet := g.members.Summary()
	for _, name := range fleet.Models {
		if name != members.AnyName {
			all = append(all, ollama.Facts{Names: []string{name}, Identity: name, ContextTokens: fleet.Tokens[name]})
		}
	}
	return all
}

// maxNamed bounds a body that names a model.
const maxNamed = 64 << 10

// pull answers /api/pull: clients pull the model that they use when they start.
func (g *Gateway) pull(w http.ResponseWriter, r *http.Request) {
	body, err := g.bodies.Read(w, r, nil, maxNamed, nil)
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	defer g.bodies.Add(-int64(len(body)))
	ask, err := ollama.DecodeNamed(body)
	names := g.members.Summary().Models
	if err == nil && !ollama.Serves(ask.Model, names) {
		err = ollama.CantPull(ask.Model, names)
	}
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	const answer = ollama.Pulled + "\n"
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if ask.Stream {
		h.Set("Content-Type", ollama.ContentType)
	}
	h.Set("Content-Length", strconv.Itoa(len(answer)))
	w.Write([]byte(answer)) // a write error means that the client has gone
}
