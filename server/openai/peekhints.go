package openai

import "slices"

// Hints are what a request says to who chooses among pools of workers, where NVIDIA
// Dynamo's requests have it, as JSON values that nobody has judged; "" if not given.
type Hints struct {
	TTFT, ITL string // nvext.router.ttft_target and itl_target: milliseconds
	// Priority is nvext.agent_hints.priority, or else priority, at the top or in "coppice".
	Priority string
}

// mostHint is the longest value that is kept whole: no number is longer.
const mostHint = 64

// hint keeps a value. What is cut is no number any more.
func hint(to *string, raw []byte) {
	if *to = string(raw[:min(len(raw), mostHint)]); len(raw) > mostHint {
		*to += "..."
	}
}

// hints reads them. Where they are not given it costs nothing.
func (p *Peeked) hints() {
	h := &p.Hints
	if raw := p.given[fieldPriority].raw; raw != nil {
		hint(&h.Priority, raw)
	} else {
		inside(p.given[fieldCoppice].raw, func(i int, raw []byte) { hint(&h.Priority, raw) }, "priority")
	}
	inside(p.given[fieldNvext].raw, func(group int, raw []byte) {
		if group == 0 {
			inside(raw, func(i int, raw []byte) { hint([]*string{&h.TTFT, &h.ITL}[i], raw) }, "ttft_target", "itl_target")
		} else {
			inside(raw, func(i int, raw []byte) { hint(&h.Priority, raw) }, "priority")
		}
	}, "router", "agent_hints")
}

// inside calls f for each member of an object that has one of the names, by its index, but
// for those that are null. What is no object has none.
func inside(object []byte, f func(i int, raw []byte), names ...string) {
	if len(object) == 0 || object[0] != '{' {
		return
	}
	s := scanner{b: object, at: 1}
	for i := 0; ; i++ {
		name, ok := s.member(i)
		if !ok {
			return
		}
		at := slices.IndexFunc(names, func(n string) bool { return n == string(name) })
		if raw, _ := s.skip(); at >= 0 && len(raw) > 0 && raw[0] != 'n' {
			f(at, raw)
		}
	}
}
