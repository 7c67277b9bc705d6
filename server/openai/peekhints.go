package openai

// Hints are what a request says to who chooses among pools of workers, where NVIDIA
// Dynamo's requests have it, as JSON values that nobody has judged; "" if not given.
type Hints struct {
	TTFT, ITL string // nvext.router.ttft_target and itl_target: milliseconds
	// Priority is nvext.agent_hints.priority, or else priority, at the top or in "coppice".
	Priority string
}

// hints reads them. Where they are not given it costs nothing.
func (p *Peeked) hints() {
	own, other := &p.given[fieldCoppice], &p.given[fieldNvext]
	if raw := p.given[fieldPriority].raw; raw != nil {
		p.Hints.Priority = string(raw)
	} else if own.is('{') {
		inside(own.raw, func(name string, raw []byte) {
			if name == "priority" {
				p.Hints.Priority = string(raw)
			}
		})
	}
	if !other.is('{') {
		return
	}
	inside(other.raw, func(group string, raw []byte) {
		if raw[0] != '{' {
			return
		}
		inside(raw, func(name string, raw []byte) {
			switch group + "." + name {
			case "router.ttft_target":
				p.Hints.TTFT = string(raw)
			case "router.itl_target":
				p.Hints.ITL = string(raw)
			case "agent_hints.priority":
				p.Hints.Priority = string(raw)
			}
		})
	})
}

// inside calls f for each member of an object, but for those that are null.
func inside(object []byte, f func(name string, raw []byte)) {
	s := scanner{b: object, at: 1}
	for i := 0; ; i++ {
		name, ok := s.member(i)
		if !ok {
			return
		}
		called := string(name)
		if raw, _ := s.skip(); len(raw) > 0 && raw[0] != 'n' {
			f(called, raw)
		}
	}
}
