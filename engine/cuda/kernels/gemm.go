package kernels

// GEMM describes a kernel of products: how many rows it takes, and its launch in blocks of 256
// threads.
type GEMM struct {
	Name        string
	Rows        int // largest number of rows; 0: any number, in blocks of 128
	Columns     int // per block
	SharedBytes int // dynamic, per block

	perSM    int   // blocks, limited by registers and shared memory
	inFlight int64 // bytes of weights that a block has requested at a time
}

// ring returns the bytes of shared memory that function few of gemm.cu uses as a ring buffer of
// weights, for a block of that many columns. The ring has three steps of 32 products in 8 slices;
// two steps are being loaded at a time.
func ring(columns int) int { return 3 * columns * 2 * 32 * 8 }

var gemms = [...]GEMM{
	{"gemm16", 16, 32, ring(32), 4, int64(ring(32)) * 2 / 3},
	{"gemm32", 32, 32, ring(32), 2, int64(ring(32)) * 2 / 3},
	{"gemm64", 64, 64, ring(64), 1, int64(ring(64)) * 2 / 3},
	{"gemm128", 0, 128, 0, 1, 2 * 16 << 10},
}

// GEMMs returns the kernels of products, ascending by rows.
func GEMMs() []GEMM { return gemms[:] }

// GEMMFor returns the kernel for that many rows.
func GEMMFor(rows int) *GEMM {
	for i := range gemms {
		if rows <= gemms[i].Rows {
			return &gemms[i]
		}
	}
	return &gemms[len(gemms)-1]
}

// SliceRows is the largest number of rows for which Slices may be more than 1.
const SliceRows = 256

// Slices returns the number of slices of a product whose slices gemm_slices computes in blocks of their
// own and gemm_sum adds, on a device with that many multiprocessors; 1: the kernel of GEMMFor computes
// the product. The results have the same bits. inner is a multiple of 32.
func Slices(rows, columns, inner, multiprocessors int) int {
	if rows <= 64 || rows > SliceRows || blocks(columns, 128)*blocks(rows, 128) >= multiprocessors {
		return 1
	}
	slices := 8
	for inner%(32*slices) != 0 {
		slices /= 2
	}
	return slices
}

// Grid returns the number of blocks of a product: across its columns, and across its rows.
func (g *GEMM) Grid(rows, columns int) (x, y int) {
	if y = 1; g.Rows == 0 {
		y = blocks(rows, 128)
	}
	return blocks(columns, g.Columns), y
}
