package view

import (
	"fmt"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// BenchmarkFrame measures the server's cost per frame without the source's tree walk: at two
// frames a second, 5 ms are one percent of a core.
func BenchmarkFrame(b *testing.B) {
	for _, nodes := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			f := NewFeed(Config{Source: &fake{tree: grown(nodes, 1)}, Text: func(t []kv.Token) string { return fmt.Sprint(t) }})
			defer f.Close()
			s := newSampler(f)
			bytes := 0
			b.ReportAllocs()
			for b.Loop() {
				s.walkAt = time.Time{}
				frame, err := s.sample(b.Context()).encode(false)
				if err != nil {
					b.Fatal(err)
				}
				bytes = len(frame)
			}
			b.ReportMetric(float64(bytes), "frame-bytes")
		})
	}
}

func BenchmarkObserve(b *testing.B) {
	f := NewFeed(Config{Source: &fake{}})
	defer f.Close()
	for b.Loop() {
		f.Observe(Observation{ITL: 12 * time.Millisecond})
	}
}
