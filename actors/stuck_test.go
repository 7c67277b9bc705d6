package actors

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/storetest"
	"github.com/coppice-llm/coppice/mempool/tiering"
)

// TestTiersNeverAnswer: the calls of a store never return, each kind of them in turn. Every request
// completes, and Close returns while the calls still hang and names the tier that it gave up. What the
// store holds is released when its calls return.
func TestTiersNeverAnswer(t *testing.T) {
	for _, tier := range []kv.Tier{kv.TierDisk, kv.TierShared} {
		for _, at := range storetest.Points() {
			if tier == kv.TierDisk && !slices.Contains([]storetest.Point{storetest.AtRead, storetest.AtWrite}, at) {
				continue // a disk tier keeps its files open
			}
			t.Run(tier.String()+"/"+at.String(), func(t *testing.T) {
				t.Parallel()
				b, err := sim.Open(sim.Config{PageTokens: 16, Pages: tierPool / 16, Vocab: nano.Config().Vocab})
				if err != nil {
					t.Fatal(err)
				}
				in := &storetest.Injector{}
				store := &slowClose{Store: tierStore(t, tier, t.TempDir(), b.Info(), in), closed: make(chan struct{})}
				logs := &logs{}
				s, err := Start(Config{Backend: b, Log: logs.logger(slog.LevelError), Tiers: Tiers{Stores: []mempool.Store{store}, Write: tiering.Through, Flush: 50 * time.Millisecond, TokenSeconds: 1e-3}})
				if err != nil {
					t.Fatal(err)
				}
				in.Plant(at, storetest.Slow, 1, true)
				for n := range 6 {
					if _, _, e := drain(t, open(t, s, Request{Tokens: tierPrompt(n % 3), MaxTokens: 3, IgnoreEOS: true})); e.Err != nil {
						t.Errorf("prompt %d: %v", n, e.Err)
					}
				}
				if in.Hits() > 0 { // else the store closes, however slow the machine is
					s.tiers.patience = 10*time.Millisecond - lastMoves
				}
				closed := make(chan struct{})
				go func() { s.Close(); close(closed) }()
				select {
				case <-closed:
				case <-time.After(time.Minute):
					t.Error("Close waits for a store that does not answer")
				}
				hung := in.Hits() > 0
				in.Clear()
				<-closed
				<-store.closed
				if n := len(logs.of("closing the tiers")); hung != (n == 1) {
					t.Errorf("a call hangs: %v; the log has %v", hung, logs.lines)
				}
			})
		}
	}
}

// slowClose is a store whose Close the test can wait for.
type slowClose struct {
	mempool.Store
	closed chan struct{}
}

func (s *slowClose) Close() error {
	defer close(s.closed)
	return s.Store.Close()
}
