package blockio

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Exposed returns a warning for each directory that more than its owner and group control: every user
// may write to it, or it is a symbolic link. Their writers decide which KV the server reads.
func Exposed(dirs ...string) (warnings []string) {
	for _, dir := range dirs {
		dir = filepath.Clean(dir)
		if st, err := os.Lstat(dir); err == nil && st.Mode()&fs.ModeSymlink != 0 {
			to, _ := os.Readlink(dir)
			warnings = append(warnings, fmt.Sprintf("%s is a symbolic link to %s: give the directory itself", dir, to))
		}
		if st, err := os.Stat(dir); err == nil && st.Mode()&0o002 != 0 && runtime.GOOS != "windows" { // Windows has no such bits
			warnings = append(warnings, fmt.Sprintf("%s has mode %04o: every user of the machine can write KV that the server reads; chmod o-w it", dir, st.Mode().Perm()))
		}
	}
	return warnings
}
