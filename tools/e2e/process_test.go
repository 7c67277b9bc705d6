package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// patience bounds the waits of a test. What it waits for happens far sooner, or never.
var patience = 90 * time.Second

// process is a running `coppice serve`.
type process struct {
	t      *testing.T
	url    string // http://127.0.0.1:port
	model  string // model of load's requests
	http   *http.Client
	client openai.Client // of url/v1, without retries
	root   openai.Client // of url, for paths that are not OpenAI's

	cmd     *exec.Cmd
	log     *output
	mayWarn bool          // warnings in the log are no fault: the test makes workers fail
	mayLose bool          // nor is the loss of a worker: the test kills one
	ended   chan struct{} // closed when the process has ended
	err     error         // result of Wait, valid after ended is closed
}

// output collects the output of a process. It is safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // gets a value when there is more output
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.more <- struct{}{}:
	default:
	}
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// greeting matches the line of the log that suggests a first request, with the server's URL.
var greeting = regexp.MustCompile(`coppice: try  curl (https?://\S+)/v1/`)

// serve starts the program on a free port of this machine, with arguments in the form
// of flags or of environment variables, COPPICE_…=…, and waits until it is ready. When
// the test ends, nothing must be left running in it, and it must end well.
func serve(t *testing.T, args ...string) *process {
	t.Helper()
	return serveTLS(t, http.DefaultClient, args...)
}

// serveTLS does what serve does, for a client that trusts the certificate of the server.
func serveTLS(t *testing.T, client *http.Client, args ...string) *process {
	t.Helper()
	return launch(t, client, []string{"serve", "--model", nano, "--access-log"}, args)
}

// route starts a router in front of servers.
func route(t *testing.T, workers []*process, args ...string) *process {
	t.Helper()
	var urls []string
	for _, w := range workers {
		urls = append(urls, w.url)
	}
	return launch(t, http.DefaultClient, []string{"route", "--worker", strings.Join(urls, ",")}, args)
}

func launch(t *testing.T, client *http.Client, flags, args []string) *process {
	t.Helper()
	p := &process{t: t, model: "nano", http: client, log: &output{more: make(chan struct{}, 1)}, ended: make(chan struct{})}
	flags = append(flags, "--addr", "127.0.0.1:0", "--log-format", "json")
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "COPPICE_") {
			env = append(env, v)
		}
	}
	for _, a := range args {
		if strings.HasPrefix(a, "COPPICE_") {
			env = append(env, a)
		} else {
			flags = append(flags, a)
		}
	}
	p.cmd = exec.Command(binary, flags...)
	p.cmd.Env, p.cmd.Stderr = env, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(p.cleanup)
	limit := time.After(patience)
	for p.url == "" {
		if m := greeting.FindStringSubmatch(p.log.String()); m != nil {
			p.url = m[1]
			break
		}
		select {
		case <-p.log.more:
		case <-p.ended:
			t.Fatalf("coppice %v ended: %v\n%s", flags, p.err, p.log)
		case <-limit:
			t.Fatalf("coppice %v says no address:\n%s", flags, p.log)
		}
	}
	p.client, p.root = p.as("none")
	p.until("it is ready", func() bool { return p.status("/ready") == http.StatusOK })
	return p
}

// as returns clients with an API key, for url/v1 and for url. They do not retry.
func (p *process) as(key string) (client, root openai.Client) {
	options := func(base string) openai.Client {
		return openai.NewClient(option.WithBaseURL(base), option.WithHTTPClient(p.http), option.WithAPIKey(key), option.WithMaxRetries(0))
	}
	return options(p.url + "/v1/"), options(p.url + "/")
}

// until polls ok for at most patience.
func (p *process) until(what string, ok func() bool) {
	p.t.Helper()
	limit := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-p.ended:
			p.t.Fatalf("the server ended before %s: %v\n%s", what, p.err, p.log)
		case <-limit:
			p.t.Fatalf("never seen: %s\n%s", what, p.log)
		}
	}
}

// status returns the HTTP status of a path, 0 if there is no answer. It uses no OpenAI client.
func (p *process) status(path string) int {
	resp, err := p.http.Get(p.url + path)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// signal sends a signal to the process itself.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// wait waits for the process's end, which must be successful.
func (p *process) wait() {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("the server does not end:\n%s", p.log)
	}
	if p.err != nil {
		p.t.Errorf("the server ended with %v:\n%s", p.err, p.log)
	}
}

// cleanup ends the process, if the test has not, and reads its log.
func (p *process) cleanup() {
	select {
	case <-p.ended:
	default:
		p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(patience):
			p.cmd.Process.Kill()
			<-p.ended
			p.t.Errorf("SIGTERM did not end the server:\n%s", p.log)
			return
		}
		if p.err != nil {
			p.t.Errorf("the server ended with %v:\n%s", p.err, p.log)
		}
	}
	for line := range strings.Lines(p.log.String()) {
		var entry struct{ Level, Msg string }
		bad := strings.Contains(line, "DATA RACE") || strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:")
		if json.Unmarshal([]byte(line), &entry) == nil {
			fine := entry.Level == "debug" || entry.Level == "info" || entry.Level == "warn" && (p.mayWarn || expected[entry.Msg])
			bad = !fine && !(p.mayLose && entry.Msg == "worker lost")
		}
		if bad {
			p.t.Errorf("in the log: %s", line)
		}
	}
	if p.t.Failed() {
		all := p.log.String()
		p.t.Logf("the end of the server's log:\n%s", all[max(0, len(all)-4000):])
	}
}

// expected lists warnings that tests cause.
var expected = map[string]bool{"open requests were ended": true, "ending at once": true}

// within returns a context that ends after patience.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// words returns n words, for long prompts.
func words(what string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s %d. ", what, i)
	}
	return b.String()
}
