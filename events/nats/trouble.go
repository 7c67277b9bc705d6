package nats

import "sync"

// trouble reports the problems of a connection to Config.Notify: each once, however often it
// recurs, and nil when all are solved.
type trouble struct {
	notify func(error)

	mu   sync.Mutex
	told map[string]struct{} // reported since the last nil
}

// maxTroubles bounds the problems reported before the next nil, since errors may contain varying
// ports.
const maxTroubles = 16

// is reports a problem, or with nil its end.
func (t *trouble) is(err error) {
	if t.notify == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock() // held during notify too, to keep the order
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
