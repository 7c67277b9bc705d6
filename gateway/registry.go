package gateway

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/server/openai"
)

// watch has workers that register over NATS come and go, until there are no more changes.
func (g *Gateway) watch(changes <-chan nats.Change) {
	full := map[nats.Process]*card.Card{}
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case change, ok := <-changes:
			if !ok {
				return
			}
			g.register(change, full)
		case <-t.C:
			g.fill(full)
		}
	}
}

// register takes one change. full are those for whom there was no room: they are
// not told of again, and come in when others go.
func (g *Gateway) register(change nats.Change, full map[nats.Process]*card.Card) {
	delete(full, change.Process)
	if change.Gone() {
		g.Gone(change.Name, change.Epoch)
		g.fill(full)
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
		if err = g.Announce(c); errors.Is(err, errMany) {
			full[change.Process] = c
		}
	}
	if err != nil {
		g.log.Warn("what registers can't be taken for a worker", zap.String("worker", change.Name), zap.Error(err))
	}
}

// fill has those come in for whom there is room by now.
func (g *Gateway) fill(full map[nats.Process]*card.Card) {
	for _, p := range slices.SortedFunc(maps.Keys(full), nats.Process.Compare) {
		if errors.Is(g.Announce(full[p]), errMany) {
			return
		}
		delete(full, p)
	}
}

// registration is where workers register, and what is in the way of connections to NATS.
type registration struct {
	watcher *nats.Watcher // nil: nobody registers

	troubled sync.Mutex
	troubles map[string]error // by what a connection is for
}

// note keeps what is in the way of something, nil for nothing.
func (r *registration) note(what string, err error) {
	r.troubled.Lock()
	defer r.troubled.Unlock()
	if delete(r.troubles, what); err != nil {
		if r.troubles == nil {
			r.troubles = map[string]error{}
		}
		r.troubles[what] = err
	}
}

// sentences say what is in the way, [] for nothing.
func (r *registration) sentences() []string {
	r.troubled.Lock()
	defer r.troubled.Unlock()
	all := []string{}
	for _, what := range slices.Sorted(maps.Keys(r.troubles)) {
		all = append(all, fmt.Sprintf("NATS does not answer as it should, so nothing new is known of %s: %v", what, r.troubles[what]))
	}
	return all
}

// nobody is what clients are told where no worker can be asked, of so many: without any,
// what to do about it.
func (r *registration) nobody(workers int) *openai.Error {
	if workers > 0 {
		return errNobody
	}
	if why := r.sentences(); r.watcher != nil && len(why) > 0 {
		return unwilling(http.StatusServiceUnavailable, "no_workers", "the gateway has no workers, and none can register: "+why[0])
	}
	return errEmpty
}

// toldOf has the log told what is in the way of a connection to NATS.
func (g *Gateway) toldOf(at nats.Config, what string) nats.Config {
	if at.Notify != nil {
		return at
	}
	at.Notify = func(err error) {
		g.note(what, err)
		if err == nil {
			g.log.Info("NATS answers again", zap.String("for", what))
			return
		}
		g.log.Warn("NATS does not answer as it should; trying on", zap.String("for", what), zap.Error(err))
	}
	return at
}
