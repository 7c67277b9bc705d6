package checksum

import (
	"slices"
	"testing"
	"time"
)

// BenchmarkSum: copies of extents of 1 MiB in 16 pages with their checksums, in turns with
// plain copies of the same pages. It reports the median of plain over checked copies: what
// a store in memory can reach, compared with memmove.
//
//	go test ./mempool/checksum -run xxx -bench Sum -benchtime 1000x
func BenchmarkSum(b *testing.B) {
	const extent, page, near, far = 1 << 20, 64 << 10, 64, 128 // more than caches hold
	store, device := make([]byte, far*extent), make([]byte, near*extent)
	for i := range device {
		device[i] = byte(i * 7)
	}
	pages := make([][]byte, extent/page)
	slots := make([][]byte, extent/page)
	var sum uint64
	kinds := []struct {
		name string
		copy func(slot []byte)
	}{
		{"", func([]byte) {
			for i := range pages {
				copy(slots[i], pages[i])
			}
		}},
		{"gather-ratio", func(slot []byte) { sum += Gather(slot, pages) }},
		{"", func([]byte) {
			for i := range pages {
				copy(pages[i], slots[i])
			}
		}},
		{"scatter-ratio", func(slot []byte) { sum += Scatter(pages, slot) }},
	}
	took := make([][]time.Duration, len(kinds))
	for n := 0; b.Loop(); n++ {
		for k := range kinds {
			at, of := (n+k*far/len(kinds))%far, (n+k*near/len(kinds))%near // not touched for long
			slot, from := store[at*extent:][:extent], device[of*extent:][:extent]
			for p := range pages {
				pages[p], slots[p] = from[p*page:(p+1)*page], slot[p*page:(p+1)*page]
			}
			begun := time.Now()
			kinds[k].copy(slot)
			took[k] = append(took[k], time.Since(begun))
		}
	}
	for k := range took {
		slices.Sort(took[k])
		if m := len(took[k]) / 2; kinds[k].name != "" {
			b.ReportMetric(float64(took[k-1][m])/float64(took[k][m]), kinds[k].name)
		}
	}
	b.ReportMetric(0, "ns/op")
}
