package gateway

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/nats"
)

// watch has workers that register over NATS come and go, until there are no more changes.
func (g *Gateway) watch(changes <-chan nats.Change) {
	full := map[string]*card.Card{}
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

// register takes one change. full are those for whom there was no room, by name: they are
// not told of again, and come in when others go.
func (g *Gateway) register(change nats.Change, full map[string]*card.Card) {
	delete(full, change.Name)
	if change.Gone() {
		g.Gone(change.Name)
		g.fill(full)
		return
	}
	c, err := card.Parse(change.Payload)
	if err == nil && c.Name != change.Name {
		err = fmt.Errorf("the card is of %q", c.Name)
	}
	if err == nil {
		if err = g.Announce(c); errors.Is(err, errMany) {
			full[change.Name] = c
		}
	}
	if err != nil {
		g.log.Warn("what registers can't be taken for a worker", zap.String("worker", change.Name), zap.Error(err))
	}
}

// fill has those come in for whom there is room by now.
func (g *Gateway) fill(full map[string]*card.Card) {
	for _, name := range slices.Sorted(maps.Keys(full)) {
		if errors.Is(g.Announce(full[name]), errMany) {
			return
		}
		delete(full, name)
	}
}

// toldOf has the log told what is in the way of a connection to NATS.
func (g *Gateway) toldOf(at nats.Config, what string) nats.Config {
	if at.Notify != nil {
		return at
	}
	at.Notify = func(err error) {
		if err == nil {
			g.log.Info("NATS answers again", zap.String("for", what))
			return
		}
		g.log.Warn("NATS does not answer as it should; trying on", zap.String("for", what), zap.Error(err))
	}
	return at
}
