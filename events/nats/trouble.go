package nats

import "sync"

// trouble tells Config.Notify what is wrong with a connection, each thing once however
// often it is tried again, and when nothing is any more.
type trouble struct {
	notify func(error)

	mu   sync.Mutex
	told map[string]struct{} // since all was well
}

// maxTroubles bounds what is told before all is well again: errors name ports.
const maxTroubles = 16

// is tells of trouble, nil of its end.
func (t *trouble) is(err error) {
	if t.notify == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock() // also while it is told: in this order
	if err == nil {
		if len(t.told) > 0 {
			t.told = nil
			t.notify(nil)
		}
		return
	}
	if _, known := t.told[err.Error()]; known || len(t.told) == maxTroubles {
		return
	}
	if t.told == nil {
		t.told = make(map[string]struct{})
	}
	t.told[err.Error()] = struct{}{}
	t.notify(err)
}
