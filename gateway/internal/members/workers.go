package members

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/nats"
)

// SetWorkers replaces the list of configured workers: workers of the earlier list that are not
// in all leave. Workers that registered themselves stay. An invalid list is an error and changes
// nothing.
func (f *Fleet) SetWorkers(all []WorkerConfig) error {
	all = slices.Clone(all)
	for i := range all {
		all[i].URL = strings.TrimRight(all[i].URL, "/")
	}
	if err := ValidateWorkers(all); err != nil {
		return err
	}
	if most := f.cfg.MaxWorkers; len(all) > most {
		return fmt.Errorf("gateway: %d workers, want at most %d: raise Router.MaxWorkers", len(all), most)
	}
	given := make(map[string]*WorkerConfig, len(all))
	for i := range all {
		given[all[i].URL] = &all[i]
	}
	var gone []*Member
	var errs []error
	f.mu.Lock()
	for url, m := range f.members {
		w, as := given[url], m.registered
		if as.onlyRegistered && w == nil || w != nil && !as.onlyRegistered && sameWorker(*w, m.cfg) {
			continue
		}
		gone = append(gone, m)
		delete(f.members, url)
		switch {
		case w != nil:
			as.onlyRegistered = false
			errs = append(errs, f.admit(*w, as, m))
		case as.name != "": // it stays, as a registered worker only
			as.onlyRegistered = true
			errs = append(errs, f.admit(WorkerConfig{URL: url}, as, m))
		}
	}
	for _, w := range all {
		if f.members[w.URL] == nil {
			errs = append(errs, f.admit(w, registered{}, nil))
		}
	}
	f.mu.Unlock()
	f.dismiss(gone)
	f.Enroll()
	return errors.Join(errs...)
}

// Announce adds the worker that c describes, at the URL in c. If that worker is configured or
// was announced before, it is only probed again. Errors: an invalid card, a card without URL, or
// no room for another worker (errMany).
func (f *Fleet) Announce(c *card.Card) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.URL == "" {
		return fmt.Errorf("gateway: the card of worker %s has no URL: start it with --advertise", c.Name)
	}
	at := strings.TrimRight(c.URL, "/")
	f.mu.Lock()
	m := f.members[at]
	var err error
	if m == nil {
		err = f.admit(WorkerConfig{URL: at}, registered{onlyRegistered: true, name: c.Name, epoch: c.Epoch}, nil)
	} else if as := &m.registered; as.name != c.Name || c.Epoch >= as.epoch {
		as.name, as.epoch = c.Name, c.Epoch
	}
	f.mu.Unlock()
	if m == nil {
		f.Enroll()
		return err
	}
	if known := m.card(); known == nil || known.Epoch != c.Epoch {
		m.Nudge()
	}
	return nil
}

// Gone removes the worker whose process was announced with this name and epoch; a configured
// worker stays. Another process of that name stays too. Epoch 0 matches any process.
func (f *Fleet) Gone(name string, epoch uint64) {
	f.mu.Lock()
	var gone []*Member
	for url, m := range f.members {
		switch as := m.registered; {
		case as.name != name || epoch != 0 && as.epoch != epoch:
		case as.onlyRegistered:
			delete(f.members, url)
			gone = append(gone, m)
		default:
			m.registered = registered{} // it is configured too
		}
	}
	f.mu.Unlock()
	f.dismiss(gone)
	f.Enroll()
}

// admit adds worker w and starts its keeper. as is its registration. before is the previous
// member at that URL, or nil; the keeper first waits until it has left. The caller holds mu.
func (f *Fleet) admit(w WorkerConfig, as registered, before *Member) error {
	m, err := newMember(w)
	switch {
	case err != nil:
		return err
	case f.closed:
		return errClosed
	case len(f.members) >= f.cfg.MaxWorkers:
		return fmt.Errorf("%w: %d already, no room for %s: raise Router.MaxWorkers", errMany, len(f.members), w.URL)
	}
	ctx, cancel := context.WithCancel(f.ctx)
	m.registered, m.before, m.cancel = as, before, cancel
	f.members[w.URL] = m
	go (&keeper{f: f, m: m}).run(ctx)
	return nil
}

// WorkerConfig is the address of a worker, and facts that it does not publish itself. Workers that
// answer at /v1/worker, as coppice serve does, need only a URL. The JSON names are those of the file of
// coppice route --workers-file.
type WorkerConfig struct {
	URL string `json:"url"` // http://host:port of its OpenAI interface
	// Name defaults to the worker's own name, or else host-port.
	Name string `json:"name"`
	// Pool is the worker's pool in Config.Pools. Default: as in its card.
	Pool string `json:"pool"`
	// Events is the address of the worker's ZMQ PUB socket, tcp://host:port, and Replay that of
	// its ROUTER socket. They are for workers without a card that do not say where they publish, as vLLM does at
	// /kv_event_sources and SGLang at /server_info. "none": the contents of its cache are guessed.
	Events string `json:"events"`
	Replay string `json:"replay"`
	Topic  string `json:"topic"` // the topic of the worker's events; "": any
	// Ranks is the number of data-parallel ranks. Each has its own cache, and publishes its
	// events on the port after that of the rank before. A request selects a rank by
	// X-Data-Parallel-Rank, vLLM's header. Default: as many as the worker says, or 1.
	Ranks int `json:"ranks"`
	// PoolTokens is the size of the KV pool and MaxRunning the number of concurrent requests,
	// both per rank. 0: unknown.
	PoolTokens int `json:"pool_tokens"`
	MaxRunning int `json:"max_running"`
}

// Validate reports all faults at once.
func (w *WorkerConfig) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("gateway: worker %.100q: "+format, append([]any{w.URL}, args...)...))
	}
	if u, err := url.Parse(w.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" {
		bad("want a URL like http://host:port")
	}
	if w.Name != "" {
		if err := card.CheckName(w.Name); err != nil {
			errs = append(errs, fmt.Errorf("gateway: worker %.100q: %w", w.URL, err))
		}
	}
	if w.Pool != "" {
		if err := card.CheckPool(w.Pool); err != nil {
			errs = append(errs, fmt.Errorf("gateway: worker %.100q: %w", w.URL, err))
		}
	}
	if w.Replay != "" && (w.Events == "" || w.Events == noEvents) {
		bad("Replay is given without Events: say where its events are")
	}
	if w.Ranks < 0 || w.Ranks > 1024 {
		bad("Ranks is %d, want 1 to 1024", w.Ranks)
	}
	if w.PoolTokens < 0 || w.MaxRunning < 0 {
		bad("PoolTokens is %d and MaxRunning %d, want 0 (unknown) or more", w.PoolTokens, w.MaxRunning)
	}
	return errors.Join(errs...)
}

// noEvents is the value of WorkerConfig.Events for a worker without events.
const noEvents = "none"

// ValidateWorkers returns an error with the faults of all workers. Two workers with one URL are
// a fault.
func ValidateWorkers(all []WorkerConfig) error {
	var errs []error
	seen := map[string]bool{}
	for i := range all {
		errs = append(errs, all[i].Validate())
		if seen[all[i].URL] {
			errs = append(errs, fmt.Errorf("gateway: worker %.100q is given twice", all[i].URL))
		}
		seen[all[i].URL] = true
	}
	return errors.Join(errs...)
}

// sameWorker reports whether two configurations are equal. Ranks 0 and 1 mean the same.
func sameWorker(a, b WorkerConfig) bool {
	a.Ranks, b.Ranks = max(a.Ranks, 1), max(b.Ranks, 1)
	return a == b
}

// refusal is a permanent reason to keep a worker out of the fleet.
type refusal struct{ error }

// refuse returns a refusal.
func refuse(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// refused returns err as a refusal, nil for nil.
func refused(err error) error {
	if err == nil {
		return nil
	}
	return refusal{err}
}

// watch adds workers that register over NATS and removes those that leave, until changes is
// closed.
func (f *Fleet) watch(changes <-chan nats.Change) {
	full := map[nats.Process]*card.Card{}
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case change, ok := <-changes:
			if !ok {
				return
			}
			f.register(change, full)
		case <-t.C:
			f.fill(full)
		}
	}
}

// register applies one change. If a new worker does not fit into the fleet, it goes into full. A
// worker is announced only once, so fill admits it later, when another one leaves.
func (f *Fleet) register(change nats.Change, full map[nats.Process]*card.Card) {
	delete(full, change.Process)
	if change.Gone() {
		f.Gone(change.Name, change.Epoch)
		f.fill(full)
		return
	}
	c, err := card.Parse(change.Payload)
	if err == nil && c.Name != change.Name {
		err = fmt.Errorf("the card is of %q", c.Name)
	}
	if err == nil && change.Epoch != 0 {
		c.Epoch = change.Epoch
	}
	if err == nil {
		if err = f.Announce(c); errors.Is(err, errMany) {
			full[change.Process] = c
		}
	}
	if err != nil {
		f.log.Warn("a registration is not valid", zap.String("worker", change.Name), zap.Error(err))
	}
}

// fill admits workers from full while there is room, and deletes them there.
func (f *Fleet) fill(full map[nats.Process]*card.Card) {
	for _, p := range slices.SortedFunc(maps.Keys(full), nats.Process.Compare) {
		if errors.Is(f.Announce(full[p]), errMany) {
			return
		}
		delete(full, p)
	}
}
