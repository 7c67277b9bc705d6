package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/openai"
)

// counting is what output tokens were counted by.
type counting uint8

const (
	byUsage counting = iota
	byTokenIDs
	byChunks
)

// sample is what one request came to.
type sample struct {
	failure Failure
	err     error
	status  int // 0 if no answer came

	sent         time.Time
	lag          time.Duration // sent after it was due; -1 if it was not due at a time
	ttft         time.Duration // 0 if no output came
	e2el         time.Duration
	gaps         []time.Duration // between chunks with output; belongs to the scratch
	prompt       int             // tokens
	output       int             // tokens
	cached       int             // prompt tokens, -1 if the server does not say
	promptKnown  bool            // prompt is the server's count
	counted      counting
	finishReason string

	text   []byte     // of the first choice, if wanted
	tokens []kv.Token // the same as token ids, if the server gave them
}

// reset begins another request and keeps the buffers.
func (s *sample) reset() {
	*s = sample{gaps: s.gaps[:0], text: s.text[:0], tokens: s.tokens[:0], lag: -1, cached: -1, counted: byChunks}
}

// chunks with output.
func (s *sample) chunks() int {
	if s.ttft == 0 {
		return 0
	}
	return len(s.gaps) + 1
}

// tpot is the mean time of output tokens after the first; !ok if there is none.
func (s *sample) tpot() (d time.Duration, ok bool) {
	if s.output < 2 || s.ttft == 0 {
		return 0, false
	}
	return (s.e2el - s.ttft) / time.Duration(s.output-1), true
}

// scratch is what a request needs and the next one can use again.
type scratch struct {
	events *EventReader
	chunk  openai.Chunk
	body   []byte
	sample sample
}

// lingerTime is how long the end of a body is waited for after [DONE].
const lingerTime = 100 * time.Millisecond

func newScratch() *scratch { return &scratch{events: NewEventReader(nil, nil)} }

// exchange sends sc.body and reads the answer to its end, into sc.sample. keep keeps
// what the model says.
func (c *Client) exchange(ctx context.Context, sc *scratch, keep bool) {
	s := &sc.sample
	s.reset()
	s.sent = time.Now()
	if err := c.stream(ctx, sc, keep); err != nil {
		s.err = err
		if s.failure == None {
			s.failure = ofError(ctx, err)
		}
		if s.failure == Timeout {
			s.err = errTimeout
		}
	}
}

// stream is exchange but for the blame: errors that are not of the connection set
// sc.sample.failure.
func (c *Client) stream(ctx context.Context, sc *scratch, keep bool) error {
	s := &sc.sample
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+c.cfg.Endpoint.path(), bytes.NewReader(sc.body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	c.authorise(req)
	// A server may close a connection after an answer without saying so, and a request may
	// be on its way then. With this, which is not sent, net/http sends the request again if
	// the connection had answered another before and closed before it answered this one.
	req.Header["Idempotency-Key"] = nil
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	s.status = resp.StatusCode
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, mostBody)) // as much as there is
		s.failure = ofStatus(resp.StatusCode)
		return fmt.Errorf("%s%s: %s", resp.Status, hint(resp.StatusCode), clip(bytes.TrimSpace(body)))
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		body, err := io.ReadAll(io.LimitReader(resp.Body, mostBody))
		if err != nil {
			return err
		}
		s.failure = Malformed
		return fmt.Errorf("the answer is %q, want text/event-stream: %s", kind, clip(body))
	}
	if err := sc.read(resp.Body, keep); err != nil {
		return err
	}
	// Behind [DONE] there is nothing but the end of the body: read, it lets the
	// connection be used again. One that does not end there costs its connection.
	linger := time.AfterFunc(lingerTime, cancel)
	defer linger.Stop()
	io.CopyN(io.Discard, resp.Body, 1)
	return nil
}

// read takes the stream apart.
func (sc *scratch) read(body io.Reader, keep bool) error {
	s := &sc.sample
	sc.events.Reset(body, time.Now)
	var last time.Time // of a chunk with output
	done := false
	for !done {
		event, err := sc.events.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if string(event.Data) == "[DONE]" {
			done = true
			break
		}
		if err := readChunk(&sc.chunk, event.Data); err != nil {
			s.failure = Malformed
			return err
		}
		if fault := sc.chunk.Fault(); fault != nil {
			s.failure = StreamError
			return errors.New(clip(fault))
		}
		last = sc.take(event.At, last, keep)
	}
	switch {
	case s.finishReason != "":
		return nil
	case !done:
		s.failure = Truncated
		return errors.New("the stream ended without [DONE] and without a finish_reason")
	case s.ttft == 0:
		s.failure = Truncated
		return errors.New("the stream ended without output and without a finish_reason")
	}
	return nil
}

// take takes a chunk that came at at; last is when the one before with output came.
func (sc *scratch) take(at, last time.Time, keep bool) time.Time {
	s := &sc.sample
	if u := sc.chunk.Usage; u != nil { // the last one counts: some servers send it with every chunk
		s.prompt, s.output, s.counted, s.promptKnown = u.PromptTokens, u.CompletionTokens, byUsage, true
		if u.CachedTokens >= 0 {
			s.cached = u.CachedTokens
		}
	}
	if len(sc.chunk.Choices) == 0 {
		return last
	}
	s.e2el = at.Sub(s.sent)
	output := false
	for i := range sc.chunk.Choices {
		c := &sc.chunk.Choices[i]
		has, ids := c.HasOutput(), len(c.TokenIDs)
		output = output || has
		if s.counted != byUsage && has {
			if ids > 0 {
				s.counted = byTokenIDs
			}
			s.output += max(ids, 1)
		}
		if c.FinishReason != "" {
			s.finishReason = strings.Clone(c.FinishReason)
		}
		if keep && i == 0 {
			s.text = append(append(s.text, c.Text...), c.Delta.Content...)
			s.tokens = append(s.tokens, c.TokenIDs...)
		}
	}
	if !output {
		return last
	}
	if s.ttft == 0 {
		s.ttft = max(s.e2el, 1) // 0 is none
	} else {
		s.gaps = append(s.gaps, at.Sub(last))
	}
	return at
}
