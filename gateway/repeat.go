package gateway

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/coppice-llm/coppice/openai/responses"
	"github.com/coppice-llm/coppice/router/decisions"
)

// again counts the further tries of a request.
type again struct {
	moves   int  // to another worker, because the one before had not begun the request
	repeats int  // at another worker, because the one before failed with the request
	begun   bool // the worker that failed last may have begun the request
}

// another reports whether the request may be sent to a further worker after the last one failed it, and counts that. A request
// that its worker has not begun moves, up to Config.Retries times. One that its worker may have begun is repeated, up to
// Config.Repeats times, if that is safe: it may be the reason why the worker failed, and then it takes down as many more.
func (p *proxiedRequest) another(r *http.Request) bool {
	g, a := p.g, &p.again
	switch {
	case a.begun && (a.repeats >= max(0, g.cfg.Repeats) || p.hasEffects(r)):
		return false
	case a.begun:
		a.repeats++
		g.metrics.Repeats.Inc()
	case a.moves >= max(0, g.cfg.Retries):
		return false
	default:
		a.moves++
		g.metrics.Retries.Inc()
	}
	return true
}

// hasEffects reports whether the request may change more than its answer shows, so that it must not be computed twice: it stores a
// response, changes a stored one, or has tools that the worker itself runs. It looks at the body only when asked, as workers rarely
// fail.
func (p *proxiedRequest) hasEffects(r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return false
	}
	if strings.HasPrefix(r.URL.Path, responses.Path+"/") {
		return true
	}
	if r.URL.Path != responses.Path && effectless(p.buffer.body) {
		return false
	}
	var body struct {
		Store         *bool             `json:"store"`
		Background    bool              `json:"background"`
		Tools         []json.RawMessage `json:"tools"`
		Servers       []json.RawMessage `json:"mcp_servers"`
		Container     json.RawMessage   `json:"container"`
		SearchOptions json.RawMessage   `json:"web_search_options"`
	}
	if err := json.Unmarshal(p.buffer.body, &body); err != nil {
		// A field has a type that no API gives it. A body that is no JSON at all was passed on by load, to compute something.
		return json.Valid(p.buffer.body)
	}
	given := func(v json.RawMessage) bool { return len(v) > 0 && string(v) != "null" }
	stores := r.URL.Path == responses.Path // the API's default
	if body.Store != nil {
		stores = *body.Store
	}
	if stores || body.Background || len(body.Servers) > 0 || given(body.Container) || given(body.SearchOptions) {
		return true
	}
	for _, tool := range body.Tools {
		var t struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(tool, &t) != nil || !runsAtClient(t.Type) {
			return true
		}
	}
	return false
}

// effectless reports whether a body surely asks for no effects: it is an object and has the name of no field that does, not even
// escaped. Other bodies have to be parsed, which takes ten times as long.
func effectless(body []byte) bool {
	for _, name := range [...]string{`"store"`, `"background"`, `"tools"`, `"mcp_servers"`, `"container"`, `"web_search_options"`, `\u`} {
		if bytes.Contains(body, []byte(name)) {
			return false
		}
	}
	return bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{"))
}

// runsAtClient reports whether tools of this type run at the client. The types are OpenAI's, and Anthropic's, which end in a date.
func runsAtClient(kind string) bool {
	switch kind {
	case "", "function", "custom", "local_shell", "apply_patch":
		return true
	}
	for _, name := range [...]string{"bash_", "text_editor_", "computer_", "memory_"} {
		if strings.HasPrefix(kind, name) {
			return true
		}
	}
	return false
}

// Outcomes of an attempt, for the metrics.
const (
	outcomeAnswered  = decisions.Answered // the worker's answer went to the client, or its beginning did
	outcomeDeclined  = "declined"         // the worker had no room for it, or was draining
	outcomeUnreached = "unreached"        // no connection was made
	outcomeTaken     = "taken"            // taken back from a late worker that had not begun it
	outcomeUnbegun   = "unbegun"          // the worker failed before it began it
	outcomeBegun     = "begun"            // the worker failed after it may have begun it
	outcomeGone      = "gone"             // the client left, or the gateway shut down
)

// count adds the attempt to the metrics: it has just failed, or an answer begins.
func (p *proxiedRequest) count(outcome string) {
	p.g.metrics.Attempts.WithLabelValues(p.member.Name(), outcome).Inc()
	if outcome != outcomeAnswered {
		p.learnt(outcome, 0)
	}
}

// last returns the error for the client after the last attempt failed with err.
func (p *proxiedRequest) last(r *http.Request, err error) error {
	if !p.again.begun {
		return err
	}
	p.fault = failedLate(p.member.Name(), p.attempt.phase.Load() == begun, p.again.repeats, p.g.cfg.Repeats > 0 && p.hasEffects(r))
	return p.fault
}
