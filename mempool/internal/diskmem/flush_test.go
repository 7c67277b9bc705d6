package diskmem

import (
	"os"
	"testing"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/slotted"
	"github.com/coppice-llm/coppice/mempool/storetest"
)

// slowFlush is a medium that calls meanwhile after a flush has read the contents.
type slowFlush struct {
	*medium
	meanwhile func()
}

func (m slowFlush) Flush(w int, contents func() ([]slotted.Placed, bool)) error {
	return m.medium.Flush(w, func() ([]slotted.Placed, bool) {
		all, whole := contents()
		m.meanwhile()
		return all, whole
	})
}

// TestFlushDuringPut flushes while a put is being written that ends before the flush does. The
// extent must be found after Close and Open.
func TestFlushDuringPut(t *testing.T) {
	in := &blockio.Injector{}
	c := testConfig(storetest.Options{Dir: t.TempDir(), Identity: storetest.Identity(), Extents: 4, Workers: 2, MaxOps: 4, Inject: in})
	first, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	info := first.Info()
	first.Close()
	dir, _, err := blockio.Place(c.Dir, blockio.Disk, &c.Identity, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := takeLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := newMedium(&c, dir, lock)
	if err != nil {
		t.Fatal(err)
	}
	var s *slotted.Store
	put := make(chan struct{})
	s = slotted.New(slotted.Config{Info: info, Workers: 2}, slowFlush{m, func() {
		in.Clear()
		<-s.Ready()
		close(put)
	}})
	l := c.Identity.Layout
	x := l.AppendExtents(nil, kv.Namespace{Salt: "a"}, make([]kv.Token, l.ExtentTokens()), nil)[0]
	op := mempool.Op{ID: 1, Kind: mempool.Put, Extent: x, Pages: make([][]byte, l.ExtentPages)}
	for i := range op.Pages {
		op.Pages[i] = make([]byte, l.PageBytes)
	}
	in.Plant(blockio.Write, blockio.Slow, 1, false)
	if err := s.Submit(op); err != nil {
		t.Fatal(err)
	}
	<-in.Stuck()
	if err := s.Submit(mempool.Op{ID: 2, Kind: mempool.Flush}); err != nil {
		t.Fatal(err)
	}
	<-put
	ended := s.Poll(nil)
	for ; len(ended) < 2; ended = s.Poll(ended) {
		<-s.Ready()
	}
	for _, d := range ended {
		if d.Err != nil {
			t.Errorf("%v: %v", d.Kind, d.Err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(m.indexPath()); err != nil {
		t.Errorf("Close has left no index: %v", err)
	}
	again, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if xs := again.Contents(nil); len(xs) != 1 {
		t.Errorf("after Close and Open the store has %d extents, want the one that was put", len(xs))
	}
}
