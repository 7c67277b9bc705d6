package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// answer is a worker's answer as it passes. It tells the router how far the request has
// come, and ends its reservation when the last byte has come or it is closed: before the
// client has all of it, so that its next request finds the worker free.
type answer struct {
	p      *proxiedRequest
	from   io.ReadCloser // nil: there is none
	ctx    context.Context
	buffer *[]byte
	first  []byte // what was read ahead, in buffer
	last   []byte // what is said behind the worker's own
	left   int64  // bytes that come yet, below 0 if nobody said how many
	stream bool   // server-sent events, that can be read
	open   []byte // of an event whose end has not come
	whole  bool   // what has passed ends with an event
	done   bool   // and that is the one that says that the answer is complete
	ended  error  // what is to be read has ended with

	usage    usage
	tokens   int // events so far: about one a token
	told     int // of them, that the router knows of
	toldAt   time.Time
	firstAt  time.Time // of the first event; zero: none, or no stream
	released bool
}

// begin reads the first bytes. An error means that nothing of the answer was seen.
func (a *answer) begin(p *proxiedRequest, res *http.Response) error {
	*a = answer{
		p: p, from: res.Body, ctx: res.Request.Context(), left: res.ContentLength, whole: true,
		stream: strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") && res.Header.Get("Content-Encoding") == "",
	}
	if res.ContentLength == 0 {
		a.release()
		return nil
	}
	a.buffer = p.g.buffers.Get().(*[]byte)
	n, err := a.from.Read(*a.buffer)
	for n == 0 && err == nil {
		n, err = a.from.Read(*a.buffer)
	}
	if n == 0 && err != io.EOF {
		p.g.buffers.Put(a.buffer)
		*a = answer{}
		return err
	}
	a.first = a.pass((*a.buffer)[:n], err)
	return nil
}

// Read gives what the worker sent, and what there is to say behind it.
func (a *answer) Read(p []byte) (n int, err error) {
	for {
		switch {
		case len(a.first) > 0:
			n = copy(p, a.first)
			a.first = a.first[n:]
			a.p.client.Extend()
			return n, nil
		case a.ended != nil && len(a.last) > 0:
			a.first, a.last = a.last, nil
			continue
		case a.ended != nil:
			a.p.client.Extend() // for what ends the body
			return 0, a.ended
		}
		a.p.client.Rest()
		inPlace := len(a.open) == 0
		n, err = a.from.Read(p)
		b := a.pass(p[:n], err)
		if !inPlace {
			a.first = b
			continue
		}
		if len(b) > 0 {
			a.p.client.Extend()
			return len(b), nil
		}
	}
}

// pass counts what goes by, and sees whether it was the last. It returns what is to go on
// now: the beginning of b, or of what was held back with b behind it.
func (a *answer) pass(b []byte, err error) []byte {
	now := time.Now()
	a.p.attempt.heard.Store(now.UnixNano())
	if a.left >= 0 {
		a.left -= int64(len(b))
	}
	if len(b) > 0 {
		a.usage.pass(b)
		if a.stream {
			a.count(b, now)
		}
	}
	if a.stream {
		b = a.hold(b, err == io.EOF)
		if len(b) > 0 {
			a.done = a.whole && bytes.HasSuffix(bytes.TrimRight(b, "\r\n"), eventDone)
		}
		if a.done && err != nil {
			err = io.EOF // what broke after that matters to nobody
		}
	}
	if err != nil {
		a.end(err)
	}
	switch {
	case err == io.EOF || a.left == 0:
		a.release()
	case err != nil:
		a.abandon()
	}
	return b
}

// maxEvent is how much of an event is held back at most.
const maxEvent = 256 << 10

// hold keeps back the beginning of an event until its end comes: if the worker breaks off
// there, a client that had read half an event would fail at it, and not see why it ends.
func (a *answer) hold(b []byte, last bool) []byte {
	held := len(a.open) > 0
	if held {
		a.open = append(a.open, b...)
		b = a.open
	}
	end := eventsEnd(b)
	if end > 0 {
		a.whole = true
	}
	if end < len(b) && (last || len(b)-end > maxEvent) {
		a.whole, end = false, len(b)
	}
	if held {
		a.open = slices.Clone(b[end:]) // the rest of the old one goes on
	} else {
		a.open = append(a.open[:0], b[end:]...)
	}
	return b[:end]
}

// eventsEnd is where the last event in b ends, 0 if none does.
func eventsEnd(b []byte) (end int) {
	if bytes.HasSuffix(b, eventEnd) {
		return len(b)
	}
	for _, mark := range [...][]byte{eventEnd, eventEndCR} {
		if i := bytes.LastIndex(b, mark); i >= 0 {
			end = max(end, i+len(mark))
		}
	}
	return end
}

// tellEvery is how many tokens, or how much time, there is between two words to the router.
const (
	tellTokens = 8
	tellEvery  = time.Second
)

var eventMark, eventEnd, eventEndCR, eventDone = []byte("data: "), []byte("\n\n"), []byte("\r\n\r\n"), []byte("data: [DONE]")

// count tells the router of tokens.
func (a *answer) count(b []byte, now time.Time) {
	a.tokens += bytes.Count(b, eventMark)
	if a.toldAt.IsZero() {
		a.firstAt = now
		a.p.g.metrics.FirstToken.Observe(now.Sub(a.p.start).Seconds())
	} else if a.tokens-a.told < tellTokens && now.Sub(a.toldAt) < tellEvery {
		return
	}
	a.told, a.toldAt = a.tokens, now
	a.p.g.dispatch.Progress(a.p.decision.Reservation, a.p.promptTokens, a.tokens)
}

// end turns what ended the worker's answer into how it ends here: a stream that breaks
// ends with an event that says so.
func (a *answer) end(err error) {
	a.ended = err
	if err == io.EOF {
		return
	}
	drained := context.Cause(a.p.g.door.Over())
	if drained == nil {
		a.broken(err)
	}
	if !a.stream {
		return
	}
	e := broken(a.p.member.Name())
	errors.As(drained, &e)
	if !a.whole {
		a.last = append(a.last, eventEnd...) // of one that was too long to be held back
	}
	a.last = append(a.last, eventMark...)
	a.last = append(e.Append(a.last), eventEnd...)
	a.ended = io.EOF
}

// broken notes that a worker broke its answer off, if it did and not the client.
func (a *answer) broken(err error) {
	if a.ctx.Err() != nil && !errors.Is(context.Cause(a.ctx), errSilent) {
		return
	}
	a.p.fault, a.p.status = err, http.StatusBadGateway
	a.p.g.metrics.Broken.Inc()
	a.p.member.Nudge()
}

// release ends the reservation, once.
func (a *answer) release() {
	if !a.released {
		a.released = true
		a.p.g.dispatch.Release(a.p.decision.Reservation)
	}
}

// abandon ends the reservation of an answer that has not come to its end, once.
func (a *answer) abandon() {
	if !a.released {
		a.released = true
		a.p.g.dispatch.Abandon(a.p.decision.Reservation)
	}
}

// Close ends it all.
func (a *answer) Close() error {
	if a.from == nil {
		return nil
	}
	err := a.from.Close()
	a.from = nil
	a.abandon()
	a.p.g.attempts.end(a.p.member, a.p.attempt)
	if a.buffer != nil {
		a.p.g.buffers.Put(a.buffer)
		a.buffer, a.first = nil, nil
	}
	if a.ended == nil {
		a.ended = http.ErrBodyReadAfterClose
	}
	return err
}

// pool lends the proxy its buffers.
type pool Gateway

// Get is a buffer of 32 KiB.
func (p *pool) Get() []byte { return *p.buffers.Get().(*[]byte) }

// Put takes it back.
func (p *pool) Put(b []byte) { p.buffers.Put(&b) }
