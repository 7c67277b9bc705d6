package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"

	"github.com/coppice-llm/coppice/router"
)

// A request may move to another worker as long as the one that has it has not begun to
// compute it: a request that ended one worker must not end the next one. Workers of Coppice
// report that with an interim response, which they are asked for by a header; of others
// only an answer that declines the request is believed.

// headerProgress asks for an interim response 103 when the request first enters a plan. Its
// header headerPhase is "running".
const (
	headerProgress  = "X-Coppice-Progress"
	headerPhase     = "X-Coppice-Phase"
	progressInterim = "103"
	phaseRunning    = "running"
)

// trace notes how far an attempt has come. The transport calls it from goroutines of its own.
func (j *journey) trace(try *attempt) *httptrace.ClientTrace {
	reservation := j.decision.Reservation
	return &httptrace.ClientTrace{
		WroteHeaders: func() { try.sent.Store(true) },
		Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			if code == http.StatusEarlyHints && header.Get(headerPhase) == phaseRunning && try.begin() {
				j.g.chooser.started(reservation)
			}
			return nil
		},
	}
}

// movable reports whether another worker may be asked after err.
func (a *attempt) movable(err error) bool {
	switch _, declined := err.(*busyError); {
	case a.own:
		return a.phase.Load() != begun
	case declined:
		return true
	}
	return !a.sent.Load()
}

// relieve takes from a worker that is late what it has not begun with, for others to do.
func (m *member) relieve() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for a := range m.tries {
		if a.own && a.spare && a.phase.CompareAndSwap(waits, moved) {
			a.cancel(errStalled)
		}
	}
}

// relieve takes requests from the workers that are late, if there are others.
func (r *roll) relieve(loads []router.Load) {
	prompt := false
	for _, l := range loads {
		prompt = prompt || l.Health == router.Healthy && !l.Stalled
	}
	if !prompt {
		return
	}
	for _, l := range loads {
		if m := r.byID[l.Worker.Worker]; l.Stalled && m != nil {
			m.relieve()
		}
	}
}

// declined reports whether an answer says that the worker has not begun. The body is as it
// was after that. A worker whose device failed may have failed by this request.
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

// mostError bounds what is read of an answer to find its error code.
const mostError = 64 << 10

// errorCode reads the code of an error's body, "" if there is none, and leaves the body to
// be read again.
func errorCode(res *http.Response) string {
	text, err := io.ReadAll(io.LimitReader(res.Body, mostError))
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
