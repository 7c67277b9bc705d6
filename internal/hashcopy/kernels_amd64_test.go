package hashcopy

import (
	"bytes"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/internal/isa/isatest"
)

func TestMachineCodeKeepsToItsLevel(t *testing.T) {
	isatest.Check(t, "github.com/coppice-llm/coppice/internal/hashcopy")
	for _, k := range kernels {
		isatest.CheckKernels(t, k.level, k.copyHash)
	}
}

// TestKernels tests all kernels that this machine can run, not only the chosen one.
func TestKernels(t *testing.T) {
	src, to := make([]byte, PieceBytes), make([]byte, PieceBytes+64)
	for i := range src {
		src[i] = byte(i * i)
	}
	for !aligned(to) {
		to = to[1:]
	}
	dst := to[:PieceBytes]
	for _, k := range kernels {
		if !k.level.Runs() {
			continue
		}
		clear(dst)
		got := run(k.copyHash, (*[PieceBytes]byte)(dst), (*[PieceBytes]byte)(src), 12345)
		if want := xxh3.HashSeed(src, 12345); got != want || !bytes.Equal(dst, src) {
			t.Errorf("%s: %x, want %x; copied: %v", k.level, got, want, bytes.Equal(dst, src))
		}
	}
}
