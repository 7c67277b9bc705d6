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

	follows   bool      // the worker's events are followed
	since     time.Time // time at which following began
	successor uint64    // epoch of the latest process with events under this worker's name
	fault     error     // why the worker's events can't be indexed, valid until the time in until
	until     time.Time

	fetch    retry          // schedule for fetching the worker's tokenizer
	fetching sync.WaitGroup // the goroutine that fetches the tokenizer
}

// warn logs a problem, unless it was the last one that warn logged.
func (k *keeper) warn(what string, err error) {
	if text := what + err.Error(); k.warned != text {
		k.warned = text
		k.f.log.Warn(what, k.m.Field(), zap.Error(err))
	}
}
