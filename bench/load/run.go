package load

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// Run plays the data set on the server and waits for all requests. progress, if not
// nil, is called after each request, from several goroutines. If ctx ends, requests in
// flight are cancelled, and Run returns the figures so far together with the cause.
// Other errors come without a result: a bad configuration, or a failed warm-up request.
// Failed requests of the run itself are not an error; Result counts them.
func Run(ctx context.Context, c *Client, d Dataset, cfg Config, progress func()) (*Result, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(d); err != nil {
		return nil, err
	}
	r := &runner{client: c, dataset: d, cfg: cfg, progress: progress, options: c.cfg.Options, record: newRecord()}
	r.ideal = ideal{endpoint: c.cfg.Endpoint, seen: seen{limit: maxSeen}}
	_, most := d.Requests()
	_, recorded := d.(*agentTrace) // its prompts are known beforehand
	r.options.tokenIDs = most > 1 && !recorded && c.cfg.Endpoint == Completions
	if cfg.MaxConcurrency > 0 {
		r.slots = make(chan struct{}, cfg.MaxConcurrency)
	}
	if err := r.warmUp(ctx); err != nil {
		return nil, err
	}
	r.over = make(chan struct{})
	r.left.Store(math.MaxInt64)
	if cfg.Requests > 0 {
		r.left.Store(int64(cfg.Requests))
	}
	r.begin = time.Now()
	if cfg.Concurrency > 0 {
		r.closedLoop(ctx)
	} else {
		r.openLoop(ctx)
	}
	return r.result(), context.Cause(ctx)
}

// runner is the state of a Run.
type runner struct {
	client   *Client
	dataset  Dataset
	cfg      Config
	options  Options
	progress func()

	begin   time.Time
	slots   chan struct{} // holds an element for each request in flight; nil for no limit
	left    atomic.Int64  // requests that may still begin; below 0 if more were tried
	over    chan struct{} // closed when left reaches 0
	next    atomic.Int64  // closed loop: the next session
	skipped atomic.Int64  // requests of a session after a failed one

	mu        sync.Mutex
	out, peak int           // requests in flight, now and at most
	ended     time.Duration // end of the latest request, from begin
	record    *record

	ideal ideal
}

// warmUp sends the first turns of cfg.Warmup sessions, one after another. A failure is
// an error.
func (r *runner) warmUp(ctx context.Context) error {
	sc := r.client.scratch.Get().(*scratch)
	defer r.client.scratch.Put(sc)
	for i := range r.cfg.Warmup {
		s := session(r.cfg.WarmupSet, i)
		d := &dialogue{}
		d.add("system", &s.System)
		d.add("user", &s.Turns[0].User)
		r.exchange(ctx, sc, d, s.Turns[0].OutputTokens, false)
		if got := &sc.sample; got.failure != None {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("load: a warm-up request, %v: %w", got.failure, got.err)
		}
	}
	return nil
}

// closedLoop plays sessions in cfg.Concurrency goroutines, one after another in each.
// It begins again with session 0 after the last one, unless neither Requests nor
// Duration limits the run.
func (r *runner) closedLoop(ctx context.Context) {
	var workers sync.WaitGroup
	for range r.cfg.Concurrency {
		workers.Go(func() {
			for r.open(ctx) {
				i := int(r.next.Add(1) - 1)
				if n := r.dataset.Sessions(); n > 0 && i >= n && r.cfg.Requests == 0 && r.cfg.Duration == 0 {
					return
				}
				s := session(r.dataset, i)
				r.play(ctx, &s, -1)
			}
		})
	}
	workers.Wait()
}

// openLoop starts a goroutine for each session when it arrives.
func (r *runner) openLoop(ctx context.Context) {
	var sessions sync.WaitGroup
	defer sessions.Wait()
	var schedule []time.Duration
	count := r.dataset.Sessions()
	if r.cfg.Timed {
		if n := r.cfg.sessions(r.dataset); n > 0 {
			count = min(count, n)
		}
	} else {
		schedule = r.cfg.Arrivals.Schedule(r.cfg.sessions(r.dataset), r.cfg.Duration)
		count = len(schedule)
	}
	for i := range count {
		s := session(r.dataset, i) // made before it is due, as this takes time
		due := s.At
		if !r.cfg.Timed {
			due = schedule[i]
		}
		if r.cfg.Duration > 0 && due >= r.cfg.Duration || !sleep(ctx, due-time.Since(r.begin), nil) || !r.open(ctx) {
			return
		}
		sessions.Go(func() { r.play(ctx, &s, due) })
	}
}

// open reports whether another request may begin.
func (r *runner) open(ctx context.Context) bool {
	return ctx.Err() == nil && r.left.Load() > 0 && (r.cfg.Duration == 0 || time.Since(r.begin) < r.cfg.Duration)
}

// play plays a session to its end, or until a request fails or the run is over. due is
// the scheduled beginning, from the beginning of the run; -1 in a closed loop.
func (r *runner) play(ctx context.Context, s *Session, due time.Duration) {
	d := &dialogue{session: r.name(s)}
	d.add("system", &s.System)
	r.converse(ctx, s, d, due)
}

// converse plays the turns of a session after the dialogue d; see play.
func (r *runner) converse(ctx context.Context, s *Session, d *dialogue, due time.Duration) {
	sc := r.client.scratch.Get().(*scratch)
	defer r.client.scratch.Put(sc)
	for n := range s.Turns {
		t := &s.Turns[n]
		if !r.think(ctx, t.Think) || !r.enter(ctx) {
			return
		}
		d.take(t)
		more := s.continues(n)
		known, ok := r.ideal.meet(d)
		r.exchange(ctx, sc, d, t.OutputTokens, more)
		r.leave()
		got := &sc.sample
		if due >= 0 && n == 0 {
			got.lag = max(0, got.sent.Sub(r.begin)-due)
		}
		if !got.promptKnown {
			got.prompt = d.length
		}
		if ok {
			got.ideal = known.tokens(got.prompt)
		}
		r.add(got)
		if got.failure != None {
			r.skipped.Add(int64(s.requests(n) - 1))
			return
		}
		if more {
			r.ideal.answered(d, got)
			d.add("assistant", answer(d, got))
		} else {
			r.ideal.sent(d, got)
		}
		r.agents(ctx, t.Agents, d)
	}
}

// agents plays sub-agents that continue the dialogue d, together, and waits for them.
func (r *runner) agents(ctx context.Context, agents []Session, d *dialogue) {
	var playing sync.WaitGroup
	defer playing.Wait()
	for i := range agents {
		branch := d.fork(r.name(&agents[i]))
		playing.Go(func() { r.converse(ctx, &agents[i], branch, -1) })
	}
}

// name returns the name of s that is sent, "" for none.
func (r *runner) name(s *Session) string {
	if r.options.NoSessionNames {
		return ""
	}
	return s.Name
}

// answer returns the server's answer, which got has recorded, as the next segment of the dialogue
// d: as token ids if d has token ids, otherwise as text.
func answer(d *dialogue, got *sample) *Segment {
	if len(d.tokens) > 0 {
		return &Segment{Tokens: append([]kv.Token(nil), got.tokens...)}
	}
	return &Segment{Text: string(got.text), Words: got.output}
}

// enter waits until the run may have one more request in flight, and counts the request. ok is
// false if no further request may begin, or if ctx ended. If ok is true, the caller must call
// leave when the request has ended.
func (r *runner) enter(ctx context.Context) (ok bool) {
	if r.slots != nil {
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			return false
		}
	}
	left := int64(-1)
	if r.open(ctx) {
		left = r.left.Add(-1)
	}
	if left < 0 {
		if r.slots != nil {
			<-r.slots
		}
		return false
	}
	if left == 0 {
		close(r.over)
	}
	r.mu.Lock()
	r.out++
	r.peak = max(r.peak, r.out)
	r.mu.Unlock()
	return true
}

// leave counts the end of a request and frees its slot.
func (r *runner) leave() {
	r.mu.Lock()
	r.out--
	r.ended = time.Since(r.begin)
	r.mu.Unlock()
	if r.slots != nil {
		<-r.slots
	}
}

// think pauses for d before a turn. ok is false if no further request may begin; think then
// returns before the pause is over.
func (r *runner) think(ctx context.Context, d time.Duration) (ok bool) {
	if most := r.cfg.Duration - time.Since(r.begin); r.cfg.Duration > 0 && most < d {
		d = most
	}
	return sleep(ctx, d, r.over) && r.open(ctx)
}

// exchange sends the dialogue d as a prompt and fills in sc.sample; see Client.exchange. most is
// the limit on output tokens.
func (r *runner) exchange(ctx context.Context, sc *scratch, d *dialogue, most int, keep bool) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.Timeout, errTimeout)
	defer cancel()
	r.client.exchange(ctx, sc, r.options.body(r.client.cfg.Endpoint, r.client.cfg.Model, d, most), d.session, keep)
}

// add records a finished request.
func (r *runner) add(s *sample) {
	r.mu.Lock()
	r.record.add(s, r.begin, r.cfg.Objectives)
	r.mu.Unlock()
	if r.progress != nil {
		r.progress()
	}
}

// sleep waits for d; ok is false if ctx ended or over was closed first.
func sleep(ctx context.Context, d time.Duration, over <-chan struct{}) (ok bool) {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-over:
	case <-ctx.Done():
	}
	return false
}

// session returns session i of a data set. After the last session the first one follows.
func session(d Dataset, i int) Session {
	if n := d.Sessions(); n > 0 {
		i %= n
	}
	return d.Session(i)
}
