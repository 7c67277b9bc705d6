package server

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/budget"
	"github.com/coppice-llm/coppice/internal/web"
)

// decodedBytes is the most bytes that a byte of a body takes while it is decoded: itself, and a copy of
// its text together with the raw JSON of tools, or half a token id of four bytes.
const decodedBytes = 3

// errMemory is the answer to a request that the memory for open requests has no room for.
var errMemory = conversation.NewError(http.StatusServiceUnavailable, "server_busy", "the memory for open requests is in use; retry later")

// errNever is the answer to a request that needs more memory than there is for all.
var errNever = conversation.NewError(http.StatusRequestEntityTooLarge, "request_too_large", "the request needs more memory than this server has for open requests (--max-memory): send less")

// noRoom returns the answer for an error of an account.
func noRoom(err error) error {
	if errors.Is(err, budget.ErrNever) {
		return errNever
	}
	return errMemory
}

// reserve opens the memory account of the request, with the bytes for a body of the length that the
// header gives and for the result of decoding it. It waits until they are free, at most BusyWait.
func (c *call) reserve(most int) error {
	if c.r.ContentLength > int64(most) {
		return web.TooLong(c.w, most)
	}
	n := decodedBytes * int(max(c.r.ContentLength, 0))
	if c.memory.TryOpen(c.s.memory, n) {
		return nil
	}
	over := c.s.open.Over()
	ctx, cancel := context.WithTimeout(over, c.s.cfg.BusyWait)
	defer cancel()
	if c.memory.Open(ctx, c.s.memory, n) != nil {
		if over.Err() != nil {
			return context.Cause(over)
		}
		return errMemory
	}
	c.client.Out.SetReadDeadline(time.Now().Add(c.s.cfg.ReadTimeout))
	return nil
}

// swallowLater makes swallow read up to n more bytes of the body.
func (c *call) swallowLater(n int) {
	c.rest = n
	c.client.ReadOn(c.w.Header())
}

// swallow reads the rest of a body that was refused while it arrived, after the answer.
func (c *call) swallow() {
	if c.rest == 0 || !c.flush() {
		return
	}
	c.forget()
	body := c.r.Body
	if m, ok := body.(*measured); ok {
		body = m.ReadCloser
	}
	c.client.Swallow(body, c.rest)
}

// forget gives back what is counted for the request.
func (c *call) forget() {
	c.s.bodies.Add(-int64(c.held))
	c.held = 0
	c.memory.Close()
}

// charge counts n more bytes of memory for the request. It is called before they are allocated.
func (c *call) charge(n int) error {
	if err := c.memory.Add(n); err != nil {
		return noRoom(err)
	}
	return nil
}

// Bytes of memory that parts of an output take: idBytes a token or its log-probability, in a slice
// that may be half empty, listBytes a list of the most probable tokens without its elements.
const idBytes, listBytes = 2 * 4, 2 * 24

// Bytes that the JSON of a token id, and of a token with its log-probability, usually take.
const idJSON, scoredJSON = 8, 120

// keptBytes returns the bytes of a piece that its stream keeps until the end of the request.
func keptBytes(p *coppice.Piece) int {
	return idBytes*(len(p.Tokens)+len(p.Logprobs)+len(p.PromptLogprobs)) + listed(p.Top, listBytes, 8) + listed(p.PromptTop, listBytes, 8)
}

// collectedBytes returns the bytes that a piece takes in an answer that is sent as a whole: those of
// the piece, and of its JSON. The text counts once kept and twice in JSON.
func collectedBytes(p *coppice.Piece) int {
	return 3*len(p.Text) + (idBytes+idJSON)*len(p.Tokens) + (idBytes+scoredJSON)*(len(p.Logprobs)+len(p.PromptLogprobs)) +
		listed(p.Top, listBytes, scoredJSON) + listed(p.PromptTop, 0, scoredJSON)
}

// scoreBytes is the size of a conversation.Score with its text. The last piece of a stream that repeats them has them in repeatedJSON places.
const scoreBytes, repeatedJSON = 80, 5

// repeatedBytes returns the bytes that the log-probabilities of a piece take in a stream that repeats them at its end.
func repeatedBytes(p *coppice.Piece, out streamed) int {
	if !out.RepeatsScores() {
		return 0
	}
	const score = scoreBytes + repeatedJSON*scoredJSON
	return score*len(p.Logprobs) + listed(p.Top, 0, score)
}

// listed returns the bytes of lists of tokens that all have about the same length: list bytes each, and
// element bytes an element.
func listed(lists [][]engine.TokenLogprob, list, element int) int {
	if len(lists) == 0 {
		return 0
	}
	return len(lists) * (list + element*len(lists[len(lists)-1])) // the first of a prompt is empty
}

var errNotJSON = conversation.NewError(http.StatusUnsupportedMediaType, "unsupported_media_type", "send JSON, with the header Content-Type: application/json")

var errCompressed = conversation.NewError(http.StatusUnsupportedMediaType, "unsupported_media_type", "compressed bodies are not supported: send the body without Content-Encoding")

// takesUntyped reports whether a body with the header h needs no Content-Type: with an API whose clients send none, or the type of a
// form, as curl does. A web page could send such a request without asking, so browsers are not let through.
func (e *endpoint) takesUntyped(h http.Header) bool {
	kind := h.Get("Content-Type")
	return e.untyped && (kind == "" || kind == "application/x-www-form-urlencoded") && h.Get("Origin") == "" && h.Get("Sec-Fetch-Site") == ""
}

// body reads the request's body, which must be uncompressed JSON within the limits of size and
// time. The returned bytes are valid until the caller calls release. On an error, release is nil.
func (c *call) body() (body []byte, release func(), err error) {
	if kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); (err != nil || kind != "application/json") && !c.at.takesUntyped(c.r.Header) {
		return nil, nil, errNotJSON
	}
	if coding := c.r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, nil, errCompressed
	}
	most := c.s.cfg.MaxBodyBytes
	if c.most > 0 {
		most = min(c.most, most)
	}
	if err := c.reserve(most); err != nil {
		if err == errMemory {
			c.swallowLater(most)
		}
		return nil, nil, err
	}
	buf := c.s.buffer()
	if n := c.r.ContentLength; n > 0 {
		*buf = slices.Grow(*buf, int(n)+1) // one more byte to see the end
	}
	*buf, err = c.s.bodies.Read(c.w, c.r, *buf, most, func(more int) error { return c.charge(decodedBytes * more) })
	if c.held = len(*buf); err != nil {
		c.s.release(buf)
		if m, ok := c.r.Body.(*measured); ok && m.refused || errorOf(err).Status == http.StatusServiceUnavailable {
			c.swallowLater(most - c.held)
		}
		return nil, nil, err
	}
	c.client.Out.SetReadDeadline(time.Time{}) // later reads only notice a disconnect
	return *buf, func() {
		c.s.release(buf)
		c.memory.Shrink((decodedBytes - 1) * c.held)
	}, nil
}

// read reads the request's body and decodes it with decode, which must not keep any part of the
// bytes.
func read[T any](c *call, decode func([]byte) (T, error)) (ask T, err error) {
	body, release, err := c.body()
	if err != nil {
		return ask, err
	}
	defer release()
	return decode(body)
}
