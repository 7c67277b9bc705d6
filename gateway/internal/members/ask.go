package members

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/openai"
)

// maxAnswer bounds the answer of a worker, in bytes.
const maxAnswer = 1 << 20

// get requests the document at path from a worker. It returns the status, and the body up to
// most bytes. The rest of a longer body is cut off.
func (f *Fleet) get(ctx context.Context, m *Member, path string, most int64) (status int, body []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url.String()+path, nil)
	if err != nil {
		return 0, nil, err
	}
	if f.cfg.Key != "" {
		r.Header.Set("Authorization", "Bearer "+f.cfg.Key)
	}
	res, err := f.cfg.Transport.RoundTrip(r)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(io.LimitReader(res.Body, most))
	return res.StatusCode, body, err
}

// Exhausted reports whether err means that this process, or the machine, has run out of file
// descriptors. That is not the worker's fault.
func Exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// unexpected returns the error for an unexpected status of the document at path. If the status
// means that the gateway's API key is missing or wrong, the error is a refusal.
func unexpected(m *Member, path string, status int) error {
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		return refuse("worker %s requires an API key: give the gateway one (--worker-key)", m.url)
	}
	return fmt.Errorf("%s%s answers with status %d", m.url, path, status)
}

// readCard reads the worker's card. If the worker has no card, it makes one from the worker's
// list of models.
func (f *Fleet) readCard(ctx context.Context, m *Member) (description, error) {
	status, body, err := f.get(ctx, m, card.Path, maxAnswer)
	if err != nil {
		return description{}, err
	}
	switch status {
	case http.StatusOK:
		c, err := card.Parse(body)
		if err != nil {
			return description{}, refuse("%s%s answers with no card: %v", m.url, card.Path, err)
		}
		own := c.Name
		if m.cfg.Name != "" {
			c.Name = m.cfg.Name
		}
		if m.cfg.Pool != "" {
			c.Pool = m.cfg.Pool
		}
		return description{card: c, own: own}, nil
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return f.readModels(ctx, m)
	}
	return description{}, unexpected(m, card.Path, status)
}

// readModels makes a card from the list of models of a worker that is not Coppice.
func (f *Fleet) readModels(ctx context.Context, m *Member) (description, error) {
	status, body, err := f.get(ctx, m, "/v1/models", maxAnswer)
	if err != nil {
		return description{}, err
	}
	if status != http.StatusOK {
		return description{}, unexpected(m, "/v1/models", status)
	}
	var list openai.Models
	if err := json.Unmarshal(body, &list); err != nil {
		return description{}, fmt.Errorf("%s/v1/models: %w", m.url, err)
	}
	c := &card.Card{Name: m.cfg.Name, Pool: m.cfg.Pool, PoolTokens: m.cfg.PoolTokens, MaxRunning: m.cfg.MaxRunning}
	if c.Name == "" {
		c.Name = card.NameOf(m.url.Host + m.url.Path)
	}
	s := description{card: c, foreign: true, loras: map[string]bool{}}
	for i := range list.Data[:min(len(list.Data), card.MaxModels)] {
		d := &list.Data[i]
		c.Models = append(c.Models, d.ID)
		s.loras[d.ID] = d.Parent != "" // vLLM names the parent of an adapter
		c.MaxModelTokens = max(c.MaxModelTokens, d.MaxModelLen)
	}
	if err := f.learnForeign(ctx, m, &s); err != nil {
		return description{}, err
	}
	return s, c.Validate()
}

// ready asks a worker whether it takes new requests. A worker that is not Coppice has no /ready,
// so its /health is asked. It returns false without an error for a worker that is draining, and
// an error for one that fails.
func (f *Fleet) ready(ctx context.Context, m *Member) (bool, error) {
	path, foreign := "/ready", m.Status().Foreign
	if foreign {
		path = "/health"
	}
	status, _, err := f.get(ctx, m, path, maxAnswer)
	switch {
	case err != nil:
		return false, err
	case status == http.StatusOK:
		return true, nil
	case foreign || status != http.StatusServiceUnavailable:
		return false, fmt.Errorf("%s%s answers with status %d", m.url, path, status)
	}
	// A draining worker is healthy; an unhealthy one has lost its node.
	if status, _, err = f.get(ctx, m, "/health", maxAnswer); err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s/health answers with status %d", m.url, status)
	}
	return false, err
}
