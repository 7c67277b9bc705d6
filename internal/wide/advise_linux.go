package wide

import "syscall"

// advise asks for huge pages below words that were not written to yet. Where the
// system has none nothing changes but the time that first writes take.
func advise(words []uint32) {
	if b := Bytes(words); len(b) >= hugePage {
		_ = syscall.Madvise(b, syscall.MADV_HUGEPAGE)
	}
}

// hugePage is the usual size of one, in bytes.
const hugePage = 2 << 20
