package diskmem

import (
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/record"
	"github.com/coppice-llm/coppice/mempool/storetest"
)

func testConfig(o storetest.Options) Config {
	f := record.FormatOf(&o.Identity, o.Sealer)
	return Config{Dir: o.Dir, Identity: o.Identity, Sealer: o.Sealer, Bytes: int64(o.Extents * f.SlotBytes()), SegmentBytes: int64(7 * f.SlotBytes()),
		Shrink: true, Workers: o.Workers, MaxOps: o.MaxOps, Inject: o.Inject}
}

func harness() storetest.Harness {
	return storetest.Harness{
		Open:    func(o storetest.Options) (mempool.Store, error) { return Open(testConfig(o)) },
		Durable: true,
		Faults:  []blockio.Point{blockio.Read, blockio.Write, blockio.Sync, blockio.Create, blockio.Rename, blockio.Remove},
	}
}

func TestMain(m *testing.M) {
	if status, ok := storetest.Child(harness()); ok {
		os.Exit(status)
	}
	os.Exit(leaks.Run(m))
}

func TestStore(t *testing.T) { storetest.Run(t, harness()) }

func TestSealedStore(t *testing.T) {
	h := harness()
	h.Sealer = storetest.Sealer(t, 1, 2)
	storetest.Run(t, h)
}

func TestSealing(t *testing.T) { storetest.RunSealed(t, harness()) }

func TestBrokenStores(t *testing.T) { storetest.RunControls(t, harness()) }

var kills = flag.Int("kills", 5, "how often a process is killed")

func TestKill(t *testing.T) { storetest.Kill(t, harness(), *kills) }

func TestLocked(t *testing.T) {
	c := testConfig(storetest.Options{Dir: t.TempDir(), Identity: storetest.Identity(), Extents: 4})
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Open(c); !errors.Is(err, mempool.ErrLocked) {
		again.Close()
		t.Errorf("opened twice: %v", err)
	}
	s.Close()
	if s, err = Open(c); err != nil {
		t.Fatal(err)
	}
	s.Close()
}
