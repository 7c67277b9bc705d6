package members

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/events/card"
)

// SetWorkers replaces the list of configured workers: workers of the earlier list that are not
// in all leave. Workers that registered themselves stay. An invalid list is an error and changes
// nothing.
func (f *Fleet) SetWorkers(all []Worker) error {
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
	given := make(map[string]*Worker, len(all))
	for i := range all {
		given[all[i].URL] = &all[i]
	}
	var gone []*Member
	var errs []error
	f.mu.Lock()
	for url, m := range f.members {
		w, as := given[url], m.registered
		if as.onlyRegistered && w == nil || w != nil && !as.onlyRegistered && sameWorker(*w, m.given) {
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
			errs = append(errs, f.admit(Worker{URL: url}, as, m))
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
		err = f.admit(Worker{URL: at}, registered{onlyRegistered: true, name: c.Name, epoch: c.Epoch}, nil)
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
func (f *Fleet) admit(w Worker, as registered, before *Member) error {
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
	go (&keeper{f: f, m: m}).keep(ctx)
	return nil
}
