package cpu

import "syscall"

// adviseHuge asks for large pages, which spare a stream of weights most misses of
// the TLB. It is advice: a kernel without them changes nothing.
func adviseHuge(mem []byte) { _ = syscall.Madvise(mem, syscall.MADV_HUGEPAGE) }
