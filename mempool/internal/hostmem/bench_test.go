package hostmem

import (
	"testing"

	"github.com/coppice-llm/coppice/internal/offheap"
	"github.com/coppice-llm/coppice/mempool/storetest"
)

// BenchmarkStore compares copies to the host tier and from it, including checksums, with memmove
// of the same pages, each in one goroutine.
//
//	go test ./mempool/internal/hostmem -run xxx -bench Store -benchtime 21x
func BenchmarkStore(b *testing.B) {
	const extents = 192
	s, err := Open(Config{Identity: storetest.BenchIdentity(), Bytes: extents << 20, Workers: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	far, err := offheap.Reserve(extents << 20)
	if err != nil {
		b.Fatal(err)
	}
	defer offheap.Release(far)
	offheap.Huge(far)
	near := make([]byte, 64<<20)
	at := func(i int) (far1, near1 []byte) {
		n := i % 64
		return far[i<<20 : (i+1)<<20], near[n<<20 : (n+1)<<20]
	}
	page := storetest.BenchIdentity().Layout.PageBytes
	move := func(to, from []byte) {
		for lo := 0; lo < len(from); lo += page {
			copy(to[lo:lo+page], from[lo:])
		}
	}
	storetest.Bench(b, s, 1, extents, storetest.Copies{
		Write: func(i int) { to, from := at(i); move(to, from) },
		Read:  func(i int) { from, to := at(i); move(to, from) },
	})
}
