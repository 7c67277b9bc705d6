package gateway

import (
	"bytes"
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

	"github.com/coppice-llm/coppice/internal/gateway/members"
)

// attempt is a request at one worker. It is cancelled when the worker is lost and nothing was
// heard of the answer for a while.
type attempt struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	heard  atomic.Int64 // Unix nanoseconds: when anything came, or the attempt began

	own   bool        // the worker is Coppice's own: it reports when the request enters a plan
	spare bool        // another attempt may follow
	sent  atomic.Bool // the request's header has been written to a connection
	phase atomic.Uint32
}

// The phases of an attempt. The first ends in one of the others, once.
const (
	waits uint32 = iota // as far as is known
	begun               // the worker has begun to compute the request, or to answer it
	moved               // the request was taken from a worker that had not begun
)

// begin notes that the worker has begun; false: the request was taken from it before.
func (a *attempt) begin() bool {
	return a.phase.CompareAndSwap(waits, begun) || a.phase.Load() == begun
}

// errSilent ends an attempt at a worker that is lost.
var errSilent = errors.New("gateway: the worker is lost, and nothing comes from it")

// errStalled ends an attempt at a worker that is late, so that another one is asked.
var errStalled = errors.New("gateway: the worker is late, and has not begun with the request")

// lostPatience is how long a worker may be lost and its answers silent: one that is merely too
// busy for probes goes on.
const lostPatience = 5 * time.Second

// attempts are those under way, by worker.
type attempts struct {
	mu       sync.Mutex
	at       map[*members.Member]map[*attempt]struct{}
	patience time.Duration // lostPatience, but in tests
}

// start begins an attempt, which ends with ctx; nil: the worker has left. spare: another attempt
// may follow.
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

// end ends an attempt.
func (s *attempts) end(m *members.Member, a *attempt) {
	s.mu.Lock()
	if delete(s.at[m], a); len(s.at[m]) == 0 {
		delete(s.at, m)
	}
	s.mu.Unlock()
	m.Done()
	a.cancel(nil)
}

// cut cancels the attempts of which nothing was heard for too long, once the worker is lost for
// as long: an answer that is no stream is silent until it is whole.
func (s *attempts) cut(m *members.Member, lost, now time.Time) {
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

// relieve takes from a worker that is late what it has not begun with, for others to do.
func (s *attempts) relieve(m *members.Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.at[m] {
		if a.own && a.spare && a.phase.CompareAndSwap(waits, moved) {
			a.cancel(errStalled)
		}
	}
}

// busyError is an answer that says that the worker has not begun.
type busyError struct{ status int }

func (e *busyError) Error() string { return "it answers with status " + strconv.Itoa(e.status) }

// movable reports whether another worker may be asked after err: a request that ended one
// worker must not end the next one. Workers of Coppice report that they have begun; of others
// only an answer that declines the request is believed.
func (a *attempt) movable(err error) bool {
	switch _, declined := err.(*busyError); {
	case a.own:
		return a.phase.Load() != begun
	case declined:
		return true
	}
	return !a.sent.Load()
}

// declined reports whether an answer says that the worker has not begun. The body is as it was
// after that. A worker whose device failed may have failed by this request.
func (a *attempt) declined(res *http.Response) bool {
	switch res.StatusCode {
	case http.StatusTooManyRequests:
		return a.phase.Load() != begun
	case http.StatusServiceUnavailable:
		return a.phase.Load() != begun && errorCode(res) != codeDeviceFailed
	case http.StatusBadGateway, http.StatusGatewayTimeout: // of a proxy in front of the worker
		return a.own && a.phase.Load() != begun
	}
	return false
}

const codeDeviceFailed = "device_failed"

// maxError bounds what is read of an answer to find its error code.
const maxError = 64 << 10

// errorCode reads the code of an error's body, "" if there is none, and leaves the body to be
// read again.
func errorCode(res *http.Response) string {
	text, err := io.ReadAll(io.LimitReader(res.Body, maxError))
	rest := io.Reader(res.Body)
	if err != nil {
		rest = failing{err}
	}
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), rest), res.Body}
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

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// unconnected reports whether no connection came about.
func unconnected(err error) bool {
	dialled := (*net.OpError)(nil)
	return errors.As(err, &dialled) && dialled.Op == "dial" || errors.Is(err, syscall.ECONNREFUSED)
}
