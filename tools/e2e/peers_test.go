//go:build unix

package e2e

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

var peersFlag = flag.String("peers", os.Getenv("COPPICE_PEERS"), "directory where peers/install.py has put other projects' servers, to run them; default $COPPICE_PEERS")

// startup bounds the start of a peer: vLLM imports for a minute on a busy machine.
const startup = 10 * time.Minute

// peerDir returns the directory where install.py has put a peer. It skips the test, by the peer's
// name, if the peer is not installed.
func peerDir(t *testing.T, name string) string {
	t.Helper()
	if *peersFlag == "" {
		t.Skipf("%s: needs -peers DIR, which tools/e2e/peers/install.py DIR %s makes", name, name)
	}
	dir, err := filepath.Abs(filepath.Join(*peersFlag, name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".installed")); err != nil {
		t.Skipf("%s: not installed in %s: run tools/e2e/peers/install.py %s %s", name, dir, *peersFlag, name)
	}
	return dir
}

// peer is a running process of another project.
type peer struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	log   *output
	ended chan struct{} // closed when the process has ended
}

// startPeer starts a process of another project in a process group of its own, so that its children
// end with it. env is added to the environment without COPPICE_ variables. The test's end stops it.
func startPeer(t *testing.T, name string, env []string, argv ...string) *peer {
	t.Helper()
	p := &peer{t: t, name: name, log: &output{more: make(chan struct{}, 1)}, ended: make(chan struct{})}
	p.cmd = exec.Command(argv[0], argv[1:]...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "COPPICE_") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(p.stop)
	return p
}

// signal sends a signal to the process and its children.
func (p *peer) signal(s syscall.Signal) { syscall.Kill(-p.cmd.Process.Pid, s) }

// kill ends the process and its children at once.
func (p *peer) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// stop ends the process and its children, and prints the end of its log if the test has failed.
func (p *peer) stop() {
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(patience):
	}
	p.signal(syscall.SIGKILL) // children that outlive it
	<-p.ended
	if p.t.Failed() {
		all := p.log.String()
		p.t.Logf("the end of %s's log:\n%s", p.name, all[max(0, len(all)-4000):])
	}
}

// answers waits until url answers with status 200.
func (p *peer) answers(url string) {
	p.t.Helper()
	limit := time.After(startup)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if resp, err := http.Get(url); err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
		case <-p.ended:
			p.t.Fatalf("%s ended before it answered", p.name)
		case <-limit:
			p.t.Fatalf("%s: no answer at %s", p.name, url)
		}
	}
}

// freePorts returns n ports of this machine on which nothing listens. They are below those that the
// system gives to other sockets, because a peer may take a minute until it listens.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000)))
		if err != nil {
			continue
		}
		defer l.Close() // at the end, so that no port is given twice
		if ports = append(ports, l.Addr().(*net.TCPAddr).Port); len(ports) == n {
			return ports
		}
	}
	t.Fatalf("%d free ports, want %d", len(ports), n)
	return nil
}

// local is the URL of a port of this machine.
func local(scheme string, port int) string { return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port) }
