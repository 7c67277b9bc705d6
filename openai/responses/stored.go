package responses

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsonbody"
	"github.com/coppice-llm/coppice/internal/jsontext"
)

// Stored is the form in which a server keeps a response.
type Stored struct {
	Previous string `json:"previous,omitempty"` // id of the response that it continues
	// Session names the conversation; "": none was named.
	Session  string          `json:"session,omitempty"`
	Input    json.RawMessage `json:"input"` // an array of the request's own input items, each with an id
	Response json.RawMessage `json:"response"`
}

// NotFound returns the error for a response that is not stored, or not for this caller.
func NotFound(id string) *conversation.Error {
	return conversation.NewError(http.StatusNotFound, "response_not_found",
		"Response with id '%s' not found: it was not stored, was deleted or had to make room, or belongs to another key.", jsonbody.Clip(id))
}

// PreviousNotFound is NotFound for a response that a request continues.
func PreviousNotFound(id string) *conversation.Error {
	e := NotFound(id).At("previous_response_id")
	e.Code = "previous_response_not_found"
	return e
}

// Cancelled returns the answer to the request to cancel a stored response: only responses in the background can be cancelled.
func Cancelled(id string) *conversation.Error {
	return conversation.Invalid("", "invalid_value", "Response with id '%s' can't be cancelled: only background responses can, and there are none here. Close the connection to stop a response.", jsonbody.Clip(id))
}

// AppendDeleted writes the answer to the deletion of a response.
func AppendDeleted(dst []byte, id string) []byte {
	dst = jsontext.AppendString(append(dst, `{"id":`...), id)
	return append(dst, `,"object":"response","deleted":true}`...)
}

// Page is a request for a part of a list.
type Page struct {
	Limit     int    // 1 to 100
	After     string // the id of the item before the page; "": from the beginning
	Ascending bool
}

// ReadPage reads the query parameters limit, order and after of a request for a list. The error is a *conversation.Error.
func ReadPage(get func(name string) string) (Page, error) {
	p := Page{Limit: 20, After: get("after")}
	if s := get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > 100 {
			return p, conversation.Invalid("limit", "invalid_value", "limit is %q, want an integer from 1 to 100", jsonbody.Clip(s))
		}
		p.Limit = n
	}
	switch s := get("order"); s {
	case "", "desc":
	case "asc":
		p.Ascending = true
	default:
		return p, conversation.Invalid("order", "invalid_value", "order is %q, want asc or desc", jsonbody.Clip(s))
	}
	return p, nil
}

// AppendInputItems writes a page of the input items of a stored response. The error is a *conversation.Error.
func AppendInputItems(dst []byte, s *Stored, p Page) ([]byte, error) {
	var all [][]byte
	var ids []string
	each(s.Input, func(raw []byte, id string) bool {
		all, ids = append(all, raw), append(ids, id)
		return true
	})
	step, at, end := -1, len(all)-1, -1
	if p.Ascending {
		step, at, end = 1, 0, len(all)
	}
	if p.After != "" {
		for ; at != end && ids[at] != p.After; at += step {
		}
		if at == end {
			return dst, conversation.Invalid("after", "invalid_value", "after is %q, which is no item of this list", jsonbody.Clip(p.After))
		}
		at += step
	}
	first, last, n := "", "", 0
	dst = append(dst, `{"object":"list","data":[`...)
	for ; at != end && n < p.Limit; at, n = at+step, n+1 {
		if n > 0 {
			dst = append(dst, ',')
		} else {
			first = ids[at]
		}
		dst, last = append(dst, all[at]...), ids[at]
	}
	dst = jsontext.AppendOptional(append(dst, `],"first_id":`...), first)
	dst = jsontext.AppendOptional(append(dst, `,"last_id":`...), last)
	dst = append(dst, `,"has_more":`...)
	return append(strconv.AppendBool(dst, at != end), '}'), nil
}

// each calls f with the items of a stored list and their ids, until f returns false.
func each(list []byte, f func(raw []byte, id string) bool) {
	d := jsonbody.Decoder{Lenient: true}
	for _, e := range d.List(jsonbody.Value{Raw: bytes.TrimSpace(list), Top: list}, "") {
		id := ""
		for _, m := range d.Object(e, "") {
			if string(m.Name) == "id" {
				id = d.Text(m.Value)
			}
		}
		d.Kept = d.Kept[:0]
		if !f(e.Raw, id) {
			return
		}
	}
}

// output returns the JSON array of the output items of a stored response.
func (s *Stored) output() []byte {
	d := jsonbody.Decoder{Lenient: true}
	for _, m := range d.Object(jsonbody.Value{Raw: s.Response, Top: s.Response}, "") {
		if string(m.Name) == "output" {
			return m.Raw
		}
	}
	return []byte("[]")
}

// item returns the stored item with this id, nil if there is none.
func (s *Stored) item(id string) (found []byte) {
	for _, list := range [][]byte{s.output(), s.Input} {
		each(list, func(raw []byte, is string) bool {
			if is == id {
				found = raw
			}
			return found == nil
		})
		if found != nil {
			break
		}
	}
	return found
}
