package members

import (
	"testing"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/kv"
)

// TestEventsLiveInOrder: the state of events is read under the lock under which it is applied;
// otherwise old news could overwrite new.
func TestEventsLiveInOrder(t *testing.T) {
	var f *Fleet
	told := 0
	apply := func(c Change) error {
		if _, ok := c.(EventsLive); ok {
			if told++; f.applying.TryLock() {
				f.applying.Unlock()
				t.Error("told without the lock")
			}
		}
		return nil
	}
	var err error
	if f, err = New(Config{BlockTokens: 4, MaxWorkers: 1, Sink: struct{ events.Sink }{}, Apply: apply, Log: zap.NewNop()}); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.applyEventsLive(kv.Rank{Worker: 1})
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}
