package tiering

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

func newPolicy(t *testing.T, c Config) *Policy {
	t.Helper()
	c.Layout = layout
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func sequence(n int) []mempool.Extent {
	return layout.AppendExtents(nil, kv.Namespace{}, make([]kv.Token, n), nil)
}

// compute tells the policy that extents are on the device, on pages with the numbers of their positions.
func compute(p *Policy, now time.Duration, xs []mempool.Extent) {
	for i := range xs {
		pages := make([]kv.PageID, layout.Pages(&xs[i]))
		for j := range pages {
			pages[j] = kv.PageID(xs[i].Start/layout.PageTokens + j)
		}
		p.Computed(now, &xs[i], pages, nil)
	}
}

// evict evicts an extent that compute has put on the device.
func evict(p *Policy, now time.Duration, x *mempool.Extent) {
	p.Evict(now, []kv.PageID{kv.PageID(x.Start / layout.PageTokens)}, Demoted)
}

// begun takes the moves that calls other than Next have begun.
func begun(p *Policy) []Move {
	moves := p.out
	p.out = nil
	return moves
}

func holds(p *Policy, t kv.Tier, k mempool.Key) bool {
	return p.tiers[t] != nil && p.tiers[t].index.Has(k)
}

// kinds carries out all moves that the policy begins, and lists them.
func kinds(p *Policy, now time.Duration) (list []string) {
	for {
		moves := p.Next(now, nil)
		if len(moves) == 0 {
			return list
		}
		for _, m := range moves {
			list = append(list, fmt.Sprintf("%s %s-%s %d", m.Kind, m.From, m.To, m.Extent.Start/16))
			p.Moved(now, m.ID, nil, time.Millisecond)
		}
	}
}

// TestModes checks when each mode writes computed extents to host memory and to disk.
func TestModes(t *testing.T) {
	now := time.Duration(0)
	for _, tc := range []struct {
		mode                    Mode
		computed, used, demoted []string
	}{
		{WriteBack, nil, nil, []string{"write device-host 0", "write device-host 1", "write host-disk 0", "write host-disk 1"}},
		{Selective, nil, []string{"write device-host 0", "write device-host 1", "write host-disk 0", "write host-disk 1"}, nil},
		{Through, []string{"write device-host 0", "write device-host 1"}, []string{"write host-disk 0", "write host-disk 1"}, nil},
	} {
		c := Config{Mode: tc.mode}
		c.Tiers[kv.TierHost], c.Tiers[kv.TierDisk] = tierOf(10), tierOf(10)
		p := newPolicy(t, c)
		xs := sequence(32)
		compute(p, now, xs)
		if got := kinds(p, now); !slices.Equal(got, tc.computed) {
			t.Errorf("%s: computed: %v", tc.mode, got)
		}
		p.Used(now, xs[0].Key)
		p.Used(now, xs[1].Key)
		if got := kinds(p, now); !slices.Equal(got, tc.used) {
			t.Errorf("%s: used again: %v", tc.mode, got)
		}
		p.demote(now, xs[1].Key)
		if got := kinds(p, now); !slices.Equal(got, tc.demoted) {
			t.Errorf("%s: demoted: %v", tc.mode, got)
		}
	}
}

// fill adds n extents to a tier, each with its own namespace.
func fill(p *Policy, tier kv.Tier, n int) {
	for i := range n {
		p.Found(tier, layout.AppendExtents(nil, kv.Namespace{Salt: fmt.Sprint(i)}, make([]kv.Token, 16), nil))
	}
}

// TestAdmission checks that a disk with room below its low watermark takes evicted extents after
// one use, and that a full one takes them on their second use, when idle, and at shutdown.
func TestAdmission(t *testing.T) {
	now := time.Duration(0)
	write := []string{"write device-disk 0"}
	for name, tc := range map[string]struct {
		held int
		do   func(p *Policy, k mempool.Key)
		want []string
	}{
		"room":  {7, func(p *Policy, k mempool.Key) { p.demote(now, k) }, write},
		"full":  {8, func(p *Policy, k mempool.Key) { p.demote(now, k) }, nil},
		"again": {8, func(p *Policy, k mempool.Key) { p.Used(now, k) }, write},
		"idle":  {8, func(p *Policy, k mempool.Key) { p.Idle(now, k) }, write},
		"end":   {8, func(p *Policy, _ mempool.Key) { p.Shutdown(now, now+time.Second) }, write},
	} {
		c := Config{}
		c.Tiers[kv.TierDisk] = tierOf(10)
		p := newPolicy(t, c)
		fill(p, kv.TierDisk, tc.held)
		xs := sequence(16)
		compute(p, now, xs)
		tc.do(p, xs[0].Key)
		if got := kinds(p, now); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestSink checks that full host memory writes extents to disk before dropping them, and that it
// drops them after one failed write, too.
func TestSink(t *testing.T) {
	now := time.Duration(0)
	for _, failed := range []error{nil, mempool.ErrFull} {
		c := Config{}
		c.Tiers[kv.TierHost], c.Tiers[kv.TierDisk] = tierOf(20), tierOf(40)
		p := newPolicy(t, c)
		fill(p, kv.TierHost, 19)
		writes, drops := 0, 0
		for moves := p.Next(now, nil); len(moves) > 0; moves = p.Next(now, nil) {
			for _, m := range moves {
				var err error
				if m.Kind == Write {
					writes++
					err = failed
				} else if drops++; !holds(p, kv.TierDisk, m.Extent.Key) && failed == nil {
					t.Error("an extent is dropped before it is on disk")
				}
				p.Moved(now, m.ID, err, time.Millisecond)
			}
		}
		if writes != 2 || drops != 2 {
			t.Errorf("%v: %d writes, %d drops, want 2 of each", failed, writes, drops)
		}
	}
}

// TestFullStore: a tier whose store is full below the tier's quota drops its least recently used
// extents, so that new ones get in.
func TestFullStore(t *testing.T) {
	const slots = 12
	now := time.Duration(0)
	c := Config{Mode: Through}
	c.Tiers[kv.TierDisk] = tierOf(100)
	p := newPolicy(t, c)
	held, full := map[mempool.Key]bool{}, 0
	for i := range 60 {
		x := layout.AppendExtents(nil, kv.Namespace{Salt: fmt.Sprint(i)}, make([]kv.Token, 16), nil)
		compute(p, now, x)
		for moves := p.Next(now, nil); len(moves) > 0; moves = p.Next(now, nil) {
			for _, m := range moves {
				var err error
				switch {
				case m.Kind == Drop:
					delete(held, m.Extent.Key)
				case len(held) == slots:
					err = mempool.ErrFull
					full++
				default:
					held[m.Extent.Key] = true
				}
				p.Moved(now, m.ID, err, time.Millisecond)
			}
		}
		if i > slots && !held[x[0].Key] && len(held) == slots {
			t.Errorf("extent %d is not stored, and there is no room for the next one", i)
		}
	}
	if s := p.Stats(kv.TierDisk); len(held) < slots*3/4 || s.Extents != len(held) || full > 60/2 {
		t.Errorf("the store has %d extents, the policy %d; %d writes found the store full", len(held), s.Extents, full)
	}
}

// TestFullHost checks that extents offered or evicted by the device go to disk while host memory
// has no room, and that nothing leaves host memory before it is on disk. Without a disk an offer
// waits for room.
func TestFullHost(t *testing.T) {
	for _, disk := range []int{0, 40} {
		now := time.Duration(0)
		c := Config{}
		c.Tiers[kv.TierHost] = tierOf(20)
		if disk > 0 {
			c.Tiers[kv.TierDisk] = tierOf(disk)
			c.Tiers[kv.TierDisk].MaxMoves = 8
		}
		c.Tiers[kv.TierHost].MaxMoves = 8
		p := newPolicy(t, c)
		fill(p, kv.TierHost, 20)
		xs := sequence(32)
		compute(p, now, xs)
		p.Offer(now)
		if disk > 0 {
			evict(p, now, &xs[1])
			if got := begun(p); len(got) != 2 || got[0].To != kv.TierDisk || got[1].Extent.Key != xs[1].Key {
				t.Fatalf("%v", got)
			} else {
				for _, m := range got {
					p.Moved(now, m.ID, nil, time.Millisecond)
				}
			}
		}
		for moves := p.Next(now, nil); len(moves) > 0; moves = p.Next(now, nil) {
			for _, m := range moves {
				if m.Kind == Drop && disk > 0 && !holds(p, kv.TierDisk, m.Extent.Key) {
					t.Error("an extent is dropped before it is on disk")
				}
				p.Moved(now, m.ID, nil, time.Millisecond)
			}
			p.Offer(now)
		}
		for _, x := range xs {
			if !holds(p, kv.TierDisk, x.Key) && !holds(p, kv.TierHost, x.Key) {
				t.Errorf("disk of %d: extent [%d,) is in no tier", disk, x.Start)
			}
		}
		if host, disk := p.Stats(kv.TierHost).Lost, p.Stats(kv.TierDisk).Lost; host+disk != 0 {
			t.Errorf("host lost %d, disk %d", host, disk)
		}
	}
}

// TestDemoteDescendants checks that the descendants of an extent that the device evicts are written
// before it leaves, and leave with it.
func TestDemoteDescendants(t *testing.T) {
	c := Config{}
	c.Tiers[kv.TierHost] = tierOf(10)
	p := newPolicy(t, c)
	xs := sequence(48)
	compute(p, 0, xs)
	evict(p, 0, &xs[1])
	var wrote []string
	for _, m := range begun(p) {
		wrote = append(wrote, fmt.Sprint(m.Kind, m.Extent.Start/16))
	}
	if want := []string{"write 0", "write 1", "write 2"}; !slices.Equal(wrote, want) {
		t.Errorf("%v, want %v", wrote, want)
	}
	if got, want := p.tiers[kv.TierDevice].index.Contents(nil), xs[:1]; len(got) != 1 || got[0].Key != want[0].Key {
		t.Errorf("%v are on the device, want %v", got, want)
	}
	if evict(p, 0, &xs[2]); len(begun(p)) > 0 || p.Stats(kv.TierHost).Lost > 0 {
		t.Error("an extent is written that has left the device")
	}
}

// TestReadDuringWrite checks that an extent on its way to a tier is read once its write has
// ended, and computed if the write fails.
func TestReadDuringWrite(t *testing.T) {
	for _, failed := range []error{nil, mempool.ErrFull} {
		now := time.Duration(0)
		c := Config{}
		c.Tiers[kv.TierHost] = tierOf(10)
		p := newPolicy(t, c)
		xs := sequence(32)
		compute(p, now, xs)
		evict(p, now, &xs[1])
		writes := p.Next(now, nil)
		if parts := p.Want(now, 1, xs[1:], 16, nil); len(writes) != 2 || len(parts) != 1 {
			t.Fatalf("%d writes, %d parts", len(writes), len(parts))
		}
		if got := p.Next(now, nil); len(got) != 0 {
			t.Fatalf("a read begins before its write has ended: %v", got)
		}
		p.Moved(now, writes[0].ID, nil, time.Millisecond)
		p.Moved(now, writes[1].ID, failed, time.Millisecond)
		for _, m := range p.Next(now, nil) {
			p.Moved(now, m.ID, nil, time.Millisecond)
		}
		tokens, waiting := p.Arrived(1)
		if want := map[bool]int{true: 16, false: 0}[failed == nil]; tokens != want || waiting {
			t.Errorf("%v: %d tokens, waiting %v", failed, tokens, waiting)
		}
		p.Forget(1)
		if err := p.Check(); err != nil || p.Busy() {
			t.Error(err, p.Busy())
		}
	}
}

// TestReadDeadline checks that a read may take half the time of computing, if that is more than
// Lateness times the expected time.
func TestReadDeadline(t *testing.T) {
	for _, tc := range []struct {
		token float64
		want  time.Duration
	}{{0.125, time.Second}, {1e-4, 50 * time.Millisecond}, {10, 10 * time.Second}, {0, time.Second}} {
		c := Config{TokenSeconds: tc.token}
		c.Tiers[kv.TierHost] = tierOf(10)
		p := newPolicy(t, c)
		p.Found(kv.TierHost, sequence(16))
		if parts := p.Want(0, 1, sequence(16), 0, nil); len(parts) != 1 || parts[0].Deadline != tc.want {
			t.Errorf("%v s a token: %v, want %v", tc.token, parts, tc.want)
		}
	}
}

// TestShutdown checks that extents on the device are written to disk and to the shared tier, the
// newest first and after their parents, bounded only by time.
func TestShutdown(t *testing.T) {
	now := time.Duration(0)
	c := Config{MaxQueue: 1}
	c.Tiers[kv.TierDisk], c.Tiers[kv.TierShared] = tierOf(10), tierOf(10)
	p := newPolicy(t, c)
	compute(p, now, layout.AppendExtents(nil, kv.Namespace{Salt: "old"}, make([]kv.Token, 16), nil))
	compute(p, now, sequence(32))
	p.Shutdown(now, now+time.Second)
	want := []string{"write device-disk 0", "write device-disk 1", "write device-disk 0", "write device-shared 0", "write device-shared 1", "write device-shared 0"}
	if got := kinds(p, now); !slices.Equal(got, want) || p.Busy() {
		t.Errorf("%v, want %v; busy %v", got, want, p.Busy())
	}
}

// TestFetchOrCompute tests at the bandwidth at which both take equally long, above it and below.
func TestFetchOrCompute(t *testing.T) {
	now := time.Duration(0)
	for _, tc := range []struct {
		bandwidth float64
		want      int
	}{{1.01e6, 32}, {0.99e6, 0}} {
		c := Config{TokenSeconds: 1024 / 1e6 / 16} // 1 ms for an extent
		c.Tiers[kv.TierHost] = tierOf(10)
		c.Tiers[kv.TierHost].Bandwidth = tc.bandwidth
		p := newPolicy(t, c)
		xs := sequence(32)
		p.Found(kv.TierHost, xs)
		got := 0
		for _, part := range p.Want(now, 1, xs, 0, nil) {
			got += part.Tokens
		}
		if got != tc.want {
			t.Errorf("%v bytes/s: %d tokens, want %d", tc.bandwidth, got, tc.want)
		}
	}
}

// TestFailedRead checks that a failed read is a miss at once: earlier parts are kept, later ones
// are given up, and the extent is not used again. After a deadline it is.
func TestFailedRead(t *testing.T) {
	now := time.Duration(0)
	for _, tc := range []struct {
		err  error
		left int
	}{{mempool.ErrCorrupt, 1}, {mempool.ErrMiss, 1}, {mempool.ErrDeadline, 3}} {
		c := Config{}
		c.Tiers[kv.TierHost] = tierOf(10)
		c.Tiers[kv.TierHost].MaxMoves = 2
		p := newPolicy(t, c)
		xs := sequence(48)
		p.Found(kv.TierHost, xs)
		p.Want(now, 1, xs, 0, nil)
		moves := p.Next(now, nil)
		if len(moves) != 2 {
			t.Fatalf("%d reads begin, the bound is 2", len(moves))
		}
		if tokens, waiting := p.Arrived(1); tokens != 0 || !waiting {
			t.Error(tokens, waiting)
		}
		p.Moved(now, moves[1].ID, tc.err, 0)
		p.Moved(now, moves[0].ID, nil, time.Millisecond)
		if tokens, waiting := p.Arrived(1); tokens != 16 || waiting {
			t.Errorf("%v: %d tokens, waiting %v", tc.err, tokens, waiting)
		}
		if more := p.Next(now, nil); len(more) != 0 {
			t.Errorf("%v: %v begins", tc.err, more)
		}
		left := 0
		for _, x := range xs {
			if holds(p, kv.TierHost, x.Key) {
				left++
			}
		}
		if left != tc.left {
			t.Errorf("%v: %d extents are left, want %d", tc.err, left, tc.left)
		}
	}
}

// TestCancel checks that the end of a request cancels its reads, except those that another
// request waits for.
func TestCancel(t *testing.T) {
	now := time.Duration(0)
	c := Config{}
	c.Tiers[kv.TierHost] = tierOf(10)
	p := newPolicy(t, c)
	xs := sequence(48)
	p.Found(kv.TierHost, xs)
	p.Want(now, 1, xs, 0, nil)
	p.Want(now, 2, xs[:1], 0, nil)
	if got := p.Next(now, nil); len(got) != 3 {
		t.Fatalf("%d reads for two requests that share one", len(got))
	}
	p.Forget(1)
	got := p.Next(now, nil)
	if len(got) != 2 || got[0].Kind != Cancel || got[0].Extent.Key != xs[1].Key || got[1].Extent.Key != xs[2].Key {
		t.Fatalf("%v", got)
	}
}

// TestWatermarks checks that nothing leaves at the high watermark, and that one extent more
// leads to drops down to the low one.
func TestWatermarks(t *testing.T) {
	now := time.Duration(0)
	c := Config{}
	c.Tiers[kv.TierHost] = tierOf(20)
	c.Tiers[kv.TierHost].MaxMoves = 20
	p := newPolicy(t, c)
	for i := range 19 {
		x := layout.AppendExtents(nil, kv.Namespace{Salt: fmt.Sprint(i)}, make([]kv.Token, 16), nil)
		p.Found(kv.TierHost, x)
		if i == 17 {
			if got := kinds(p, now); len(got) != 0 {
				t.Errorf("at 0.90: %v", got)
			}
		}
	}
	if got := kinds(p, now); len(got) != 2 {
		t.Errorf("beyond 0.90: %v", got)
	}
}

func TestConfig(t *testing.T) {
	good := Config{Layout: layout}.WithDefaults()
	good.Tiers[kv.TierHost] = tierOf(1)
	for name, change := range map[string]func(*Config){
		"layout": func(c *Config) { c.Layout.PageBytes = 0 },
		"device": func(c *Config) { c.Tiers[0] = tierOf(1) },
		"slot":   func(c *Config) { c.Tiers[1].SlotBytes = 2000 },
		"marks":  func(c *Config) { c.Tiers[1].Low, c.Tiers[1].High = 0.9, 0.8 },
		"mode":   func(c *Config) { c.Mode = 3 },
		"uses":   func(c *Config) { c.Uses = -1 },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: a policy is made", name)
		}
	}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
	var m Mode
	for _, want := range []Mode{WriteBack, Selective, Through} {
		if err := m.UnmarshalText([]byte(want.String())); err != nil || m != want {
			t.Errorf("%v: %v", want, err)
		}
	}
	if err := m.UnmarshalText([]byte("sideways")); err == nil || errors.Is(err, mempool.ErrInvalid) {
		t.Error(err)
	}
}
