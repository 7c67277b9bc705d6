package dirmem

import (
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/storetest"
)

// TestOneQuota: all users of a directory keep one quota. A larger one replaces it, a smaller one only
// with Shrink.
func TestOneQuota(t *testing.T) {
	dir := t.TempDir()
	open := func(extents int, shrink bool) *Store {
		c := testConfig(storetest.Options{Dir: dir, Identity: storetest.Identity(), Extents: extents})
		c.Shrink = shrink
		s, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	quota := func(s *Store, want int) {
		t.Helper()
		if err := s.keeper.round(); err != nil {
			t.Error(err)
		}
		if got := s.Metrics().CapacityBytes; got != int64(want*s.info.SlotBytes) {
			t.Errorf("the quota is %d records, want %d", got/int64(s.info.SlotBytes), want)
		}
	}
	first := open(8, false)
	quota(first, 8)
	quota(open(16, false), 16)
	quota(first, 16)
	l := first.cfg.Identity.Layout
	xs := l.AppendExtents(nil, kv.Namespace{Salt: "a"}, make([]kv.Token, 12*l.ExtentTokens()), nil)
	for i := range xs {
		if d := do(t, first, mempool.Op{Kind: mempool.Put, Extent: xs[i], Pages: pages(l, &xs[i])}); d.Err != nil {
			t.Fatalf("put of extent %d: %v", i, d.Err)
		}
	}
	mistaken := open(4, false)
	quota(mistaken, 16)
	if w := strings.Join(mistaken.Info().Warnings, "; "); !strings.Contains(w, dir) || !strings.Contains(w, "--kv-shrink") {
		t.Errorf("warnings: %q, want one that names the directory and the remedy", w)
	}
	if n := first.Metrics().Extents; n != 12 {
		t.Errorf("%d of 12 extents are left after an open with a smaller quota", n)
	}
	quota(open(4, true), 4)
	quota(first, 4)
	if n := first.Metrics().Extents; n > 4 {
		t.Errorf("%d extents are left under a quota of 4", n)
	}
}
