package kvindex

import (
	"slices"
	"testing"
	"time"
)

// TestRecordAgainstOracle: runs that are split and joined remember each block's
// accesses, as a list for each block does, until nobody has it any more.
func TestRecordAgainstOracle(t *testing.T) {
	for seed := range uint64(12) {
		p := newPlay(t, seed, 3, 6)
		p.x.cfg.Window = 40
		p.x.runBlocks = []int{maxRun, 3}[seed%2]
		uses := map[string][]time.Duration{}
		now := time.Duration(0)
		for range 600 {
			p.agree(p.step())
			for name := range uses {
				if !p.oracle[p.holders[0]][name] && !p.oracle[p.holders[1]][name] && !p.oracle[p.holders[2]][name] {
					delete(uses, name)
				}
			}
			now += time.Duration(p.rng.IntN(6))
			locals := p.seqs[p.rng.IntN(len(p.seqs))]
			matched := 0
			for _, n := range p.oracle.find(locals) {
				matched = max(matched, int(n))
			}
			var want []uint32
			for i := range matched {
				name := nameOf(locals[:i+1])
				uses[name] = slices.DeleteFunc(uses[name], func(at time.Duration) bool { return at <= now-40 })
				if n := len(uses[name]); n > 0 {
					want = append(want, uint32(n))
				}
				uses[name] = append(uses[name], now)
			}
			if got := p.x.Record(locals, now, nil); !slices.Equal(got, want) {
				t.Fatalf("seed %d at %d: %v: %v, want %v", seed, now, locals, got, want)
			}
		}
	}
}

// TestHeatIsBounded: a flood of accesses to one run is remembered in part.
func TestHeatIsBounded(t *testing.T) {
	x, err := New(Config{Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Store(w(0), tail(seq(1, 4), 0)); err != nil {
		t.Fatal(err)
	}
	var dst []uint32
	for i := range 5 * maxUses {
		dst = x.Record(seq(1, 4), time.Duration(i), dst[:0])
	}
	if len(dst) != 4 || dst[0] > maxUses || dst[0] < maxUses/2 {
		t.Errorf("%v", dst)
	}
}
