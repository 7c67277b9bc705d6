package actors

import "github.com/coppice-llm/coppice/scheduler"

// delivererActor turns tokens into text and appends it to the callers' streams, one message per
// step. A slow caller delays no other: its pieces merge in its stream, whose size MaxTokens
// bounds.
type delivererActor struct{}

func (a *delivererActor) receive(self *process, message any) {
	switch m := message.(type) {
	case *deliver:
		for i := range m.items {
			a.deliver(&m.items[i])
		}
	case *shutdown:
		self.quit()
	default:
		unknown(m)
	}
}

func (a *delivererActor) deliver(d *delivery) {
	if d.out.Sampled {
		d.stream.push(&d.out)
	}
	if d.out.Ending.Reason != scheduler.NotEnded {
		d.stream.finish(&d.out)
	}
}
