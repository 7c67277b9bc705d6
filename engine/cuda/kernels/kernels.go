package kernels

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io"
)

//go:embed *.ptx *.cubin.gz
var modules embed.FS

var headDims = [...]int{16, 32, 64, 80, 96, 128}

// HeadDims returns the head sizes that attention is compiled for, ascending.
func HeadDims() []int { return headDims[:] }

// Attention returns the name of the attention module for that head size.
func Attention(headDim int) string { return fmt.Sprint("attention_", headDim) }

// TileBytes returns the dynamic shared memory of a block of attention: two tiles of K and two of V, 64
// positions each. A row of 16-byte pieces whose number is not a power of two is padded to an odd
// number (Tile in attention.cuh).
func TileBytes(headDim int) int {
	pieces := headDim / 8
	if pieces&(pieces-1) != 0 {
		pieces |= 1
	}
	return 2 * 2 * 64 * pieces * 16
}

// SampleThreads returns the number of threads of a block of sample.
func SampleThreads(vocab int) int {
	if vocab <= 4096 {
		return 256
	}
	return 1024
}

// MaxVocab is the largest vocabulary that sample takes.
const MaxVocab = 1 << 18

// Padded returns the length on the device of a row of n values that a product reads; the values past
// n are zero.
func Padded(n int) int { return (n + 31) / 32 * 32 }

// Names returns the names of the modules. Each is one file of PTX.
func Names() []string {
	names := []string{"gemm", "layers", "merge", "pages", "sample", "weights"}
	for _, d := range headDims {
		names = append(names, Attention(d))
	}
	for i := range forms {
		names = append(names, forms[i].Module())
	}
	return names
}

// PTX returns the text of the module with that name. It panics if there is none.
func PTX(name string) []byte {
	text, err := modules.ReadFile(name + ".ptx")
	if err != nil {
		panic("kernels: no module " + name)
	}
	return text
}

// Cubin returns the machine code of a module for a compute capability, compiled from the module's
// PTX; nil if none is embedded: then the driver compiles the PTX. It panics if there is no such module.
func Cubin(name string, major, minor int) []byte {
	if major != 9 || minor != 0 {
		return nil
	}
	packed, err := modules.ReadFile(name + ".sm_90a.cubin.gz")
	if err != nil {
		panic("kernels: no module " + name)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err == nil {
		packed, err = io.ReadAll(r)
	}
	if err != nil {
		panic(fmt.Sprintf("kernels: machine code of %s: %v", name, err))
	}
	return packed
}
