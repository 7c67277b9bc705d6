package blockio

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// open opens a file for direct transfers if Align is enough for it, else through the page cache.
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
	f, err = os.OpenFile(path, flag&^os.O_EXCL, FileMode) // the first try has created the file
	return f, false, err
}

// enough reports whether the file takes direct transfers aligned to Align. Kernels before 6.1 don't
// report the alignment; then enough returns true.
func enough(f *os.File) bool {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st); err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		return true
	}
	return st.Dio_mem_align > 0 && Align%st.Dio_mem_align == 0 && st.Dio_offset_align > 0 && Align%st.Dio_offset_align == 0
}

// reserve allocates blocks on the disk, so that later writes do not fail for lack of room. If the
// file system can't, it only sets the length.
func reserve(f *os.File, size int64) error {
	err := syscall.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		return f.Truncate(size)
	}
	return err
}

// utimeNow is the kernel's UTIME_NOW: the file system sets its own time.
const utimeNow = 1<<30 - 1

// Touch sets a file's modification time to the present time of the file system's clock.
func Touch(path string) error {
	return syscall.UtimesNano(path, []syscall.Timespec{{Nsec: utimeNow}, {Nsec: utimeNow}})
}
