package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/tiering"
)

// tierRig is a scheduler with a host tier whose writes end at once, on a backend that always
// samples token 7.
type tierRig struct {
	t     *testing.T
	s     *Scheduler
	now   time.Duration
	token time.Duration // the device's time to compute a token
	fail  RequestID     // the request whose rows fail
	hold  bool          // moves do not end before release
	held  []tiering.MoveID
}

func newTierRig(t *testing.T, tiers tiering.Config, pages, extentPages int) *tierRig {
	t.Helper()
	info := engine.Info{Name: "null", Vocab: 128, MaxPositions: 4096, PageTokens: 16, PageBytes: 1024, NumPages: pages,
		MaxSlots: 4, MaxRows: 4, MaxTokens: 512, MaxInflight: 1}
	tiers.Layout = mempool.Layout{PageTokens: 16, PageBytes: 1024, ExtentPages: extentPages}
	for i := range tiers.Tiers {
		if t := &tiers.Tiers[i]; t.Bytes > 0 || i == int(kv.TierHost) {
			t.SlotBytes = tiers.Layout.ExtentBytes()
			t.Bytes = cmp.Or(t.Bytes, 64) * int64(t.SlotBytes) // from a number of extents
		}
	}
	s, err := New(Config{Tiers: &tiers, Events: true, BlockTokens: 16, LeaseLowPages: pages, LeaseBulkPages: pages, LeaseHighPages: pages}, info)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]kv.PageID, s.Want())
	for i := range all {
		all[i] = kv.PageID(i)
	}
	s.Grant(all, 0)
	return &tierRig{t: t, s: s}
}

func (h *tierRig) add(id RequestID, prompt []kv.Token, maxTokens int) {
	h.t.Helper()
	if err := h.s.Add(h.now, Request{ID: id, Prompt: prompt, MaxTokens: maxTokens}); err != nil {
		h.t.Fatal(err)
	}
}

// step runs one plan and lists its moves.
func (h *tierRig) step() (moves []string) {
	h.t.Helper()
	h.now += time.Millisecond
	p := h.s.Next(h.now)
	if p == nil {
		return nil
	}
	for _, m := range p.Moves {
		moves = append(moves, fmt.Sprintf("%v [%d,%d)", m.Kind, m.Extent.Start, m.Extent.Start+len(m.Extent.Tokens)))
	}
	begun := slices.Clone(p.Moves)
	res := engine.Result{Seq: p.Batch.Seq, Stats: engine.StepStats{Nanos: int64(p.Tokens()) * int64(h.token)}}
	for i := range p.Batch.Rows {
		if p.Batch.Rows[i].Sample {
			out := engine.RowOut{Row: i, Token: 7}
			if id, _ := p.Request(i); id == h.fail {
				out.Err = engine.ErrLogits
			}
			res.Out = append(res.Out, out)
		}
	}
	h.s.Complete(h.now, p, &res, nil)
	for _, m := range begun {
		if m.Kind != tiering.Cancel {
			h.held = append(h.held, m.ID)
		}
	}
	if !h.hold {
		h.release()
	}
	if err := h.s.Check(); err != nil {
		h.t.Fatal(err)
	}
	return moves
}

// release ends the moves in flight.
func (h *tierRig) release() {
	for _, id := range h.held {
		h.s.Moved(h.now, id, nil, 0)
	}
	h.held = h.held[:0]
}

func (h *tierRig) run() (moves []string) {
	for n := 0; h.s.Open() > 0; n++ {
		if n > 1000 {
			h.t.Fatal("no end")
		}
		moves = append(moves, h.step()...)
	}
	return moves
}

// TestMeasuredCostDecides checks that the measured cost of computing decides whether a
// prefix is fetched, whatever the first guess was.
func TestMeasuredCostDecides(t *testing.T) {
	const extent = time.Millisecond // to read 16 tokens: 1,024 bytes at 1.024 MB a second
	for _, c := range []struct {
		believed, token time.Duration
		fetches         bool
	}{
		{extent, extent / 32, false}, // computing turns out to be cheaper
		{1, extent / 8, true},        // and to be dearer
	} {
		tiers := tiering.Config{TokenGuess: c.believed.Seconds()}
		tiers.Tiers[kv.TierHost].Bandwidth = 1.024e6
		h := newTierRig(t, tiers, 8, 1)
		h.token = c.token
		h.add(1, seq(0, 64), 1)
		h.run()
		h.add(2, seq(1, 112), 1)
		h.run()
		h.add(3, seq(0, 65), 1)
		fetches := slices.ContainsFunc(h.run(), func(move string) bool { return strings.HasPrefix(move, "read") })
		if m := h.s.Metrics(); fetches != c.fetches || fetches != (m.Fetches > 0) || m.Tiers[kv.TierHost].Writes < 4 {
			t.Errorf("a token takes %v, believed were %v: fetched %v, want %v; %+v", c.token, c.believed, fetches, c.fetches, m.Tiers[kv.TierHost])
		}
	}
}

// TestWorkingSetInLowerTier checks that documents that are asked about in turn are computed once
// each, if they fit into the disk tier but into neither device nor host memory.
func TestWorkingSetInLowerTier(t *testing.T) {
	const documents, tokens = 12, 112
	for _, host := range []int64{0, 16, 24, 40} {
		tiers := tiering.Config{}
		tiers.Tiers[kv.TierHost].Bytes, tiers.Tiers[kv.TierDisk].Bytes = host, 160
		h := newTierRig(t, tiers, 16, 1)
		for round := range 3 {
			for d := range documents {
				prompt := seq(d, tokens+1)
				prompt[0] = kv.Token(d)
				h.add(RequestID(1+round*documents+d), prompt, 2)
				h.run()
			}
		}
		m := h.s.Metrics()
		if ideal := uint64(documents * (tokens + 1 + 2)); m.PromptTokens-m.CachedTokens != ideal || m.Tiers[kv.TierHost].Lost+m.Tiers[kv.TierDisk].Lost != 0 {
			t.Errorf("host %d: %d tokens of prompts computed, want %d; host lost %d, disk %d", host, m.PromptTokens-m.CachedTokens, ideal, m.Tiers[kv.TierHost].Lost, m.Tiers[kv.TierDisk].Lost)
		}
	}
}

// TestPrefixBeingWritten checks that a prompt whose KV is being written is a hit while the
// device has its pages. Later requests wait for the write and share one fetch.
func TestPrefixBeingWritten(t *testing.T) {
	tiers := tiering.Config{Mode: tiering.Through}
	h := newTierRig(t, tiers, 12, 1)
	h.hold = true
	h.add(1, seq(0, 65), 1)
	h.run()
	h.step() // begins the writes
	if len(h.held) != 4 {
		t.Fatalf("%d writes", len(h.held))
	}
	h.add(2, seq(0, 65), 1)
	h.run()
	if m := h.s.Metrics(); m.CachedTokens != 64 {
		t.Errorf("%d tokens are found while they are written, want 64", m.CachedTokens)
	}
	h.s.room.evict(h.s.cache.Stats().EvictablePages)
	h.add(3, seq(0, 65), 1)
	h.add(4, seq(0, 65), 1)
	for range 3 {
		h.step()
	}
	if m := h.s.Metrics(); h.s.Open() != 2 || m.Fetches != 1 {
		t.Fatalf("%d requests wait, %d fetches", h.s.Open(), m.Fetches)
	}
	h.hold = false
	h.release()
	h.run()
	if m := h.s.Metrics(); m.CachedTokens != 3*64 || m.Tiers[kv.TierHost].Reads != 4 || m.Tiers[kv.TierHost].HitTokens != 64 {
		t.Errorf("%d tokens found, %d of them in host memory by %d reads; want 192, 64, 4", m.CachedTokens, m.Tiers[kv.TierHost].HitTokens, m.Tiers[kv.TierHost].Reads)
	}
}

// TestFetchEndsWhenPrefixIsComputed checks that a request does not wait for its reads any longer once
// another request has computed the same prefix, and that the pages of the reads come free when these end.
func TestFetchEndsWhenPrefixIsComputed(t *testing.T) {
	h := newTierRig(t, tiering.Config{}, 24, 1)
	h.add(1, seq(0, 65), 1)
	h.run()
	h.s.room.evict(h.s.cache.Stats().EvictablePages)
	h.step()
	h.hold = true
	h.add(2, seq(0, 65), 1)
	if moves := h.step(); !slices.Contains(moves, "read [48,64)") || h.s.Open() != 1 {
		t.Fatalf("moves %v, %d requests open; want a fetch", moves, h.s.Open())
	}
	h.add(3, seq(0, 65), 1)
	for _, q := range h.s.open[3].samples { // as after a fetch of its own that failed
		q.fetched().tried = true
	}
	for range 5 {
		h.step()
	}
	if h.s.Open() != 0 || len(h.held) == 0 {
		t.Errorf("%d requests wait for %d reads, though the prefix is computed", h.s.Open(), len(h.held))
	}
	h.release()
	h.step()
	if idle := h.s.room.lease.IdlePages(); idle != 24-5 || h.s.Flushing() {
		t.Errorf("%d pages are idle, want %d; moves are in flight: %v", idle, 24-5, h.s.Flushing())
	}
}

// TestBlocksAreHashedOnce checks how often each block is hashed: an event has a Local hash
// only if its block was hashed for it. A block is hashed when it is computed, or when a
// store has it from before a restart, but not when it is written to a lower tier or read
// from there.
func TestBlocksAreHashedOnce(t *testing.T) {
	h := newTierRig(t, tiering.Config{}, 8, 2)
	h.token = 10 * time.Microsecond
	hashed := map[kv.BlockHash]int{}
	stored := map[kv.Tier]map[kv.BlockHash]int{kv.TierDevice: {}, kv.TierHost: {}}
	take := func() {
		for _, ev := range h.s.TakeEvents(nil) {
			for _, b := range ev.Blocks {
				stored[ev.Tier][b.Hash]++
				if b.Local != 0 {
					hashed[b.Hash]++
				}
			}
		}
	}
	for i := range 6 {
		h.add(RequestID(i+1), seq(i%3, 100), 2)
		h.run()
		take()
	}
	found := h.s.tiers.layout.AppendExtents(nil, kv.Namespace{}, seq(50, 64), nil)
	h.s.Found(kv.TierHost, found)
	take()
	reads := h.s.Metrics().Tiers[kv.TierHost].Reads
	h.add(7, seq(50, 100), 2)
	h.run()
	take()
	if n := h.s.Metrics().Tiers[kv.TierHost].Reads; reads == 0 || n == reads {
		t.Errorf("%d reads before the store reported extents and %d in all, want more each time", reads, n)
	}
	for hash := range stored[kv.TierHost] {
		if stored[kv.TierDevice][hash] == 0 {
			t.Errorf("block %x is in host memory only", uint64(hash))
		}
	}
	for hash, n := range stored[kv.TierDevice] {
		if hashed[hash] != 1 {
			t.Errorf("block %x is hashed %d times, and stored %d times on the device", uint64(hash), hashed[hash], n)
		}
	}
	if len(stored[kv.TierHost]) < 16 {
		t.Errorf("%d blocks in host memory, want 16 or more", len(stored[kv.TierHost]))
	}
}

// TestFailedTailIsDropped: a preempted request leaves a tail in a lower tier. If the
// request goes on and then fails, the tail must be dropped too.
func TestFailedTailIsDropped(t *testing.T) {
	h := newTierRig(t, tiering.Config{}, 8, 4)
	h.add(1, seq(0, 40), 60)
	for range 3 {
		h.step()
	}
	h.s.preempt(h.now, h.s.running.all[0])
	h.s.room.evict(h.s.cache.Stats().EvictablePages)
	if got := h.step(); !slices.Contains(got, "write [0,32)") {
		t.Fatalf("moves %v, want the write of the computed tokens", got)
	}
	for h.s.Metrics().OutputTokens < 30 {
		h.step()
	}
	h.fail = 1
	if got := h.run(); h.s.Metrics().Endings[Failed] != 1 {
		t.Fatalf("request 1 did not fail; moves %v", got)
	}
	if got := h.step(); !slices.Contains(got, "drop [0,32)") {
		t.Errorf("moves %v, want the drop of the tail", got)
	}
}

// TestExtentsAfterFail checks that after Fail, and after Drain, no extent counts as on the device
// until a request computes or reads it again, and that the extent can then be written.
func TestExtentsAfterFail(t *testing.T) {
	for _, drain := range []bool{false, true} {
		h := newTierRig(t, tiering.Config{Mode: tiering.Selective, Uses: 2}, 60, 2)
		h.add(1, seq(0, 100), 4)
		h.run()
		h.s.Fail(h.now, errRow, nil)
		if drain {
			pages := h.s.Drain(nil)
			h.s.Grant(pages[:h.s.Want()], 0)
		}
		if err := h.s.Check(); err != nil {
			t.Error(err)
		}
		var moves []string
		for id := RequestID(2); id < 6; id++ {
			h.add(id, seq(0, 100+10*int(id)), 4)
			moves = append(moves, h.run()...)
		}
		if !slices.Contains(moves, "write [0,32)") {
			t.Errorf("drained %v: moves %v", drain, moves)
		}
	}
}

// TestFailEndsDueMoves checks that Fail and Drain end the moves that no plan has taken yet: no carrier
// knows them, so Flushing would stay true for ever.
func TestFailEndsDueMoves(t *testing.T) {
	for _, drain := range []bool{false, true} {
		h := newTierRig(t, tiering.Config{}, 60, 2)
		h.add(1, seq(0, 100), 4)
		h.run()
		h.s.room.evict(h.s.cache.Stats().EvictablePages)
		if !h.s.Flushing() {
			t.Fatal("the eviction began no writes")
		}
		if drain {
			h.s.Drain(nil)
		} else {
			h.s.Fail(h.now, errRow, nil)
		}
		for h.step() != nil {
		}
		if h.s.Flushing() {
			t.Errorf("drained %v: moves that no plan has are in flight for ever", drain)
		}
	}
}
