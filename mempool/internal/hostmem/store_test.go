package hostmem

import (
	"testing"

	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
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

func TestConfigRefused(t *testing.T) {
	for _, c := range []Config{
		{Bytes: 1 << 20},
		{Identity: storetest.Identity()},
		{Identity: storetest.Identity(), Bytes: 100},
		{Identity: storetest.Identity(), Bytes: 1 << 20, Workers: -1},
	} {
		if s, err := Open(c); err == nil {
			s.Close()
			t.Errorf("%+v opens", c)
		}
	}
}
