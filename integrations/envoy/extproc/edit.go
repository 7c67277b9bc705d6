package extproc

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// member is a member of a JSON object with its new value, which is JSON.
type member struct {
	name  string
	value []byte
}

// edit returns the change of a body that sets the model, unless it is "", and the priority if writes says so; nil if there is nothing to
// change.
func edit(model string, priority int, writes bool) func([]byte) ([]byte, error) {
	var members []member
	if model != "" {
		members = append(members, member{"model", quoted(model)})
	}
	if writes {
		members = append(members, member{"priority", strconv.AppendInt(nil, int64(priority), 10)})
	}
	if members == nil {
		return nil
	}
	return func(body []byte) ([]byte, error) { return setMembers(body, members), nil }
}

// quoted returns text as a JSON string. Bytes that are no UTF-8 are replaced.
func quoted(text string) []byte {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string can always be encoded
	}
	return b
}

// setMembers returns body, a JSON object, with these members set. A body that is no JSON object stays as it is: the gateway
// refuses it.
func setMembers(body []byte, members []member) []byte {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return body
	}
	inside := int(d.InputOffset())
	var rest []byte // the body after inside, with the members that it has
	at, had, empty := inside, make([]bool, len(members)), true
	for d.More() {
		empty = false
		name, err := d.Token()
		if err != nil {
			return body
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return body
		}
		for i, m := range members {
			if name == m.name { // also where it stands twice
				end := int(d.InputOffset())
				rest = append(append(rest, body[at:end-len(value)]...), m.value...)
				at, had[i] = end, true
			}
		}
	}
	if t, err := d.Token(); err != nil || t != json.Delim('}') {
		return body
	}
	out := append(make([]byte, 0, len(body)+256), body[:inside]...)
	for i, m := range members {
		if had[i] {
			continue
		}
		out = append(append(append(strconv.AppendQuote(out, m.name), ':'), m.value...), ',')
		if empty && i == len(members)-1 {
			out = out[:len(out)-1]
		}
	}
	return append(append(out, rest...), body[at:]...)
}
