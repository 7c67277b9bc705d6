package members

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
