package jsonbody

import (
	"fmt"
	"strings"
)

// Fault describes what is wrong with a body.
type Fault struct {
	Param   string // path of the faulty member, "messages[2].content"; "" for the whole body
	Code    string // for programs: "invalid_type"
	Message string
}

func (f *Fault) Error() string { return f.Message }

func newFault(param, code, format string, args ...any) *Fault {
	return &Fault{Param: param, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Clip shortens a client's text for an error message.
func Clip(s string) string {
	const most = 64 // bytes
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…" // the cut may be inside a character
	}
	return s
}
