package gateway

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/global"
	"github.com/coppice-llm/coppice/server/openai"
)

// The headers of pools.
const (
	headerPool = "X-Coppice-Pool"    // who answered is in it
	headerTTFT = "X-Coppice-TTFT-Ms" // of a request: its targets, which count more than those of the body
	headerITL  = "X-Coppice-ITL-Ms"
)

// staged are the pools that a request may go to, the chosen one first, and which of them
// it is at. Without any it may go to all workers.
type staged struct {
	pools []router.PoolID
	at    int
	asked global.Query
	why   string // for who asks
}

func (s *staged) reset() { *s = staged{pools: s.pools[:0]} }

// targets reads what a request wants: from its headers, or else from its body, where
// Dynamo's clients say it. A target that can't be meant is an error.
func (j *journey) targets(r *http.Request, hints *openai.Hints) error {
	s := &j.load.staged
	s.reset()
	if j.pools == nil || j.pools.grid == nil {
		return nil
	}
	s.asked = global.Query{Tokens: j.promptTokens}
	for _, t := range []struct {
		to                  **float64
		header, field, text string
	}{
		{&s.asked.TTFT, headerTTFT, "nvext.router.ttft_target", hints.TTFT},
		{&s.asked.ITL, headerITL, "nvext.router.itl_target", hints.ITL},
	} {
		name, text := t.field, t.text
		if given := r.Header.Values(t.header); len(given) > 0 {
			if name, text = t.header, strings.TrimSpace(given[0]); len(given) > 1 {
				return badHeader(name, errors.New("it is given more than once, want one number of milliseconds"))
			}
		} else if text == "" {
			continue
		}
		v, err := milliseconds(text)
		if err != nil {
			return badHeader(name, err)
		}
		*t.to = global.Target(v)
	}
	if hints.Priority != "" {
		v, err := strconv.ParseInt(hints.Priority, 10, 32)
		if err != nil {
			return badHeader("priority", fmt.Errorf("it is %.40q, want an integer of 32 bits, as 5", hints.Priority))
		}
		priority := int(v)
		s.asked.Priority = &priority
	}
	return nil
}

// milliseconds reads a target.
func milliseconds(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("it is %.40q, want a number of milliseconds, 0 or more, as 250; leave it out to have none", text)
	}
	return v, nil
}

// stage chooses the pool, and those to go on to. What explains it moves no turn on.
func (j *journey) stage(explains bool) error {
	p, s, req := j.pools, &j.load.staged, &j.load.ask.req
	switch {
	case p == nil:
		return nil
	case req.Pinned != nil:
		s.why = "the worker is pinned"
		return nil
	case p.grid != nil:
		pool, err := p.grid.AggregatedPool(s.asked)
		if err != nil {
			return badHeader(headerTTFT+", "+headerITL, err)
		}
		for _, i := range p.grid.Retry(&p.grid.Aggregated, pool, nil) {
			s.pools = append(s.pools, p.ids[i])
		}
		if explains {
			s.why = describe(&s.asked)
		}
	default:
		first := j.bucket(explains)
		for i := range p.names {
			s.pools = append(s.pools, p.ids[(first+i)%len(p.ids)])
		}
	}
	req.Pool = s.pools[0]
	j.pool = req.Pool
	return nil
}

// bucket is the first one to ask: that of the session's worker, or as the staging has it.
func (j *journey) bucket(explains bool) int {
	p, s, req := j.pools, &j.load.staged, &j.load.ask.req
	if j.g.cfg.Router.SessionTTL > 0 && req.Session != 0 {
		if pool := j.g.chooser.sessionPool(req); pool != 0 {
			s.why = "the session's worker is there"
			return int(pool) - 1
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !explains {
		return p.buckets.Pick(req.Hashes)
	}
	bucket, turn := p.buckets.Peek(req.Hashes)
	if s.why = fmt.Sprintf("by the hash of block %d of the prompt", min(len(req.Hashes), j.g.cfg.Router.PrefixBlocks)); turn {
		s.why = "it is its turn"
	}
	return bucket
}

// describe says what a grid was asked.
func describe(q *global.Query) string {
	target := func(v *float64) string {
		if v == nil {
			return "not given"
		}
		return strconv.FormatFloat(*v, 'g', -1, 64) + " ms"
	}
	text := fmt.Sprintf("%d prompt tokens, TTFT target %s, ITL target %s", q.Tokens, target(q.TTFT), target(q.ITL))
	if q.Priority != nil {
		text += fmt.Sprintf(", priority %d", *q.Priority)
	}
	return text
}

// elsewhere turns to the next pool after one that can't take the request for this reason,
// if there is one. A bucket that is busy is waited for, as it has what the prompt needs.
func (j *journey) elsewhere(err error) bool {
	s := &j.load.staged
	if s.at+1 >= len(s.pools) {
		return false
	}
	busy := errors.Is(err, errPatience) || errors.As(err, new(*router.QueueFullError))
	if !errors.Is(err, router.ErrNoWorkers) && !(busy && j.pools.grid != nil) {
		return false
	}
	j.turn(s.at + 1)
	return true
}

// ascend turns to a faster pool that has somebody after a failed attempt, where the grid
// wants that.
func (j *journey) ascend() bool {
	s := &j.load.staged
	if j.pools == nil || j.pools.grid == nil {
		return false
	}
	roll := j.g.roll.Load()
	for at := s.at + 1; at < len(s.pools); at++ {
		if roll.pooled[inPool{s.pools[at], j.served(roll)}] > 0 {
			j.turn(at)
			return true
		}
	}
	return false
}

// turn leaves a pool for another one of those staged.
func (j *journey) turn(at int) {
	s := &j.load.staged
	j.g.metrics.poolLeft.WithLabelValues(j.pools.name(s.pools[s.at])).Inc()
	s.at, j.before = at, j.attempts
	j.load.ask.req.Pool = s.pools[at]
}

// othersStaged tells whether its pool, or one to go on to, has another worker to ask than
// those that were.
func (j *journey) othersStaged(roll *roll) bool {
	n, s := 0, &j.load.staged
	for _, pool := range s.pools[s.at:] {
		n += roll.pooled[inPool{pool, j.served(roll)}]
	}
	return n > j.attempts-j.before
}

// served is the request's model if workers name it, or "" for any.
func (j *journey) served(roll *roll) string {
	if _, ok := roll.served[j.model]; ok {
		return j.model
	}
	return ""
}

// nobody is told of a request that no pool takes where it may go.
func (j *journey) nobody() error {
	p, s := j.pools, &j.load.staged
	if p == nil || p.grid == nil || len(s.pools) == 0 {
		return j.g.nobody(j.g.roll.Load().total)
	}
	faster := ""
	if len(s.pools) > 1 {
		faster = ", nor of the faster ones,"
	}
	what := "the request"
	if j.model != "" {
		what = fmt.Sprintf("a request for the model %.100q", j.model)
	}
	return unwilling(http.StatusServiceUnavailable, "no_workers",
		fmt.Sprintf("no worker of pool %q%s can take %s: there is none, or all are lost, draining or serve other models; the gateway's /v1/fleet says which pool each is in, and other targets choose other pools", p.name(s.pools[0]), faster, what))
}

// landed notes the pool of the worker that was chosen.
func (j *journey) landed(roll *roll) {
	if j.pools == nil {
		return
	}
	if j.pool = j.load.ask.req.Pool; j.pool == 0 {
		j.pool = roll.pools[j.decision.Worker.Worker]
	}
}

// explain is the router's, and in which pool it is that and why.
func (j *journey) explain() (e router.Explanation, pool string, err error) {
	p, s := j.pools, &j.load.staged
	for {
		if e, err = j.g.chooser.explain(&j.load.ask); err == nil || !errors.Is(err, router.ErrNoWorkers) || s.at+1 >= len(s.pools) {
			break
		}
		s.at++
		j.load.ask.req.Pool = s.pools[s.at]
	}
	if errors.Is(err, router.ErrNoWorkers) {
		err = j.nobody()
	}
	if p == nil || err != nil {
		return e, "", err
	}
	if len(s.pools) == 0 {
		return e, "any pool: " + s.why + "\n", nil
	}
	pool = fmt.Sprintf("pool %s: %s\n", p.name(s.pools[0]), s.why)
	if s.at > 0 {
		pool += fmt.Sprintf("nobody there can take it, so pool %s\n", p.name(s.pools[s.at]))
	}
	if rest := s.pools[s.at+1:]; p.grid != nil && len(rest) > 0 {
		pool += "if that fails:"
		for _, id := range rest {
			pool += " " + p.name(id)
		}
		pool += "\n"
	}
	return e, pool, nil
}
