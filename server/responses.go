package server

import (
	"errors"
	"net/http"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/openai/responses"
	"github.com/coppice-llm/coppice/server/internal/stored"
)

// createResponse answers POST /v1/responses.
func (c *call) createResponse() error {
	ask, err := read(c, func(b []byte) (*responses.Ask, error) {
		return responses.Decode(b, responses.Options{Options: c.s.policies.reading, Find: c.findResponse})
	})
	if err != nil {
		return err
	}
	return c.converse(&ask.Turn, responses.NewWire(ask, c.s.policies.worker, c.keepResponse))
}

// findResponse returns the caller's stored response with this id, and charges the request for the memory that reading it takes.
func (c *call) findResponse(id string) (*responses.Stored, error) {
	s, ok := c.s.responses.Get(c.caller.tenant, id)
	if !ok {
		return nil, responses.NotFound(id)
	}
	return s, c.charge(decodedBytes * (len(s.Input) + len(s.Response)))
}

// keepResponse stores a response of the caller. If that fails, the client still gets the response, and can't continue it.
func (c *call) keepResponse(id string, s *responses.Stored) {
	err := c.s.responses.Put(c.caller.tenant, id, s)
	switch {
	case errors.Is(err, stored.ErrTooLarge):
		c.s.log.Debug("response not stored", zap.String("request", c.id), zap.Error(err))
	case err != nil:
		c.s.log.Error("response not stored", zap.String("request", c.id), zap.Error(err))
	}
}

// storedResponse answers GET /v1/responses/{id}.
func (c *call) storedResponse() error {
	if c.r.URL.Query().Get("stream") == "true" {
		return conversation.Invalid("stream", conversation.Unsupported, "stored responses are not streamed: leave stream out")
	}
	s, err := c.findResponse(c.r.PathValue("id"))
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, s.Response)
}

// deleteResponse answers DELETE /v1/responses/{id}.
func (c *call) deleteResponse() error {
	id := c.r.PathValue("id")
	if !c.s.responses.Delete(c.caller.tenant, id) {
		return responses.NotFound(id)
	}
	return c.json(http.StatusOK, responses.AppendDeleted(nil, id))
}

// inputItems answers GET /v1/responses/{id}/input_items.
func (c *call) inputItems() error {
	page, err := responses.ReadPage(c.r.URL.Query().Get)
	if err != nil {
		return err
	}
	s, err := c.findResponse(c.r.PathValue("id"))
	if err != nil {
		return err
	}
	list, err := responses.AppendInputItems(nil, s, page)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, list)
}

// cancelResponse answers POST /v1/responses/{id}/cancel.
func (c *call) cancelResponse() error {
	id := c.r.PathValue("id")
	if _, err := c.findResponse(id); err != nil {
		return err
	}
	return responses.Cancelled(id)
}
