package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/gateway/prompt"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/server/openai"
)

// health: the process lives.
func (g *Gateway) health(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, []byte(`{"status":"ok"}`))
}

// ready: requests are welcome, and there is who could answer them.
func (g *Gateway) ready(w http.ResponseWriter, r *http.Request) {
	switch {
	case g.Draining():
		g.refuse(w, r, errDraining)
	case g.roll.Load().ready == 0:
		g.refuse(w, r, g.nobody(g.roll.Load().total))
	default:
		g.health(w, r)
	}
}

// known lets those in who may ask at all, admins those who may do everything.
func (g *Gateway) known(serve http.HandlerFunc) http.HandlerFunc { return g.guard(serve, false) }

func (g *Gateway) admins(serve http.HandlerFunc) http.HandlerFunc { return g.guard(serve, true) }

func (g *Gateway) guard(serve http.HandlerFunc, admins bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, admin, err := g.cfg.Tenant(r)
		if err == nil && admins && !admin {
			err = errNoAdmin
		}
		if err != nil {
			g.refuse(w, r, err)
			return
		}
		serve(w, r)
	}
}

func (g *Gateway) models(w http.ResponseWriter, _ *http.Request) {
	var list []openai.Model
	roll := g.roll.Load()
	for _, name := range roll.models {
		list = append(list, roll.model(name))
	}
	writeJSON(w, http.StatusOK, openai.AppendModels(nil, list))
}

func (g *Gateway) model(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	roll := g.roll.Load()
	if _, ok := roll.served[id]; !ok {
		g.refuse(w, r, openai.ModelNotFound(id))
		return
	}
	writeJSON(w, http.StatusOK, openai.AppendModel(nil, roll.model(id)))
}

func (r *roll) model(name string) openai.Model {
	return openai.Model{ID: name, OwnedBy: "fleet", MaxModelLen: r.tokens[name]}
}

// WorkerStatus is what the gateway knows of one worker.
type WorkerStatus struct {
	Name   string       `json:"name"`
	URL    string       `json:"url"`
	State  string       `json:"state"`
	Error  string       `json:"error,omitempty"`
	Mode   string       `json:"mode"` // events, approximate or waiting
	Pool   string       `json:"pool,omitempty"`
	Models []string     `json:"models"`
	Ranks  []RankStatus `json:"ranks"`
}

// RankStatus is what it knows of one rank.
type RankStatus struct {
	Rank          uint32 `json:"rank"`
	Requests      int    `json:"active_requests"`
	PrefillTokens int    `json:"active_prefill_tokens"`
	Blocks        int    `json:"active_blocks"`
	HeldBlocks    int    `json:"index_blocks"`
	Events        string `json:"events,omitempty"` // state of following them
	NextSeq       uint64 `json:"next_event,omitempty"`
}

// FleetStatus is the answer of /v1/fleet.
type FleetStatus struct {
	Policy      string          `json:"policy"`
	BlockTokens int             `json:"block_tokens"`
	Prompts     string          `json:"prompts"`         // compared by tokens or by bytes
	Pools       string          `json:"pools,omitempty"` // how one is chosen
	Workers     []WorkerStatus  `json:"workers"`
	Troubles    []string        `json:"troubles"`           // what is in the way now, in sentences
	Replica     string          `json:"replica,omitempty"`  // this gateway's name among the others
	Replicas    []ReplicaStatus `json:"replicas,omitempty"` // the others
}

// Fleet is what the gateway knows of its workers, by URL.
func (g *Gateway) Fleet() FleetStatus {
	pools := g.pools.Load()
	f := FleetStatus{Policy: g.cfg.Router.Policy.String(), BlockTokens: g.chooser.blockTokens, Prompts: "tokens", Pools: pools.String()}
	f.Workers, f.Troubles = []WorkerStatus{}, g.sentences()
	if !g.words.Load().exact {
		f.Prompts = "bytes"
	}
	if g.replicas != nil {
		f.Replica, f.Replicas = replicaName(g.replicas.self), g.Replicas()
	}
	loads := map[kv.WorkerID][]router.Load{}
	for _, l := range g.chooser.loads() {
		loads[l.Worker.Worker] = append(loads[l.Worker.Worker], l)
	}
	roll := g.roll.Load()
	for _, m := range g.all() {
		s := WorkerStatus{URL: m.given.URL, Mode: g.mode(m), Ranks: []RankStatus{}}
		m.mu.Lock()
		s.Name, s.State, s.Models = m.nameLocked(), m.state.String(), append([]string{}, m.models...)
		if m.err != nil {
			s.Error = m.err.Error()
		}
		id := kv.WorkerID(0)
		if m.card != nil && m.state != Refused {
			id = kv.WorkerID(m.card.ID())
		}
		if m.card != nil {
			s.Pool = m.card.Pool
		}
		m.mu.Unlock()
		if pools != nil && pools.grid == nil {
			s.Pool = pools.name(roll.pools[id])
		}
		for _, l := range loads[id] {
			r := RankStatus{Rank: l.Worker.DP, Requests: l.Requests, PrefillTokens: l.PrefillTokens, Blocks: l.Blocks, HeldBlocks: g.index.Held(l.Worker)}
			if st, ok := g.subscriber.Status(l.Worker); ok {
				r.Events, r.NextSeq = st.State.String(), st.Next
			}
			s.Ranks = append(s.Ranks, r)
		}
		f.Workers = append(f.Workers, s)
	}
	if len(f.Workers) == 0 {
		f.Troubles = append(f.Troubles, g.nobody(0).Message)
	}
	return f
}

// mode is how the gateway knows what a worker holds.
func (g *Gateway) mode(m *member) string {
	m.mu.Lock()
	c := m.card
	m.mu.Unlock()
	if c == nil {
		return "waiting"
	}
	if _, blind := m.sources(c); blind {
		return "approximate"
	}
	for rank := range m.given.Ranks {
		if s, ok := g.subscriber.Status(kv.Rank{Worker: kv.WorkerID(c.ID()), DP: uint32(rank)}); !ok || s.State != events.Live {
			return "waiting"
		}
	}
	return "events"
}

func (g *Gateway) fleet(w http.ResponseWriter, r *http.Request) { g.document(w, r, g.Fleet()) }

func (g *Gateway) document(w http.ResponseWriter, r *http.Request, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, append(text, '\n'))
}

// Weights are those of the policy, in force.
func (g *Gateway) Weights() router.Weights { return g.chooser.weights() }

// SetWeights changes them for all requests from now on.
func (g *Gateway) SetWeights(w router.Weights) error { return g.chooser.setWeights(w) }

func (g *Gateway) showWeights(w http.ResponseWriter, r *http.Request) { g.document(w, r, g.Weights()) }

// putWeights changes the weights that are named.
func (g *Gateway) putWeights(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxProbe))
	if err == nil {
		err = g.chooser.changeWeights(func(weights *router.Weights) error {
			d := json.NewDecoder(bytes.NewReader(text))
			d.DisallowUnknownFields()
			return d.Decode(weights)
		})
	}
	if err != nil {
		g.refuse(w, r, &openai.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "invalid_value",
			Message: fmt.Sprintf("%v; GET shows the weights there are", err)})
		return
	}
	g.log.Info("weights changed")
	g.document(w, r, g.Weights())
}

// explainRequest says where a request would go, and why, as a table. The body is that of
// the request; ?chat says that it is one to /v1/chat/completions.
func (g *Gateway) explainRequest(w http.ResponseWriter, r *http.Request) {
	kind := prompt.Completions
	if r.URL.Query().Has("chat") {
		kind = prompt.Chat
	}
	tenant, admin, err := g.cfg.Tenant(r)
	j := g.journey(w, r, admin)
	defer j.arrive()
	if err == nil {
		err = j.take(r)
	}
	if err == nil {
		err = j.prepare(r, kind, tenant)
	}
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	if err = j.stage(true); err != nil {
		g.refuse(w, r, err)
		return
	}
	e, pool, err := j.explain()
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	io.WriteString(w, pool)
	roll := g.roll.Load()
	for _, c := range e.Candidates {
		if m := roll.byID[c.Worker.Worker]; m != nil {
			fmt.Fprintf(w, "%v is %s at %s\n", c.Worker, m.name(), m.given.URL)
		}
	}
	io.WriteString(w, "\n"+e.String())
}

type eventCount struct {
	what string
	n    uint64
}

// eventCounts are those of the subscriber and of the index.
func (g *Gateway) eventCounts() []eventCount {
	c, x := g.subscriber.Counts(), g.index.Stats()
	return []eventCount{
		{"batches", c.Batches}, {"events", c.Events}, {"stored_blocks", c.StoredBlocks}, {"removed_blocks", c.RemovedBlocks},
		{"stale", c.Stale}, {"gaps", c.Gaps}, {"restarts", c.Restarts}, {"replays", c.Replays}, {"snapshots", c.Snapshots},
		{"recoveries", c.Recoveries}, {"failed_recoveries", c.FailedRecoveries}, {"clears", c.Clears}, {"malformed", c.Malformed},
		{"impossible", c.Impossible}, {"unknown_worker", c.UnknownWorker}, {"unknown_events", c.UnknownEvents}, {"unknown_medium", c.UnknownMedium},
		{"other_group", c.OtherGroup}, {"refused_salted", c.RefusedSalted}, {"orphan_blocks", c.OrphanBlocks}, {"dropped", c.Dropped},
		{"index_below_refused_blocks", x.BelowRefused}, {"index_overfull_blocks", x.OverfullBlocks}, {"index_tier_full_blocks", x.TierFullBlocks},
		{"index_foreign_blocks", x.ForeignBlocks}, {"index_collision_blocks", x.CollisionBlocks}, {"index_invalid_blocks", x.InvalidBlocks},
	}
}
