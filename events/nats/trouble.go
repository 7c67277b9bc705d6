package nats

import "sync"

// trouble reports the problems of a connection to Config.Notify. A problem that recurs is
// reported once. When the connection works again, nil is reported.
type trouble struct {
	notify func(error)

	mu       sync.Mutex
	reported map[string]struct{} // reported since the last nil
}

// maxTroubles bounds the problems reported before the next nil, because errors may contain port
// numbers that vary.
const maxTroubles = 16

// report reports the problem err, or with nil that the connection works again.
func (t *trouble) report(err error) {
	if t.notify == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock() // held during notify too, to keep the order
	if err == nil {
		if len(t.reported) > 0 {
			t.reported = nil
			t.notify(nil)
		}
		return
	}
	if _, known := t.reported[err.Error()]; known || len(t.reported) == maxTroubles {
		return
	}
	if t.reported == nil {
		t.reported = make(map[string]struct{})
	}
	t.reported[err.Error()] = struct{}{}
	t.notify(err)
}
