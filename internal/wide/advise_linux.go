package wide

import "syscall"

// advise asks the kernel to back words, which must not have been written to yet, with huge pages. It
// does nothing if words is shorter than a huge page. It ignores errors: without huge pages only the
// first writes take longer.
func advise(words []uint32) {
	if b := Bytes(words); len(b) >= hugePage {
		_ = syscall.Madvise(b, syscall.MADV_HUGEPAGE)
	}
}

// hugePage is the usual size of a huge page, in bytes.
const hugePage = 2 << 20
