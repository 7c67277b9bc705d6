package checksum

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestSum: gathering and scattering give the sum of the bytes, whatever the pages.
func TestSum(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, size := range []int{1020, 4096, sumPiece, sumPiece + 4, 3 * sumPiece / 2} {
		for _, n := range []int{1, 2, 17} {
			pages, back := make([][]byte, n), make([][]byte, n)
			for i := range pages {
				pages[i], back[i] = make([]byte, size), make([]byte, size)
				for j := range pages[i] {
					pages[i][j] = byte(rng.Uint32())
				}
			}
			want := bytes.Join(pages, nil)
			dst := make([]byte, len(want)+100)
			if got := Gather(dst, pages); got != Sum(want) || !bytes.Equal(dst[:len(want)], want) {
				t.Errorf("%d pages of %d bytes: gathered wrong", n, size)
			}
			for part := range n + 1 {
				if got := Scatter(back[:part], want); got != Sum(want) || part > 0 && !bytes.Equal(back[part-1], pages[part-1]) {
					t.Errorf("%d of %d pages of %d bytes: scattered wrong", part, n, size)
				}
			}
		}
	}
}
