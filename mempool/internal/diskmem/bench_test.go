package diskmem

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/record"
	"github.com/coppice-llm/coppice/mempool/storetest"
)

// BenchmarkStore compares writes to the disk tier and reads from it with direct transfers of the
// same blocks, by as many goroutines, to a reserved file in the same directory.
//
//	go test ./mempool/internal/diskmem -run xxx -bench Store -benchtime 11x
func BenchmarkStore(b *testing.B) { bench(b, nil) }

// BenchmarkSealedStore does the same with records that are sealed.
func BenchmarkSealedStore(b *testing.B) { bench(b, storetest.Sealer(b, 1)) }

func bench(b *testing.B, seal *record.Sealer) {
	const extents = 96
	dir := os.Getenv("COPPICE_BENCH_DIR")
	if dir == "" {
		dir = b.TempDir()
	}
	const workers = 4 // as by default
	c := Config{Dir: dir, Identity: storetest.BenchIdentity(), Bytes: 256 << 20}
	c.Sealer, c.Identity.Sealed = seal, seal != nil
	s, err := Open(c)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	slot := s.Info().SlotBytes
	f, err := blockio.Open(filepath.Join(dir, "plain"), os.O_RDWR|os.O_CREATE, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if err := f.Reserve(int64(extents * slot)); err != nil {
		b.Fatal(err)
	}
	var buffers [workers][]byte
	for i := range buffers {
		if buffers[i], err = blockio.Alloc(slot); err != nil {
			b.Fatal(err)
		}
		defer blockio.Free(buffers[i])
	}
	b.Logf("direct: %v", f.Direct())
	storetest.Bench(b, s, workers, extents, storetest.Copies{
		Write: func(i int) {
			if err := f.WriteAt(buffers[i%workers], int64(i*slot)); err != nil {
				b.Error(err)
			}
		},
		Read: func(i int) {
			if err := f.ReadAt(buffers[i%workers], int64(i*slot)); err != nil {
				b.Error(err)
			}
		},
	})
}
