package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// maxProbe bounds the answer to a question of the gateway's own.
const maxProbe = 1 << 20

// get asks a worker for a document.
func (m *member) get(ctx context.Context, path string) (status int, body []byte, err error) {
	return m.getUpTo(ctx, path, maxProbe)
}

func (m *member) getUpTo(ctx context.Context, path string, most int64) (status int, body []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url.String()+path, nil)
	if err != nil {
		return 0, nil, err
	}
	if key := m.g.cfg.WorkerKey; key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := m.g.transport.RoundTrip(r)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(io.LimitReader(res.Body, most))
	return res.StatusCode, body, err
}

// found is what a worker says of itself.
type found struct {
	card    *card.Card
	own     string // the name that it gives itself
	foreign bool
	models  []string
	loras   map[string]bool
}

// learn reads the worker's card or, of one that has none, its list of models.
func (m *member) learn(ctx context.Context) (found, error) {
	status, body, err := m.get(ctx, card.Path)
	if err != nil {
		return found{}, err
	}
	switch status {
	case http.StatusOK:
		c, err := card.Parse(body)
		if err != nil {
			return found{}, refuse("%s%s answers with no card: %v", m.url, card.Path, err)
		}
		own := c.Name
		if m.given.Name != "" {
			c.Name = m.given.Name
		}
		if m.given.Pool != "" {
			c.Pool = m.given.Pool
		}
		return found{card: c, own: own, models: c.Models}, nil
	case http.StatusUnauthorized, http.StatusForbidden:
		return found{}, refuse("worker %s wants an API key: give the gateway one of its own", m.url)
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return m.learnForeign(ctx)
	}
	return found{}, fmt.Errorf("%s%s answers with status %d", m.url, card.Path, status)
}

// learnForeign is for workers of other makes.
func (m *member) learnForeign(ctx context.Context) (found, error) {
	status, body, err := m.get(ctx, "/v1/models")
	if err != nil {
		return found{}, err
	}
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		return found{}, refuse("worker %s wants an API key: give the gateway one of its own", m.url)
	}
	if status != http.StatusOK {
		return found{}, fmt.Errorf("%s/v1/models answers with status %d", m.url, status)
	}
	var list struct {
		Data []struct {
			ID     string  `json:"id"`
			Parent *string `json:"parent"`
			MaxLen int     `json:"max_model_len"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return found{}, fmt.Errorf("%s/v1/models: %w", m.url, err)
	}
	f := found{foreign: true, loras: map[string]bool{}}
	f.card = &card.Card{Name: m.given.Name, Pool: m.given.Pool, PoolTokens: m.given.PoolTokens, MaxRunning: m.given.MaxRunning}
	if f.card.Name == "" {
		f.card.Name = nameOf(m.url)
	}
	for i := range list.Data[:min(len(list.Data), card.MaxModels)] {
		d := &list.Data[i]
		f.models = append(f.models, d.ID)
		f.loras[d.ID] = d.Parent != nil && *d.Parent != "" // vLLM says of an adapter what it adapts
		f.card.MaxModelTokens = max(f.card.MaxModelTokens, d.MaxLen)
	}
	f.card.Models = f.models
	return f, f.card.Validate()
}

// ready asks whether requests are welcome. Who has no such page is healthy or not.
func (m *member) ready(ctx context.Context) (bool, error) {
	path := "/ready"
	m.mu.Lock()
	if m.foreign {
		path = "/health"
	}
	foreign := m.foreign
	m.mu.Unlock()
	status, _, err := m.get(ctx, path)
	switch {
	case err != nil:
		return false, err
	case status == http.StatusOK:
		return true, nil
	case foreign || status != http.StatusServiceUnavailable:
		return false, fmt.Errorf("%s%s answers with status %d", m.url, path, status)
	}
	// It drains, unless what it runs on is lost.
	if status, _, err = m.get(ctx, "/health"); err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s/health answers with status %d", m.url, status)
	}
	return false, err
}

// settle has the worker join as what it says it is, again if that has changed.
func (m *member) settle(f found) error {
	m.mu.Lock()
	known := m.card
	m.mu.Unlock()
	if known != nil && m.ranks != nil && known.Name == f.card.Name && known.Pool == f.card.Pool && known.Epoch == f.card.Epoch {
		if len(m.ranks) < m.given.Ranks { // there was no room for all
			return m.join(known)
		}
		if slices.Equal(known.Models, f.card.Models) && known.MaxModelTokens == f.card.MaxModelTokens {
			return nil
		}
		return m.remodel(f)
	}
	m.part()
	if known != nil && known.Name != f.card.Name {
		m.g.forget(known.Name)
	}
	if want := m.g.chooser.blockTokens; f.card.BlockTokens != 0 && f.card.BlockTokens != want {
		return refuse("worker %s has blocks of %d tokens, this gateway of %d, so nothing that it holds would ever be found: start both with the same --block-tokens",
			m.url, f.card.BlockTokens, want)
	}
	if err := m.g.pools.Load().admits(m, f.card); err != nil {
		return err
	}
	m.doubt(&f)
	if err := m.g.speaks(m, f.card); err != nil {
		return err
	}
	if !m.g.claim(f.card, m) {
		return refuse("worker %s is called %q as another one is: give it a --name of its own", m.url, f.card.Name)
	}
	m.mu.Lock()
	m.card, m.published, m.foreign, m.models, m.loras = f.card, f.own, f.foreign, f.models, f.loras
	m.mu.Unlock()
	if err := m.join(f.card); err != nil {
		return err
	}
	m.g.enroll() // before it may be chosen, or nobody would know where it is
	return nil
}

// doubt warns of what lets a worker's prefixes go unseen without being an error.
func (m *member) doubt(f *found) {
	switch {
	case f.card.Keyed && m.g.anybody:
		m.g.log.Warn("worker asks for API keys and the gateway does not, so that prefixes of tenants will not be found: give both the same keys", m.field())
	case !f.card.Keyed && !m.g.anybody && !f.foreign:
		m.g.log.Warn("the gateway asks for API keys and the worker does not, so that prefixes of tenants will not be found: give both the same keys", m.field())
	case f.foreign && !m.g.anybody && m.g.cfg.Prompt.Namespace == nil:
		m.g.log.Warn("the worker is of another make and may not keep tenants apart as the gateway does, so that their prefixes may not be found", m.field())
	}
}

// remodel takes another list of models, or length of theirs, as of a worker that has loaded an
// adapter: what it has and does stays.
func (m *member) remodel(f found) error {
	spec := m.spec(f.card)
	for _, w := range m.ranks {
		spec.Pool = m.g.roll.Load().pools[w.Worker]
		if err := m.g.chooser.respec(w, spec); err != nil {
			return &refusal{err.Error()}
		}
		m.g.chooser.limit(w, m.longest(f.card))
	}
	m.mu.Lock()
	m.card, m.models, m.loras = f.card, f.models, f.loras
	m.mu.Unlock()
	m.g.enroll()
	return nil
}

// longest is how many blocks a prompt may have at it; 0 is not known.
func (m *member) longest(c *card.Card) int {
	tokens := c.MaxModelTokens
	if c.PoolTokens > 0 && (tokens == 0 || c.PoolTokens < tokens) {
		tokens = c.PoolTokens
	}
	return tokens / m.g.chooser.blockTokens
}

// spec is what the router is told of a worker.
func (m *member) spec(c *card.Card) router.WorkerSpec {
	g := m.g
	spec := router.WorkerSpec{
		BlockTokens: g.chooser.blockTokens, TotalBlocks: c.PoolTokens / g.chooser.blockTokens,
		BatchTokens: c.StepTokens, ChunkTokens: c.ChunkTokens, MaxRequests: c.MaxRunning,
	}
	if p := c.Profile; p != nil {
		d := g.cfg.Router.Profile
		if d == (router.Profile{}) {
			d = router.DefaultProfile()
		}
		spec.Profile = router.Profile{Step: p.Step, Token: p.Token, Pair: p.Pair, Row: p.Row, KV: p.KV, HostBlock: d.HostBlock, DiskBlock: d.DiskBlock}
	}
	for _, name := range c.Models {
		if id := modelOf(name); id != 0 {
			spec.Models = append(spec.Models, id)
		}
	}
	return spec
}

// join has each rank that has not join the router, to get nothing until all have and the
// worker has said that it is ready.
func (m *member) join(c *card.Card) error {
	g, spec := m.g, m.spec(c)
	_, blind := m.sources(c)
	for rank := len(m.ranks); rank < m.given.Ranks; rank++ {
		w := kv.Rank{Worker: kv.WorkerID(c.ID()), DP: uint32(rank)}
		if err := g.chooser.join(w, spec, blind); err != nil {
			return &refusal{err.Error()}
		}
		m.ranks = append(m.ranks, w)
		g.chooser.limit(w, m.longest(c))
	}
	m.mu.Lock()
	m.state = Joining
	m.mu.Unlock()
	return nil
}

// part has it leave. What runs there ends by itself.
func (m *member) part() {
	m.ignore()
	for _, w := range m.ranks {
		m.g.chooser.leave(w)
	}
	m.g.unclaim(m) // also of one that could not join
	m.ranks = nil
}
