package schedtest

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// parks are the calls of Park in a world with tiers, and their ends.
type parks struct {
	rng    stream
	begun  scheduler.ParkID
	tokens map[scheduler.ParkID]int // of the open ones: the length of the prefix
}

// park parks the prompt of an earlier request, in some calls, or gives up an open park.
func (w *world) park() {
	p := &w.parking
	if w.setup.cfg.Tiers == nil || len(w.load.past) == 0 || w.lost != nil || !p.rng.one(8) {
		return
	}
	if p.rng.one(6) && p.begun > 0 {
		id := 1 + scheduler.ParkID(p.rng.IntN(int(p.begun)))
		w.parked()
		w.sched.Unpark(id)
		delete(p.tokens, id)
		return
	}
	q := pick(p.rng, w.load.past...)
	p.begun++
	prompt := append([]kv.Token(nil), q.prompt...)
	switch err := w.sched.Park(w.clock.Now(), p.begun, q.ns, prompt, 0); {
	case err == nil:
		p.tokens[p.begun] = len(prompt)
		w.note("park %d tokens", len(prompt))
	case !errors.Is(err, scheduler.ErrNoTier) && !errors.Is(err, scheduler.ErrInvalid) && !errors.Is(err, scheduler.ErrQueueFull):
		w.fail("parks", "a park of %d tokens: %v", len(prompt), err)
	}
}

// parked takes the parks that have ended. Each must have begun, end once, and claim no more than its prefix.
func (w *world) parked() {
	for _, e := range w.sched.Unparked(nil) {
		n, open := w.parking.tokens[e.ID]
		if delete(w.parking.tokens, e.ID); !open || e.Tokens > n || e.Tokens%w.info.PageTokens != 0 {
			w.fail("parks", "the end %s of a park of %d tokens; it was open: %v", fmt.Sprint(e), n, open)
		}
		w.report.Parks++
	}
}
