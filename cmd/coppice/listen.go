package main

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"strconv"
)

// listen listens at the address of --addr, or takes the socket that the service manager hands over, as
// sd_listen_fds(3) describes it: then the environment has LISTEN_PID, this process, and LISTEN_FDS, the
// number of sockets, of which the first is file 3. The address is not looked at in that case.
func listen(addr string) (net.Listener, error) {
	pid, fds := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name) // not for processes that this one starts
	}
	if pid != strconv.Itoa(os.Getpid()) {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, withDoctor(fmt.Errorf("--addr: %w", err))
		}
		return l, nil
	}
	if fds != "1" {
		return nil, fmt.Errorf("the service manager hands over %s sockets (LISTEN_FDS), want one: give its unit one ListenStream", cmp.Or(fds, "no"))
	}
	file := os.NewFile(3, "LISTEN_FDS")
	defer file.Close() // the listener has a copy
	l, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("the socket of the service manager (LISTEN_FDS): %w", err)
	}
	if _, ok := l.(*net.TCPListener); !ok {
		l.Close()
		return nil, fmt.Errorf("the socket of the service manager (LISTEN_FDS) is at %s, want a TCP socket", l.Addr())
	}
	return l, nil
}
