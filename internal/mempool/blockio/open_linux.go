package blockio

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// open tries direct transfers first, and asks the system whether Align is enough.
func open(path string, flag int) (f *os.File, direct bool, err error) {
	f, err = os.OpenFile(path, flag|syscall.O_DIRECT, FileMode)
	if err == nil {
		if enough(f) {
			return f, true, nil
		}
		f.Close()
	} else if !errors.Is(err, syscall.EINVAL) {
		return nil, false, err
	}
	f, err = os.OpenFile(path, flag&^os.O_EXCL, FileMode) // what O_EXCL made is there by now
	return f, false, err
}

// enough reports whether the file takes direct transfers aligned to Align. A kernel that
// can't say (before 6.1) is believed to.
func enough(f *os.File) bool {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st); err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		return true
	}
	return st.Dio_mem_align > 0 && Align%st.Dio_mem_align == 0 && st.Dio_offset_align > 0 && Align%st.Dio_offset_align == 0
}

// reserve asks for blocks on the disk, so that a later write does not fail for lack of
// room; a file system that can't is given the length alone.
func reserve(f *os.File, size int64) error {
	err := syscall.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		return f.Truncate(size)
	}
	return err
}
