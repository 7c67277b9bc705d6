package hub

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// rename puts a file in the place of another. Windows refuses that while another process has the file open, as one
// that downloads the same model, or a virus scanner, does for a moment; then rename tries for a second.
func rename(from, to string) (err error) {
	const sharingViolation = syscall.Errno(32)
	for range 100 {
		err = os.Rename(from, to)
		if !errors.Is(err, syscall.ERROR_ACCESS_DENIED) && !errors.Is(err, sharingViolation) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}
