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

	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/openai"
)

// counting is the method by which output tokens were counted, best first.
type counting uint8

const (
	byUsage    counting = iota // the server's usage
	byTokenIDs                 // token ids in the chunks
	byChunks                   // chunks with output, one token each
)

// sample holds the outcome and the times of one request.
type sample struct {
	failure Failure
	err     error
	status  int // HTTP status; 0 if no answer came

	sent         time.Time
	lag          time.Duration // delay after the scheduled time; -1 if none was scheduled
	ttft         time.Duration // 0 if no output came
	e2el         time.Duration
	gaps         []time.Duration // between chunks with output; owned by the scratch
	prompt       int             // tokens
	output       int             // tokens
	cached       int             // prompt tokens; -1 if the server does not report them
	ideal        int             // prompt tokens that a cache without a limit would have found; -1 if unknown
	promptKnown  bool            // prompt is the server's count
	counted      counting
	finishReason string

	text   []byte     // output of the first choice, if kept
	tokens []kv.Token // its token ids, if kept and the server sends them
}

// reset prepares for another request and keeps the buffers.
func (s *sample) reset() {
	*s = sample{gaps: s.gaps[:0], text: s.text[:0], tokens: s.tokens[:0], lag: -1, cached: -1, ideal: -1, counted: byChunks}
}

// chunks returns the number of chunks with output.
func (s *sample) chunks() int {
	if s.ttft == 0 {
		return 0
	}
	return len(s.gaps) + 1
}

// tpot returns the mean time per output token after the first; ok is false if there is
// at most one.
func (s *sample) tpot() (d time.Duration, ok bool) {
	if s.output < 2 || s.ttft == 0 {
		return 0, false
	}
	return (s.e2el - s.ttft) / time.Duration(s.output-1), true
}

// scratch holds the buffers of a request. The next request reuses them.
type scratch struct {
	events *EventReader
	chunk  openai.Chunk
	sample sample
}

// lingerTime is the longest wait for the end of a body after [DONE].
const lingerTime = 100 * time.Millisecond

func newScratch() *scratch { return &scratch{events: NewEventReader(nil, nil)} }

// Post sends body, a request for a stream, to the endpoint. The caller checks the status of the answer
// and closes its body.
func (c *Client) Post(ctx context.Context, body []byte) (*http.Response, error) {
	return c.post(ctx, body, "")
}

// sessionHeader is the header with the name of a request's session.
const sessionHeader = "X-Session-Id"

// post is Post for a request of the session with this name, or of none if it is "".
func (c *Client) post(ctx context.Context, body []byte, session string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+c.cfg.Endpoint.path(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	c.authorise(req)
	if session != "" {
		req.Header.Set(sessionHeader, session)
	}
	// A server may close an idle connection just when the next request is sent on it. A nil
	// Idempotency-Key is not sent, but allows net/http to repeat a POST on a new connection
	// if the old one had answered before and was closed without answering this request.
	req.Header["Idempotency-Key"] = nil
	return c.http.Do(req)
}

// exchange sends body, a request of the named session, reads the answer to its end, and fills in
// sc.sample, including the error if there is one. With keep it stores the output in sc.sample too.
func (c *Client) exchange(ctx context.Context, sc *scratch, body []byte, session string, keep bool) {
	s := &sc.sample
	s.reset()
	s.sent = time.Now()
	if err := c.stream(ctx, sc, body, session, keep); err != nil {
		s.err = err
		if s.failure == None {
			s.failure = ofError(ctx, err)
		}
		if s.failure == Timeout {
			s.err = errTimeout
		}
	}
}

// stream does the work of exchange. It sets sc.sample.failure for all errors except those of the
// connection, which exchange classifies.
func (c *Client) stream(ctx context.Context, sc *scratch, body []byte, session string, keep bool) error {
	s := &sc.sample
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.post(ctx, body, session)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	s.status = resp.StatusCode
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, mostBody)) // a partial message is good enough
		s.failure = ofStatus(resp.StatusCode)
		return fmt.Errorf("%s%s: %s", StatusText(resp.StatusCode), hint(resp.StatusCode), Said(body))
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		body, err := io.ReadAll(io.LimitReader(resp.Body, mostBody))
		if err != nil {
			return err
		}
		s.failure = Malformed
		return fmt.Errorf("the answer is %.100q, want text/event-stream: %s", kind, Said(body))
	}
	if err := sc.read(resp.Body, keep); err != nil {
		return err
	}
	// After [DONE] only the end of the body is left. net/http can reuse the connection
	// only if it has read the end. If the end does not come in time, cancel closes the
	// connection.
	linger := time.AfterFunc(lingerTime, cancel)
	defer linger.Stop()
	io.CopyN(io.Discard, resp.Body, 1)
	return nil
}

// read parses the stream in body into sc.sample. With keep it stores the output too. A stream that
// ends without [DONE] counts as complete only if a finish_reason came.
func (sc *scratch) read(body io.Reader, keep bool) error {
	s := &sc.sample
	sc.events.Reset(body, time.Now)
	var last time.Time // arrival of the last chunk with output
	done := false
	for {
		event, err := sc.events.Next()
		if err != nil && err != io.EOF {
			return err
		}
		if done = string(event.Data) == "[DONE]"; done || err == io.EOF {
			break
		}
		if err := readChunk(&sc.chunk, event.Data); err != nil {
			s.failure = Malformed
			return err
		}
		if fault := sc.chunk.Fault(); fault != nil {
			s.failure = StreamError
			return fmt.Errorf("the server ended the answer: %s", Said(fault))
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

// take records sc.chunk, which arrived at the time at. last is the arrival of the latest chunk
// with output before sc.chunk. take returns at if sc.chunk has output too, otherwise last. With
// keep it stores the output of the first choice.
func (sc *scratch) take(at, last time.Time, keep bool) time.Time {
	s := &sc.sample
	if u := sc.chunk.Usage; u != nil { // some servers send it with every chunk: the last one counts
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
		s.ttft = max(s.e2el, 1) // 0 would mean no output
	} else {
		s.gaps = append(s.gaps, at.Sub(last))
	}
	return at
}

// readChunk parses the data of an event into c, reusing the memory of the chunk before.
func readChunk(c *openai.Chunk, data []byte) error {
	if err := c.Read(data); err != nil {
		return fmt.Errorf("a chunk that is not of the OpenAI API: %w: %s", err, terminal.Quote(data))
	}
	return nil
}
