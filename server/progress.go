package server

import (
	"net/http"
)

// A router that retries a request whose worker has died must know whether the request may have
// killed the worker. So it asks with
//
//	X-Coppice-Progress: 103
//
// and gets an interim response, 103 with X-Coppice-Phase: running, before the first step that
// computes the request. Without that header none is sent: some clients, such as Python's
// http.client, take an interim response for the answer.
const (
	progressHeader, progressInterim = "X-Coppice-Progress", "103"
	phaseHeader, phaseRunning       = "X-Coppice-Phase", "running"
)

// wantsProgress reports whether the caller asked for the interim response and its HTTP version
// allows one.
func (c *call) wantsProgress() bool {
	return c.r.Header.Get(progressHeader) == progressInterim && c.r.ProtoAtLeast(1, 1)
}

// begun sends the interim response, once per HTTP request, however many prompts it has.
func (c *call) begun() {
	if c.interim || c.status != 0 || c.gone != nil {
		return
	}
	c.interim = true
	c.client.Extend()
	h := c.w.Header()
	h.Set(phaseHeader, phaseRunning)
	c.w.WriteHeader(http.StatusEarlyHints)
	h.Del(phaseHeader) // the final header must not have it
	c.client.Rest()
}
