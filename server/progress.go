package server

import (
	"net/http"
)

// A router that repeats a request whose worker is gone has to know whether that worker may
// have ended because of it. So it asks with
//
//	X-Coppice-Progress: 103
//
// and gets an interim response, 103 with X-Coppice-Phase: running, before the first step in
// which the request is. Nobody else is sent one: clients as Python's http.client take it for
// the answer.
const (
	progressHeader, progressInterim = "X-Coppice-Progress", "103"
	phaseHeader, phaseRunning       = "X-Coppice-Phase", "running"
)

// wantsProgress reports whether the caller asks for the interim response, and can have it.
func (c *call) wantsProgress() bool {
	return c.r.Header.Get(progressHeader) == progressInterim && c.r.ProtoAtLeast(1, 1)
}

// begun tells the caller that the request is in a step, once, however many prompts it has.
func (c *call) begun() {
	if c.interim || c.status != 0 || c.gone != nil {
		return
	}
	c.interim = true
	c.client.Extend()
	h := c.w.Header()
	h.Set(phaseHeader, phaseRunning)
	c.w.WriteHeader(http.StatusEarlyHints)
	h.Del(phaseHeader) // the answer's header is another one
	c.client.Rest()
}
