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

	ranks  []kv.Rank // that have joined
	probes int       // since the card was read, below 0 if it is to be read again
	warned string    // the last warning, so that it is not repeated

	follows   bool      // the events of ranks are followed
	since     time.Time // when events were first waited for
	successor uint64    // the latest process whose events came under this one's name
	fault     error     // of its events, believed until then
	until     time.Time

	fetch    retry          // of its tokenizer
	fetching sync.WaitGroup // the same
}

// warn logs once what lasts for long.
func (k *keeper) warn(what string, err error) {
	if text := what + err.Error(); k.warned != text {
		k.warned = text
		k.f.log.Warn(what, k.m.Field(), zap.Error(err))
	}
}
