package openai

import (
	"time"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/bail"
	"github.com/coppice-llm/coppice/internal/jsonbody"
)

// maxSession bounds the name of a session, in bytes.
const maxSession = 256

// SessionHint is a request to /v1/cache/release, /v1/cache/park or /v1/cache/expect: news of a session.
type SessionHint struct {
	Model     string
	Session   string
	CacheSalt string        // that of the session's requests
	Duration  time.Duration // expect: until its next turn
}

// DecodeRelease decodes the body of a request to /v1/cache/release or /v1/cache/park. The error is an *conversation.Error.
func DecodeRelease(body []byte) (*SessionHint, error) {
	return decodeHint(body, func(*decoder, *SessionHint) (string, func(value)) { return "", nil })
}

// DecodeExpect decodes the body of a request to /v1/cache/expect. The error is an *conversation.Error.
func DecodeExpect(body []byte) (*SessionHint, error) {
	h, err := decodeHint(body, func(d *decoder, h *SessionHint) (string, func(value)) {
		return "seconds", func(v value) { h.Duration = d.seconds(v) }
	})
	if err == nil && h.Duration == 0 {
		return nil, conversation.Invalid("seconds", "missing_required_parameter", "seconds is missing")
	}
	return h, err
}

// decodeHint decodes a hint, with a further field that more names and reads; none if the name is empty.
func decodeHint(body []byte, more func(*decoder, *SessionHint) (name string, read func(value))) (_ *SessionHint, err error) {
	defer conversation.OfFault(&err)
	defer bail.Recover(&err)
	v, h, d := jsonbody.Parse(body), &SessionHint{}, newDecoder(RefuseUnknown)
	fields := map[string]func(value){
		"model":      func(v value) { h.Model = d.Text(v) },
		"session":    func(v value) { h.Session = d.sessionName(v) },
		"cache_salt": func(v value) { h.CacheSalt = d.Label(v, "") },
	}
	if name, read := more(d, h); name != "" {
		fields[name] = read
	}
	d.Fields(v, "", fields)
	if h.Session == "" {
		d.Missing(param("session"))
	}
	return h, nil
}

// sessionName reads the name of a session.
func (d *decoder) sessionName(v value) string {
	s := d.Text(v)
	if len(s) == 0 || len(s) > maxSession {
		d.Fail(v, "invalid_value", "%s has %d bytes, want 1 to %d", v, len(s), maxSession)
	}
	return s
}
