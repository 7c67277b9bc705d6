package hub

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// link puts f's blob into the snapshot of commit under f's path: as a relative symbolic link, or
// as a hard link if the file system has no symbolic ones. dir is the repository's directory.
func link(dir, commit string, f file) error {
	at := filepath.Join(dir, "snapshots", commit, filepath.FromSlash(f.path))
	up := strings.Repeat("../", 2+strings.Count(f.path, "/"))
	if to, err := os.Readlink(at); err == nil && filepath.ToSlash(to) == up+"blobs/"+f.hash {
		return nil
	}
	blob := filepath.Join(dir, "blobs", f.hash)
	if is, err := os.Lstat(at); err == nil { // a hard link, which a server may have open
		if want, err := os.Stat(blob); err == nil && os.SameFile(is, want) {
			return nil
		}
	}
	return replace(at, func(tmp string) error {
		if os.Symlink(filepath.FromSlash(up+"blobs/"+f.hash), tmp) == nil {
			if _, err := os.Stat(tmp); err == nil {
				return nil
			}
			os.Remove(tmp) // Wine reports success and makes no link
		}
		return os.Link(blob, tmp)
	})
}

// tmpSuffix ends the names of incomplete files.
const tmpSuffix = ".tmp"

// replace makes a file and puts it at path in place of an earlier one: make writes the file under
// the temporary name tmp, which replace then renames.
func replace(path string, make func(tmp string) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp := path + "." + rand.Text() + tmpSuffix
	if err := make(tmp); err != nil {
		return err
	}
	if err := rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}
