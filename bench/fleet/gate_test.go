package fleet

import (
	"testing"
	"time"

	"github.com/coppice-llm/coppice/router"
)

// TestGateways: two gateways that hear of each other at once choose about as well as one; one that hears
// late finds less, and sends more to the same workers.
func TestGateways(t *testing.T) {
	trace, err := Generate("chat", 900, 8, 7)
	if err != nil {
		t.Fatal(err)
	}
	played := func(gateways int, lag time.Duration) Result {
		t.Helper()
		r, err := Play(t.Context(), Config{Workers: 8, Policy: router.CostLatency, Rate: 40, Seed: 7, PredictRequests: true, Gateways: gateways, Lag: lag}, trace)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	one, two, late := played(1, 0), played(2, 0), played(2, 20*time.Second)
	if two.HitRate < one.HitRate-0.01 || two.TTFTp99 > 1.5*one.TTFTp99 {
		t.Errorf("two gateways: hit rate %.3f and p99 of TTFT %.0f ms, one: %.3f and %.0f ms", two.HitRate, two.TTFTp99, one.HitRate, one.TTFTp99)
	}
	if late.HitRate > two.HitRate-0.02 {
		t.Errorf("a gateway that is 20 s late has a hit rate of %.3f, without a delay %.3f", late.HitRate, two.HitRate)
	}
	if again := played(2, 20*time.Second); again != late {
		t.Errorf("the same run gave %+v and %+v", again, late)
	}
}
