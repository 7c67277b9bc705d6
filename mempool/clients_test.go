package mempool

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// BenchmarkEightClients: granting and returning 64 pages under one lock, as the owner of
// a pool serves eight clients. The specification asks for less than 1 ms and 0.5 ms.
//
//	go test ./mempool -run xxx -bench EightClients
func BenchmarkEightClients(b *testing.B) {
	const clients, rounds = 8, 2000
	p, err := NewPool(1 << 16)
	if err != nil {
		b.Fatal(err)
	}
	var mu sync.Mutex
	var grant, giveBack []time.Duration
	for b.Loop() {
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				var took [2][]time.Duration
				var pages []kv.PageID
				for range rounds {
					begun := time.Now()
					mu.Lock()
					granted, err := p.Grant(64, pages[:0])
					mu.Unlock()
					held := time.Now()
					mu.Lock()
					p.Return(granted)
					mu.Unlock()
					took[0], took[1] = append(took[0], held.Sub(begun)), append(took[1], time.Since(held))
					if pages = granted; err != nil {
						b.Error(err)
					}
				}
				mu.Lock()
				grant, giveBack = append(grant, took[0]...), append(giveBack, took[1]...)
				mu.Unlock()
			})
		}
		all.Wait()
	}
	for name, took := range map[string][]time.Duration{"grant": grant, "return": giveBack} {
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), name+"-p99-us")
	}
	b.ReportMetric(0, "ns/op")
}
