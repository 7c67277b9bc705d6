package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// BenchmarkChoose is the choice for a prompt of 8,192 tokens, without and with what a recording wants.
func BenchmarkChoose(b *testing.B) {
	for _, workers := range []int{8, 64, 512} {
		for _, record := range []bool{false, true} {
			b.Run(fmt.Sprintf("workers=%d/record=%v", workers, record), func(b *testing.B) {
				d, err := New(Config{Router: router.Config{}.WithDefaults(), GuessTTL: time.Minute, Record: record})
				if err != nil {
					b.Fatal(err)
				}
				for i := range workers {
					w := kv.Rank{Worker: kv.WorkerID(i + 1)}
					if err := d.Join(w, &card.Card{}, false); err != nil {
						b.Fatal(err)
					}
					d.SetHealth(w, router.Healthy)
				}
				tokens := make([]kv.Token, 8192)
				var ask Ask
				b.ReportAllocs()
				for b.Loop() {
					ask.Reset()
					ask.Request.PromptTokens = len(tokens)
					ask.SetPrompt(tokens, kv.Namespace{}, 0, d.BlockTokens(), nil)
					choice, err := d.Choose(b.Context(), &ask, 0)
					if err != nil {
						b.Fatal(err)
					}
					d.Release(choice.Reservation)
				}
			})
		}
	}
}
