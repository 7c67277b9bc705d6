package view

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// linger is how long a Feed keeps sampling after its last watcher has left, so that a client
// that polls sees a history without gaps.
const linger = 5 * time.Second

// Feed samples a Source while it has watchers.
type Feed struct {
	cfg     Config
	started time.Time
	stop    context.CancelFunc
	done    chan struct{}
	wake    chan struct{} // capacity 1

	mu       sync.Mutex
	closed   bool
	watchers map[*Watch]struct{}
	begun    uint64           // watches opened so far
	left     time.Time        // time of the last Watch.Close
	frames   [Full + 1][]byte // latest frame per access, if it is fresh
	framed   [Full + 1]time.Time

	observed sync.Mutex
	ttft     latency
	itl      latency
	finished []Finished // oldest first
}

// NewFeed starts a Feed.
func NewFeed(cfg Config) *Feed {
	cfg = cfg.withDefaults()
	ctx, stop := context.WithCancel(context.Background())
	f := &Feed{
		cfg: cfg, started: time.Now(), stop: stop, done: make(chan struct{}), wake: make(chan struct{}, 1),
		watchers: map[*Watch]struct{}{}, ttft: newLatency(), itl: newLatency(),
	}
	go f.run(ctx)
	return f
}

// Observation is a latency measured by the server. 0: not measured.
type Observation struct {
	TTFT time.Duration // from a request's arrival to its first token
	ITL  time.Duration // between two tokens
	Gaps int           // number of gaps that ITL is the mean of; 0 means 1
}

// Observe counts o. It costs about 0.1 µs and allocates nothing: call it for each token, or at
// high rates for a sample of them.
func (f *Feed) Observe(o Observation) {
	now := time.Now()
	f.observed.Lock()
	defer f.observed.Unlock()
	if o.TTFT > 0 {
		f.ttft.add(now, o.TTFT, 1)
	}
	if o.ITL > 0 {
		f.itl.add(now, o.ITL, max(o.Gaps, 1))
	}
}

// Finish adds a request to the list of the latest endings.
func (f *Feed) Finish(r Finished) {
	f.observed.Lock()
	defer f.observed.Unlock()
	push(&f.finished, r, f.cfg.Listed)
}

// Watch is one watcher of a Feed.
type Watch struct {
	feed   *Feed
	access Access
	tenant string
	begun  uint64      // number of the watch, from 1
	frames chan []byte // capacity 1
}

// Frames returns the channel of States in JSON, which must not be changed. A slow watcher
// misses some. Feed.Close closes the channel, and so does Feed.Watch when it gives the place to
// another watcher.
func (w *Watch) Frames() <-chan []byte { return w.frames }

// Close ends the watch.
func (w *Watch) Close() {
	f := w.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watchers, w)
	f.left = time.Now()
}

// Watch opens a watch with Redacted or Full access for a tenant. The caller must Close it. The
// first frame is sent at once, or after at most one Period. If MaxWatchers are open, Watch ends
// one to make room: one with less access, or the youngest of a tenant that has at least two
// more than this tenant. If there is none, it fails with ErrTooMany. After Close it fails with
// ErrClosed.
func (f *Feed) Watch(access Access, tenant string) (*Watch, error) {
	if access != Redacted && access != Full {
		return nil, fmt.Errorf("view: access %d, want Redacted or Full", access)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return nil, ErrClosed
	case len(f.watchers) >= f.cfg.MaxWatchers && !f.makeRoom(access, tenant):
		return nil, fmt.Errorf("%w: %d", ErrTooMany, len(f.watchers))
	}
	f.begun++
	w := &Watch{feed: f, access: access, tenant: tenant, begun: f.begun, frames: make(chan []byte, 1)}
	f.watchers[w] = struct{}{}
	if time.Since(f.framed[access]) < 2*f.cfg.Period {
		w.frames <- f.frames[access]
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
	return w, nil
}

// makeRoom ends one watch to make room for a new one with this access and tenant, as Watch
// describes. It reports whether it found a watch to end: one with less access, or one with equal
// access of a tenant that has at least two watches more. It prefers the watch with the least
// access, then of the tenant with the most watches, then the youngest. The caller holds mu.
func (f *Feed) makeRoom(access Access, tenant string) bool {
	counts := map[string]int{}
	for w := range f.watchers {
		counts[w.tenant]++
	}
	var out *Watch
	for w := range f.watchers {
		if w.access > access || w.access == access && counts[tenant]+1 >= counts[w.tenant] {
			continue
		}
		if out == nil || w.access < out.access || w.access == out.access &&
			(counts[w.tenant] > counts[out.tenant] || counts[w.tenant] == counts[out.tenant] && w.begun > out.begun) {
			out = w
		}
	}
	if out == nil {
		return false
	}
	close(out.frames)
	delete(f.watchers, out)
	return true
}

// Close ends all watches and waits for the goroutine. It may be called twice.
func (f *Feed) Close() error {
	f.stop()
	<-f.done
	return nil
}

// run samples once per Period while there are watchers, and for linger after that.
func (f *Feed) run(ctx context.Context) {
	defer close(f.done)
	defer f.end()
	s := newSampler(f)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if !f.watched() {
			select {
			case <-f.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		begun := time.Now()
		f.publish(s.sample(ctx))
		timer.Reset(max(f.cfg.Period-time.Since(begun), f.cfg.Period/10)) // pause between slow samples too
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// watched reports whether there are watchers, or were until linger ago.
func (f *Feed) watched() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.watchers) > 0 || time.Since(f.left) < linger
}

// publish encodes the state once per level of access in use, and offers it to the watchers.
func (f *Feed) publish(s *State) {
	f.mu.Lock()
	var asked [Full + 1]bool
	for w := range f.watchers {
		asked[w.access] = true
	}
	f.mu.Unlock()
	var frames [Full + 1][]byte
	for _, access := range []Access{Redacted, Full} {
		if !asked[access] {
			continue
		}
		frame, err := s.encode(access == Redacted)
		if err != nil { // a value that JSON can't express: a defect of this package
			panic(fmt.Sprintf("view: a state can't be written: %v", err))
		}
		frames[access] = frame
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for access, frame := range frames {
		f.frames[access] = frame
		f.framed[access] = time.Time{}
		if frame != nil {
			f.framed[access] = time.Now()
		}
	}
	for w := range f.watchers {
		if frame := frames[w.access]; frame != nil {
			select {
			case <-w.frames: // the watcher has not read it: the new frame replaces it
			default:
			}
			w.frames <- frame // never blocks: only the holder of mu sends
		}
	}
}

// end ends all watches, and makes later ones fail.
func (f *Feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for w := range f.watchers {
		close(w.frames)
	}
	clear(f.watchers)
}
