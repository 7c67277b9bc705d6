package gateway

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/coppice-llm/coppice/internal/router/global"
	"github.com/coppice-llm/coppice/openai"
)

// The headers of pools.
const (
	headerPool = "X-Coppice-Pool"    // of an answer: the pool of its worker
	headerTTFT = "X-Coppice-TTFT-Ms" // of a request: its targets, which count more than those of the body
	headerITL  = "X-Coppice-ITL-Ms"
)

// readTargets reads what a request wants where a grid chooses its pool: from its headers, or else
// from its body, where Dynamo's clients say it. A target that makes no sense is an error.
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
				return badHeader(name, errors.New("it is given more than once, want one number of milliseconds"))
			}
		} else if text == "" {
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v >= 0) || math.IsInf(v, 0) {
			return badHeader(name, fmt.Errorf("it is %.40q, want a number of milliseconds, 0 or more, as 250; leave it out to have none", text))
		}
		*t.to = global.Target(v)
	}
	if hints.Priority != "" {
		v, err := strconv.ParseInt(hints.Priority, 10, 32)
		if err != nil {
			return badHeader("priority", fmt.Errorf("it is %.40q, want an integer of 32 bits, as 5", hints.Priority))
		}
		q.Priority = new(int(v))
	}
	p.buffer.ask.Query = q
	return nil
}

// stage chooses the pool of the request.
func (p *proxiedRequest) stage(explains bool) error {
	ask := &p.buffer.ask
	if err := p.g.dispatch.Stage(ask, p.pools, explains); err != nil {
		return badHeader(headerTTFT+", "+headerITL, err)
	}
	p.pool = ask.Request.Pool
	return nil
}
