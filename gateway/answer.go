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

	"github.com/coppice-llm/coppice/router"
)

// answer is the body of a worker's answer on its way to the client. It reports progress to the
// router. It ends the reservation when the last byte has come from the worker or when the body
// is closed. The last byte comes before the client has read everything, so the client's next
// request already finds the worker free.
type answer struct {
	p      *proxiedRequest
	from   io.ReadCloser // nil: there is no body
	ctx    context.Context
	buffer *[]byte
	first  []byte // bytes to forward in the next Read
	last   []byte // the gateway's own bytes after the worker's
	left   int64  // bytes still to come; negative if the length is unknown
	stream bool   // the body consists of uncompressed server-sent events
	open   []byte // held back: the beginning of an incomplete event
	whole  bool   // the bytes passed so far end with a complete event
	done   bool   // the last event passed was the last one of a whole answer
	ended  error  // error that ended the reading of from, such as io.EOF; nil: not ended

	usage      usage
	events     int       // so far
	tokens     int       // events since the first token, about one per token
	reported   int       // tokens last reported to the router
	reportedAt time.Time // time of that report
	firstAt    time.Time // time of the first event; zero if there is none or the answer is not a stream
	released   bool
}

// expect makes a the body of res, the answer to p, and reads nothing of it.
func (a *answer) expect(p *proxiedRequest, res *http.Response) {
	*a = answer{
		p: p, from: res.Body, ctx: res.Request.Context(), left: res.ContentLength, whole: true,
		stream: strings.HasPrefix(res.Header.Get("Content-Type"), p.wire.stream) && res.Header.Get("Content-Encoding") == "",
	}
	a.usage.field = p.wire.cached
}

// begin is expect, and reads the first bytes, of a stream the first event. On an error nothing of the answer has been used, so
// another worker can still be asked.
func (a *answer) begin(p *proxiedRequest, res *http.Response) error {
	a.expect(p, res)
	if res.ContentLength == 0 {
		a.finish(a.p.g.dispatch.Release)
		return nil
	}
	a.buffer = p.g.buffers.Get().(*[]byte)
	n, err := a.from.Read(*a.buffer)
	for err == nil && n < len(*a.buffer) && (n == 0 || a.stream && p.wire.eventsEnd((*a.buffer)[:n]) == 0) {
		more := 0
		more, err = a.from.Read((*a.buffer)[n:])
		n += more
		p.attempt.heard.Store(time.Now().UnixNano())
	}
	if err != nil && err != io.EOF && (n == 0 || a.stream && p.wire.eventsEnd((*a.buffer)[:n]) == 0) {
		p.g.buffers.Put(a.buffer)
		*a = answer{}
		return err
	}
	a.first = a.pass((*a.buffer)[:n], err)
	return nil
}

// Read returns the worker's bytes, then those that the gateway itself adds at the end.
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
			a.p.client.Extend() // time to write the end of the body
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

// pass counts the bytes b that a read of the worker's body returned together with err, and
// notices the end of the answer. It returns the bytes to forward now: a prefix of b, or a prefix
// of the held-back bytes followed by b.
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
			a.done = a.whole && a.p.wire.last(b)
		}
		if a.done && err != nil {
			err = io.EOF // the client has the complete answer: a later error is irrelevant
		}
	}
	if err != nil {
		a.end(err)
	}
	switch {
	case err == io.EOF || a.left == 0 || a.done:
		a.finish(a.p.g.dispatch.Release)
	case err != nil:
		a.finish(a.p.g.dispatch.Abandon)
	}
	return b
}

// maxEvent is the number of bytes of an incomplete event above which they are forwarded.
const maxEvent = 256 << 10

// hold returns the bytes to forward of b and of the bytes held back before: those up to the end
// of the last complete event. It holds back the beginning of the next event. Otherwise, if the
// worker broke off there, the client would fail to parse half an event instead of reading why
// the stream ends. If last is true, b ends the body, and everything is forwarded.
func (a *answer) hold(b []byte, last bool) []byte {
	held := len(a.open) > 0
	if held {
		a.open = append(a.open, b...)
		b = a.open
	}
	end := a.p.wire.eventsEnd(b)
	if end > 0 {
		a.whole = true
	}
	if end < len(b) && (last || len(b)-end > maxEvent) {
		a.whole, end = false, len(b)
	}
	if held {
		a.open = slices.Clone(b[end:]) // the old array is still being forwarded
	} else {
		a.open = append(a.open[:0], b[end:]...)
	}
	return b[:end]
}

// The router is told of progress after reportTokens tokens or reportEvery, whichever comes first.
const (
	reportTokens = 8
	reportEvery  = time.Second
)

// count counts the events in b, which arrived at now, and reports progress to the router if that
// is due.
func (a *answer) count(b []byte, now time.Time) {
	n := bytes.Count(b, a.p.wire.mark)
	a.events += n
	if a.firstAt.IsZero() && a.p.wire.idles(b, n) {
		return // the worker still computes the prompt
	}
	a.tokens += n
	if a.reportedAt.IsZero() {
		a.firstAt = now
		a.p.g.metrics.FirstToken.Observe(now.Sub(a.p.start).Seconds())
	} else if a.tokens-a.reported < reportTokens && now.Sub(a.reportedAt) < reportEvery {
		return
	}
	a.reported, a.reportedAt = a.tokens, now
	a.p.g.dispatch.Progress(a.p.decision.Reservation, a.p.promptTokens, a.tokens)
}

// end sets how the answer ends for the client after a read has failed with err, which may be
// io.EOF. A stream that breaks off ends with an error event. Any other answer ends with err.
func (a *answer) end(err error) {
	a.ended = err
	if err == io.EOF {
		return
	}
	drained := context.Cause(a.p.g.open.Over())
	if drained == nil {
		a.broken(err)
	}
	if !a.stream {
		return
	}
	e := broken(a.p.member.Name())
	errors.As(drained, &e)
	if !a.whole {
		a.last = append(a.last, a.p.wire.ends[0]...) // close an event that was too long to be held back
	}
	a.ended, a.last = io.EOF, a.p.wire.event(a.last, e, a.events)
}

// broken records that the worker broke off its answer with err, unless the client left first.
func (a *answer) broken(err error) {
	if a.ctx.Err() != nil && !errors.Is(context.Cause(a.ctx), errSilent) {
		return
	}
	a.p.fault, a.p.status = err, http.StatusBadGateway
	a.p.g.metrics.Broken.Inc()
	a.p.member.Nudge()
}

// finish ends the reservation by calling how. Later calls do nothing.
func (a *answer) finish(how func(router.Reservation)) {
	if !a.released {
		a.released = true
		how(a.p.decision.Reservation)
	}
}

// Close closes the worker's body, ends the attempt and its reservation, and gives back the
// buffer. It may be called again.
func (a *answer) Close() error {
	if a.from == nil {
		return nil
	}
	err := a.from.Close()
	a.from = nil
	if a.p.wire.earlyCached && a.stream && !a.done {
		a.usage.reported = false // the first event has a count too, before what is cached is known
	}
	a.finish(a.p.g.dispatch.Abandon)
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

// pool gives the reverse proxy its copy buffers.
type pool Gateway

// Get returns a buffer of 32 KiB.
func (p *pool) Get() []byte { return *p.buffers.Get().(*[]byte) }

// Put returns a buffer to the pool.
func (p *pool) Put(b []byte) { p.buffers.Put(&b) }

// usage finds the number of cached prompt tokens in the bytes of an answer that pass by, without
// parsing JSON. It searches for the name of the field with its quotes. Inside a JSON string these
// quotes would be escaped, so what it finds is always the field, even if it is split between two
// events' bytes or two reads.
type usage struct {
	field    []byte           // stands before the number
	carry    [usageCarry]byte // the last bytes that passed
	n        int              // length of carry
	cached   int              // the value found last
	reported bool             // a value was found
}

// A number of more than usageDigits digits is ignored. usageCarry is more than the length of the field and the number together.
const usageDigits, usageCarry = 10, 40

// pass scans the next bytes b of the answer, together with the last bytes before them.
func (u *usage) pass(b []byte) {
	if u.n > 0 { // a field across the boundary
		var both [2 * usageCarry]byte
		n := copy(both[:], u.carry[:u.n])
		n += copy(both[n:], b[:min(len(b), usageCarry)])
		u.scan(both[:n])
	}
	u.scan(b)
	if len(b) >= usageCarry {
		u.n = copy(u.carry[:], b[len(b)-usageCarry:])
		return
	}
	keep := min(u.n, usageCarry-len(b))
	copy(u.carry[:], u.carry[u.n-keep:u.n])
	u.n = keep + copy(u.carry[keep:], b)
}

// scan finds the last field in b and stores its number. A number that reaches the end of b is
// ignored, because it may continue; pass scans it again with the next bytes. No answer ends in a
// number, because it is an object.
func (u *usage) scan(b []byte) {
	at := bytes.LastIndex(b, u.field)
	if at < 0 {
		return
	}
	b = b[at+len(u.field):]
	value, digits := 0, 0
	for _, c := range b {
		switch {
		case c == ' ' && digits == 0:
			continue
		case c >= '0' && c <= '9':
			if digits == usageDigits {
				return // too long for a number of tokens
			}
			value = 10*value + int(c-'0')
			digits++
			continue
		}
		if digits > 0 {
			u.cached, u.reported = value, true
		}
		return
	}
}
