package kernels

// GEMM is a kernel of products: which rows it takes, and how it is launched, in blocks
// of 256 threads.
type GEMM struct {
	Name        string
	Rows        int // at most; 0: any number, in blocks of 128
	Columns     int // of a block
	SharedBytes int // dynamic, of a block

	perSM    int   // blocks, as registers and shared memory allow
	inFlight int64 // bytes of weights that a block has asked for at a time
}

// ring is the bytes of weights that a block of few in gemm.cu keeps: three steps of 32 products
// in 8 slices, of which two are under way.
func ring(columns int) int { return 3 * columns * 2 * 32 * 8 }

var gemms = [...]GEMM{
	{"gemm16", 16, 32, ring(32), 4, int64(ring(32)) * 2 / 3},
	{"gemm32", 32, 32, ring(32), 2, int64(ring(32)) * 2 / 3},
	{"gemm64", 64, 64, ring(64), 1, int64(ring(64)) * 2 / 3},
	{"gemm128", 0, 128, 0, 1, 2 * 16 << 10},
}

// GEMMs returns the kernels of products, those for fewer rows first.
func GEMMs() []GEMM { return gemms[:] }

// GEMMFor is the kernel for that many rows.
func GEMMFor(rows int) *GEMM {
	for i := range gemms {
		if rows <= gemms[i].Rows {
			return &gemms[i]
		}
	}
	return &gemms[len(gemms)-1]
}

// Grid is how many blocks a product of that many rows and columns takes: across its
// columns, and across its rows.
func (g *GEMM) Grid(rows, columns int) (x, y int) {
	if y = 1; g.Rows == 0 {
		y = blocks(rows, 128)
	}
	return blocks(columns, g.Columns), y
}
