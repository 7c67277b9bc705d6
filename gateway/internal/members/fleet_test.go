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
	r := &listener{t: t}
	f, err := New(Config{BlockTokens: 4, MaxWorkers: 1, Sink: struct{ events.Sink }{}, Router: r, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r.f = f
	f.applyEventsLive(kv.Rank{Worker: 1})
	if r.told != 1 {
		t.Errorf("told %d times", r.told)
	}
}

// listener is a router that counts news of events.
type listener struct {
	idle
	t    *testing.T
	f    *Fleet
	told int
}

func (l *listener) SetEventsLive(kv.Rank, bool) {
	if l.told++; l.f.applying.TryLock() {
		l.f.applying.Unlock()
		l.t.Error("told without the lock")
	}
}
