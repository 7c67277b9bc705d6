package gateway

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/coppice-llm/coppice/gateway/internal/global"
	"github.com/coppice-llm/coppice/openai"
)

// Headers about pools.
const (
	headerPool = "X-Coppice-Pool"    // in an answer: the pool of its worker
	headerTTFT = "X-Coppice-TTFT-Ms" // in a request: its target, which overrides the body's
	headerITL  = "X-Coppice-ITL-Ms"
)

// readTargets reads the latency targets of a request (TTFT, time between tokens) from its headers,
// else from the body's nvext fields, as Dynamo's clients send them. It reads them only if a pools
// file is in use, whose grid maps prompt length and target to a pool. An invalid target is an error.
func (p *proxiedRequest) readTargets(r *http.Request, hints *openai.Hints) error {
	if !p.pools.Grid() {
		return nil
	}
	q := global.Query{Tokens: p.promptTokens}
	for _, t := range []struct {
		to                  **float64
		header, field, text string
	}{
		{&q.TTFT, headerTTFT, "nvext.router.ttft_target", hints.TTFT},
		{&q.ITL, headerITL, "nvext.router.itl_target", hints.ITL},
	} {
		name, text := t.field, t.text
		if given := r.Header.Values(t.header); len(given) > 0 {
			if name, text = t.header, strings.TrimSpace(given[0]); len(given) > 1 {
				return badHeader(name, errors.New("it is given twice, want one number of milliseconds"))
			}
		} else if text == "" {
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v >= 0) || math.IsInf(v, 0) {
			return badHeader(name, fmt.Errorf("it is %.40q, want a number of milliseconds, 0 or more, such as 250; leave it out for no target", text))
		}
		*t.to = new(v)
	}
	if hints.Priority != "" {
		v, err := strconv.ParseInt(hints.Priority, 10, 32)
		if err != nil {
			return badHeader("priority", fmt.Errorf("it is %.40q, want an integer of 32 bits, such as 5", hints.Priority))
		}
		q.Priority = new(int(v))
	}
	p.buffer.ask.Query = q
	return nil
}

// stage chooses the pool of the request, if there are pools. With explains, as for Explain, the
// reason is recorded too and the turn of the buckets does not advance. The error is for the
// client.
func (p *proxiedRequest) stage(explains bool) error {
	ask := &p.buffer.ask
	if err := p.g.dispatch.Stage(ask, p.pools, explains); err != nil {
		return badHeader(headerTTFT+", "+headerITL, err)
	}
	p.pool = ask.Request.Pool
	return nil
}
