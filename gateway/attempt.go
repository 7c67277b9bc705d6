package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coppice-llm/coppice/gateway/internal/members"
)

// attempt is a request sent to one worker. It is cancelled if the worker is lost and has sent
// nothing of the answer for a while.
type attempt struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	heard  atomic.Int64 // Unix nanoseconds of the last byte of the answer, or of the attempt's start

	own   bool        // the worker is a Coppice worker, which reports when the request first enters a plan
	spare bool        // another attempt may follow if this one fails
	sent  atomic.Bool // the request's header has been written to a connection
	phase atomic.Uint32
}

// Phases of an attempt. An attempt starts as waits, and becomes begun or moved, once.
const (
	waits uint32 = iota // as far as is known, the worker has not begun
	begun               // the worker has begun to compute or to answer the request
	moved               // the request was taken back before the worker had begun
)

// begin records that the worker has begun to compute or to answer the request. It returns false
// if the request was taken back before.
func (a *attempt) begin() bool {
	return a.phase.CompareAndSwap(waits, begun) || a.phase.Load() == begun
}

// errSilent ends an attempt whose worker is lost.
var errSilent = errors.New("gateway: the worker is lost and its answer silent")

// errStalled ends an attempt whose worker is late, so that another worker is asked.
var errStalled = errors.New("gateway: the worker is late and has not begun the request")

// lostPatience is how long a worker must be lost, and its answer silent, before the attempt
// ends. A worker that is only too busy for probes keeps its requests, and new ones wait for it if no other can take them.
const lostPatience = 5 * time.Second

// attempts holds the attempts that have not ended, by worker.
type attempts struct {
	mu       sync.Mutex
	at       map[*members.Member]map[*attempt]struct{}
	patience time.Duration // lostPatience except in tests
}

// start begins an attempt at worker m. Its context is a child of ctx. spare says that another
// attempt may follow. It returns nil if the worker has left.
func (s *attempts) start(ctx context.Context, m *members.Member, spare bool) *attempt {
	if !m.Use() {
		return nil
	}
	a := &attempt{own: !m.Status().Foreign, spare: spare}
	a.heard.Store(time.Now().UnixNano())
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at[m] == nil {
		s.at[m] = map[*attempt]struct{}{}
	}
	s.at[m][a] = struct{}{}
	return a
}

// end ends attempt a at worker m, and cancels its context. Later calls do nothing.
func (s *attempts) end(m *members.Member, a *attempt) {
	s.mu.Lock()
	_, open := s.at[m][a]
	if delete(s.at[m], a); len(s.at[m]) == 0 {
		delete(s.at, m)
	}
	s.mu.Unlock()
	if open {
		m.Done()
		a.cancel(nil)
	}
}

// lostPatience returns the patience.
func (s *attempts) lostPatience() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.patience
}

// cancelSilent cancels attempts at worker m, which has been lost since the time lost. It does
// nothing if lost is less than the patience before now. Otherwise it cancels the attempts of
// which nothing has arrived for the patience. An answer that is not a stream is silent until it
// is complete.
func (s *attempts) cancelSilent(m *members.Member, lost, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := now.Add(-s.patience)
	if lost.After(before) {
		return
	}
	for a := range s.at[m] {
		if a.heard.Load() < before.UnixNano() {
			a.cancel(errSilent)
		}
	}
}

// cancelUnbegun cancels the attempts at m, a late worker, that m has not begun, so that other workers
// are asked. It takes back only requests that may be sent again, and only from Coppice workers,
// which report the beginning.
func (s *attempts) cancelUnbegun(m *members.Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.at[m] {
		if a.own && a.spare && a.phase.CompareAndSwap(waits, moved) {
			a.cancel(errStalled)
		}
	}
}

// busyError says that the worker declined the request with this status.
type busyError struct{ status int }

func (e *busyError) Error() string { return "it answers with status " + strconv.Itoa(e.status) }

// outcome returns the name of what became of the attempt, which failed with err. gone says that the client has left, or that the
// gateway shuts down.
func (a *attempt) outcome(err error, gone bool) string {
	switch {
	case gone:
		return outcomeGone
	case errors.As(err, new(*busyError)):
		return outcomeDeclined
	case a.phase.Load() == moved:
		return outcomeTaken
	case !a.movable(err):
		return outcomeBegun
	case !a.sent.Load() && unconnected(err):
		return outcomeUnreached
	}
	return outcomeUnbegun
}

// movable reports whether the worker had certainly not begun the request when the attempt failed with err, so that the request
// is not the reason of the failure. Coppice workers report that they have begun a request. Other workers have certainly not begun
// it if they declined it, or if it was never sent.
func (a *attempt) movable(err error) bool {
	switch _, declined := err.(*busyError); {
	case a.own:
		return a.phase.Load() != begun
	case declined:
		return true
	}
	return !a.sent.Load()
}

// declined reports whether the answer res shows that the worker has not begun the request. The
// body of res can still be read in full afterwards. An answer that the worker's device failed
// does not count as declined, because the request may have caused the failure.
func (a *attempt) declined(res *http.Response) bool {
	switch res.StatusCode {
	case http.StatusTooManyRequests:
		return a.phase.Load() != begun
	case http.StatusServiceUnavailable:
		return a.phase.Load() != begun && errorCode(res) != codeDeviceFailed
	case http.StatusBadGateway, http.StatusGatewayTimeout: // from a proxy in front of the worker
		return a.own && a.phase.Load() != begun
	}
	return false
}

const codeDeviceFailed = "device_failed"

// maxError bounds the bytes read to find an answer's error code.
const maxError = 64 << 10

// errorCode returns the error code in the body of res, "" if there is none. The body can still
// be read from its start afterwards.
func errorCode(res *http.Response) string {
	in := bufio.NewReaderSize(res.Body, maxError)
	text, _ := in.Peek(maxError) // a later read returns the same error
	res.Body = struct {
		io.Reader
		io.Closer
	}{in, res.Body}
	var body struct {
		Error struct {
			Code any `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(text, &body) != nil {
		return ""
	}
	code, _ := body.Error.Code.(string)
	return code
}

// unconnected reports whether err means that no connection to the worker was made.
func unconnected(err error) bool {
	dialled := (*net.OpError)(nil)
	return errors.As(err, &dialled) && dialled.Op == "dial" || errors.Is(err, syscall.ECONNREFUSED)
}
