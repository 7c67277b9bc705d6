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

func newBook(t *testing.T, c Config) *Book {
	t.Helper()
	c.Layout = layout
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func sequence(n int) []mempool.Extent {
	return layout.AppendExtents(nil, kv.Namespace{}, make([]kv.Token, n), nil)
}

// compute tells the book that extents are on the device, on pages with the numbers of their positions.
func compute(b *Book, now time.Duration, xs []mempool.Extent) {
	for i := range xs {
		pages := make([]kv.PageID, layout.Pages(&xs[i]))
		for j := range pages {
			pages[j] = kv.PageID(xs[i].Start/layout.PageTokens + j)
		}
		b.Computed(now, &xs[i], pages, nil)
	}
}

// evict evicts an extent that compute has put on the device.
func evict(b *Book, now time.Duration, x *mempool.Extent) {
	b.Evict(now, []kv.PageID{kv.PageID(x.Start / layout.PageTokens)}, Demoted)
}

// begun takes the moves that calls other than Next have begun.
func begun(b *Book) []Move {
	moves := b.out
	b.out = nil
	return moves
}

func holds(b *Book, t kv.Tier, k mempool.Key) bool {
	return b.tiers[t] != nil && b.tiers[t].index.Has(k)
}

// kinds carries out all moves that the book begins, and lists them.
func kinds(b *Book, now time.Duration) (list []string) {
	for {
		moves := b.Next(now, nil)
		if len(moves) == 0 {
			return list
		}
		for _, m := range moves {
			list = append(list, fmt.Sprintf("%s %s-%s %d", m.Kind, m.From, m.To, m.Extent.Start/16))
			b.Moved(now, m.ID, nil, time.Millisecond)
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
		b := newBook(t, c)
		xs := sequence(32)
		compute(b, now, xs)
		if got := kinds(b, now); !slices.Equal(got, tc.computed) {
			t.Errorf("%s: computed: %v", tc.mode, got)
		}
		b.Used(now, xs[0].Key)
		b.Used(now, xs[1].Key)
		if got := kinds(b, now); !slices.Equal(got, tc.used) {
			t.Errorf("%s: used again: %v", tc.mode, got)
		}
		b.demote(now, xs[1].Key)
		if got := kinds(b, now); !slices.Equal(got, tc.demoted) {
			t.Errorf("%s: demoted: %v", tc.mode, got)
		}
	}
}

// fill adds n extents to a tier, each with its own namespace.
func fill(b *Book, tier kv.Tier, n int) {
	for i := range n {
		b.Found(tier, layout.AppendExtents(nil, kv.Namespace{Salt: fmt.Sprint(i)}, make([]kv.Token, 16), nil))
	}
}

// TestAdmission checks that a disk with room below its low watermark takes evicted extents after
// one use, and that a full one takes them on their second use, when idle, and at shutdown.
func TestAdmission(t *testing.T) {
	now := time.Duration(0)
	write := []string{"write device-disk 0"}
	for name, tc := range map[string]struct {
		held int
		do   func(b *Book, k mempool.Key)
		want []string
	}{
		"room":  {7, func(b *Book, k mempool.Key) { b.demote(now, k) }, write},
		"full":  {8, func(b *Book, k mempool.Key) { b.demote(now, k) }, nil},
		"again": {8, func(b *Book, k mempool.Key) { b.Used(now, k) }, write},
		"idle":  {8, func(b *Book, k mempool.Key) { b.Idle(now, k) }, write},
		"end":   {8, func(b *Book, _ mempool.Key) { b.Shutdown(now, now+time.Second) }, write},
	} {
		c := Config{}
		c.Tiers[kv.TierDisk] = tierOf(10)
		b := newBook(t, c)
		fill(b, kv.TierDisk, tc.held)
		xs := sequence(16)
		compute(b, now, xs)
		tc.do(b, xs[0].Key)
		if got := kinds(b, now); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestDemoteBetweenTiers checks that full host memory writes extents to disk before dropping them, and that it
// drops them after one failed write, too.
func TestDemoteBetweenTiers(t *testing.T) {
	now := time.Duration(0)
	for _, failed := range []error{nil, mempool.ErrFull} {
		c := Config{}
		c.Tiers[kv.TierHost], c.Tiers[kv.TierDisk] = tierOf(20), tierOf(40)
		b := newBook(t, c)
		fill(b, kv.TierHost, 19)
		writes, drops := 0, 0
		for moves := b.Next(now, nil); len(moves) > 0; moves = b.Next(now, nil) {
			for _, m := range moves {
				var err error
				if m.Kind == Write {
					writes++
					err = failed
				} else if drops++; !holds(b, kv.TierDisk, m.Extent.Key) && failed == nil {
					t.Error("an extent is dropped before it is on disk")
				}
				b.Moved(now, m.ID, err, time.Millisecond)
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
	b := newBook(t, c)
	held, full := map[mempool.Key]bool{}, 0
	for i := range 60 {
		x := layout.AppendExtents(nil, kv.Namespace{Salt: fmt.Sprint(i)}, make([]kv.Token, 16), nil)
		compute(b, now, x)
		for moves := b.Next(now, nil); len(moves) > 0; moves = b.Next(now, nil) {
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
				b.Moved(now, m.ID, err, time.Millisecond)
			}
		}
		if i > slots && !held[x[0].Key] && len(held) == slots {
			t.Errorf("extent %d is not stored, and there is no room for the next one", i)
		}
	}
	if s := b.Stats(kv.TierDisk); len(held) < slots*3/4 || s.Extents != len(held) || full > 60/2 {
		t.Errorf("the store has %d extents, the book %d; %d writes found the store full", len(held), s.Extents, full)
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
		b := newBook(t, c)
		fill(b, kv.TierHost, 20)
		xs := sequence(32)
		compute(b, now, xs)
		b.Offer(now)
		if disk > 0 {
			evict(b, now, &xs[1])
			if got := begun(b); len(got) != 2 || got[0].To != kv.TierDisk || got[1].Extent.Key != xs[1].Key {
				t.Fatalf("%v", got)
			} else {
				for _, m := range got {
					b.Moved(now, m.ID, nil, time.Millisecond)
				}
			}
		}
		for moves := b.Next(now, nil); len(moves) > 0; moves = b.Next(now, nil) {
			for _, m := range moves {
				if m.Kind == Drop && disk > 0 && !holds(b, kv.TierDisk, m.Extent.Key) {
					t.Error("an extent is dropped before it is on disk")
				}
				b.Moved(now, m.ID, nil, time.Millisecond)
			}
			b.Offer(now)
		}
		for _, x := range xs {
			if !holds(b, kv.TierDisk, x.Key) && !holds(b, kv.TierHost, x.Key) {
				t.Errorf("disk of %d: extent [%d,) is in no tier", disk, x.Start)
			}
		}
		if host, disk := b.Stats(kv.TierHost).Lost, b.Stats(kv.TierDisk).Lost; host+disk != 0 {
			t.Errorf("host lost %d, disk %d", host, disk)
		}
	}
}

// TestDemoteDescendants checks that the descendants of an extent that the device evicts are written
// before it leaves, and leave with it.
func TestDemoteDescendants(t *testing.T) {
	c := Config{}
	c.Tiers[kv.TierHost] = tierOf(10)
	b := newBook(t, c)
	xs := sequence(48)
	compute(b, 0, xs)
	evict(b, 0, &xs[1])
	var wrote []string
	for _, m := range begun(b) {
		wrote = append(wrote, fmt.Sprint(m.Kind, m.Extent.Start/16))
	}
	if want := []string{"write 0", "write 1", "write 2"}; !slices.Equal(wrote, want) {
		t.Errorf("%v, want %v", wrote, want)
	}
	if got, want := b.tiers[kv.TierDevice].index.Contents(nil), xs[:1]; len(got) != 1 || got[0].Key != want[0].Key {
		t.Errorf("%v are on the device, want %v", got, want)
	}
	if evict(b, 0, &xs[2]); len(begun(b)) > 0 || b.Stats(kv.TierHost).Lost > 0 {
		t.Error("an extent is written that has left the device")
	}
}

// TestDeviceLost checks that a write from the device ends with the device, and that a drop which is due
// at that time does not: the store still has the extent.
func TestDeviceLost(t *testing.T) {
	c := Config{}
	c.Tiers[kv.TierHost] = tierOf(10)
	b := newBook(t, c)
	fill(b, kv.TierHost, 9)
	xs := sequence(32)
	compute(b, 0, xs)
	evict(b, 0, &xs[0])
	if b.DeviceLost(0); b.Device.Copying() || len(b.Device.Pages(nil)) > 0 {
		t.Error("the device still has extents or reads pages")
	}
	if got := kinds(b, 0); len(got) == 0 || slices.ContainsFunc(got, func(move string) bool { return move != "drop host-host 0" }) || b.Busy() {
		t.Errorf("%v, want drops; busy: %v", got, b.Busy())
	}
	if err := b.Check(); err != nil {
		t.Error(err)
	}
}

// TestReadDuringWrite checks that an extent on its way to a tier is read once its write has
// ended, and computed if the write fails.
func TestReadDuringWrite(t *testing.T) {
	for _, failed := range []error{nil, mempool.ErrFull} {
		now := time.Duration(0)
		c := Config{}
		c.Tiers[kv.TierHost] = tierOf(10)
		b := newBook(t, c)
		xs := sequence(32)
		compute(b, now, xs)
		evict(b, now, &xs[1])
		writes := b.Next(now, nil)
		if parts := b.Want(now, 1, xs[1:], 16, nil); len(writes) != 2 || len(parts) != 1 {
			t.Fatalf("%d writes, %d parts", len(writes), len(parts))
		}
		if got := b.Next(now, nil); len(got) != 0 {
			t.Fatalf("a read begins before its write has ended: %v", got)
		}
		b.Moved(now, writes[0].ID, nil, time.Millisecond)
		b.Moved(now, writes[1].ID, failed, time.Millisecond)
		for _, m := range b.Next(now, nil) {
			b.Moved(now, m.ID, nil, time.Millisecond)
		}
		tokens, waiting := b.Arrived(1)
		if want := map[bool]int{true: 16, false: 0}[failed == nil]; tokens != want || waiting {
			t.Errorf("%v: %d tokens, waiting %v", failed, tokens, waiting)
		}
		b.Forget(1)
		if err := b.Check(); err != nil || b.Busy() {
			t.Error(err, b.Busy())
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
		b := newBook(t, c)
		b.Found(kv.TierHost, sequence(16))
		if parts := b.Want(0, 1, sequence(16), 0, nil); len(parts) != 1 || parts[0].Deadline != tc.want {
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
	b := newBook(t, c)
	compute(b, now, layout.AppendExtents(nil, kv.Namespace{Salt: "old"}, make([]kv.Token, 16), nil))
	compute(b, now, sequence(32))
	b.Shutdown(now, now+time.Second)
	want := []string{"write device-disk 0", "write device-disk 1", "write device-disk 0", "write device-shared 0", "write device-shared 1", "write device-shared 0"}
	if got := kinds(b, now); !slices.Equal(got, want) || b.Busy() {
		t.Errorf("%v, want %v; busy %v", got, want, b.Busy())
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
		b := newBook(t, c)
		xs := sequence(32)
		b.Found(kv.TierHost, xs)
		got := 0
		for _, part := range b.Want(now, 1, xs, 0, nil) {
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
		b := newBook(t, c)
		xs := sequence(48)
		b.Found(kv.TierHost, xs)
		b.Want(now, 1, xs, 0, nil)
		moves := b.Next(now, nil)
		if len(moves) != 2 {
			t.Fatalf("%d reads begin, the bound is 2", len(moves))
		}
		if tokens, waiting := b.Arrived(1); tokens != 0 || !waiting {
			t.Error(tokens, waiting)
		}
		b.Moved(now, moves[1].ID, tc.err, 0)
		b.Moved(now, moves[0].ID, nil, time.Millisecond)
		if tokens, waiting := b.Arrived(1); tokens != 16 || waiting {
			t.Errorf("%v: %d tokens, waiting %v", tc.err, tokens, waiting)
		}
		if more := b.Next(now, nil); len(more) != 0 {
			t.Errorf("%v: %v begins", tc.err, more)
		}
		left := 0
		for _, x := range xs {
			if holds(b, kv.TierHost, x.Key) {
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
	b := newBook(t, c)
	xs := sequence(48)
	b.Found(kv.TierHost, xs)
	b.Want(now, 1, xs, 0, nil)
	b.Want(now, 2, xs[:1], 0, nil)
	if got := b.Next(now, nil); len(got) != 3 {
		t.Fatalf("%d reads for two requests that share one", len(got))
	}
	b.Forget(1)
	got := b.Next(now, nil)
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
	b := newBook(t, c)
	for i := range 19 {
		x := layout.AppendExtents(nil, kv.Namespace{Salt: fmt.Sprint(i)}, make([]kv.Token, 16), nil)
		b.Found(kv.TierHost, x)
		if i == 17 {
			if got := kinds(b, now); len(got) != 0 {
				t.Errorf("at 0.90: %v", got)
			}
		}
	}
	if got := kinds(b, now); len(got) != 2 {
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
			t.Errorf("%s: a book is made", name)
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
