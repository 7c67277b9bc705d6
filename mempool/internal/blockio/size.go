package blockio

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"syscall"
)

// Resize records in the IdentityFile of directory path that its KV may take bytes, and returns the
// number that was recorded before, 0 if none was. If shrink is false, it leaves a larger number.
func Resize(path string, bytes int64, shrink bool, in *Injector) (before int64, err error) {
	c, err := ReadCard(path)
	if err != nil {
		return 0, err
	}
	before = c.Bytes
	if bytes == before || bytes < before && !shrink {
		return before, nil
	}
	c.Bytes = bytes
	return before, c.write(path, in)
}

// write writes the IdentityFile of directory path.
func (c Card) write(path string, in *Injector) error {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return Replace(filepath.Join(path, IdentityFile), append(b, '\n'), in)
}

// NoRoom reports whether an error says that a file system, or a quota of it, has no room left, or
// that it takes no larger file.
func NoRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
