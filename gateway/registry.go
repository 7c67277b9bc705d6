package gateway

import (
	"fmt"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/nats"
)

// watch has workers that register over NATS come and go, until the watcher is closed.
func (g *Gateway) watch(w *nats.Watcher) {
	for change := range w.Changes() {
		if change.Gone() {
			g.Gone(change.Name)
			continue
		}
		c, err := card.Parse(change.Payload)
		if err == nil && c.Name != change.Name {
			err = fmt.Errorf("the card is of %q", c.Name)
		}
		if err == nil {
			err = g.Announce(c)
		}
		if err != nil {
			g.log.Warn("what registers is no worker", zap.String("worker", change.Name), zap.Error(err))
		}
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
