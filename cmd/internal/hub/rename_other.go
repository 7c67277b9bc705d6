//go:build !windows

package hub

import "os"

// rename puts a file in the place of another.
func rename(from, to string) error { return os.Rename(from, to) }
