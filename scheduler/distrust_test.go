package scheduler

import (
	"errors"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// failing runs one plan and fails the rows of a request with ErrLogits.
func (b *bed) failing(id RequestID) []Output {
	b.t.Helper()
	p := b.s.Next(b.now)
	res, err := b.sim.run(&p.Batch)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range p.rows {
		if p.rows[i].q.req.ID == id {
			res.Out = slices.DeleteFunc(res.Out, func(o engine.RowOut) bool { return o.Row == i })
			res.Out = append(res.Out, engine.RowOut{Row: i, Err: engine.ErrLogits})
		}
	}
	slices.SortFunc(res.Out, func(a, b engine.RowOut) int { return a.Row - b.Row })
	out := b.s.Complete(b.now, p, res, nil)
	if err := b.s.Check(); err != nil {
		b.t.Fatal(err)
	}
	return out
}

// TestFailedChunksAreHidden checks that new requests do not find the chunks of a request
// that failed for its logits until a request that shares them has sampled. Chunks that no
// request shares are removed at once, with Removed events.
func TestFailedChunksAreHidden(t *testing.T) {
	for _, samples := range []bool{true, false} {
		b := newBed(t, Config{StepTokens: 12, ShareTokens: 1000, Events: true, BlockTokens: 4}, 4, 60)
		b.add(1, seq(0, 60), 1)
		b.wantRows("1[0,12)")
		b.add(2, append(seq(0, 8), seq(70, 20)...), 3) // shares two of the three pages
		b.step()
		b.s.TakeEvents(nil)
		out := b.failing(1)
		if len(out) != 1 || out[0].Request != 1 || !errors.Is(out[0].Ending.Err, engine.ErrLogits) {
			t.Fatalf("outputs %+v", out)
		}
		removed := 0
		for _, e := range b.s.TakeEvents(nil) {
			if e.Kind == kv.Removed {
				removed += len(e.Hashes)
			}
		}
		if removed == 0 || b.s.cache.Distrusted() == 0 {
			t.Errorf("%d blocks removed, %d nodes distrusted", removed, b.s.cache.Distrusted())
		}
		b.add(3, seq(0, 12), 1)
		if !samples {
			b.s.Abort(b.now, 2, nil, nil) // no request is left that could vouch for the KV
			if n := b.s.cache.Distrusted(); n != 0 {
				t.Errorf("%d nodes are distrusted and have no handle", n)
			}
		}
		if e := b.run()[3]; e.CachedTokens != 0 || e.Reason != Length {
			t.Errorf("samples %v: the request after the failure has %+v", samples, e)
		}
		b.add(4, append(seq(0, 8), 96), 1)
		if e := b.run()[4]; e.CachedTokens != 8 {
			t.Errorf("samples %v: the last request has %+v", samples, e)
		}
		if m := b.s.Metrics(); m.HeldPages != 0 || m.LeakedPages != 0 || b.s.cache.Distrusted() != 0 {
			t.Errorf("metrics:\n%v", m)
		}
	}
}

// TestRowWithoutTokenDistrustsNothing checks that a request without an allowed token keeps its chunks
// in the cache: its logits were sound.
func TestRowWithoutTokenDistrustsNothing(t *testing.T) {
	b := newBed(t, Config{StepTokens: 12}, 4, 60)
	b.add(1, seq(0, 20), 1)
	b.step()
	p := b.s.Next(b.now)
	res, err := b.sim.run(&p.Batch)
	if err != nil {
		t.Fatal(err)
	}
	res.Out[0] = engine.RowOut{Err: engine.ErrNoToken}
	b.s.Complete(b.now, p, res, nil)
	b.add(2, seq(0, 20), 1)
	if e := b.run()[2]; e.CachedTokens != 12 {
		t.Errorf("ending %+v", e)
	}
}

// TestFailedSampleFailsAlone checks that of samples that share a prompt, only the one that
// computed it fails; another computes it again.
func TestFailedSampleFailsAlone(t *testing.T) {
	b := newBed(t, Config{StepTokens: 12}, 4, 60)
	if err := b.s.Add(b.now, Request{ID: 1, Prompt: seq(0, 20), MaxTokens: 2, Samples: 3}); err != nil {
		t.Fatal(err)
	}
	b.step()
	if out := b.failing(1); len(out) != 1 || out[0].Ending.Reason != Failed || out[0].Final {
		t.Fatalf("outputs %+v", out)
	}
	b.wantRows("1[0,12)")
	sampled := 0
	for b.s.Open() > 0 {
		for _, o := range b.step() {
			if o.Sampled {
				sampled++
			}
		}
	}
	if sampled != 4 || b.sim.given != 20+20+1 {
		t.Errorf("%d tokens sampled, %d given", sampled, b.sim.given)
	}
}
