package hostmem

import (
	"testing"

	"github.com/coppice-llm/coppice/internal/mempool/blockio"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/storetest"
)

func openTest(o storetest.Options) (mempool.Store, error) {
	return Open(Config{Identity: o.Identity, Bytes: int64(o.Extents * o.Identity.Layout.ExtentBytes()), Workers: o.Workers, MaxOps: o.MaxOps, Inject: o.Inject})
}

func harness() storetest.Harness {
	return storetest.Harness{Open: openTest, Faults: []blockio.Point{blockio.Read, blockio.Write}}
}

func TestStore(t *testing.T) { storetest.Run(t, harness()) }

func TestBrokenStores(t *testing.T) { storetest.RunControls(t, harness()) }

// TestAdopt checks that Config.Memory is used, and released once.
func TestAdopt(t *testing.T) {
	memory := make([]byte, 3*storetest.Identity().Layout.ExtentBytes()+100)
	released := 0
	s, err := Open(Config{Identity: storetest.Identity(), Memory: memory, Release: func(b []byte) error {
		if &b[0] != &memory[0] {
			t.Error("other memory is released")
		}
		released++
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if m := s.Metrics(); m.CapacityBytes != int64(3*storetest.Identity().Layout.ExtentBytes()) {
		t.Errorf("capacity %d", m.CapacityBytes)
	}
	s.Close()
	s.Close()
	if released != 1 {
		t.Errorf("released %d times", released)
	}
}

func TestConfigRefused(t *testing.T) {
	for _, c := range []Config{
		{Bytes: 1 << 20},
		{Identity: storetest.Identity()},
		{Identity: storetest.Identity(), Bytes: 1 << 20, Memory: make([]byte, 1<<20)},
		{Identity: storetest.Identity(), Bytes: 100},
		{Identity: storetest.Identity(), Bytes: 1 << 20, Workers: -1},
	} {
		if s, err := Open(c); err == nil {
			s.Close()
			t.Errorf("%+v opens", c)
		}
	}
}
