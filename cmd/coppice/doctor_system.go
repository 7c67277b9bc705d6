package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// lookAtSystem describes the operating system from the files of a Linux system; of others it knows the
// name alone.
func lookAtSystem(root fs.FS) systemFacts {
	f := systemFacts{Name: runtime.GOOS}
	read := func(file string) string {
		data, _ := fs.ReadFile(root, file)
		return strings.TrimSpace(string(data))
	}
	for line := range strings.Lines(read("etc/os-release")) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			f.Name = strings.Trim(name, `"'`)
		}
	}
	f.Kernel = read("proc/sys/kernel/osrelease")
	there := func(file string) bool { _, err := fs.Stat(root, file); return err == nil }
	groups := read("proc/1/cgroup")
	switch {
	case os.Getenv("KUBERNETES_SERVICE_HOST") != "" || strings.Contains(groups, "kubepods"):
		f.Container = "Kubernetes"
	case there(".dockerenv") || strings.Contains(groups, "docker"):
		f.Container = "Docker"
	case there("run/.containerenv"):
		f.Container = "Podman"
	case strings.Contains(groups, "lxc"):
		f.Container = "LXC"
	case os.Getenv("container") != "":
		f.Container = os.Getenv("container")
	case strings.Contains(strings.ToLower(f.Kernel), "microsoft"):
		f.Container = "WSL"
	}
	return f
}

// lookAtClock reads the clocks.
func lookAtClock() clockFacts {
	f := clockFacts{Now: time.Now(), Sync: clockSync()}
	start, last, steps := time.Now(), time.Duration(0), 0
	for range 10_000_000 { // more than a coarse clock needs for 100 steps of 1 ms, and no endless loop if it stands still
		now := time.Since(start)
		if now <= last {
			continue
		}
		if step := now - last; f.Step == 0 || step < f.Step {
			f.Step = step
		}
		if last = now; steps == 100 {
			break
		}
		steps++
	}
	return f
}

// lookAtPort listens at an address for a moment.
func lookAtPort(ctx context.Context, command, addr string, busy severity) portFacts {
	f := portFacts{Command: command, Addr: addr, Level: busy}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err == nil {
		f.Err = l.Close()
		return f
	}
	f.Err = err
	if inUse(err) {
		_, port, _ := net.SplitHostPort(addr)
		if n, err := net.LookupPort("tcp", port); err == nil {
			f.Holder = holder("/proc", n)
		}
	}
	return f
}

// inUse reports whether an error of Listen means that another process listens there.
func inUse(err error) bool {
	const windows = syscall.Errno(10048) // WSAEADDRINUSE, which is not EADDRINUSE there
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, windows)
}

// holder returns the process that listens at a TCP port, by the files of a Linux system below proc;
// "" if it isn't found: files of other users' processes may be closed to this user.
func holder(proc string, port int) string {
	sockets := map[string]bool{}
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		data, _ := os.ReadFile(path.Join(proc, table))
		for line := range strings.Lines(string(data)) {
			const local, state, inode, listens = 1, 3, 9, "0A"
			fields := strings.Fields(line)
			if len(fields) <= inode || fields[state] != listens {
				continue
			}
			_, hex, _ := strings.Cut(fields[local], ":")
			if n, err := strconv.ParseUint(hex, 16, 16); err == nil && int(n) == port {
				sockets["socket:["+fields[inode]+"]"] = true
			}
		}
	}
	processes, _ := os.ReadDir(proc)
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err != nil || len(sockets) == 0 {
			continue
		}
		dir := path.Join(proc, p.Name())
		open, _ := os.ReadDir(path.Join(dir, "fd"))
		for _, f := range open {
			if to, err := os.Readlink(path.Join(dir, "fd", f.Name())); err == nil && sockets[to] {
				name, _ := os.ReadFile(path.Join(dir, "comm"))
				return fmt.Sprintf("%s (process %s)", strings.TrimSpace(string(name)), p.Name())
			}
		}
	}
	return ""
}
