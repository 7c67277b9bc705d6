package sizing

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-llm/coppice/internal/invariants"
)

// small is a run of a second or less. It plays under a fake clock, so its load takes no wall time.
var small = Config{Workers: 8, Sessions: 96, Tokens: 4000, TurnTokens: 100, Rate: 200, Duration: 2 * time.Second, Hold: 200 * time.Millisecond, Churn: 10}

func played(t *testing.T, cfg Config) *Figures {
	t.Helper()
	var f *Figures
	synctest.Test(t, func(t *testing.T) {
		steps, ticks := 0, time.Duration(0)
		cpu := func() time.Duration { ticks += time.Second; return ticks }
		var err error
		if f, err = Play(t.Context(), cfg, cpu, func() { steps++ }); err != nil {
			t.Fatal(err)
		}
		if steps != cfg.Steps() {
			t.Errorf("%d calls of progress, want %d", steps, cfg.Steps())
		}
	})
	return f
}

func TestPlay(t *testing.T) {
	f := played(t, small)
	if f.Workers != 8 || f.Blocks != 96*250 || f.WorkerMaxOverMean < 1 || f.ChoiceCPU == 0 {
		t.Errorf("%+v", f)
	}
	// Without churn every session's prompt is cached but for the last turn: at least 250 of 256 blocks.
	if s := &f.Steady; s.HitRate < 0.95 || s.HitRate > 1 || s.Left != 0 || s.PerSecond < 190 {
		t.Errorf("load: %+v", s)
	}
	// 20 workers of 8 have left in these two seconds, and every session has lost its blocks at least once.
	if c := &f.Churned; c.Left < 15 || c.HitRate >= f.Steady.HitRate-0.1 || c.HitRate == 0 {
		t.Errorf("churn: %+v", c)
	}
	rows, legend := f.Rows()
	if len(rows) < 15 || !strings.Contains(legend, "block hashes") {
		t.Errorf("%d rows, %q", len(rows), legend)
	}
}

// TestChoiceAllocatesNothing is the gate of the hot path: a choice from block hashes, the first token
// and the end, through the dispatcher, the index and the router. A map of the dispatcher grows now and then.
func TestChoiceAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the walks allocate")
	}
	if f := played(t, small); f.ChoiceAllocs > 0.05 {
		t.Errorf("%v allocations for a choice, its first token and its end", f.ChoiceAllocs)
	}
}

// TestIndexBytes bounds what a block takes, at a size at which the shares of nodes and of half-full tables
// are as in a large fleet.
func TestIndexBytes(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the walks take long")
	}
	cfg := small
	cfg.Sessions, cfg.Tokens, cfg.Duration = 200, 32_000, time.Millisecond
	if f := played(t, cfg); f.BlockBytes < 8 || f.BlockBytes > 64 {
		t.Errorf("%.1f bytes a block", f.BlockBytes)
	}
}

func TestConfigFaults(t *testing.T) {
	for want, cfg := range map[string]Config{
		"Workers is -1":           {Workers: -1},
		"Churn is -1":             {Churn: -1},
		"Tokens is 10":            {Tokens: 10},
		"at most half of Session": {Sessions: 100},
	} {
		if _, err := Play(context.Background(), cfg, nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Play(ctx, small, nil, nil); err == nil {
		t.Error("played although the context has ended")
	}
}
