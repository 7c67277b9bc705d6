package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/coppice-llm/coppice/anthropic"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/gateway/fleetview"
	"github.com/coppice-llm/coppice/gateway/internal/dispatch"
	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/gateway/internal/prompt"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/router"
)

// health answers /health with status 200, because the process runs.
func (g *Gateway) health(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, []byte(`{"status":"ok"}`))
}

// Ready returns nil if the gateway takes requests and a worker is healthy, else the reason.
func (g *Gateway) Ready() error {
	switch fleet := g.members.Summary(); {
	case g.Draining():
		return errDraining
	case fleet.Ready == 0:
		return g.noWorkers(fleet.Total)
	}
	return nil
}

// ready answers /ready: status 200 if the gateway is ready, else 503 with the reason.
func (g *Gateway) ready(w http.ResponseWriter, r *http.Request) {
	if err := g.Ready(); err != nil {
		g.refuse(w, r, err)
		return
	}
	g.health(w, r)
}

// models answers GET /v1/models: all models of all workers.
func (g *Gateway) models(w http.ResponseWriter, r *http.Request) {
	fleet := g.members.Summary()
	if anthropic.Speaks(r) {
		var list []anthropic.Model
		for _, name := range fleet.Models {
			if name != members.AnyName {
				list = append(list, messagesModel(fleet, name))
			}
		}
		writeJSON(w, http.StatusOK, anthropic.AppendModels(nil, list))
		return
	}
	var list []openai.Model
	for _, name := range fleet.Models {
		list = append(list, modelOf(fleet, name))
	}
	writeJSON(w, http.StatusOK, openai.AppendModels(nil, list))
}

func (g *Gateway) model(w http.ResponseWriter, r *http.Request) {
	id, fleet := r.PathValue("id"), g.members.Summary()
	if _, ok := fleet.Served[id]; !ok {
		g.refuse(w, r, conversation.ModelNotFound(id))
		return
	}
	if anthropic.Speaks(r) {
		writeJSON(w, http.StatusOK, anthropic.AppendModel(nil, messagesModel(fleet, id)))
		return
	}
	writeJSON(w, http.StatusOK, openai.AppendModel(nil, modelOf(fleet, id)))
}

// modelOf describes a model. Its length is the smallest limit of its workers.
func modelOf(s *members.Summary, name string) openai.Model {
	return openai.Model{ID: name, OwnedBy: "fleet", MaxModelLen: s.Tokens[name]}
}

// messagesModel describes a model in the form of Anthropic's API.
func messagesModel(s *members.Summary, name string) anthropic.Model {
	return anthropic.Model{ID: name, Created: time.Unix(0, 0), MaxTokens: s.Tokens[name]}
}

// WorkerStatus describes one worker.
type WorkerStatus struct {
	fleetview.About
	Ranks []RankStatus `json:"ranks"`
}

// RankStatus describes one rank of a worker.
type RankStatus struct {
	Rank          uint32 `json:"rank" label:"true"`
	Requests      int    `json:"active_requests" metric:"worker_active_requests" help:"Active requests that the router has sent to a worker."`
	PrefillTokens int    `json:"active_prefill_tokens" metric:"worker_active_prefill_tokens" help:"Prompt tokens still to be computed at a worker, as predicted."`
	Blocks        int    `json:"active_blocks" metric:"worker_active_blocks" help:"Distinct blocks of a worker's active requests, as predicted."`
	HeldBlocks    int    `json:"index_blocks" metric:"worker_index_blocks" help:"Blocks in the index for a worker."`
	Events        string `json:"events,omitempty" metric:"-" why:"a state: worker_mode"` // state of the event stream
	NextSeq       uint64 `json:"next_event,omitempty" metric:"-" why:"a position, not a figure"`
}

// FleetStatus is the answer of /v1/fleet.
type FleetStatus struct {
	Policy      string `json:"policy"`
	BlockTokens int    `json:"block_tokens"`
	// Prompts is the unit by which prompts are compared: tokens or bytes.
	Prompts  string                `json:"prompts"`
	Pools    string                `json:"pools,omitempty"` // how a pool is chosen
	Workers  []WorkerStatus        `json:"workers"`
	Troubles []string              `json:"troubles"`           // current problems, one sentence each
	Replica  string                `json:"replica,omitempty"`  // this gateway's replica ID
	Replicas []dispatch.PeerStatus `json:"replicas,omitempty"` // the other gateways
}

// Fleet returns the state of all workers, sorted by URL.
func (g *Gateway) Fleet() FleetStatus {
	pools := g.dispatch.Pools()
	f := FleetStatus{
		Policy: g.cfg.Router.Policy.String(), BlockTokens: g.dispatch.BlockTokens(), Prompts: "tokens", Pools: pools.String(),
		Workers: []WorkerStatus{}, Troubles: g.members.Troubles(),
	}
	if !g.members.Tokenizer().Exact() {
		f.Prompts = "bytes"
	}
	if g.peers != nil {
		f.Replica, f.Replicas = strconv.FormatUint(uint64(g.cfg.Router.Replica), 16), g.peers.Status()
	}
	ranks := g.ranks()
	for _, m := range g.members.All() {
		of := m.Status()
		about := fleetview.About{Name: of.Name, URL: of.URL, State: of.State.String(), Mode: g.mode(m), Pool: of.Pool, Models: append([]string{}, of.Models...)}
		s := WorkerStatus{about, []RankStatus{}}
		if of.Err != nil {
			s.Error = of.Err.Error()
		}
		id := kv.WorkerID(0)
		if of.Card != nil && of.State != members.Refused {
			id = kv.WorkerID(of.Card.ID())
		}
		if pools != nil && !pools.Grid() {
			s.Pool = pools.Name(g.dispatch.PoolOf(id))
		}
		s.Ranks = append(s.Ranks, ranks[id]...)
		f.Workers = append(f.Workers, s)
	}
	if len(f.Workers) == 0 {
		f.Troubles = append(f.Troubles, g.noWorkers(0).Message)
	}
	return f
}

// mode returns the source of a worker's index entries, as [members.Fleet.Mode] does. It is
// waiting if the worker sends events, but the cache of one of its ranks is still guessed.
func (g *Gateway) mode(m *members.Member) string {
	mode, c := g.members.Mode(m), m.Status().Card
	for dp := range m.Ranks() {
		if mode == "events" && g.dispatch.Guesses(kv.Rank{Worker: kv.WorkerID(c.ID()), DP: uint32(dp)}) {
			return "waiting"
		}
	}
	return mode
}

func (g *Gateway) fleet(w http.ResponseWriter, r *http.Request) { g.document(w, r, g.Fleet()) }

func (g *Gateway) showWeights(w http.ResponseWriter, r *http.Request) {
	g.document(w, r, g.dispatch.Weights())
}

// maxWeights bounds the body of a change of weights, in bytes.
const maxWeights = 1 << 20

// putWeights changes the weights that the body names.
func (g *Gateway) putWeights(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxWeights))
	if err == nil {
		err = g.dispatch.ChangeWeights(func(weights *router.Weights) error {
			d := json.NewDecoder(bytes.NewReader(text))
			d.DisallowUnknownFields()
			return d.Decode(weights)
		})
	}
	if err != nil {
		g.refuse(w, r, conversation.NewError(http.StatusBadRequest, "invalid_value", "%v; GET lists the weights", err))
		return
	}
	g.log.Info("weights changed")
	g.document(w, r, g.dispatch.Weights())
}

// explainRequest answers with a table that explains where a request would go. The body is that
// of the request; ?chat marks a request to /v1/chat/completions, ?messages one to /v1/messages.
func (g *Gateway) explainRequest(w http.ResponseWriter, r *http.Request) {
	kind := prompt.Completions
	switch q := r.URL.Query(); {
	case q.Has("chat"):
		kind = prompt.Chat
	case q.Has("messages"):
		kind = prompt.Messages
	}
	tenant, admin, err := g.cfg.Tenant(r)
	p := g.newRequest(w, r, admin)
	defer p.close()
	if err == nil {
		err = p.readBody(r)
	}
	if err == nil {
		err = p.readPrompt(r, kind, tenant)
	}
	if err == nil {
		err = p.stage(true)
	}
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	e, pool, err := g.dispatch.Explain(&p.buffer.ask)
	if errors.Is(err, router.ErrNoWorkers) {
		err = p.noWorkers()
	}
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	io.WriteString(w, pool)
	fleet := g.members.Summary()
	for _, c := range e.Candidates {
		if m := fleet.ByID[c.Worker.Worker]; m != nil {
			fmt.Fprintf(w, "%v is %s at %s\n", c.Worker, m.Name(), m.Status().URL)
		}
	}
	io.WriteString(w, "\n"+e.String())
}

// viewOf makes the state for the live page of the fleet.
func viewOf(g *Gateway) fleetview.State {
	now := time.Now()
	f := g.Fleet()
	rm, _ := g.dispatch.Metrics()
	s := fleetview.State{
		Schema: fleetview.Schema, Version: g.cfg.Version, UptimeS: now.Sub(g.metrics.begun).Seconds(), Policy: f.Policy, Prompts: f.Prompts,
		Queued: rm.Waiting, Troubles: f.Troubles, Workers: make([]fleetview.Worker, 0, len(f.Workers)),
	}
	s.Open = g.open.Count()
	var sums map[string]fleetview.Sums
	s.Fleet, sums, s.Recent = g.metrics.recent.Read(now)
	for _, w := range f.Workers {
		v := fleetview.Worker{About: w.About, Sums: sums[w.Name]}
		for _, r := range w.Ranks {
			v.Requests += r.Requests
			v.Prefill += r.PrefillTokens
			v.HeldTokens += r.HeldBlocks * f.BlockTokens
		}
		s.Workers = append(s.Workers, v)
	}
	return s
}

// serveView answers /v1/fleet/view.
func serveView(g *Gateway) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		g.document(w, r, viewOf(g))
	}
}
