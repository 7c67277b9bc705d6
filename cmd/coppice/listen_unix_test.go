//go:build unix

package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// handOver makes a command of coppice that gets these files from a service manager, as files 3 and on. The shell
// knows the process that coppice will be. handed is the number that the manager names.
func handOver(t *testing.T, handed string, files []*os.File, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`, os.Args[0]}, args...)...)
	cmd.Env = append(os.Environ(), "COPPICE_TEST_MAIN=1", "LISTEN_FDS="+handed)
	cmd.ExtraFiles = files
	return cmd
}

// TestSocketActivation starts a server and a router with sockets that are open already: a request sent before the process
// starts is answered, and --addr is not looked at.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"serve", "--backend", "sim"}, {"route", "--worker", "http://127.0.0.1:1"}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		file, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		l.Close() // the socket lives on in file
		type answer struct {
			status int
			body   string
			err    error
		}
		got := make(chan answer, 1)
		go func() {
			res, err := http.Get("http://" + l.Addr().String() + "/health")
			if err != nil {
				got <- answer{err: err}
				return
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			got <- answer{res.StatusCode, string(body), err}
		}()
		var errs strings.Builder
		cmd := handOver(t, "1", []*os.File{file}, append(args, "--addr", "192.0.2.1:80", "--log-level", "warn")...)
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		file.Close()
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case a := <-got:
			if a.status != http.StatusOK || a.err != nil {
				t.Errorf("%s: %+v", args[0], a)
			}
			cmd.Process.Signal(syscall.SIGTERM)
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", args[0], err)
			}
		case err := <-ended:
			t.Errorf("%s: %v", args[0], err)
		}
		if t.Failed() {
			t.Log(errs.String())
		}
	}
}

// TestSocketActivationRefuses: sockets that a server can't take, and variables that are meant for another process.
func TestSocketActivationRefuses(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("unix", t.TempDir()+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	socket, err := l.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	plain, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	for want, cmd := range map[string]*exec.Cmd{
		"hands over 2 sockets": handOver(t, "2", []*os.File{plain, plain}, "serve", "--backend", "sim"),
		"non-socket":           handOver(t, "1", []*os.File{plain}, "serve", "--backend", "sim"),
		"want a TCP socket":    handOver(t, "1", []*os.File{socket}, "serve", "--backend", "sim"),
	} {
		out, err := cmd.CombinedOutput()
		if _, ended := err.(*exec.ExitError); !ended || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v: %s", want, err, out)
		}
	}
	other := exec.Command(os.Args[0], "serve", "--backend", "sim", "--addr", "192.0.2.1:80")
	other.Env = append(os.Environ(), "COPPICE_TEST_MAIN=1", "LISTEN_FDS=1", "LISTEN_PID=1")
	if out, err := other.CombinedOutput(); err == nil || !strings.Contains(string(out), "--addr") {
		t.Errorf("a socket for process 1: %v: %s", err, out)
	}
}
