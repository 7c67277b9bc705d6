package cpu

import (
	"sync"
	"time"
	"unsafe"
)

// Ceilings are what this machine's kernels reach at most, measured: the yardstick
// for a prefill, which multiplies, and for a decode step, which reads all weights
// once. Both depend on who else uses the machine, so measure them in the same run.
type Ceilings struct {
	GFlops float64 // 1e9 multiplications and additions a second, of all threads
	GBs    float64 // 1e9 bytes a second read from memory, of all threads
	ISA    string  // path of the kernels
}

const (
	ceilingBytes  = 256 << 20 // more than most caches, about the 100M model in bf16
	ceilingRounds = 5         // the best counts
	ceilingTime   = 30 * time.Millisecond
)

// MeasureCeilings runs the path that Open would take for an empty Config.ISA (the
// fastest if COPPICE_CPU names none of the machine's) on so many threads, at least
// 1, for about half a second. The product is that of a model in bf16 by tiles of
// a panel and activations that stay in the second-level cache. It takes 256 MB
// meanwhile; where there is no memory for them, GBs is 0.
func MeasureCeilings(threads int) Ceilings {
	isa, err := chooseISA("")
	if err != nil {
		isas := ISAs()
		isa = isas[len(isas)-1]
	}
	threads = max(threads, 1)
	ops := kernelsOf(isa)
	return Ceilings{GFlops: measureProduct(ops, threads), GBs: measureStream(ops, threads), ISA: isa.String()}
}

// together runs one function per thread and gives the time until all are through.
func together(threads int, run func(thread int)) time.Duration {
	var all sync.WaitGroup
	start := time.Now()
	for i := range threads {
		all.Go(func() { run(i) })
	}
	all.Wait()
	return time.Since(start)
}

func measureProduct(ops *kernels, threads int) float64 {
	const k = blockK
	best := 0.0
	for range ceilingRounds {
		flops := make([]int, threads)
		took := together(threads, func(thread int) {
			m := &matrix{n: vectorCols, k: k, cols: panelCols, exps: exponents{}}
			m.panels = make([]float32, m.panelCount()*panelCols*k+panelCols)
			if ops.vector() {
				m.cols, m.panels, m.words = vectorCols, nil, make([]uint32, wordCols*k)
			}
			a := newActs(ops, spanRows, k, false, false)
			out := make([]float32, spanRows*m.stride())
			for start := time.Now(); time.Since(start) < ceilingTime; flops[thread] += 2 * spanRows * vectorCols * k {
				for p := range m.panelCount() {
					ops.productPanel(out, a, m, p, 0, spanRows)
				}
			}
		})
		total := 0
		for _, n := range flops {
			total += n
		}
		best = max(best, float64(total)/took.Seconds()/1e9)
	}
	return best
}

func measureStream(ops *kernels, threads int) float64 {
	store, err := reserve(ceilingBytes / 4)
	if err != nil {
		return 0
	}
	defer store.Close()
	page := store.Page(0)
	words := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(page))), len(page)/4)
	for i := range words {
		words[i] = uint32(i) // or all pages are the same zeroes
	}
	const unit = 1 << 14 // words
	best, sums := 0.0, make([]uint32, threads)
	for range ceilingRounds {
		took := together(threads, func(thread int) {
			units := len(words) / unit
			for u := units * thread / threads; u < units*(thread+1)/threads; u++ {
				sums[thread] += ops.sum(words[u*unit : (u+1)*unit])
			}
		})
		best = max(best, ceilingBytes/took.Seconds()/1e9)
	}
	return best
}

// sum reads words; their count is a multiple of 256.
func (k *kernels) sum(words []uint32) uint32 {
	if k.vector() {
		return k.stream(&words[0], len(words))
	}
	var s [8]uint32
	for ; len(words) >= 8; words = words[8:] {
		for i := range s {
			s[i] += words[i]
		}
	}
	return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7]
}
