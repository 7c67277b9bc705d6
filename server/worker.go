package server

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/coppice-llm/coppice/openai"
)

var errNoCard = openai.NewError(http.StatusNotFound, "unknown_url", "this server has no card, since it is not a worker of a fleet")

// worker answers /v1/worker with the server's card.
func (c *call) worker() error {
	if c.s.fixed.card == nil {
		return errNoCard
	}
	return c.json(http.StatusOK, c.s.fixed.card)
}

var errNoTokenizerBundle = openai.NewError(http.StatusNotFound, "unknown_url", "this server does not publish its tokenizer; coppice serve does with --publish")

// tokenizer answers with a tar of the model's tokenizer files, for routers.
func (c *call) tokenizer() error {
	b := c.s.cfg.Bundle
	if b == nil {
		return errNoTokenizerBundle
	}
	c.w.Header().Set("Content-Length", strconv.Itoa(len(b.Data)))
	c.begin(http.StatusOK, "application/x-tar")
	const part = 1 << 20 // bytes between two renewals of the write deadline
	for data := range slices.Chunk(b.Data, part) {
		c.client.Extend()
		if !c.write(data) {
			break
		}
	}
	return nil
}
