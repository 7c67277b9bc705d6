package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/coppice-llm/coppice"
)

// keptPins bounds what callers keep in the cache by cache_control: all of them together half of the tokens that may be pinned, so
// that the pins of administrators have room, and each tenant a quarter.
type keptPins struct {
	most int // tokens that may be pinned; 0: nothing is kept

	mu  sync.Mutex
	all []keptPin // by the time of the last turn, the oldest first
}

// keptPin is a conversation that is pinned.
type keptPin struct {
	session coppice.SessionRef
	tokens  int
	until   time.Time
}

// maxKept bounds the conversations that are kept at a time.
const maxKept = 1024

// admit makes room for a conversation and counts its tokens. It returns the conversations that must be unpinned, which are
// older ones of the same tenant or the conversation itself, and whether it may be pinned.
func (k *keptPins) admit(now time.Time, c keptPin) (dropped []coppice.SessionRef, ok bool) {
	k.all = slices.DeleteFunc(k.all, func(o keptPin) bool { return !now.Before(o.until) || o.session == c.session })
	own, others, mine := 0, 0, 0
	for _, o := range k.all {
		if o.session.Tenant == c.session.Tenant {
			own += o.tokens
			mine++
		} else {
			others += o.tokens
		}
	}
	if c.tokens > k.most/4 || others+c.tokens > k.most/2 || len(k.all)-mine == maxKept { // other tenants have the rest
		return []coppice.SessionRef{c.session}, false
	}
	full := func() bool {
		return own+c.tokens > k.most/4 || own+others+c.tokens > k.most/2 || len(k.all) == maxKept
	}
	for i := 0; full(); {
		o := k.all[i]
		if o.session.Tenant != c.session.Tenant {
			i++
			continue
		}
		own -= o.tokens
		dropped = append(dropped, o.session)
		k.all = slices.Delete(k.all, i, i+1)
	}
	k.all = append(k.all, c)
	return dropped, true
}

// keepWait is how long an answer waits, once it is sent, for its conversation to be pinned.
const keepWait = 5 * time.Second

// pin pins what the turn that c has just answered has left, for d. It is a hint: where there is no room for the pin, the conversation stays in the
// cache as others do.
func (k *keptPins) pin(c *call, session coppice.SessionRef, d time.Duration) {
	if k.most == 0 || c.fault != nil || !c.flush() { // the client has its answer
		return
	}
	ctx, cancel := c.s.open.Bound(c.r.Context())
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, keepWait)
	defer cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	dropped, ok := k.admit(now, keptPin{session, c.bill.promptTokens + c.bill.outputTokens, now.Add(d)})
	for _, old := range dropped {
		_ = c.s.cfg.Node.UnpinSession(ctx, old) // it may be forgotten already
	}
	if !ok {
		return
	}
	if _, err := c.s.cfg.Node.PinSession(ctx, session, d); err != nil {
		k.all = k.all[:len(k.all)-1]
	}
}
