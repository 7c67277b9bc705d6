package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// smallDisk mounts a file system of this size at a new directory and returns whether that is permitted here.
// Without it the directory is an ordinary one.
func smallDisk(t *testing.T, bytes int) (dir string, mounted bool) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("coppice-soak", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", bytes)); err != nil {
		t.Logf("the disk is not filled: no file system can be mounted here: %v", err)
		return dir, false
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, true
}

// limitedGroup makes a control group with a limit on its memory, if that is permitted here. It returns the
// group's directory or "".
func limitedGroup(t *testing.T, name string, bytes int) (dir string) {
	t.Helper()
	if raceEnabled { // the race detector takes several times the memory
		return ""
	}
	for root, limit := range map[string]string{"/sys/fs/cgroup/memory": "memory.limit_in_bytes", "/sys/fs/cgroup": "memory.max"} {
		dir := filepath.Join(root, fmt.Sprintf("coppice-soak-%d-%s", os.Getpid(), name))
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil || os.Mkdir(dir, 0o755) != nil {
			continue
		}
		if os.WriteFile(filepath.Join(dir, limit), []byte(strconv.Itoa(bytes)), 0) == nil {
			t.Cleanup(func() {
				until(t, "the control group is empty", func() string {
					if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
						return err.Error()
					}
					return ""
				})
			})
			return dir
		}
		os.Remove(dir)
	}
	t.Log("the memory is not limited: no control group can be made here")
	return ""
}

// fill writes a file until the file system is full. freed removes it.
func fill(t *testing.T, dir string) (freed func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err == nil {
		defer f.Close()
		for block := make([]byte, 64<<10); err == nil; {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	return func() { os.Remove(path) }
}

// descriptors returns what the descriptors of a process are open for. Sockets are only counted.
func (p *process) descriptors() (open []string, sockets int) {
	p.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		p.Fatal(err)
	}
	for _, e := range entries {
		at, err := os.Readlink(filepath.Join(dir, e.Name()))
		switch {
		case err != nil: // closed meanwhile
		case strings.HasPrefix(at, "socket:"):
			sockets++
		default:
			open = append(open, at)
		}
	}
	return open, sockets
}
