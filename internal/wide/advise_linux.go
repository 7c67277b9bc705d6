package wide

import "syscall"

// advise asks the kernel for huge pages for words that have not been written to yet. Errors are
// ignored: without huge pages only the first writes take longer.
func advise(words []uint32) {
	if b := Bytes(words); len(b) >= hugePage {
		_ = syscall.Madvise(b, syscall.MADV_HUGEPAGE)
	}
}

// hugePage is the usual size of a huge page, in bytes.
const hugePage = 2 << 20
