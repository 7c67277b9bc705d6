package cpu

import (
	"sync"
	"time"
	"unsafe"
)

// Ceilings holds the measured peak rates of this machine's kernels. GFlops bounds a prefill,
// which is limited by arithmetic; GBs bounds a decode step, which reads all weights once.
// Other load on the machine lowers both, so measure them in the same run as the speeds that
// are compared with them.
type Ceilings struct {
	GFlops float64 // 1e9 multiplications and additions per second, all threads together
	GBs    float64 // 1e9 bytes per second read from memory, all threads together
	ISA    string  // path of the kernels that were measured
}

const (
	ceilingBytes  = 256 << 20 // larger than most caches; about a model of 100M weights in bf16
	ceilingRounds = 5         // the fastest round is reported
	ceilingTime   = 30 * time.Millisecond
)

// MeasureCeilings measures the kernels of a path for about half a second on max(threads, 1)
// threads. For an empty name it takes the path that Open takes for an empty Config.ISA. If this
// machine lacks the path, it takes the fastest one. The product multiplies a bf16 panel by activations that stay
// in the second-level cache. The read test reserves 256 MiB; GBs is 0 if that fails.
func MeasureCeilings(isa ISA, threads int) Ceilings {
	isa, _, err := chooseISA(isa, SelfTest)
	if err != nil {
		isas := ISAs()
		isa = isas[len(isas)-1]
	}
	threads = max(threads, 1)
	ops := kernelsOf(isa)
	return Ceilings{GFlops: measureProduct(ops, threads), GBs: measureStream(ops, threads), ISA: isa.String()}
}

// measureProduct returns the best rate of ceilingRounds rounds, in 1e9 multiplications and additions
// per second. Each thread multiplies its own activations by its own panel.
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
					ops.productPanel(nil, out, a, m, p, 0, spanRows)
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

// measureStream returns the best rate of ceilingRounds rounds in 1e9 bytes per second, 0 if there is
// not enough memory. The threads read disjoint parts of the same memory.
func measureStream(ops *kernels, threads int) float64 {
	store, err := reserve(ceilingBytes / 4)
	if err != nil {
		return 0
	}
	defer store.Close()
	page := store.Page(0)
	words := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(page))), len(page)/4)
	for i := range words {
		words[i] = uint32(i) // untouched pages would all map to one page of zeros, in the cache
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

// together calls run once per thread, concurrently, and returns the time until the last one
// has returned.
func together(threads int, run func(thread int)) time.Duration {
	var all sync.WaitGroup
	start := time.Now()
	for i := range threads {
		all.Go(func() { run(i) })
	}
	all.Wait()
	return time.Since(start)
}

// sum adds up words, to read them from memory; len(words) is a multiple of 256.
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
