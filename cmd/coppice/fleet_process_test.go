package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/internal/natstest"
)

// patience is the longest wait of a test for an expected event. It measures nothing.
const patience = 60 * time.Second

// natsVariable is an environment variable with an address, at which the test binary then
// runs a NATS server.
const natsVariable = "FLEET_TEST_NATS"

// serveNATS serves until SIGTERM.
func serveNATS(at string) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	s, err := natstest.Start(natstest.Config{Addr: at})
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Fprintf(os.Stderr, "nats: at %s\n", s.URL())
	<-signals
	return nil
}

// process is a child process: coppice, or a NATS server. At the end of the test it gets
// SIGTERM and must exit with status 0, unless the test killed it.
type process struct {
	*testing.T
	name string
	cmd  *exec.Cmd
	said *transcript
	url  string
	done chan struct{} // closed when it has ended
	err  error         // of cmd.Wait; valid once done is closed
}

// transcript keeps the output of a process, and finds its address in it.
type transcript struct {
	mu    sync.Mutex
	text  bytes.Buffer
	expr  *regexp.Regexp
	found chan string // receives the address; has room for one
}

func (s *transcript) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p)
	if s.expr != nil {
		if m := s.expr.FindSubmatch(s.text.Bytes()); m != nil {
			s.expr = nil
			s.found <- string(m[1])
		}
	}
	return len(p), nil
}

// String returns the end of the output, without the lines of single requests.
func (s *transcript) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	for line := range strings.Lines(s.text.String()) {
		if !strings.Contains(line, `"msg":"request"`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-60):], "")
}

var (
	serverGreets = regexp.MustCompile(`try  curl (http://[^/ ]+)/`)
	natsGreets   = regexp.MustCompile(`nats: at (nats://\S+)\n`)
)

// startCoppice starts a server of coppice and waits until it prints its address.
func startCoppice(t *testing.T, name string, args ...string) *process {
	t.Helper()
	return startProcess(t, name, serverGreets, []string{"COPPICE_TEST_MAIN=1"}, args...)
}

// startNATS starts a NATS server at an address.
func startNATS(t *testing.T, at string) *process {
	t.Helper()
	return startProcess(t, "nats", natsGreets, []string{natsVariable + "=" + at})
}

func startProcess(t *testing.T, name string, greets *regexp.Regexp, variables []string, args ...string) *process {
	t.Helper()
	p := &process{T: t, name: name, cmd: exec.Command(os.Args[0], args...), done: make(chan struct{}),
		said: &transcript{expr: greets, found: make(chan string, 1)}}
	p.cmd.Env = append(os.Environ(), variables...)
	p.cmd.Stderr = p.said
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("%s %q:\n%s", p.name, args, p.said)
		}
	})
	select {
	case p.url = <-p.said.found:
	case <-p.done:
		t.Fatalf("%s %q ended: %v", name, args, p.err)
	case <-time.After(patience):
		t.Fatalf("%s %q does not say where it is", name, args)
	}
	return p
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) signal(s os.Signal) {
	p.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.Errorf("%s: %v", p.name, err)
	}
}

// stop ends the process with SIGTERM; it must exit with status 0. After kill or another stop
// it does nothing.
func (p *process) stop() {
	p.Helper()
	if p.ended() {
		return
	}
	p.signal(syscall.SIGTERM)
	p.wait()
}

// wait waits for the end of the process, which must exit with status 0.
func (p *process) wait() {
	p.Helper()
	select {
	case <-p.done:
		if p.err != nil {
			p.Errorf("%s ended with %v", p.name, p.err)
		}
	case <-time.After(patience):
		p.Errorf("%s does not end", p.name)
		p.cmd.Process.Kill()
		<-p.done
	}
}

// kill sends SIGKILL and waits until the process is dead.
func (p *process) kill() {
	p.Helper()
	p.signal(syscall.SIGKILL)
	<-p.done
}

// asker is the client for the processes' own pages. Each request has a new connection.
var asker = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}

// page gets a page. Only the test's goroutine may call it.
func (p *process) page(path string) string {
	p.Helper()
	res, err := asker.Get(p.url + path)
	if err != nil {
		p.Fatalf("%s: %v", p.name, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		p.Fatalf("%s: %s: %s, %v: %s", p.name, path, res.Status, err, body)
	}
	return string(body)
}

// document decodes a JSON page.
func (p *process) document(path string, v any) {
	p.Helper()
	if text := p.page(path); json.Unmarshal([]byte(text), v) != nil {
		p.Fatalf("%s: %s is %s", p.name, path, text)
	}
}

// figures returns the metrics of the process by name and labels, and by name alone, summed
// over labels.
func (p *process) figures() map[string]int {
	p.Helper()
	all := map[string]int{}
	for line := range strings.Lines(p.page("/metrics")) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		blank := max(0, strings.LastIndexByte(line, ' '))
		v, err := strconv.ParseFloat(strings.TrimSpace(line[blank:]), 64)
		if err != nil {
			p.Fatalf("%s: %q: %v", p.name, line, err)
		}
		series := line[:blank]
		name, _, labelled := strings.Cut(series, "{")
		if all[name] += int(v); labelled {
			all[series] = int(v)
		}
	}
	return all
}

// until calls lacks until it returns "". Before that, lacks returns what is missing, for the
// message of a test that runs out of time; what names the awaited event.
func until(t *testing.T, what string, lacks func() string) {
	t.Helper()
	end := time.Now().Add(patience)
	for {
		why := lacks()
		if why == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %s", what, why)
		}
		time.Sleep(10 * time.Millisecond) // between two polls
	}
}

// ports is the port from which freePorts searches. It stays below the ports that the system
// gives to outgoing connections, so that a restarted process finds its port free.
var (
	ports   = 10_000 + os.Getpid()%1000*20
	portsMu sync.Mutex
)

// freePorts returns the first of n consecutive free ports.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	portsMu.Lock()
	defer portsMu.Unlock()
	for range 1000 {
		first := ports
		ports += n
		if ports > 32_000 {
			ports = 10_000
		}
		free := true
		for port := first; port < first+n && free; port++ {
			l, err := net.Listen("tcp", at(port))
			if free = err == nil; free {
				l.Close()
			}
		}
		if free {
			return first
		}
	}
	t.Fatal("no free ports")
	return 0
}

func at(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
