package scheduler

import (
	"testing"

	"github.com/coppice-llm/coppice/internal/invariants"
)

// A step that only decodes allocates nothing, neither to plan nor to complete,
// with requests waiting or without, also when sequences need pages on the way.
func TestDecodingDoesNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the walks of the tag allocate")
	}
	for _, policy := range []Policy{FCFS, LPM, DLPM, HRRN} {
		l := newLoaded(t, Config{Policy: policy}, 64, 200, 256)
		l.complete(l.s.Next(0))
		if n := testing.AllocsPerRun(100, func() { l.complete(l.s.Next(0)) }); n != 0 {
			t.Errorf("%v: %v allocations a step", policy, n)
		}
	}
}
