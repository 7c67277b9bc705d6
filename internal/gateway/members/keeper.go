package members

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/kv"
)

// keeper probes one worker and follows its events, on one goroutine.
type keeper struct {
	f *Fleet
	m *Member

	ranks  []kv.Rank // joined ranks
	probes int       // probes since the card was read; negative: read it again
	warned string    // last warning, to log it only once

	follows   bool      // its events are followed
	since     time.Time // time at which following began
	successor uint64    // epoch of the latest process with events under this worker's name
	fault     error     // fault of its events, valid until the time below
	until     time.Time

	fetch    retry          // schedule for fetching its tokenizer
	fetching sync.WaitGroup // the goroutine that fetches it
}

// warn logs a lasting problem once.
func (k *keeper) warn(what string, err error) {
	if text := what + err.Error(); k.warned != text {
		k.warned = text
		k.f.log.Warn(what, k.m.Field(), zap.Error(err))
	}
}
